//! Memory for incoming blocks: a part that each span has for itself, and beyond that a part that
//! all spans share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that spans have in common, beyond what each has for itself.
#[derive(Debug)]
pub struct CommonMemory {
    most: usize,
    used: AtomicUsize,
}

impl CommonMemory {
    /// A pool of `most` bytes.
    pub fn new(most: usize) -> Arc<CommonMemory> {
        Arc::new(CommonMemory {
            most,
            used: AtomicUsize::new(0),
        })
    }

    /// What spans use of it at present, bytes.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        let count = &self.used;
        let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The memory of one span. Dropping this returns what it has of the common part.
#[derive(Debug)]
pub(crate) struct Memory {
    used: usize,
    /// `used` is no more than this.
    most: usize,
    /// Bytes above this come from `common`.
    own: usize,
    common: Option<Arc<CommonMemory>>,
}

impl Memory {
    /// At most `most` bytes; those beyond `own` come from the common part.
    pub(crate) fn new(most: usize, common: Option<(usize, Arc<CommonMemory>)>) -> Memory {
        let (own, common) = common.unzip();
        Memory {
            used: 0,
            most,
            own: own.unwrap_or(most),
            common,
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Takes `bytes` more; false if there is no room for them.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let sum = self.used.saturating_add(bytes);
        let beyond = sum.saturating_sub(self.own) - self.beyond();
        let common = self.common.as_ref();
        let fits =
            sum <= self.most && (beyond == 0 || common.is_none_or(|common| common.take(beyond)));
        if fits {
            self.used = sum;
        }
        fits
    }

    /// Gives so many bytes back.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let before = self.beyond();
        self.used -= bytes;
        let less = before - self.beyond();
        if let Some(common) = &self.common {
            common.give_back(less);
        }
    }

    /// Bytes that were taken from `common`.
    fn beyond(&self) -> usize {
        self.used.saturating_sub(self.own)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let used = self.used;
        self.shrink(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_without_a_common_part_has_its_most() {
        let mut memory = Memory::new(100, None);
        assert!(memory.grow(60) && !memory.grow(41) && memory.grow(40));
        memory.shrink(30);
        assert_eq!(memory.used(), 70);
        assert!(memory.grow(30));
    }

    #[test]
    fn what_is_beyond_the_own_part_is_shared_and_comes_back() {
        let common = CommonMemory::new(100);
        let memory = || Memory::new(90, Some((10, common.clone())));
        let (mut first, mut second) = (memory(), memory());
        assert!(first.grow(90) && !first.grow(1), "it has a bound, too");
        assert_eq!(common.used_bytes(), 80);
        assert!(second.grow(30) && !second.grow(1));
        assert!(memory().grow(10), "nobody takes another's own part");
        first.shrink(85);
        assert_eq!(common.used_bytes(), 20);
        assert!(second.grow(60));
        drop(second);
        assert_eq!(common.used_bytes(), 0);
    }
}
