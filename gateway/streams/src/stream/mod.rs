//! The state of one stream.

mod assembler;
mod handover;
mod pieces;
mod state;

pub(crate) use assembler::Assembler;
pub(crate) use handover::{StreamState, sum};
pub(crate) use pieces::{Origin, Pieces};
pub(crate) use state::{
    Beginning, InUse, Life, Queued, Receiving, SendSide, Sending, Stream, Withheld,
};
