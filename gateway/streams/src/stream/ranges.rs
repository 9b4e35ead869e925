//! A set of numbers as ranges.

use std::collections::BTreeMap;

/// Numbers, kept as ranges that neither overlap nor touch: the ids of a
/// thousand closed streams in a row cost as much as one.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Start to end (exclusive).
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    /// How many ranges there are.
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.ranges
            .range(..=number)
            .next_back()
            .is_some_and(|(_, end)| *end > number)
    }

    /// Whether adding `number` makes no further range.
    pub(crate) fn touches(&self, number: u64) -> bool {
        self.contains(number)
            || self.ranges.contains_key(&(number + 1))
            || number
                .checked_sub(1)
                .is_some_and(|before| self.contains(before))
    }

    pub(crate) fn insert(&mut self, number: u64) {
        self.insert_range(number, number + 1);
    }

    /// Adds `start..end`.
    pub(crate) fn insert_range(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        while let Some((&other, &other_end)) = self
            .ranges
            .range(..=end)
            .next_back()
            .filter(|(_, other_end)| **other_end >= start)
        {
            self.ranges.remove(&other);
            start = start.min(other);
            end = end.max(other_end);
        }
        self.ranges.insert(start, end);
    }

    /// Takes the lowest number out.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let (start, end) = self.ranges.pop_first()?;
        if start + 1 < end {
            self.ranges.insert(start + 1, end);
        }
        Some(start)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_are_a_set_in_the_fewest_ranges(numbers in prop::collection::vec((0u64..60, 0u64..5), 0..40)) {
            let mut ranges = Ranges::default();
            let mut set = BTreeSet::new();
            for (start, length) in numbers {
                ranges.insert_range(start, start + length);
                set.extend(start..start + length);
            }
            for number in 0..70 {
                prop_assert_eq!(ranges.contains(number), set.contains(&number));
            }
            let starts = set.iter().filter(|n| **n == 0 || !set.contains(&(**n - 1))).count();
            prop_assert_eq!(ranges.count(), starts);
            let popped: Vec<u64> = std::iter::from_fn(|| ranges.pop()).collect();
            prop_assert_eq!(popped, set.into_iter().collect::<Vec<_>>());
        }
    }
}
