//! A block to be sent, in the pieces that it came in.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

/// Bytes that are supplied at once of a piece that is elsewhere.
pub(crate) const WINDOW_BYTES: u64 = 256 << 10;

/// A piece of a block to be sent.
#[derive(Clone, Debug)]
pub enum Piece {
    /// These bytes.
    Here(Bytes),
    /// This many bytes, which the client supplies when they are to be sent.
    Elsewhere(u64),
}

#[derive(Debug)]
enum Part {
    Here(Bytes),
    Elsewhere {
        bytes: u64,
        /// The supplied parts of it, by where they begin in the block.
        windows: BTreeMap<u64, Bytes>,
    },
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Part::Here(bytes) => bytes.len() as u64,
            Part::Elsewhere { bytes, .. } => *bytes,
        }
    }
}

/// A block in pieces, of which any range is copied into segments.
#[derive(Debug)]
pub(crate) struct Block {
    parts: Vec<Part>,
    /// Where each piece begins.
    starts: Vec<u64>,
    bytes: u64,
}

impl Block {
    pub(crate) fn new(pieces: Vec<Piece>) -> Block {
        let parts = pieces.into_iter().map(|piece| match piece {
            Piece::Here(bytes) => Part::Here(bytes),
            Piece::Elsewhere(bytes) => Part::Elsewhere {
                bytes,
                windows: BTreeMap::new(),
            },
        });
        let parts: Vec<Part> = parts.collect();
        let mut bytes = 0;
        let starts = parts
            .iter()
            .map(|part| {
                let start = bytes;
                bytes += part.len();
                start
            })
            .collect();
        Block {
            parts,
            starts,
            bytes,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// The pieces that may contain bytes from there on, with their beginnings.
    fn parts_from(&self, start: u64) -> impl Iterator<Item = (u64, &Part)> {
        let first = self.starts.partition_point(|begin| *begin <= start);
        let parts = self.starts.iter().copied().zip(&self.parts);
        parts.skip(first.saturating_sub(1))
    }

    /// The range that must be supplied before this one can be copied, if any.
    pub(crate) fn lacks(&self, range: &Range<u64>) -> Option<Range<u64>> {
        if range.is_empty() {
            return None;
        }
        for (begin, part) in self.parts_from(range.start) {
            if begin >= range.end {
                return None;
            }
            let Part::Elsewhere { bytes, windows } = part else {
                continue;
            };
            let end = begin + bytes;
            let mut at = window_of(begin, range.start.max(begin));
            while at < range.end.min(end) {
                if !windows.contains_key(&at) {
                    return Some(at..end.min(at + WINDOW_BYTES));
                }
                at += WINDOW_BYTES;
            }
        }
        None
    }

    /// Takes bytes that [`Block::lacks`] has requested.
    pub(crate) fn supply(&mut self, start: u64, supplied: Bytes) {
        if let Some(windows) = self.windows_at(start) {
            windows.insert(start, supplied);
        }
    }

    /// Lets bytes go that were supplied.
    pub(crate) fn forget(&mut self, start: u64) {
        if let Some(windows) = self.windows_at(start) {
            windows.remove(&start);
        }
    }

    /// Frees all of its bytes: nothing of it is sent any more.
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.starts.clear();
    }

    fn windows_at(&mut self, start: u64) -> Option<&mut BTreeMap<u64, Bytes>> {
        let after = self.starts.partition_point(|begin| *begin <= start);
        match self.parts.get_mut(after.checked_sub(1)?)? {
            Part::Here(_) => None,
            Part::Elsewhere { windows, .. } => Some(windows),
        }
    }

    /// Appends the bytes of a range that is within the block and lacks nothing.
    pub(crate) fn copy(&self, start: u64, end: u64, out: &mut Vec<u8>) {
        let mut at = start;
        for (begin, part) in self.parts_from(start) {
            let until = end.min(begin + part.len());
            match part {
                Part::Here(bytes) if at < until => {
                    out.extend_from_slice(&bytes[(at - begin) as usize..(until - begin) as usize]);
                    at = until;
                }
                Part::Here(_) => {}
                Part::Elsewhere { windows, .. } => {
                    while at < until {
                        let window = window_of(begin, at);
                        debug_assert!(windows.contains_key(&window), "{at} was not supplied");
                        let Some(bytes) = windows.get(&window) else {
                            return;
                        };
                        let stop = until.min(window + WINDOW_BYTES);
                        let within = (at - window) as usize..(stop - window) as usize;
                        out.extend_from_slice(&bytes[within]);
                        at = stop;
                    }
                }
            }
            if at >= end {
                break;
            }
        }
    }
}

/// The beginning of the window that contains a place, in a piece that begins at `begin`.
fn window_of(begin: u64, at: u64) -> u64 {
    begin + (at - begin) / WINDOW_BYTES * WINDOW_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_range_is_copied(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
            ends: (prop::sample::Index, prop::sample::Index),
        ) {
            let whole = chunks.concat();
            let pieces = chunks.into_iter().map(|chunk| Piece::Here(chunk.into()));
            let block = Block::new(pieces.collect());
            let ends = [ends.0.index(whole.len() + 1), ends.1.index(whole.len() + 1)];
            let (start, end) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
            let mut out = Vec::new();
            prop_assert_eq!(block.lacks(&(start as u64..end as u64)), None);
            block.copy(start as u64, end as u64, &mut out);
            prop_assert_eq!(out, &whole[start..end]);
        }
    }

    #[test]
    fn what_is_elsewhere_is_asked_for_in_windows_and_copied_once_it_is_here() {
        let whole: Vec<u8> = (0..2 * WINDOW_BYTES + 120)
            .map(|i| (i % 251) as u8)
            .collect();
        let last = whole.len() as u64 - 20;
        let mut block = Block::new(vec![
            Piece::Here(whole[..10].to_vec().into()),
            Piece::Elsewhere(last - 10),
            Piece::Here(whole[last as usize..].to_vec().into()),
        ]);
        assert_eq!(block.len(), whole.len() as u64);
        assert_eq!(block.lacks(&(0..10)), None);
        assert_eq!(block.lacks(&(last..last + 20)), None);
        let all = 0..block.len();
        let mut asked = Vec::new();
        while let Some(window) = block.lacks(&all) {
            let bytes = &whole[window.start as usize..window.end as usize];
            block.supply(window.start, Bytes::copy_from_slice(bytes));
            asked.push(window);
        }
        let second = 10 + WINDOW_BYTES;
        let third = second + WINDOW_BYTES;
        assert_eq!(asked, [10..second, second..third, third..last]);
        for (start, end) in [
            (0, block.len()),
            (5, 15),
            (second - 1, third + 1),
            (third, last + 1),
        ] {
            let mut out = Vec::new();
            block.copy(start, end, &mut out);
            assert!(
                out == whole[start as usize..end as usize],
                "{start} to {end}"
            );
        }
        block.forget(second);
        assert_eq!(block.lacks(&all), Some(second..third));
        assert_eq!(block.lacks(&(10..second)), None);
        assert_eq!(block.lacks(&(third - 1..third)), Some(second..third));
    }
}
