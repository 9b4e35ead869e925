//! Names of requests.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Names a request: 128 random bits, so that knowing it is the right to ask
/// about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(pub [u8; 16]);

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a request's id is 32 hexadecimal digits")]
pub struct BadId;

impl Id {
    /// A new one from the system's generator.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn random() -> Result<Id, getrandom::Error> {
        let mut octets = [0; 16];
        getrandom::fill(&mut octets)?;
        Ok(Id(octets))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Id {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Id, BadId> {
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(BadId);
        }
        u128::from_str_radix(text, 16)
            .map(|number| Id(number.to_be_bytes()))
            .map_err(|_| BadId)
    }
}

impl TryFrom<String> for Id {
    type Error = BadId;

    fn try_from(text: String) -> Result<Id, BadId> {
        text.parse()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_nothing_else_does() {
        let id = Id::random().unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "12", "+123456789abcdef0123456789abcdef0", "zz"] {
            assert_eq!(text.parse::<Id>(), Err(BadId), "{text}");
        }
    }
}
