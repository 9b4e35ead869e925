//! Bundles that stay behind all earlier ones between the same endpoints.
//!
//! A bundle with the order block waits until this node has released every bundle that it had
//! custody of before, from the same source endpoint to the same destination endpoint. Released
//! means that the next custodian has it, and that custodian keeps the same rule. So the bundle
//! arrives after them all, whatever classes and sessions they take.

use std::collections::HashMap;

use bp7::primary::PrimaryBlock;
use underpass_work::IdSet;

use super::Agent;
use super::event::BundleId;
use super::stored::{Phase, StoredBundle};
use crate::wire::{Eid, is_order_block};

/// Bundles in custody by source and destination, the oldest first.
pub(super) type Ordered = HashMap<(Eid, Eid), IdSet<BundleId>>;

impl StoredBundle {
    /// Whether it must not overtake.
    fn is_last(&self) -> bool {
        self.custody && self.others.iter().any(is_order_block)
    }
}

fn endpoints(primary: &PrimaryBlock) -> (Eid, Eid) {
    (primary.source.clone(), primary.destination.clone())
}

impl Agent {
    /// Puts a new bundle behind those before it. Returns whether it has to wait, since it must not
    /// overtake and there is something to overtake.
    pub(super) fn await_earlier(&mut self, id: BundleId, primary: &PrimaryBlock) -> bool {
        let Some(stored) = self.bundles.get_mut(id).filter(|stored| stored.custody) else {
            return false;
        };
        let among = self.ordered.entry(endpoints(primary)).or_default();
        among.insert(id);
        let waits = among.first() != Some(id) && stored.is_last();
        if waits {
            stored.phase = Phase::AwaitingEarlier;
        }
        waits
    }

    /// Notes that a bundle in custody is gone from here: the one behind it may go.
    pub(super) fn unblock_next(&mut self, id: BundleId, gone: &PrimaryBlock) {
        let endpoints = endpoints(gone);
        let Some(among) = self.ordered.get_mut(&endpoints) else {
            return;
        };
        among.remove(id);
        let Some(first) = among.first() else {
            self.ordered.remove(&endpoints);
            return;
        };
        let stored = self.bundles.get(first);
        if stored.is_some_and(|stored| stored.phase == Phase::AwaitingEarlier) {
            self.enqueue(first);
        }
    }
}
