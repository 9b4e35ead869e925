//! Bundles that stay behind all earlier ones between the same endpoints.
//!
//! A bundle with the order block is kept back until this node has released
//! every bundle that it had custody of before, from the same source endpoint
//! to the same destination endpoint. Released means that the next custodian
//! has it, and this one does the same: so the bundle arrives behind them all,
//! whatever classes and sessions they take.

use std::collections::{BTreeSet, HashMap};

use super::Agent;
use super::event::BundleId;
use super::held::{Held, Phase};
use crate::wire::{Eid, is_order_block};

/// Bundles in custody by source and destination, the oldest first.
pub(super) type Ordered = HashMap<(Eid, Eid), BTreeSet<BundleId>>;

impl Held {
    /// Whether it must not overtake.
    fn is_last(&self) -> bool {
        self.custody && self.others.iter().any(is_order_block)
    }

    fn endpoints(&self) -> (Eid, Eid) {
        let primary = &self.primary;
        (primary.source.clone(), primary.destination.clone())
    }
}

impl Agent {
    /// Puts a new bundle behind those before it, and keeps it back if it must
    /// not overtake and there is anything to overtake.
    pub(super) fn keep_back(&mut self, id: BundleId) -> bool {
        let Some(held) = self.held.get_mut(&id).filter(|held| held.custody) else {
            return false;
        };
        let among = self.ordered.entry(held.endpoints()).or_default();
        among.insert(id);
        let kept_back = among.first() != Some(&id) && held.is_last();
        if kept_back {
            held.phase = Phase::KeptBack;
        }
        kept_back
    }

    /// A bundle is gone from here: the one behind it may go.
    pub(super) fn let_pass(&mut self, id: BundleId, gone: &Held) {
        if !gone.custody {
            return;
        }
        let endpoints = gone.endpoints();
        let Some(among) = self.ordered.get_mut(&endpoints) else {
            return;
        };
        among.remove(&id);
        let Some(first) = among.first().copied() else {
            self.ordered.remove(&endpoints);
            return;
        };
        let held = self.held.get(&first);
        if held.is_some_and(|held| held.phase == Phase::KeptBack) {
            self.enqueue(first);
        }
    }
}
