//! Where sizes of objects come from, as the local API shows it.

use serde::{Deserialize, Serialize};
use underpass_cdni::Figures;

/// The source of CDNI metadata.
#[derive(Debug, Serialize, Deserialize)]
pub struct CdniView {
    /// Documents that are kept.
    pub documents: u64,
    /// What they take of memory, bytes, about.
    pub bytes: u64,
    /// Requests whose object had a size.
    pub known: u64,
    /// Requests of whose object the metadata say nothing.
    pub untold: u64,
    /// Requests that came before the documents.
    pub awaited: u64,
    /// Documents that were got.
    pub fetched: u64,
    /// Documents that could not be got, or were refused.
    pub failed: u64,
    /// What was wrong with the last one; null since one was got.
    pub error: Option<String>,
}

impl From<Figures> for CdniView {
    fn from(figures: Figures) -> CdniView {
        CdniView {
            documents: figures.documents as u64,
            bytes: figures.bytes as u64,
            known: figures.known,
            untold: figures.untold,
            awaited: figures.awaited,
            fetched: figures.fetched,
            failed: figures.failed,
            error: figures.error,
        }
    }
}
