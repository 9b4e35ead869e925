//! The HTTP listener: CONNECT and forward proxy on one port.
//!
//! hyper speaks HTTP/1.1 on both legs; this folder decides what is passed on.

mod authority;
mod connect;
mod reply;
mod server;

pub(crate) use server::serve;
