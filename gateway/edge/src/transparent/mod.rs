//! Transparent interception: connections that the kernel diverts (TPROXY).
//!
//! The rules live in one nftables table that an `nft` process owns for this
//! node (`flags owner`): when the node dies, however it dies, the process
//! reads the end of its input, ends, and the kernel removes the table, so
//! that traffic is routed as without the node. `fail = "closed"` adds a
//! second table that stays.

mod interception;
mod nft;
mod routing;
mod ruleset;
mod server;

pub use interception::{Interception, InterceptionError, PlainBytes};
pub use ruleset::Beyond;
pub(crate) use server::serve;
