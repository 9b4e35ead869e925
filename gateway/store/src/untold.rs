//! Releases that are not on the disk yet.

use std::collections::BTreeMap;

/// Released bundles by the segment that has their record: once that segment is gone, the release
/// need not be written.
#[derive(Debug, Default)]
pub struct Untold(BTreeMap<u64, Vec<u64>>);

impl Untold {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Untold(by_target) = self;
        tell("untold releases", by_target.values().map(Vec::len).sum());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, target: u64, id: u64) {
        self.0.entry(target).or_default().push(id);
    }

    /// Forgets releases for a segment that is gone with all of its records.
    pub fn forget(&mut self, target: u64) {
        self.0.remove(&target);
    }

    /// Takes at most `most` of them, each with the segment of its record.
    pub fn take(&mut self, most: usize) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(mut entry) = self.0.first_entry()
        {
            let target = *entry.key();
            let ids = entry.get_mut();
            let rest = ids.len().saturating_sub(most - taken.len());
            taken.extend(ids.drain(rest..).map(|id| (target, id)));
            if ids.is_empty() {
                entry.remove();
            }
        }
        taken
    }

    /// Takes back releases that could not be written.
    pub fn put_back(&mut self, taken: impl IntoIterator<Item = (u64, u64)>) {
        for (target, id) in taken {
            self.add(target, id);
        }
    }
}
