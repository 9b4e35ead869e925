//! The edge on loopback: real sockets on both sides, single-box streams in
//! between.

mod connect;
mod half_close;
mod socks;
mod world;
