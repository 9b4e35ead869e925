//! The Licklider Transmission Protocol (RFC 5326), without I/O and clock.
//!
//! From the bytes upwards: [`sdnv`] and [`segment`] hold the wire's form; `block` and `store` a
//! block's bytes on their way out and in; `sending` and `receiving` the two sides of one session;
//! [`Span`] all blocks in transfer between two engines, with timers and bounds. The README says
//! what is left out, and why this crate exists.

mod block;
mod cancelling;
mod config;
mod figures;
mod link_clock;
mod memory;
mod receiving;
pub mod sdnv;
pub mod segment;
mod sending;
mod span;
mod store;

pub use block::Piece;
pub use config::{BUNDLE_PROTOCOL, Config, LEAST_SEGMENT_BYTES, Limits};
pub use figures::{Figures, Refused};
pub use memory::CommonMemory;
pub use segment::{Reason, SessionId};
pub use span::{Event, SendError, Span};
