//! Payloads that are too long for memory, as files.
//!
//! [`Payloads`] is a folder with its limits. A [`Writer`] is a payload that comes in
//! order, piece by piece; an [`Assembly`] one whose parts come in any order; a [`Spool`]
//! holds bytes whose total length is not known yet. A [`PayloadFile`] is a complete
//! payload: a handle that is passed on instead of the bytes.

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
