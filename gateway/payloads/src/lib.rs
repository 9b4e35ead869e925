//! Payloads that are too long for memory, as files.
//!
//! [`Payloads`] is a folder and what may be in it, a [`Writer`] a payload that
//! comes in piece by piece, a [`PayloadFile`] one that is complete: a handle
//! that is passed on instead of the bytes.

mod file;
mod folder;
mod writer;

pub use file::PayloadFile;
pub use folder::{Limits, Payloads, Refused, Room};
pub use writer::{WriteError, Writer};
