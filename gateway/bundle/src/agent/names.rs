//! The names of the bundles that this node has custody of.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use underpass_work::IdMap;

use super::event::BundleId;
use super::stored::{StoredBundle, WireName};

pub(super) type Bundles = IdMap<BundleId, Box<StoredBundle>>;

/// Finds bundles by their names on the wire. The table has only their ids, since the names are in
/// the bundles, of which there may be a million. The hash is keyed, since neighbours choose the
/// names.
#[derive(Debug, Default)]
pub(super) struct Names {
    ids: HashTable<Named>,
    hasher: RandomState,
}

/// A bundle's id and half of its name's hash, so that a growing table decodes no names. It has
/// three parts, since a whole id would leave a gap.
#[derive(Clone, Copy, Debug)]
struct Named {
    id: [u32; 2],
    hash: u32,
}

impl Named {
    fn new(id: BundleId, hash: u32) -> Named {
        let id = [(id.0 >> 32) as u32, id.0 as u32];
        Named { id, hash }
    }

    fn id(&self) -> BundleId {
        let [high, low] = self.id.map(u64::from);
        BundleId(high << 32 | low)
    }
}

/// The table looks at both ends of a hash (Fibonacci hashing).
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Names {
    fn hash(&self, name: &WireName) -> u32 {
        self.hasher.hash_one(name) as u32
    }

    /// The bundle of that name.
    pub fn get(&self, bundles: &Bundles, name: &WireName) -> Option<BundleId> {
        let hash = self.hash(name);
        let found = self.ids.find(spread(hash), is_of(bundles, name, hash));
        found.map(Named::id)
    }

    /// Adds a bundle that is stored under this name, in place of another.
    pub fn insert(&mut self, bundles: &Bundles, name: &WireName, id: BundleId) {
        let hash = self.hash(name);
        let named = Named::new(id, hash);
        match self.ids.find_mut(spread(hash), is_of(bundles, name, hash)) {
            Some(other) => *other = named,
            None => {
                let hash_of = |named: &Named| spread(named.hash);
                self.ids.insert_unique(spread(hash), named, hash_of);
            }
        }
    }

    /// Forgets a bundle.
    pub fn remove(&mut self, name: &WireName, id: BundleId) {
        let hash = spread(self.hash(name));
        if let Ok(entry) = self.ids.find_entry(hash, |named| named.id() == id) {
            entry.remove();
        }
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }
}

/// Whether an entry is that of the bundle of a name, which has this hash.
fn is_of(bundles: &Bundles, name: &WireName, hash: u32) -> impl Fn(&Named) -> bool {
    move |named| {
        named.hash == hash
            && bundles
                .get(named.id())
                .is_some_and(|stored| WireName::of(&stored.primary(), stored.bytes) == *name)
    }
}
