//! Puts the bytes of one direction in order. The first copy of a byte counts.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};

use underpass_handover::HandoverError;

use super::{Origin, Pieces};
use crate::wire::VARINT_MAX;

/// The most runs of bytes beyond a gap that a stream may have: half of what all streams of a peer
/// may have together. A gap is a payload that is still on its way, so an honest peer needs as many
/// as it has payloads under way: thousands, if a client writes single bytes to a hop whose queue is
/// long. Each costs up to some 200 bytes here.
const MAX_RUNS: usize = 32_768;

/// The bytes would leave more gaps than are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyGaps;

/// Bytes in order, with the offset of the first.
pub(super) type Run = (u64, Vec<Bytes>);

/// Bytes received and not yet taken by the application.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// In order, from `taken` on.
    ready: Pieces,
    /// Offset of the first byte of `ready`.
    taken: u64,
    /// Runs beyond a gap, by offset; they neither overlap nor touch.
    runs: BTreeMap<u64, Pieces>,
}

impl Assembler {
    /// End of what is in order.
    pub(crate) fn ready_end(&self) -> u64 {
        self.taken + self.ready.len() as u64
    }

    /// Offset of the next byte the application gets.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Runs beyond a gap.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Drops what lies beyond the first gap, which will never be filled;
    /// returns the end of what is in order.
    pub(crate) fn cut_at_gap(&mut self) -> u64 {
        self.runs.clear();
        self.ready_end()
    }

    pub(crate) fn is_readable(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes bytes in order, at most `limit`.
    pub(crate) fn take(&mut self, limit: usize) -> Option<Bytes> {
        let piece = self.ready.pop(limit)?;
        self.taken += piece.len() as u64;
        Some(piece)
    }

    /// Adds what is new of `data`, which begins at `offset` and is a slice of
    /// `origin`. Returns the count of new bytes.
    pub(crate) fn insert(
        &mut self,
        mut offset: u64,
        mut data: Bytes,
        origin: Origin,
    ) -> Result<u64, TooManyGaps> {
        let mut new = 0;
        loop {
            let run_end = self
                .runs
                .range(..=offset)
                .next_back()
                .map_or(0, |(start, run)| start + run.len() as u64);
            let known = run_end.max(self.ready_end()).saturating_sub(offset);
            if known >= data.len() as u64 {
                return Ok(new);
            }
            data.advance(known as usize);
            offset += known;
            let room = match self.runs.range(offset..).next() {
                Some((&next, _)) => (next - offset).min(data.len() as u64),
                None => data.len() as u64,
            };
            self.place(offset, data.split_to(room as usize), origin)?;
            offset += room;
            new += room;
        }
    }

    /// Offset of the next byte that the application gets, the bytes in order
    /// from there on, and the runs beyond a gap with their offsets.
    pub(super) fn into_parts(self) -> (u64, Vec<Bytes>, Vec<Run>) {
        let runs = self.runs.into_iter();
        let runs = runs.map(|(start, run)| (start, run.into_pieces()));
        (self.taken, self.ready.into_pieces(), runs.collect())
    }

    /// From the parts that [`Assembler::into_parts`] gives. Also returns the end of the last byte.
    pub(super) fn of_parts(
        taken: u64,
        ready: Vec<Bytes>,
        runs: Vec<Run>,
    ) -> Result<(Assembler, u64), HandoverError> {
        const WRONG: HandoverError = HandoverError::Inconsistent("bytes of a stream overlap");
        let mut assembler = Assembler {
            taken,
            ..Assembler::default()
        };
        let mut end = taken;
        for (start, pieces) in [(taken, ready)].into_iter().chain(runs) {
            let mut at = start;
            for piece in pieces {
                let length = piece.len() as u64;
                let next = at.checked_add(length).filter(|next| *next <= VARINT_MAX);
                let next = next.filter(|_| at >= end).ok_or(WRONG)?;
                let new = assembler.insert(at, piece, Origin::default());
                if new != Ok(length) {
                    return Err(WRONG);
                }
                (at, end) = (next, next);
            }
        }
        Ok((assembler, end))
    }

    /// Puts bytes into a gap that they fit into.
    fn place(&mut self, offset: u64, data: Bytes, origin: Origin) -> Result<(), TooManyGaps> {
        let end = offset + data.len() as u64;
        if offset == self.ready_end() {
            self.ready.push(data, origin);
            if let Some(after) = self.runs.remove(&end) {
                self.ready.append(after);
            }
            return Ok(());
        }
        let touches = self
            .runs
            .range(..offset)
            .next_back()
            .filter(|(start, run)| **start + run.len() as u64 == offset)
            .map(|(start, _)| *start);
        let start = touches.unwrap_or(offset);
        let after = self.runs.remove(&end);
        if touches.is_none() && after.is_none() && self.runs.len() >= MAX_RUNS {
            return Err(TooManyGaps);
        }
        let run = self.runs.entry(start).or_default();
        run.push(data, origin);
        if let Some(after) = after {
            run.append(after);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(assembler: &mut Assembler) -> Vec<u8> {
        std::iter::from_fn(|| assembler.take(usize::MAX))
            .flatten()
            .collect()
    }

    #[test]
    fn nothing_beyond_a_gap_is_readable() {
        let mut assembler = Assembler::default();
        assert_eq!(assembler.insert(3, "def".into(), Origin::default()), Ok(3));
        assert!(!assembler.is_readable());
        assert_eq!(assembler.insert(0, "abcd".into(), Origin::default()), Ok(3));
        assert_eq!(all(&mut assembler), b"abcdef");
    }

    #[test]
    fn the_first_copy_of_a_byte_counts() {
        let mut assembler = Assembler::default();
        assembler.insert(1, "b".into(), Origin::default()).unwrap();
        assembler
            .insert(0, "XYZ".into(), Origin::default())
            .unwrap();
        assert_eq!(all(&mut assembler), b"XbZ");
    }

    #[test]
    fn gaps_are_bounded() {
        let mut assembler = Assembler::default();
        for at in 0..MAX_RUNS as u64 {
            assembler
                .insert(1 + 2 * at, "x".into(), Origin::default())
                .unwrap();
        }
        let next = 1 + 2 * MAX_RUNS as u64;
        assert_eq!(
            assembler.insert(next, "x".into(), Origin::default()),
            Err(TooManyGaps)
        );
        assert_eq!(assembler.insert(2, "x".into(), Origin::default()), Ok(1));
        assert_eq!(assembler.insert(next, "x".into(), Origin::default()), Ok(1));
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_and_number_give_the_bytes(
            pieces in prop::collection::vec((0usize..9000, 1usize..6000), 1..60),
            reads in prop::collection::vec(1usize..5000, 0..30),
        ) {
            let source: Bytes = (0..16_000u32).map(|at| (at * 31 / 8) as u8).collect();
            let mut assembler = Assembler::default();
            let mut out = Vec::new();
            let mut reads = reads.into_iter();
            let mut new = 0;
            let origin = Origin { serial: 1, pinned: 16_000 };
            for (offset, length) in pieces.into_iter().chain([(0, 16_000)]) {
                let data = source.slice(offset..(offset + length).min(16_000));
                new += assembler.insert(offset as u64, data, origin).unwrap();
                if let Some(piece) = reads.next().and_then(|limit| assembler.take(limit)) {
                    out.extend_from_slice(&piece);
                }
            }
            out.extend(all(&mut assembler));
            prop_assert_eq!(new, 16_000);
            prop_assert_eq!(Bytes::from(out), source);
        }
    }
}
