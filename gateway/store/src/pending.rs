//! What waits to be written.

use std::collections::{BTreeMap, HashMap};

use underpass_work::count;

use crate::log::Put;

/// Bundles in the order in which they were put, any of which may be withdrawn.
#[derive(Debug, Default)]
pub struct Pending {
    queue: BTreeMap<u64, Put>,
    places: HashMap<u64, u64>,
    next_place: u64,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Pending {
            queue,
            places,
            next_place: _,
        } = self;
        tell("pending puts", queue.len());
        tell("places of pending puts", places.len());
    }

    pub fn push(&mut self, put: Put) {
        let place = self.next_place;
        self.next_place += 1;
        self.put_back(place, put);
    }

    /// Forgets a bundle, if it waits.
    pub fn withdraw(&mut self, id: u64) {
        count();
        if let Some(place) = self.places.remove(&id) {
            self.queue.remove(&place);
        }
    }

    /// Takes bundles from the front until there are so many bytes, each with
    /// its place.
    pub fn take(&mut self, most_bytes: u64) -> Vec<(u64, Put)> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < most_bytes
            && let Some((place, put)) = self.queue.pop_first()
        {
            count();
            bytes += put.bytes();
            self.places.remove(&put.id);
            taken.push((place, put));
        }
        taken
    }

    /// Puts a bundle back to its place.
    pub fn put_back(&mut self, place: u64, put: Put) {
        self.places.insert(put.id, place);
        self.queue.insert(place, put);
    }
}
