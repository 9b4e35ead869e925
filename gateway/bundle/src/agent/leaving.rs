//! Stored bundles whose routes lead by way of another agent's neighbour.
//!
//! Each is passed to that agent and stays here until that one has made it safe. Only a few are
//! under way at a time, since their payloads are then in memory and count twice.

use std::time::Instant;

use bytes::Bytes;
use underpass_work::{FastMap, IdSet, each};

use super::Agent;
use super::event::{BundleId, DeleteReason};
use super::passing::{Message, Outcome, Owed, Party};
use super::relay::Onward;
use super::stored::Phase;
use crate::store::Payload;
use crate::wire::ipn_parts;

/// The most bundles under way, and the most payload bytes, unless one alone has more.
const UNDER_WAY: usize = 16;
const UNDER_WAY_BYTES: u64 = 4 << 20;

/// What waits to be passed on, and what is under way.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    waiting: IdSet<BundleId>,
    /// Payload bytes of those that were passed on, until they are answered,
    /// even if they are given up here.
    passed: FastMap<BundleId, u64>,
    passed_bytes: u64,
    /// When to look again; a moment in the past is at once.
    due: Option<Instant>,
}

impl Leaving {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Leaving {
            waiting,
            passed,
            passed_bytes: _,
            due: _,
        } = self;
        tell("bundles to be passed on", waiting.len());
        tell("bundles passed on", passed.len());
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Adds a bundle that was stored at `since`.
    pub fn add(&mut self, id: BundleId, since: Instant) {
        self.waiting.insert(id);
        self.look_again(since);
    }

    pub fn look_again(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Takes out a bundle that was stored at `since`. Others may have waited
    /// for it.
    pub fn remove(&mut self, id: BundleId, since: Instant) {
        self.waiting.remove(id);
        self.look_again(since);
    }

    /// Whether one with so many bytes may be passed on, while so many are read
    /// for others.
    fn allows(&self, bytes: u64, read: u64) -> bool {
        let all = self.passed_bytes.saturating_add(read).saturating_add(bytes);
        let alone = self.passed.is_empty() && read == 0;
        alone || self.passed.len() < UNDER_WAY && all <= UNDER_WAY_BYTES
    }

    fn pass(&mut self, id: BundleId, bytes: u64) {
        self.waiting.remove(id);
        self.passed.insert(id, bytes);
        self.passed_bytes += bytes;
    }

    fn answered(&mut self, now: Instant, id: BundleId) {
        self.passed_bytes -= self.passed.remove(&id).unwrap_or(0);
        if !self.waiting.is_empty() {
            self.look_again(now);
        }
    }
}

impl Agent {
    /// Passes on the bundles that wait for it, the oldest first, as their payloads come.
    pub(super) fn pass_leaving(&mut self, now: Instant) {
        if self.leaving.due.is_none_or(|due| due > now) {
            return;
        }
        self.leaving.due = None;
        let next: Vec<BundleId> = each(self.leaving.waiting.iter()).take(UNDER_WAY).collect();
        let mut read = 0;
        for id in next {
            let stored = self.bundles.get(id);
            let bytes = stored.map_or(0, |stored| stored.counted_bytes());
            if !self.leaving.allows(bytes, read) {
                return;
            }
            match self.store.payload(id) {
                Payload::Here(payload) => self.pass_on(id, payload),
                // The agent looks again when it has come.
                Payload::Coming => read += bytes,
                Payload::Lost => self.lost(now, id, Bytes::new()),
            }
        }
    }

    fn pass_on(&mut self, id: BundleId, payload: Vec<Bytes>) {
        let Some(stored) = self.bundles.get_mut(id) else {
            return;
        };
        stored.phase = Phase::Passing;
        let shard = self.sharding.shard_of(stored.neighbour);
        let onward = Onward {
            stored: stored.to_pass(),
            payload,
            // The bundle is in the quota already: a full store must not keep it from going where it
            // can be sent.
            room: self
                .usage
                .reserve_anyway(stored.neighbour, stored.counted_bytes()),
            owed: Some(Owed {
                shard: self.sharding.own,
                to: Party::Keeper(id),
            }),
        };
        self.leaving.pass(id, onward.stored.counted_bytes());
        self.pass(shard, Message::Bundle(Box::new(onward)));
    }

    /// Handles another agent's answer to a bundle that was passed to it.
    pub(super) fn passed_on(&mut self, now: Instant, id: BundleId, outcome: Outcome) {
        self.leaving.answered(now, id);
        let Some(stored) = self.bundles.get(id) else {
            return;
        };
        if stored.phase != Phase::Passing {
            return;
        }
        if outcome.is_ok() {
            if let Some(stored) = self.remove(now, id) {
                self.tell_released(id, &stored);
            }
            return;
        }
        let node = ipn_parts(&stored.primary().destination).map(|(node, _)| node);
        let routed = node.is_some_and(|node| self.has_route(node));
        let unrouted = outcome == Err(DeleteReason::NoRoute);
        if !routed && unrouted && node == Some(stored.neighbour.0) {
            self.give_up(now, id, DeleteReason::NoRoute);
            return;
        }
        self.try_later(now, id);
        if routed || unrouted {
            self.reroute(now, id);
        }
    }
}
