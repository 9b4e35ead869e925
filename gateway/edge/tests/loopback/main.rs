//! The edge on loopback: real sockets on both sides, single-box streams in
//! between.

mod connect;
mod direct;
mod endings;
mod expectations;
mod forward;
mod half_close;
mod hostile_heads;
mod inbound;
mod messages;
mod names;
mod restarts;
mod socks;
mod speed;
mod switch;
mod tls_names;
mod world;
