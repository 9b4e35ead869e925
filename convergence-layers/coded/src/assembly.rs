//! A bundle of which symbols have come.

use rangemap::RangeSet;

use crate::Violation;
use crate::symbol::Body;

/// Most gaps in a bundle: losses leave a few hundred.
const MOST_RANGES: usize = 4096;

/// Bytes of a bundle, in any order.
#[derive(Debug)]
pub(crate) struct Assembly {
    length: u32,
    bytes: Vec<u8>,
    have: RangeSet<u32>,
    /// How many checks have passed since something has come.
    pub(crate) age: u8,
}

/// The state of a bundle after another symbol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    Incomplete,
    Whole,
    /// It has come in too many pieces.
    Shredded,
}

impl Assembly {
    /// A bundle of `length` bytes, for which there is room.
    pub(crate) fn new(length: u32) -> Assembly {
        Assembly {
            length,
            // Memory pages that are never written cost nothing.
            bytes: vec![0; length as usize],
            have: RangeSet::new(),
            age: 0,
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length.into()
    }

    /// Adds the bytes of a body, which lie within a bundle of its length.
    pub(crate) fn add(&mut self, body: &Body<'_>) -> Result<State, Violation> {
        if body.length != self.length {
            return Err(Violation::Contradiction);
        }
        let begin = body.offset as usize;
        let end = begin + body.bytes.len();
        self.bytes[begin..end].copy_from_slice(body.bytes);
        let end = u32::try_from(end).unwrap_or(self.length);
        self.have.insert(body.offset..end);
        self.age = 0;
        if self.have.gaps(&(0..self.length)).next().is_none() {
            return Ok(State::Whole);
        }
        if self.have.len() > MOST_RANGES {
            return Ok(State::Shredded);
        }
        Ok(State::Incomplete)
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
