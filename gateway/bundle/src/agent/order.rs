//! Bundles that stay behind all earlier ones of their way.
//!
//! A bundle with the order block is kept back until this node has released
//! every bundle that it had custody of before, from the same source endpoint
//! to the same destination endpoint. Released means that the next custodian
//! has it, and this one does the same: so the bundle arrives behind them all,
//! whatever classes and sessions they take.

use super::Agent;
use super::event::BundleId;
use super::held::{Held, Phase};
use crate::wire::is_order_block;

/// Bundles that are kept back at one time; more go like any other, so that
/// nobody can make each release cost more than this.
const MOST_KEPT_BACK: usize = 1024;

impl Held {
    /// Whether it must not overtake.
    fn is_last(&self) -> bool {
        self.custody && self.others.iter().any(is_order_block)
    }

    fn shares_way(&self, other: &Held) -> bool {
        self.custody
            && self.primary.source == other.primary.source
            && self.primary.destination == other.primary.destination
    }
}

impl Agent {
    /// Keeps a new bundle back if it must not overtake and there is anything
    /// to overtake.
    pub(super) fn keep_back(&mut self, id: BundleId) -> bool {
        let Some(last) = self.held.get(&id).filter(|held| held.is_last()) else {
            return false;
        };
        if self.kept_back.len() >= MOST_KEPT_BACK {
            return false;
        }
        let held = self.held.iter();
        let before = held.filter(|(other, held)| **other < id && held.shares_way(last));
        let before = before.count();
        if before == 0 {
            return false;
        }
        self.kept_back.insert(id, before);
        if let Some(held) = self.held.get_mut(&id) {
            held.phase = Phase::KeptBack;
        }
        true
    }

    /// A bundle is gone from here: those behind it may go.
    pub(super) fn let_pass(&mut self, id: BundleId, gone: &Held) {
        let mut free = Vec::new();
        for (last, before) in self.kept_back.range_mut(id..) {
            let behind = self.held.get(last);
            if behind.is_some_and(|behind| gone.shares_way(behind)) {
                *before -= 1;
                if *before == 0 {
                    free.push(*last);
                }
            }
        }
        for last in free {
            self.kept_back.remove(&last);
            self.enqueue(last);
        }
    }
}
