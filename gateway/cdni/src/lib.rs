//! Sizes of objects from CDNI metadata (RFC 8006), for flows that do not announce their
//! size.
//!
//! A content provider publishes a HostIndex over HTTP. By host and path it leads to
//! GenericMetadata, of which `underpass.ObjectSize` is our own type. [`Metadata`] keeps
//! the documents that were fetched and says which are wanted next, without I/O or clock;
//! [`Client`] fetches them. A question for a size is answered at once from the documents
//! that are there: no flow waits.

mod client;
mod document;
mod metadata;
mod pattern;
mod words;

pub use client::{Client, ClientConfig, ConfigError, check};
pub use document::{DocumentError, MOST_DOCUMENT_BYTES, MOST_OBJECT_BYTES};
pub use metadata::{Figures, Metadata, Read, Reader, Size};
