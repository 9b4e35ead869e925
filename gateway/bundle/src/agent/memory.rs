//! Sets of numbers, and a bounded memory of them by name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use rangemap::RangeInclusiveSet;
use serde::{Deserialize, Serialize};
use underpass_handover::{HandoverError, Moment, ensure};

use super::config::NeighbourId;

/// Numbers, in as few ranges as there can be.
pub(crate) type Numbers = RangeInclusiveSet<u64>;

/// Takes the lowest range: its first and last number.
pub(crate) fn pop_first(numbers: &mut Numbers) -> Option<(u64, u64)> {
    let range = numbers.first()?.clone();
    numbers.remove(range.clone());
    Some(range.into_inner())
}

/// Remembers which numbers were seen under which name, bounded by age and by the number of ranges.
/// At the bound the neighbour with the most ranges loses its least recently used entries. So a
/// neighbour that floods pushes out nothing of others that have no more than their shares.
#[derive(Debug)]
pub(crate) struct Memory<K> {
    entries: HashMap<K, Entry>,
    order: BTreeMap<u64, K>,
    owners: HashMap<NeighbourId, Owned>,
    by_ranges: BTreeSet<(usize, NeighbourId)>,
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
    /// The neighbour's number; 0 if an earlier version of the program has not stored it.
    #[serde(default)]
    owner: u64,
}

#[derive(Debug)]
struct Entry {
    seen: Numbers,
    stamp: u64,
    touched: Instant,
    /// The neighbour that the name came from first.
    owner: NeighbourId,
}

/// What is remembered of a neighbour.
#[derive(Debug, Default)]
struct Owned {
    stamps: BTreeSet<u64>,
    ranges: usize,
}

/// An entry's place in the order of age is renewed at most this often.
const TOUCH_EVERY: Duration = Duration::from_secs(1);

impl<K: Clone + Eq + Hash> Memory<K> {
    pub fn new(max_ranges: usize, age: Duration) -> Self {
        Memory {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            owners: HashMap::new(),
            by_ranges: BTreeSet::new(),
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
            owners,
            by_ranges,
            next_stamp: _,
            ranges,
            max_ranges: _,
            age: _,
        } = self;
        tell("remembered names", entries.len());
        // Each is in the order of its neighbour, too.
        tell("remembered names by age", 2 * order.len());
        tell(
            "neighbours with remembered names",
            owners.len() + by_ranges.len(),
        );
        tell("remembered ranges", *ranges);
    }

    pub fn contains(&self, name: &K, number: u64) -> bool {
        self.entries
            .get(name)
            .is_some_and(|entry| entry.seen.contains(&number))
    }

    /// Notes a number that a neighbour has sent under a name.
    pub fn insert(&mut self, now: Instant, from: NeighbourId, name: K, number: u64) {
        self.forget_old(now);
        let stamp = self.next_stamp;
        let entry = self.entries.entry(name.clone()).or_insert_with(|| Entry {
            seen: Numbers::new(),
            stamp,
            touched: now,
            owner: from,
        });
        let (last, before) = (entry.stamp, entry.seen.len());
        let touches = last == stamp || now.duration_since(entry.touched) >= TOUCH_EVERY;
        if touches {
            entry.stamp = stamp;
            entry.touched = now;
        }
        entry.seen.insert(number..=number);
        let (owner, after) = (entry.owner, entry.seen.len());
        if touches {
            self.order.remove(&last);
            self.order.insert(stamp, name);
            self.next_stamp += 1;
        }
        if touches || after != before {
            self.count(owner, |owned| {
                if touches {
                    owned.stamps.remove(&last);
                    owned.stamps.insert(stamp);
                }
                owned.ranges = owned.ranges + after - before;
            });
            self.shrink();
        }
    }

    fn count(&mut self, owner: NeighbourId, change: impl FnOnce(&mut Owned)) {
        let owned = self.owners.entry(owner).or_default();
        let before = owned.ranges;
        change(owned);
        let (after, is_over) = (owned.ranges, owned.stamps.is_empty());
        self.ranges = self.ranges + after - before;
        self.by_ranges.remove(&(before, owner));
        if is_over {
            self.owners.remove(&owner);
        } else {
            self.by_ranges.insert((after, owner));
        }
    }

    /// All entries, the least recently used first; `state` describes a name.
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
                owner: entry.owner.0,
            };
            Some((state(&name), entry))
        });
        in_order.collect()
    }

    /// Adds what was handed over for a name, which was used more recently than those before it.
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
        let (stamp, owner) = (self.next_stamp, NeighbourId(state.owner));
        let entry = Entry {
            seen: ranges.map(|(first, last)| first..=last).collect(),
            stamp,
            touched: state.touched.instant(now).min(now),
            owner,
        };
        let ranges = entry.seen.len();
        self.order.insert(stamp, name.clone());
        self.next_stamp += 1;
        self.entries.insert(name, entry);
        self.count(owner, |owned| {
            owned.stamps.insert(stamp);
            owned.ranges += ranges;
        });
        self.shrink();
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
            self.count(entry.owner, |owned| {
                owned.stamps.remove(&stamp);
                owned.ranges -= entry.seen.len();
            });
        }
    }

    /// Gets back under the bound: the neighbour with the most ranges loses the lowest numbers of
    /// its oldest name.
    fn shrink(&mut self) {
        while self.ranges > self.max_ranges {
            let most = self.by_ranges.last().map(|(_, owner)| *owner);
            let owned = most.and_then(|owner| self.owners.get(&owner));
            let Some(stamp) = owned.and_then(|owned| owned.stamps.first().copied()) else {
                break;
            };
            let name = self.order.get(&stamp);
            let entry = name.and_then(|name| self.entries.get_mut(name));
            match entry.filter(|entry| entry.seen.len() > 1) {
                Some(entry) => {
                    let owner = entry.owner;
                    pop_first(&mut entry.seen);
                    self.count(owner, |owned| owned.ranges -= 1);
                }
                None => self.forget(stamp),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NeighbourId = NeighbourId(1);
    const OTHER: NeighbourId = NeighbourId(2);

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
            memory.insert(now, ONE, name, 5);
        }
        assert!(memory.ranges <= 10);
        assert!(!memory.contains(&0, 5));
        assert!(memory.contains(&99, 5));
        for number in 0..100 {
            memory.insert(now, ONE, 7, number * 2);
        }
        assert!(memory.ranges <= 10 && memory.contains(&7, 198));
    }

    #[test]
    fn one_that_floods_pushes_out_nothing_of_another() {
        let now = Instant::now();
        let mut memory = Memory::new(100, Duration::from_secs(60));
        for number in 0..40 {
            memory.insert(now, ONE, 0u32, number * 2);
        }
        for name in 1..1_000 {
            memory.insert(now, OTHER, name, 5);
        }
        for number in 0..1_000 {
            memory.insert(now, OTHER, 1_000, number * 2);
        }
        assert_eq!(memory.ranges, 100);
        assert!((0..40).all(|number| memory.contains(&0, number * 2)));
        // It has the remaining room, which holds its newest names.
        assert!((940..1_000).all(|number| memory.contains(&1_000, number * 2)));
        assert!(!memory.contains(&1_000, 2 * 939));
    }

    #[test]
    fn whoever_has_it_is_known_to_the_next_program() {
        let now = Instant::now();
        let mut memory = Memory::new(100, Duration::from_secs(60));
        memory.insert(now, ONE, 1u32, 5);
        memory.insert(now, OTHER, 2u32, 5);
        let mut next = Memory::new(100, Duration::from_secs(60));
        for (name, entry) in memory.hand_over(now, |name| *name) {
            next.take_over(now, name, entry).unwrap();
        }
        assert!(next.contains(&1, 5) && next.contains(&2, 5));
        assert_eq!(next.owners.len(), 2);
    }

    #[test]
    fn what_is_older_than_the_age_is_forgotten() {
        let now = Instant::now();
        let mut memory = Memory::new(10, Duration::from_secs(60));
        memory.insert(now, ONE, 1u32, 5);
        memory.insert(now + Duration::from_secs(61), ONE, 2, 5);
        assert!(!memory.contains(&1, 5));
    }
}
