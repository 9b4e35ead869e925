//! The payloads of bundles between a terminal and its hub.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The ipn service of both; 1 to 127 are for private use.
pub const SERVICE: u64 = 86;

/// The largest question, bytes: a request has some 400.
pub const MAX_QUESTION_BYTES: usize = 16 << 10;

/// The largest answer, bytes: a list of 50,000 revoked certificates, twice.
pub const MAX_ANSWER_BYTES: usize = 8 << 20;

/// The most characters of a reason.
pub const MAX_REASON_CHARS: usize = 500;

/// The version of the format.
const VERSION: u64 = 1;

/// What a terminal asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// SHA-256 of the revocation list that it has, hexadecimal; absent if it has
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocations: Option<String>,
    /// Its request for the next certificate (PKCS #10, PEM), once that is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// What a hub answers; each member is absent where there is nothing to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The certificate that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
    /// Another revocation list than the terminal has, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocations: Option<String>,
    /// Why there will be no certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A node's certificate with what it is judged by, PEM each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The node's.
    pub certificate: String,
    /// The authority's.
    pub authority: String,
    /// The authority's revocation list.
    pub revocations: String,
}

/// Why a payload is none of these messages.
#[derive(Debug, Error)]
pub enum MessageError {
    /// It is too large.
    #[error("a message of {0} bytes is more than {1}")]
    Large(usize, usize),
    /// It is not the JSON that it should be.
    #[error("malformed message: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Another version.
    #[error("a message of version {0}, not {VERSION}")]
    Version(u64),
}

/// Read before the rest, so that a later version is told from nonsense.
#[derive(Deserialize)]
struct Head {
    version: u64,
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    version: u64,
    #[serde(flatten)]
    content: &'a T,
}

fn encode<T: Serialize>(content: &T, most: usize) -> Result<Vec<u8>, MessageError> {
    let outgoing = Outgoing {
        version: VERSION,
        content,
    };
    let bytes = serde_json::to_vec(&outgoing)?;
    bounded(bytes.len(), most)?;
    Ok(bytes)
}

fn decode<'a, T: Deserialize<'a>>(payload: &'a [u8], most: usize) -> Result<T, MessageError> {
    bounded(payload.len(), most)?;
    let head: Head = serde_json::from_slice(payload)?;
    if head.version != VERSION {
        return Err(MessageError::Version(head.version));
    }
    Ok(serde_json::from_slice(payload)?)
}

fn bounded(bytes: usize, most: usize) -> Result<(), MessageError> {
    match bytes <= most {
        true => Ok(()),
        false => Err(MessageError::Large(bytes, most)),
    }
}

impl Question {
    /// Its bytes: JSON in UTF-8.
    ///
    /// # Errors
    /// When it is too large.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        encode(self, MAX_QUESTION_BYTES)
    }

    /// Reads a payload. Unknown members are ignored.
    ///
    /// # Errors
    /// When it is none.
    pub fn decode(payload: &[u8]) -> Result<Question, MessageError> {
        decode(payload, MAX_QUESTION_BYTES)
    }
}

impl Answer {
    /// That there will be no certificate, and why.
    pub fn refusal(reason: &str) -> Answer {
        Answer {
            refused: Some(reason.chars().take(MAX_REASON_CHARS).collect()),
            ..Answer::default()
        }
    }

    /// Its bytes: JSON in UTF-8.
    ///
    /// # Errors
    /// When it is too large.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        encode(self, MAX_ANSWER_BYTES)
    }

    /// Reads a payload. Unknown members are ignored.
    ///
    /// # Errors
    /// When it is none.
    pub fn decode(payload: &[u8]) -> Result<Answer, MessageError> {
        decode(payload, MAX_ANSWER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Both sides parse these vectors, also those of other versions.
    const VECTOR: &str = include_str!("../../../docs/vectors/control/provision.json");

    #[test]
    fn messages_are_what_the_vector_shows() {
        let vector: Value = serde_json::from_str(VECTOR).unwrap();
        for shown in vector["questions"].as_array().unwrap() {
            let read = Question::decode(shown.to_string().as_bytes()).unwrap();
            let written: Value = serde_json::from_slice(&read.encode().unwrap()).unwrap();
            assert_eq!(written, *shown);
        }
        for shown in vector["answers"].as_array().unwrap() {
            let read = Answer::decode(shown.to_string().as_bytes()).unwrap();
            let written: Value = serde_json::from_slice(&read.encode().unwrap()).unwrap();
            assert_eq!(written, *shown);
        }
        for refused in vector["refused"].as_array().unwrap() {
            let text = refused.to_string();
            assert!(Question::decode(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_too_large_is_not_even_parsed() {
        let large = vec![b'['; MAX_QUESTION_BYTES + 1];
        let refused = Question::decode(&large).unwrap_err();
        assert!(matches!(refused, MessageError::Large(..)), "{refused}");
        let request = Some("x".repeat(MAX_QUESTION_BYTES));
        let question = Question {
            request,
            ..Question::default()
        };
        assert!(matches!(question.encode(), Err(MessageError::Large(..))));
        let told = Answer::refusal(&"ä".repeat(10_000)).refused.unwrap();
        assert_eq!(told.chars().count(), MAX_REASON_CHARS);
    }

    proptest! {
        #[test]
        fn no_payload_makes_the_reader_fail_otherwise(payload: Vec<u8>) {
            let _ = Question::decode(&payload);
            let _ = Answer::decode(&payload);
        }
    }
}
