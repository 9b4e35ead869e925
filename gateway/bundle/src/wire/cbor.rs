//! A small CBOR reader over borrowed bytes.
//!
//! It never allocates and never trusts a length: an item is taken only if its
//! bytes are there. It reads the structures of the formats one by one and has
//! no recursion, so nesting costs nothing: an array where none is due is an
//! error at its first byte. Heads that are not in shortest form are tolerated on receipt,
//! since CRCs are verified over the bytes as they came; what this crate
//! writes is always shortest form (RFC 9171 §4.1, RFC 8949 §4.2).

use thiserror::Error;

/// What is wrong with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CborError {
    #[error("the CBOR item is cut short")]
    Truncated,
    #[error("a CBOR item of another type was expected")]
    UnexpectedType,
    /// A reserved additional-information value or a misplaced break.
    #[error("malformed CBOR head")]
    Malformed,
    #[error("a CBOR array has the wrong number of elements")]
    WrongCount,
    #[error("bytes follow the last CBOR item")]
    Trailing,
}

/// The major type of an unsigned integer (RFC 8949 §3.1).
pub const UNSIGNED: u8 = 0;
pub(crate) const NEGATIVE: u8 = 1;
/// The major type of a byte string.
pub const BYTES: u8 = 2;
/// The major type of a text string.
pub const TEXT: u8 = 3;
/// The major type of an array.
pub const ARRAY: u8 = 4;
pub(crate) const MAP: u8 = 5;
const BREAK: u8 = 0xFF;

/// The head of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The major type.
    pub major: u8,
    /// The argument; `None` for indefinite length.
    pub argument: Option<u64>,
}

/// A cursor over encoded items.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A cursor before the first item.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next byte, unread.
    pub fn peek(&self) -> Result<u8, CborError> {
        self.bytes.get(self.at).copied().ok_or(CborError::Truncated)
    }

    /// The major type of the next item, unread.
    pub fn peek_major(&self) -> Result<u8, CborError> {
        Ok(self.peek()? >> 5)
    }

    /// Errors unless all bytes are read.
    pub fn end(&self) -> Result<(), CborError> {
        match self.at == self.bytes.len() {
            true => Ok(()),
            false => Err(CborError::Trailing),
        }
    }

    /// This many bytes, as they are.
    pub fn take(&mut self, count: u64) -> Result<&'a [u8], CborError> {
        let left = self.bytes.len() - self.at;
        let count = usize::try_from(count).map_err(|_| CborError::Truncated)?;
        if count > left {
            return Err(CborError::Truncated);
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    /// An item's head.
    pub fn head(&mut self) -> Result<Head, CborError> {
        let first = self.take(1)?[0];
        let argument = match first & 0x1F {
            small @ 0..=23 => Some(u64::from(small)),
            info @ 24..=27 => {
                let bytes = self.take(1 << (info - 24))?;
                Some(
                    bytes
                        .iter()
                        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
                )
            }
            31 if matches!(first >> 5, BYTES..=MAP) => None,
            _ => return Err(CborError::Malformed),
        };
        Ok(Head {
            major: first >> 5,
            argument,
        })
    }

    fn definite(&mut self, major: u8) -> Result<u64, CborError> {
        let head = self.head()?;
        match head.argument {
            Some(argument) if head.major == major => Ok(argument),
            _ => Err(CborError::UnexpectedType),
        }
    }

    /// An unsigned integer.
    pub fn unsigned(&mut self) -> Result<u64, CborError> {
        self.definite(UNSIGNED)
    }

    /// An integer of either sign.
    pub fn integer(&mut self) -> Result<i128, CborError> {
        let head = self.head()?;
        match (head.major, head.argument) {
            (UNSIGNED, Some(value)) => Ok(i128::from(value)),
            (NEGATIVE, Some(value)) => Ok(-1 - i128::from(value)),
            _ => Err(CborError::UnexpectedType),
        }
    }

    /// A truth value.
    pub fn boolean(&mut self) -> Result<bool, CborError> {
        match self.take(1)?[0] {
            0xF4 => Ok(false),
            0xF5 => Ok(true),
            _ => Err(CborError::UnexpectedType),
        }
    }

    /// A definite-length byte string, as RFC 9171 asks for block data.
    pub fn byte_string(&mut self) -> Result<&'a [u8], CborError> {
        let length = self.definite(BYTES)?;
        self.take(length)
    }

    /// The length of a definite-length byte string whose bytes follow elsewhere.
    pub fn byte_string_head(&mut self) -> Result<u64, CborError> {
        self.definite(BYTES)
    }

    /// A definite-length text string.
    pub fn text(&mut self) -> Result<&'a str, CborError> {
        let length = self.definite(TEXT)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| CborError::Malformed)
    }

    /// The end of an array of which `taken` elements are read.
    pub fn array_end(&mut self, length: Option<u64>, taken: u64) -> Result<(), CborError> {
        match (length, self.more(length, taken)?) {
            (Some(length), _) if length != taken => Err(CborError::WrongCount),
            (_, true) => Err(CborError::WrongCount),
            _ => Ok(()),
        }
    }

    /// The head of an array: its length, or `None` if a break ends it.
    pub fn array(&mut self) -> Result<Option<u64>, CborError> {
        let head = self.head()?;
        match head.major {
            ARRAY => Ok(head.argument),
            _ => Err(CborError::UnexpectedType),
        }
    }

    /// The head of a map: its number of pairs, or `None` if a break ends it.
    pub fn map(&mut self) -> Result<Option<u64>, CborError> {
        let head = self.head()?;
        match head.major {
            MAP => Ok(head.argument),
            _ => Err(CborError::UnexpectedType),
        }
    }

    /// Whether another element follows in an array or map of which `taken`
    /// are read; reads the break of an indefinite one.
    pub fn more(&mut self, length: Option<u64>, taken: u64) -> Result<bool, CborError> {
        match length {
            Some(length) => Ok(taken < length),
            None if self.peek()? == BREAK => {
                self.at += 1;
                Ok(false)
            }
            None => Ok(true),
        }
    }
}

/// Writes an item's head in shortest form.
pub fn write_head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let major = major << 5;
    match argument {
        0..=23 => out.push(major | argument as u8),
        24..=0xFF => out.extend([major | 24, argument as u8]),
        0x100..=0xFFFF => {
            out.push(major | 25);
            out.extend((argument as u16).to_be_bytes());
        }
        0x1_0000..=0xFFFF_FFFF => {
            out.push(major | 26);
            out.extend((argument as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend(argument.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_announce_more_than_is_there_cost_nothing() {
        let string = [0x5B, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
        assert_eq!(
            Reader::new(&string).byte_string(),
            Err(CborError::Truncated)
        );
    }

    #[test]
    fn heads_are_written_in_shortest_form_and_read_back() {
        for value in [
            0,
            23,
            24,
            255,
            256,
            65535,
            65536,
            u64::from(u32::MAX),
            u64::MAX,
        ] {
            let mut out = Vec::new();
            write_head(&mut out, UNSIGNED, value);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.unsigned(), Ok(value));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn a_longer_head_than_needed_is_read() {
        assert_eq!(Reader::new(&[0x19, 0x00, 0x05]).unsigned(), Ok(5));
    }
}
