//! The payload of a bundle of reports.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::report::Report;

/// The ipn service of reports; 1 to 127 are for private use.
pub const SERVICE: u64 = 82;

/// Reports in one message at most.
pub const MAX_REPORTS: usize = 64;

/// The largest message, bytes.
pub const MAX_MESSAGE_BYTES: usize = 256 << 10;

/// The version of the format.
const VERSION: u64 = 1;

/// Reports of one node, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    version: u64,
    /// The reports.
    pub reports: Vec<Report>,
}

/// Why a payload is no message.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MessageError {
    #[error("a message of {0} bytes is more than {MAX_MESSAGE_BYTES}")]
    Large(usize),
    #[error("malformed reports: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("reports of version {0}, not {VERSION}")]
    Version(u64),
    #[error("{0} reports in a message, more than {MAX_REPORTS}")]
    Many(usize),
}

/// The reports as they came.
#[derive(Deserialize)]
struct Texts<'a> {
    #[serde(borrow)]
    reports: Vec<&'a RawValue>,
}

/// Read before the rest, to distinguish a later version from invalid data.
#[derive(Deserialize)]
struct Head {
    version: u64,
}

impl Message {
    /// A message of reports.
    pub fn new(reports: Vec<Report>) -> Message {
        Message {
            version: VERSION,
            reports,
        }
    }

    /// Its bytes: JSON in UTF-8.
    ///
    /// # Errors
    /// When the reports make more than a message holds.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        if self.reports.len() > MAX_REPORTS {
            return Err(MessageError::Many(self.reports.len()));
        }
        let bytes = serde_json::to_vec(self)?;
        match bytes.len() {
            0..=MAX_MESSAGE_BYTES => Ok(bytes),
            length => Err(MessageError::Large(length)),
        }
    }

    /// Reads a payload. Unknown members are ignored; unknown kinds are errors, since the rest of
    /// such a message might be misunderstood.
    ///
    /// # Errors
    /// When it is none.
    pub fn decode(payload: &[u8]) -> Result<Message, MessageError> {
        if payload.len() > MAX_MESSAGE_BYTES {
            return Err(MessageError::Large(payload.len()));
        }
        let head: Head = serde_json::from_slice(payload)?;
        if head.version != VERSION {
            return Err(MessageError::Version(head.version));
        }
        let message: Message = serde_json::from_slice(payload)?;
        match message.reports.len() {
            0..=MAX_REPORTS => Ok(message),
            count => Err(MessageError::Many(count)),
        }
    }

    /// The reports of a payload that [`Message::decode`] has read, as they
    /// came: with the members that this version does not know.
    ///
    /// # Errors
    /// When it is none.
    pub fn texts(payload: &[u8]) -> Result<Vec<&str>, MessageError> {
        let texts: Texts<'_> = serde_json::from_slice(payload)?;
        Ok(texts.reports.into_iter().map(RawValue::get).collect())
    }
}

#[cfg(test)]
mod tests;
