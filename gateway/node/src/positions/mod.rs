//! This node's position: reads a receiver, and reports positions.
//!
//! The protocols are in the crate `underpass-positions`. Here are the sockets
//! and the serial line ([`source`]), and what is known at present ([`Positions`]).

mod known;
mod serial;
mod source;

pub use known::{FixView, PositionView, Positions, SourceState};
pub use source::follow;

#[cfg(test)]
mod tests;
