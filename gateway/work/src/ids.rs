//! Maps and sets by ids that are given consecutively.
//!
//! Most ids of a long queue are near each other. So 64 ids share a page, which has
//! a bit for each; a map's values of a page lie in one allocation without gaps. A
//! long queue then takes less than a byte for an id, and a map little more than its
//! values, where a hash map takes up to twice that, and a tree of single ids some
//! twenty bytes for each.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::marker::PhantomData;

/// Ids in a page.
const PAGE: u64 = u64::BITS as u64;
/// A page's allocation shrinks when only this part (1/n) of it is used.
const SHRINK_PART: usize = 4;

/// A map by ids, in their order.
pub struct IdMap<K, V> {
    pages: BTreeMap<u64, Page<V>>,
    len: usize,
    ids: PhantomData<K>,
}

/// The values of those ids of a page that are present, in order.
struct Page<V> {
    present: u64,
    values: Vec<V>,
}

impl<V> Page<V> {
    /// Where the value of an id is, or would be.
    fn rank(&self, bit: u32) -> usize {
        let before = self.present & ((1 << bit) - 1);
        before.count_ones() as usize
    }

    fn has(&self, bit: u32) -> bool {
        self.present >> bit & 1 == 1
    }
}

/// The bits that are set, from the lowest on.
fn bits(mut present: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = (present != 0).then(|| present.trailing_zeros())?;
        present &= present - 1;
        Some(u64::from(bit))
    })
}

fn place(id: u64) -> (u64, u32) {
    (id / PAGE, (id % PAGE) as u32)
}

impl<K, V> Default for IdMap<K, V> {
    fn default() -> Self {
        IdMap {
            pages: BTreeMap::new(),
            len: 0,
            ids: PhantomData,
        }
    }
}

impl<K: Copy + From<u64> + Into<u64>, V> IdMap<K, V> {
    /// The number of ids.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is an id.
    pub fn contains_key(&self, id: K) -> bool {
        let (page, bit) = place(id.into());
        self.pages.get(&page).is_some_and(|page| page.has(bit))
    }

    /// The value of an id.
    pub fn get(&self, id: K) -> Option<&V> {
        let (page, bit) = place(id.into());
        let page = self.pages.get(&page).filter(|page| page.has(bit))?;
        page.values.get(page.rank(bit))
    }

    /// The value of an id, to be changed.
    pub fn get_mut(&mut self, id: K) -> Option<&mut V> {
        let (page, bit) = place(id.into());
        let page = self.pages.get_mut(&page).filter(|page| page.has(bit))?;
        let rank = page.rank(bit);
        page.values.get_mut(rank)
    }

    /// Gives an id a value; the one it had before.
    pub fn insert(&mut self, id: K, value: V) -> Option<V> {
        let (page, bit) = place(id.into());
        let page = self.pages.entry(page).or_insert(Page {
            present: 0,
            values: Vec::new(),
        });
        let rank = page.rank(bit);
        if page.has(bit) {
            return Some(std::mem::replace(&mut page.values[rank], value));
        }
        page.present |= 1 << bit;
        page.values.insert(rank, value);
        self.len += 1;
        None
    }

    /// Takes an id out.
    pub fn remove(&mut self, id: K) -> Option<V> {
        let (number, bit) = place(id.into());
        let page = self.pages.get_mut(&number)?;
        if !page.has(bit) {
            return None;
        }
        let value = page.values.remove(page.rank(bit));
        page.present &= !(1 << bit);
        self.len -= 1;
        if page.present == 0 {
            self.pages.remove(&number);
        } else if page.values.len() * SHRINK_PART <= page.values.capacity() {
            page.values.shrink_to_fit();
        }
        Some(value)
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.pages.iter().flat_map(|(number, page)| {
            let first = number * PAGE;
            let ids = bits(page.present).map(move |bit| K::from(first + bit));
            ids.zip(&page.values)
        })
    }

    /// The ids, in order.
    pub fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.iter().map(|(id, _)| id)
    }

    /// The values, in the order of their ids.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.pages.values().flat_map(|page| &page.values)
    }
}

impl<K: From<u64>, V> IntoIterator for IdMap<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> IntoIter<K, V> {
        IntoIter {
            pages: self.pages.into_iter(),
            page: (0, 0, Vec::new().into_iter()),
            ids: PhantomData,
        }
    }
}

/// The ids and values of a map, in order.
pub struct IntoIter<K, V> {
    pages: btree_map::IntoIter<u64, Page<V>>,
    /// The first id of a page, what is left of it, and its values.
    page: (u64, u64, std::vec::IntoIter<V>),
    ids: PhantomData<K>,
}

impl<K: From<u64>, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        while self.page.1 == 0 {
            let (number, page) = self.pages.next()?;
            self.page = (number * PAGE, page.present, page.values.into_iter());
        }
        let (first, present, values) = &mut self.page;
        let id = *first + u64::from(present.trailing_zeros());
        *present &= *present - 1;
        Some((K::from(id), values.next()?))
    }
}

impl<K: Copy + From<u64> + Into<u64> + fmt::Debug, V: fmt::Debug> fmt::Debug for IdMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// A set of ids, in their order.
pub struct IdSet<K> {
    /// The ids of a page that are present.
    pages: BTreeMap<u64, u64>,
    len: usize,
    ids: PhantomData<K>,
}

impl<K> Default for IdSet<K> {
    fn default() -> Self {
        IdSet {
            pages: BTreeMap::new(),
            len: 0,
            ids: PhantomData,
        }
    }
}

impl<K: Copy + From<u64> + Into<u64>> IdSet<K> {
    /// The number of ids.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an id; whether it is new.
    pub fn insert(&mut self, id: K) -> bool {
        let (page, bit) = place(id.into());
        let present = self.pages.entry(page).or_default();
        let new = *present >> bit & 1 == 0;
        *present |= 1 << bit;
        self.len += usize::from(new);
        new
    }

    /// Takes an id out; whether it was there.
    pub fn remove(&mut self, id: K) -> bool {
        let (page, bit) = place(id.into());
        let Some(present) = self.pages.get_mut(&page) else {
            return false;
        };
        let known = *present >> bit & 1 == 1;
        *present &= !(1 << bit);
        if *present == 0 {
            self.pages.remove(&page);
        }
        self.len -= usize::from(known);
        known
    }

    /// The lowest id.
    pub fn first(&self) -> Option<K> {
        let (page, present) = self.pages.first_key_value()?;
        Some(K::from(page * PAGE + u64::from(present.trailing_zeros())))
    }

    /// The ids, in order.
    pub fn iter(&self) -> impl Iterator<Item = K> + '_ {
        self.iter_from(K::from(0))
    }

    /// The ids from `first` on, in order.
    pub fn iter_from(&self, first: K) -> impl Iterator<Item = K> + '_ {
        let (first, bit) = place(first.into());
        self.pages.range(first..).flat_map(move |(page, present)| {
            let mask = if *page == first { !0 << bit } else { !0 };
            let start = page * PAGE;
            bits(present & mask).map(move |bit| K::from(start + bit))
        })
    }
}

impl<K: Copy + From<u64> + Into<u64> + fmt::Debug> fmt::Debug for IdSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Ids close to each other, around the ends of pages, and at both ends of the range.
    fn id() -> impl Strategy<Value = u64> {
        prop_oneof![0..70u64, 1_000..1_200u64, u64::MAX - 65..=u64::MAX]
    }

    proptest! {
        #[test]
        fn a_map_is_as_a_tree_of_single_ids(
            steps in prop::collection::vec((any::<bool>(), id(), any::<u16>()), 1..400),
        ) {
            let mut map: IdMap<u64, u16> = IdMap::default();
            let mut model: BTreeMap<u64, u16> = BTreeMap::new();
            for (add, id, value) in steps {
                match add {
                    true => prop_assert_eq!(map.insert(id, value), model.insert(id, value)),
                    false => prop_assert_eq!(map.remove(id), model.remove(&id)),
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.get(id), model.get(&id));
                prop_assert_eq!(map.contains_key(id), model.contains_key(&id));
            }
            let lowest = map.keys().next();
            if let Some(id) = lowest {
                *map.get_mut(id).unwrap() ^= 1;
                *model.get_mut(&id).unwrap() ^= 1;
            }
            prop_assert!(map.iter().eq(model.iter().map(|(id, value)| (*id, value))));
            prop_assert!(map.keys().eq(model.keys().copied()));
            prop_assert!(map.values().eq(model.values()));
            prop_assert!(map.into_iter().eq(model));
        }

        #[test]
        fn a_set_is_as_a_tree_of_single_ids(
            steps in prop::collection::vec((any::<bool>(), id()), 1..400),
            first in id(),
        ) {
            let mut set: IdSet<u64> = IdSet::default();
            let mut model: BTreeSet<u64> = BTreeSet::new();
            for (add, id) in steps {
                match add {
                    true => prop_assert_eq!(set.insert(id), model.insert(id)),
                    false => prop_assert_eq!(set.remove(id), model.remove(&id)),
                }
                prop_assert_eq!(set.len(), model.len());
                prop_assert_eq!(set.first(), model.first().copied());
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            prop_assert!(set.iter_from(first).eq(model.range(first..).copied()));
            for id in &model {
                prop_assert!(set.remove(*id));
            }
            prop_assert!(set.is_empty() && set.pages.is_empty());
        }
    }

    #[test]
    fn what_has_gone_takes_no_memory() {
        let mut map: IdMap<u64, u64> = IdMap::default();
        for id in 0..PAGE * 10 {
            map.insert(id, id);
        }
        // One id of each page remains.
        for id in (0..PAGE * 10).filter(|id| id % PAGE != 7) {
            map.remove(id);
        }
        let allocated = map.pages.values().map(|page| page.values.capacity());
        assert!(allocated.max() <= Some(SHRINK_PART));
        for page in 0..10 {
            map.remove(page * PAGE + 7);
        }
        assert!(map.pages.is_empty() && map.is_empty());
    }
}
