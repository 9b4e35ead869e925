//! The plans that a beam's control service makes: they say what a link may send, and when, and link
//! schedulers follow them.
//!
//! [`Plan`] is the document, as `docs/control-protocol.md` specifies it, and [`Message`] how a hub
//! passes a terminal its part. [`Schedule`] holds the plans of one link in the order of their
//! versions, and gives what they allocate at a time of control's clock; [`ControlTime`] is what a
//! node knows of that clock. All are free of I/O and of clocks of their own.

mod clock;
mod document;
mod error;
mod message;
mod plan;
mod schedule;

pub use clock::ControlTime;
pub use document::{CapacityStep, Direction, Line, Segment, State};
pub use error::PlanError;
pub use message::{MAX_MESSAGE_BYTES, Message, SERVICE};
pub use plan::{MAX_DOCUMENT_BYTES, MAX_RATE_BPS, MAX_SEGMENTS, MAX_TERMINALS, Plan};
pub use schedule::{Acknowledgement, Refused, Schedule};
