//! Sets of numbers, and a bounded memory of them by name.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use rangemap::RangeInclusiveSet;
use serde::{Deserialize, Serialize};
use underpass_handover::{HandoverError, Moment, ensure};

/// Numbers, in as few ranges as there can be.
pub(crate) type Numbers = RangeInclusiveSet<u64>;

/// Takes the lowest range: its first and last number.
pub(crate) fn pop_first(numbers: &mut Numbers) -> Option<(u64, u64)> {
    let range = numbers.first()?.clone();
    numbers.remove(range.clone());
    Some(range.into_inner())
}

/// Remembers which numbers were seen under which name, bounded by age and by
/// the count of ranges; what was not touched for longest is forgotten first.
#[derive(Debug)]
pub(crate) struct Memory<K> {
    entries: HashMap<K, Entry>,
    order: BTreeMap<u64, K>,
    next_stamp: u64,
    ranges: usize,
    max_ranges: usize,
    age: Duration,
}

/// What is remembered of a name, to be handed over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EntryState {
    touched: Moment,
    ranges: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Entry {
    seen: Numbers,
    stamp: u64,
    touched: Instant,
}

/// An entry's place in the order of age is renewed no oftener than this.
const TOUCH_EVERY: Duration = Duration::from_secs(1);

impl<K: Clone + Eq + Hash> Memory<K> {
    pub fn new(max_ranges: usize, age: Duration) -> Self {
        Memory {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            next_stamp: 0,
            ranges: 0,
            max_ranges: max_ranges.max(1),
            age,
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Memory {
            entries,
            order,
            next_stamp: _,
            ranges,
            max_ranges: _,
            age: _,
        } = self;
        tell("remembered names", entries.len());
        tell("remembered names by age", order.len());
        tell("remembered ranges", *ranges);
    }

    pub fn contains(&self, name: &K, number: u64) -> bool {
        self.entries
            .get(name)
            .is_some_and(|entry| entry.seen.contains(&number))
    }

    pub fn insert(&mut self, now: Instant, name: K, number: u64) {
        self.forget_old(now);
        let stamp = self.next_stamp;
        let order = &mut self.order;
        let entry = self.entries.entry(name.clone()).or_insert_with(|| Entry {
            seen: Numbers::new(),
            stamp,
            touched: now,
        });
        if entry.stamp == stamp || now.duration_since(entry.touched) >= TOUCH_EVERY {
            order.remove(&entry.stamp);
            order.insert(stamp, name.clone());
            entry.stamp = stamp;
            entry.touched = now;
            self.next_stamp += 1;
        }
        let before = entry.seen.len();
        entry.seen.insert(number..=number);
        self.ranges = self.ranges + entry.seen.len() - before;
        self.shrink(&name);
    }

    /// All, those first that were not touched for longest; `state` describes a
    /// name.
    pub fn hand_over<S>(self, now: Instant, state: impl Fn(&K) -> S) -> Vec<(S, EntryState)> {
        let Memory {
            mut entries, order, ..
        } = self;
        let in_order = order.into_values().filter_map(|name| {
            let entry = entries.remove(&name)?;
            let ranges = entry.seen.iter();
            let entry = EntryState {
                touched: Moment::of(entry.touched, now),
                ranges: ranges.map(|range| range.clone().into_inner()).collect(),
            };
            Some((state(&name), entry))
        });
        in_order.collect()
    }

    /// Adds what was handed over of a name, which was touched later than those
    /// before it.
    pub fn take_over(
        &mut self,
        now: Instant,
        name: K,
        state: EntryState,
    ) -> Result<(), HandoverError> {
        let forward = state.ranges.iter().all(|(first, last)| first <= last);
        let ranges = state.ranges.into_iter();
        ensure(
            forward && !self.entries.contains_key(&name),
            "what is remembered contradicts itself",
        )?;
        let entry = Entry {
            seen: ranges.map(|(first, last)| first..=last).collect(),
            stamp: self.next_stamp,
            touched: state.touched.instant(now).min(now),
        };
        self.ranges += entry.seen.len();
        self.order.insert(self.next_stamp, name.clone());
        self.next_stamp += 1;
        self.entries.insert(name.clone(), entry);
        self.shrink(&name);
        Ok(())
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some((&stamp, name)) = self.order.first_key_value() {
            let old = |entry: &Entry| now.duration_since(entry.touched) > self.age;
            if !self.entries.get(name).is_some_and(old) {
                break;
            }
            self.forget(stamp);
        }
    }

    fn forget(&mut self, stamp: u64) {
        if let Some(name) = self.order.remove(&stamp)
            && let Some(entry) = self.entries.remove(&name)
        {
            self.ranges -= entry.seen.len();
        }
    }

    /// Gets back under the bound: oldest names first, then the lowest numbers
    /// of the one in use.
    fn shrink(&mut self, in_use: &K) {
        while self.ranges > self.max_ranges {
            match self.order.first_key_value() {
                Some((&stamp, name)) if name != in_use => self.forget(stamp),
                _ => {
                    if let Some(entry) = self.entries.get_mut(in_use) {
                        pop_first(&mut entry.seen);
                    }
                    self.ranges -= 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_all_has_no_successor() {
        let mut numbers = Numbers::new();
        for number in [u64::MAX, u64::MAX - 1, u64::MAX] {
            numbers.insert(number..=number);
        }
        assert_eq!(pop_first(&mut numbers), Some((u64::MAX - 1, u64::MAX)));
        assert_eq!(pop_first(&mut numbers), None);
    }

    #[test]
    fn the_memory_keeps_to_its_bound_and_forgets_the_oldest() {
        let now = Instant::now();
        let mut memory = Memory::new(10, Duration::from_secs(60));
        for name in 0..100u32 {
            memory.insert(now, name, 5);
        }
        assert!(memory.ranges <= 10);
        assert!(!memory.contains(&0, 5));
        assert!(memory.contains(&99, 5));
        for number in 0..100 {
            memory.insert(now, 7, number * 2);
        }
        assert!(memory.ranges <= 10 && memory.contains(&7, 198));
    }

    #[test]
    fn what_is_older_than_the_age_is_forgotten() {
        let now = Instant::now();
        let mut memory = Memory::new(10, Duration::from_secs(60));
        memory.insert(now, 1u32, 5);
        memory.insert(now + Duration::from_secs(61), 2, 5);
        assert!(!memory.contains(&1, 5));
    }
}
