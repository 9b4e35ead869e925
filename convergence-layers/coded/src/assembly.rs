//! A bundle of which symbols have come.

use rangemap::RangeSet;

use crate::Violation;
use crate::symbol::{Body, LEAST_BODY_BYTES};

/// Most gaps in a bundle: losses leave a few hundred.
const MOST_RANGES: usize = 4096;
/// A short bundle may have fewer: the ranges take memory beside its room. No sender cuts much
/// shorter symbols than `LEAST_BODY_BYTES`, and if datagrams become smaller, only a few.
const FEW_RANGES: usize = 16;

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
        if self.have.len() > most_ranges(self.length) {
            return Ok(State::Shredded);
        }
        Ok(State::Incomplete)
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The most ranges of a bundle of `length` bytes.
fn most_ranges(length: u32) -> usize {
    (length as usize / LEAST_BODY_BYTES + FEW_RANGES).min(MOST_RANGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many single bytes with gaps between them are taken of a bundle of `length` bytes.
    fn taken(length: u32) -> usize {
        let mut assembly = Assembly::new(length);
        let states = (0..length).step_by(2).map(|offset| {
            let body = Body {
                bundle: 0,
                length,
                offset,
                bytes: b"x",
            };
            assembly.add(&body)
        });
        let incomplete = states.take_while(|state| *state == Ok(State::Incomplete));
        incomplete.count()
    }

    #[test]
    fn the_ranges_of_a_bundle_take_little_memory_beside_its_bytes() {
        assert_eq!(taken(20), 10);
        assert_eq!(taken(9_000), 140 + 16);
        assert_eq!(taken(1 << 20), 4_096);
    }
}
