//! The HTTP listener: CONNECT and forward proxy on one port.
//!
//! hyper speaks HTTP/1.1 on both legs and frames every message again, so each message that is
//! passed on has one unambiguous length. This folder decides what is passed on.

mod authority;
mod client_io;
mod conduit_io;
mod connect;
pub mod deferred;
mod expectation;
mod fields;
mod forward;
mod interim;
mod late_body;
mod refusal;
mod reply;
mod server;
mod tunnel;
mod upstream;

use hyper::header::HeaderName;

pub use fields::fuzz;
pub(crate) use server::serve;

/// A client's own trace (W3C Trace Context). It goes on to the origin as it is,
/// like every field that is not for one hop.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
