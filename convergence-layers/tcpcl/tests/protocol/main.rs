//! The rules of a session, without sockets and in virtual time.

mod describe;
mod ending;
mod keepalive;
mod long;
mod opening;
mod pair;
mod peer;
mod properties;
mod receiving;
mod recorded;
mod resuming;
mod sending;
