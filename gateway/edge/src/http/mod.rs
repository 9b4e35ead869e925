//! The HTTP listener: CONNECT and forward proxy on one port.
//!
//! hyper speaks HTTP/1.1 on both legs and frames every message anew, so what
//! is passed on has one length whatever came in. This folder decides what is
//! passed on.

mod authority;
mod client_io;
mod conduit_io;
mod connect;
pub mod deferred;
mod expectation;
mod fields;
mod forward;
mod interim;
mod reply;
mod server;
mod tunnel;
mod upstream;

pub use fields::fuzz;
pub(crate) use server::serve;
