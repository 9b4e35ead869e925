//! The names of the bundles that this node has custody of.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use underpass_work::FastMap;

use super::event::BundleId;
use super::stored::{StoredBundle, WireName};

/// All stored bundles.
pub(super) type Bundles = FastMap<BundleId, Box<StoredBundle>>;

/// Finds bundles by their names on the wire. Only their ids are in the table,
/// for the names are in the bundles, of which there are thousands in a
/// blockage. The hash is keyed: neighbours choose the names.
#[derive(Debug, Default)]
pub(super) struct Names {
    ids: HashTable<BundleId>,
    hasher: RandomState,
}

impl Names {
    /// The bundle of that name.
    pub fn get(&self, bundles: &Bundles, name: &WireName) -> Option<BundleId> {
        let is_it = |id: &BundleId| name_of(bundles, *id).as_ref() == Some(name);
        self.ids.find(self.hasher.hash_one(name), is_it).copied()
    }

    /// Adds a bundle that is stored, in place of another of its name.
    pub fn insert(&mut self, bundles: &Bundles, id: BundleId) {
        let Some(name) = name_of(bundles, id) else {
            return;
        };
        let Names { ids, hasher } = self;
        let hash = hasher.hash_one(&name);
        let is_it = |id: &BundleId| name_of(bundles, *id).as_ref() == Some(&name);
        match ids.find_mut(hash, is_it) {
            Some(other) => *other = id,
            None => {
                let hash_of = |id: &BundleId| {
                    let name = name_of(bundles, *id);
                    name.map_or(0, |name| hasher.hash_one(&name))
                };
                ids.insert_unique(hash, id, hash_of);
            }
        }
    }

    /// Forgets a bundle.
    pub fn remove(&mut self, name: &WireName, id: BundleId) {
        let hash = self.hasher.hash_one(name);
        if let Ok(entry) = self.ids.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }
}

fn name_of(bundles: &Bundles, id: BundleId) -> Option<WireName> {
    let stored = bundles.get(&id)?;
    Some(WireName::of(&stored.primary, stored.bytes))
}
