//! Payloads that are too long for memory, as files.
//!
//! [`Payloads`] is a folder and what may be in it, a [`Writer`] a payload that
//! comes in piece by piece, an [`Assembly`] one whose parts come in any order, a
//! [`Spool`] bytes of which nobody has said how many they are, a [`PayloadFile`] one that
//! is complete: a handle that is passed on instead of the bytes.

mod assembly;
mod file;
mod folder;
mod ranges;
mod spool;
mod writer;

pub use assembly::{Assembly, Outcomes, Part, Placed};
pub use file::PayloadFile;
pub use folder::{Limits, Payloads, Refused, Room};
pub use spool::Spool;
pub use writer::{WriteError, Writer};
