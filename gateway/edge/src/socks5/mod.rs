//! SOCKS5 (RFC 1928) with CONNECT, and its user/password method (RFC 1929).

mod server;
mod wire;

pub(crate) use server::serve;
pub use wire::{Handshake, Output, SocksError, fuzz, reply};
