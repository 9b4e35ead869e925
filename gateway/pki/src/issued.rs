//! The record of every certificate that an authority issued.

use std::path::Path;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::error::PkiError;
use crate::files::{self, Readers};
use crate::serial::Serial;

const NAME: &str = "issued.toml";

/// One certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub node: u64,
    pub serial: Serial,
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
}

/// A renewed node has several certificates, and a revocation must find each:
/// so the record is written before the certificate is.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    #[serde(default)]
    certificate: Vec<Entry>,
}

impl Record {
    pub fn load(dir: &Path) -> Result<Self, PkiError> {
        let path = dir.join(NAME);
        let Some(text) = files::read(&path)? else {
            return Ok(Record::default());
        };
        toml::from_str(&text).map_err(|error| PkiError::Malformed {
            path,
            reason: error.to_string(),
        })
    }

    pub fn store(&self, dir: &Path) -> Result<(), PkiError> {
        let text = toml::to_string(self).map_err(|error| PkiError::Malformed {
            path: dir.join(NAME),
            reason: error.to_string(),
        })?;
        files::write(dir, NAME, &text, Readers::Owner)
    }

    pub fn add(&mut self, entry: Entry) {
        self.certificate.push(entry);
    }

    /// The certificates of `node`, the oldest first.
    pub fn of(&self, node: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        self.certificate
            .iter()
            .filter(move |entry| entry.node == node)
    }
}
