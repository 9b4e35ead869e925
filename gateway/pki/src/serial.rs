//! Serial numbers of certificates.

use std::fmt;

use rustls::crypto::ring::default_provider;
use serde::{Deserialize, Serialize};

use crate::error::PkiError;

const BYTES: usize = 16;

/// A certificate's serial number: a positive integer, big-endian, without
/// leading zeros.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Serial(Vec<u8>);

impl Serial {
    /// A random number of 127 bits, more than RFC 5280 and browsers ask for.
    pub(crate) fn random() -> Result<Self, PkiError> {
        let mut bytes = [0; BYTES];
        default_provider()
            .secure_random
            .fill(&mut bytes)
            .map_err(|_| PkiError::Random)?;
        // Positive without a padding byte, and never shorter.
        bytes[0] = (bytes[0] & 0x7f) | 0x40;
        Ok(Serial(bytes.to_vec()))
    }

    /// The number in `bytes`, big-endian, with or without leading zeros.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Serial(bytes[zeros..].to_vec())
    }

    /// Its bytes, big-endian, without leading zeros.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<Serial> for String {
    fn from(serial: Serial) -> String {
        serial.to_string()
    }
}

impl TryFrom<String> for Serial {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "a serial number is written as pairs of hexadecimal digits";
        if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(WRONG);
        }
        let pairs = (0..text.len()).step_by(2);
        let bytes: Result<Vec<u8>, _> = pairs
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16))
            .collect();
        bytes
            .map(|bytes| Serial::from_bytes(&bytes))
            .map_err(|_| WRONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_leads_back_to_the_number() {
        let serial = Serial::random().unwrap();
        assert_eq!(Serial::try_from(serial.to_string()), Ok(serial));
        for wrong in ["1", "0g", "é", "+1"] {
            assert!(Serial::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn leading_zeros_are_no_part_of_the_number() {
        assert_eq!(
            Serial::from_bytes(&[0, 0, 0x81]),
            Serial::from_bytes(&[0x81])
        );
    }
}
