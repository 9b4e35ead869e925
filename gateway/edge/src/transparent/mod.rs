//! Transparent interception: connections that the kernel diverts (TPROXY).
//!
//! The rules live in one nftables table that an `nft` process owns for this node (`flags owner`):
//! when the node dies, for whatever reason, the process reads the end of its input and ends. The
//! kernel then removes the table, so that traffic is routed as without the node. `fail = "closed"`
//! adds a second table that stays.

mod interception;
mod nft;
mod routing;
mod ruleset;
mod server;

pub use interception::{Interception, InterceptionError, PlainBytes};
pub use ruleset::Beyond;
pub(crate) use server::serve;
