//! Sizes of objects from CDNI metadata (RFC 8006), for flows that do not say
//! theirs.
//!
//! A content provider publishes a HostIndex over HTTP; by host and path it leads
//! to GenericMetadata, of which `underpass.ObjectSize` is ours. [`Metadata`]
//! keeps the documents that were read and says what is wanted next, without I/O
//! and clock; [`Client`] gets it. Whoever asks for a size has the answer of what
//! is there at once: no flow waits.

mod client;
mod document;
mod metadata;
mod pattern;

pub use client::{Client, ClientConfig, ConfigError, check};
pub use document::{DocumentError, MOST_DOCUMENT_BYTES, MOST_OBJECT_BYTES};
pub use metadata::{Figures, Metadata, Read, Reader, Size};
