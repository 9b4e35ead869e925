//! Each peer's share of the requests that are known at once.

use std::collections::{BTreeMap, HashMap};

use super::job::JobKey;

/// Requests that each peer may always have, whatever the others have.
const GUARANTEED: usize = 16;
/// Requests of a peer that were cancelled before they came, and that are
/// remembered: their parts may still come.
const MOST_EARLY: usize = 64;

#[derive(Debug, Default)]
struct Share {
    jobs: usize,
    /// Cancelled before they came, in the order of their numbers.
    early: BTreeMap<u64, JobKey>,
}

/// The peers' shares. Beyond what is guaranteed there is a pool, of which a
/// peer may take no more than it leaves free (the dynamic threshold of
/// Choudhury and Hahne, 1998): one alone gets half of it.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    peers: HashMap<u64, Share>,
    pooled: usize,
}

impl Shares {
    /// Whether a peer may have one more, where the pool has `pool`.
    pub fn admits(&self, peer: u64, pool: usize) -> bool {
        let jobs = self.peers.get(&peer).map_or(0, |share| share.jobs);
        let beyond = jobs.saturating_sub(GUARANTEED);
        jobs < GUARANTEED || beyond < pool.saturating_sub(self.pooled)
    }

    pub fn add(&mut self, peer: u64) {
        let share = self.peers.entry(peer).or_default();
        self.pooled += usize::from(share.jobs >= GUARANTEED);
        share.jobs += 1;
    }

    pub fn remove(&mut self, peer: u64) {
        if let Some(share) = self.peers.get_mut(&peer) {
            share.jobs -= 1;
            self.pooled -= usize::from(share.jobs >= GUARANTEED);
        }
        self.forget_idle(peer);
    }

    /// Whether no more early cancellations of a peer can be remembered.
    pub fn is_full_of_early(&self, peer: u64) -> bool {
        let share = self.peers.get(&peer);
        share.is_some_and(|share| share.early.len() >= MOST_EARLY)
    }

    /// The early cancellations of a peer, oldest first.
    pub fn early(&self, peer: u64) -> impl Iterator<Item = JobKey> + '_ {
        let share = self.peers.get(&peer).into_iter();
        share.flat_map(|share| share.early.values().copied())
    }

    pub fn add_early(&mut self, key: JobKey, number: u64) {
        let share = self.peers.entry(key.peer).or_default();
        share.early.insert(number, key);
    }

    pub fn remove_early(&mut self, key: JobKey, number: u64) {
        if let Some(share) = self.peers.get_mut(&key.peer) {
            share.early.remove(&number);
        }
        self.forget_idle(key.peer);
    }

    fn forget_idle(&mut self, peer: u64) {
        let share = self.peers.get(&peer);
        if share.is_some_and(|share| share.jobs == 0 && share.early.is_empty()) {
            self.peers.remove(&peer);
        }
    }
}
