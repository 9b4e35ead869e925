//! Which bytes of a payload have come.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of bytes that neither overlap nor touch each other.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// The end of each range, by its beginning.
    ends: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ranges {
    /// The number of ranges.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Bytes in all of them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The ranges that overlap `range` or touch it.
    fn near(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        // Of those that begin before it, only the last one can reach it.
        let before = self.ends.range(..range.start).next_back();
        let before = before.filter(|(_, end)| **end >= range.start);
        let first = before.map_or(range.start, |(start, _)| *start);
        let near = self.ends.range(first..=range.end);
        near.map(|(start, end)| *start..*end).collect()
    }

    /// Whether any overlaps a range or touches it.
    pub fn touches(&self, range: &Range<u64>) -> bool {
        !self.near(range).is_empty()
    }

    /// The parts of `range` that are there.
    pub fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let near = self.near(range).into_iter();
        near.map(|one| one.start.max(range.start)..one.end.min(range.end))
            .filter(|both| both.start < both.end)
            .collect()
    }

    /// The parts of `range` that are missing.
    pub fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start;
        for known in self.within(range) {
            if at < known.start {
                missing.push(at..known.start);
            }
            at = known.end;
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut all = range.clone();
        for near in self.near(&range) {
            self.ends.remove(&near.start);
            self.bytes -= near.end - near.start;
            all = all.start.min(near.start)..all.end.max(near.end);
        }
        self.bytes += all.end - all.start;
        self.ends.insert(all.start, all.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_what_a_table_of_all_bytes_says() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut ranges, mut table) = (Ranges::default(), [false; 64]);
            for _ in 0..40 {
                let start = random.u64(0..60);
                let range = start..start + random.u64(1..5);
                let of = |range: &Range<u64>| range.start as usize..range.end as usize;
                let is_there = |table: &[bool; 64], all: &[Range<u64>], there: bool| {
                    let mut told = [false; 64];
                    for one in all {
                        told[of(one)].fill(true);
                    }
                    of(&range).all(|at| told[at] == (table[at] == there))
                };
                assert!(is_there(&table, &ranges.within(&range), true));
                assert!(is_there(&table, &ranges.missing(&range), false));
                table[of(&range)].fill(true);
                ranges.insert(range);
                let count = table.iter().filter(|there| **there).count();
                assert_eq!(ranges.bytes(), count as u64);
                let begins = |at: &usize| table[*at] && (*at == 0 || !table[*at - 1]);
                assert_eq!(ranges.count(), (0..64).filter(begins).count());
            }
        }
    }
}
