//! The bytes of a block that is coming in.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Memory follows the received bytes, whatever their offsets: a page is allocated for bytes that
/// lie within it.
const PAGE: usize = 4_096;

/// The overhead of a page, or of a piece that is handed to the client.
pub(crate) const PIECE_COST_BYTES: usize = 64;

/// A page and what the tree needs for it.
pub(crate) const PAGE_COST_BYTES: usize = PAGE + PIECE_COST_BYTES;

/// A block's bytes, by their offsets.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

impl Store {
    /// Memory in use, bytes.
    pub(crate) fn cost_bytes(&self) -> usize {
        self.pages.len() * PAGE_COST_BYTES
    }

    /// Further memory that these bytes would need, bytes.
    pub(crate) fn extra_bytes(&self, offset: u64, length: usize) -> usize {
        if length == 0 {
            return 0;
        }
        let (first, last) = (
            offset / PAGE as u64,
            (offset + length as u64 - 1) / PAGE as u64,
        );
        let there = self.pages.range(first..=last).count();
        ((last - first) as usize + 1 - there) * PAGE_COST_BYTES
    }

    /// Puts bytes in their place.
    pub(crate) fn put(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = (offset % PAGE as u64) as usize;
            let count = bytes.len().min(PAGE - at);
            let page = self.pages.entry(offset / PAGE as u64);
            let page = page.or_insert_with(|| Box::new([0; PAGE]));
            page[at..at + count].copy_from_slice(&bytes[..count]);
            offset += count as u64;
            bytes = &bytes[count..];
        }
    }

    /// Whether any of these bytes is in memory as another one.
    pub(crate) fn differs(&self, mut offset: u64, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let at = (offset % PAGE as u64) as usize;
            let count = bytes.len().min(PAGE - at);
            let page = self.pages.get(&(offset / PAGE as u64));
            if page.is_some_and(|page| page[at..at + count] != bytes[..count]) {
                return true;
            }
            offset += count as u64;
            bytes = &bytes[count..];
        }
        false
    }

    /// Takes out the first `length` bytes, all of which must be there; their memory is free again.
    pub(crate) fn take(&mut self, length: u64) -> Vec<u8> {
        let mut whole = Vec::with_capacity(length as usize);
        for page in std::mem::take(&mut self.pages).into_values() {
            let left = (length as usize) - whole.len();
            whole.extend_from_slice(&page[..left.min(PAGE)]);
        }
        whole
    }

    /// All pages with their offsets; the caller owns their memory from now on. Bytes that have not
    /// come are zero.
    pub(crate) fn take_pages(&mut self) -> impl Iterator<Item = (u64, Bytes)> + use<> {
        let pages = std::mem::take(&mut self.pages).into_iter();
        pages.map(|(number, page)| {
            let page: Box<[u8]> = page;
            (number * PAGE as u64, Bytes::from(page))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_in_order_and_memory_follows_them() {
        let whole: Vec<u8> = (0..20_000u32).map(|i| (i * 7 / 3) as u8).collect();
        let mut store = Store::default();
        let mut parts: Vec<(usize, &[u8])> = Vec::new();
        for (index, part) in whole.chunks(1_371).enumerate() {
            parts.push((index * 1_371, part));
        }
        fastrand::Rng::with_seed(1).shuffle(&mut parts);
        for (offset, part) in parts {
            let before = store.cost_bytes();
            let extra = store.extra_bytes(offset as u64, part.len());
            store.put(offset as u64, part);
            assert_eq!(store.cost_bytes(), before + extra);
        }
        assert_eq!(store.cost_bytes(), 5 * PAGE_COST_BYTES);
        assert_eq!(store.take(20_000), whole);
        assert_eq!(store.cost_bytes(), 0);
    }

    #[test]
    fn other_bytes_differ_across_pages_and_those_that_are_not_there_do_not() {
        let mut store = Store::default();
        let at = PAGE as u64 - 2;
        store.put(at, &[1, 2, 3, 4]);
        assert!(!store.differs(at, &[1, 2, 3, 4]));
        assert!(store.differs(at, &[1, 2, 3, 5]));
        assert!(store.differs(at + 1, &[1]));
        assert!(!store.differs(10 * PAGE as u64, &[9]));
    }

    #[test]
    fn pages_are_handed_on_with_their_offsets() {
        let mut store = Store::default();
        store.put(3, &[1; 10]);
        store.put(3 * PAGE as u64 - 1, &[2; 2]);
        let pages: Vec<(u64, Bytes)> = store.take_pages().collect();
        let offsets: Vec<u64> = pages.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, [0, 2 * PAGE as u64, 3 * PAGE as u64]);
        assert_eq!(pages[0].1[2..14], [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!((pages[1].1[PAGE - 1], pages[2].1[0]), (2, 2));
        assert_eq!(store.cost_bytes(), 0);
    }

    #[test]
    fn an_offset_takes_no_memory_for_what_is_below_it() {
        let mut store = Store::default();
        store.put(u64::MAX - 10, &[1; 10]);
        assert!(store.cost_bytes() <= 2 * PAGE_COST_BYTES);
    }
}
