//! Which of a node's agents has which neighbours, and what its agents share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::config::{Config, NeighbourId};
use super::event::BundleId;
use super::quota::Quota;
use super::routes::Routes;

/// An agent's place among the agents of its node, each of which has a part of
/// the neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    /// Which one it is, from 0.
    pub own: usize,
    /// How many there are, at least 1.
    pub count: usize,
}

impl Sharding {
    /// An agent that has all neighbours.
    pub const ALONE: Sharding = Sharding { own: 0, count: 1 };

    /// Each of `count` agents in turn.
    pub fn all(count: usize) -> impl Iterator<Item = Sharding> {
        (0..count).map(move |own| Sharding { own, count })
    }

    /// The agent that has a neighbour. Node numbers are often consecutive or
    /// multiples of each other, so they are mixed first (Steele, Lea and Flood
    /// 2014, `SplitMix64`).
    pub fn shard_of(self, neighbour: NeighbourId) -> usize {
        let mut z = neighbour.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % self.count as u64) as usize
    }

    /// The agent by whose neighbours bundles go to a node: the next hop's, or
    /// without a route the one that has the node itself as a neighbour, if any
    /// has.
    pub fn shard_to(self, routes: &Routes, node: u64) -> usize {
        let routed = routes.to(node).map(|(via, _)| via);
        self.shard_of(routed.unwrap_or(NeighbourId(node)))
    }

    pub(super) fn has(self, neighbour: NeighbourId) -> bool {
        self.shard_of(neighbour) == self.own
    }
}

/// What the agents of one node share.
#[derive(Clone, Debug)]
pub struct Common {
    pub(super) quota: Arc<Quota>,
    next_id: Arc<AtomicU64>,
    /// What each agent's store can take, bytes.
    storable: Arc<[AtomicU64]>,
}

impl Common {
    /// For so many agents with this configuration.
    pub fn new(config: &Config, count: usize) -> Common {
        Common {
            quota: Arc::new(Quota::new(config.division(), config.neighbours())),
            next_id: Arc::default(),
            storable: (0..count).map(|_| u64::MAX.into()).collect(),
        }
    }

    /// What all of them have stored together.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Gives no id below this one from now on.
    pub(super) fn begin_ids_at(&self, first: BundleId) {
        self.next_id.fetch_max(first.0, Ordering::Relaxed);
    }

    pub(super) fn storable(&self, shard: usize) -> u64 {
        self.storable[shard].load(Ordering::Relaxed)
    }

    pub(super) fn set_storable(&self, shard: usize, bytes: u64) {
        self.storable[shard].store(bytes, Ordering::Relaxed);
    }

    /// The next id that is given.
    pub(super) fn first_free_id(&self) -> BundleId {
        BundleId(self.next_id.load(Ordering::Relaxed))
    }

    pub(super) fn new_id(&self) -> BundleId {
        BundleId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_spread_evenly() {
        for step in [1, 8, 1 << 32] {
            let sharding = Sharding { own: 0, count: 8 };
            let mut counts = [0; 8];
            for number in 0..8_000 {
                counts[sharding.shard_of(NeighbourId(1 + number * step))] += 1;
            }
            let even = |count: &u32| (850..1_150).contains(count);
            assert!(counts.iter().all(even), "{step}: {counts:?}");
        }
    }

    #[test]
    fn one_agent_alone_has_all_neighbours() {
        assert!((0..1_000).all(|number| Sharding::ALONE.has(NeighbourId(number))));
    }
}
