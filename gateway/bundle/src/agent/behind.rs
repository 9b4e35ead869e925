//! What nodes behind a neighbour have of its part of the store.
//!
//! Bundles count for the neighbour that they wait for, and many nodes may be behind it.
//! Were one of these to have all that there is for the neighbour, what goes to the others
//! would be refused for as long as that one is switched off. So of what can be refused
//! none takes more than some times what is left then, as neighbours do of the pool (see
//! [`super::accounts`]): one alone has most of it, and there is always some left. This
//! node's streams count, but are not refused here: they wait for room themselves.
//!
//! There are no more entries than bundles.

use std::collections::HashMap;

use super::Agent;
use super::config::NeighbourId;
use super::quota::Amount;
use super::stored::quota_bytes;
use crate::wire::{Eid, ipn_parts};

/// A node has so many times as much as it leaves, at most.
const TIMES_WHAT_IS_LEFT: u64 = 7;

/// What is stored, by neighbour and node behind it.
#[derive(Debug, Default)]
pub(super) struct Behind {
    stored: HashMap<(NeighbourId, u64), Amount>,
}

/// The place of a bundle there, if it is for a node behind the neighbour that it goes by.
/// Nodes of the dtn scheme, which have no number, are as one.
fn place(via: NeighbourId, destination: &Eid) -> Option<(NeighbourId, u64)> {
    let node = ipn_parts(destination).map_or(0, |(node, _)| node);
    (NeighbourId(node) != via).then_some((via, node))
}

fn amount(counted_bytes: u64) -> Amount {
    Amount::of(quota_bytes(counted_bytes))
}

impl Behind {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Behind { stored } = self;
        tell("nodes behind neighbours with bundles", stored.len());
    }

    /// A bundle that counts so many bytes is stored.
    pub fn add(&mut self, via: NeighbourId, destination: &Eid, counted_bytes: u64) {
        if let Some(place) = place(via, destination) {
            let stored = self.stored.entry(place).or_default();
            *stored = stored.plus(amount(counted_bytes));
        }
    }

    /// It is not stored any more.
    pub fn remove(&mut self, via: NeighbourId, destination: &Eid, counted_bytes: u64) {
        let Some(place) = place(via, destination) else {
            return;
        };
        if let Some(stored) = self.stored.get_mut(&place) {
            *stored = stored.less(amount(counted_bytes));
            if stored.bundles == 0 {
                self.stored.remove(&place);
            }
        }
    }
}

impl Agent {
    /// Whether one more bundle to a node leaves enough of what there is for the neighbour
    /// that it goes by to the others there. A node for which nothing is stored gets one in
    /// any case.
    pub fn leaves_room(&self, via: NeighbourId, destination: &Eid, counted_bytes: u64) -> bool {
        let stored = place(via, destination).and_then(|place| self.behind.stored.get(&place));
        let Some(stored) = stored else {
            return true;
        };
        let most = self.usage.left(via).times(TIMES_WHAT_IS_LEFT);
        stored.plus(amount(counted_bytes)).all_at_most(most)
    }
}
