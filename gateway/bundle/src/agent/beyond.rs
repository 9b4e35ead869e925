//! Nodes behind a neighbour for which it has no room, while it may have some for others.
//!
//! A neighbour that refuses a bundle for want of room does not say whether its store is
//! full, or only the part that it has for the next hop. Were all that goes by it to wait,
//! one source whose bundles go to a node that is switched off would hold up everything
//! else. So bundles to the same node wait alone, but for one at a time that asks whether
//! there is room again: if there is none for anything, this costs few bundles for each
//! node.
//!
//! Of bundles under custody only what stores cannot take at all is refused in this way,
//! and each of the others is answered by a signal. So these are not looked at here.

use std::collections::BTreeMap;
use std::time::Instant;

use underpass_cla::Class;
use underpass_work::each;

use super::Agent;
use super::config::{CustodyTimer, NeighbourId};
use super::event::BundleId;
use super::forward::LOOK_AHEAD;
use super::stored::StoredBundle;
use crate::wire::ipn_parts;

/// Nodes behind one neighbour that are known to have no room at once; where there are
/// more, its whole store is taken to be full.
const MOST: usize = 64;

/// The nodes behind one neighbour for which it had no room when it was last asked.
#[derive(Debug, Default)]
pub(crate) struct Beyond {
    nodes: BTreeMap<u64, Full>,
}

/// One of these nodes.
#[derive(Debug)]
struct Full {
    /// Nothing is sent to it until then.
    until: Instant,
    /// How often in a row it was asked in vain, or is being asked.
    asked: u32,
}

impl Full {
    /// Begins to wait, longer each time, unless it waits already.
    fn wait(&mut self, now: Instant, timer: &CustodyTimer) {
        if self.until <= now {
            self.until = now + timer.backed_off(timer.min / 4, self.asked);
            self.asked += 1;
        }
    }
}

impl Beyond {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Beyond { nodes } = self;
        tell("nodes behind without room", nodes.len());
    }

    /// A bundle for a node was refused; whether that can be remembered.
    fn refused(&mut self, now: Instant, node: u64, timer: &CustodyTimer) -> bool {
        if !self.nodes.contains_key(&node) && self.nodes.len() >= MOST {
            self.nodes.retain(|_, full| full.until > now);
            if self.nodes.len() >= MOST {
                return false;
            }
        }
        let full = self.nodes.entry(node);
        let full = full.or_insert(Full {
            until: now,
            asked: 0,
        });
        full.wait(now, timer);
        true
    }

    fn waits(&self, now: Instant, node: u64) -> bool {
        self.nodes.get(&node).is_some_and(|full| full.until > now)
    }
}

impl StoredBundle {
    /// The node behind the neighbour that it goes to, if that may lack room for what goes
    /// there alone.
    fn beyond(&self) -> Option<u64> {
        let signalled = self.custody || self.passed_cteb.is_some();
        if signalled || self.class == Class::SIGNALLING || self.is_long() {
            return None;
        }
        let (node, _) = ipn_parts(&self.primary().destination)?;
        (NeighbourId(node) != self.neighbour).then_some(node)
    }
}

impl Agent {
    /// Takes note that a neighbour had no room for a bundle; whether only what goes to the
    /// same node is to wait.
    pub(super) fn refused_beyond(&mut self, now: Instant, id: BundleId) -> bool {
        let Some(stored) = self.bundles.get(id) else {
            return false;
        };
        let via = stored.neighbour;
        let Some(node) = stored.beyond() else {
            return false;
        };
        let timer = self.config.custody_timer;
        self.neighbour(via).beyond.refused(now, node, &timer)
    }

    /// A bundle is sent: if there was no room for those that go to the same node, they
    /// wait for what becomes of it.
    pub(super) fn ask_beyond(&mut self, now: Instant, id: BundleId) {
        let timer = self.config.custody_timer;
        if let Some((via, node)) = self.known_beyond(id)
            && let Some(full) = self.neighbour(via).beyond.nodes.get_mut(&node)
        {
            full.wait(now, &timer);
        }
    }

    /// A neighbour has taken a bundle, and so may others that go to the same node.
    pub(super) fn taken_beyond(&mut self, id: BundleId) {
        if let Some((via, node)) = self.known_beyond(id) {
            self.neighbour(via).beyond.nodes.remove(&node);
        }
    }

    /// Whether a bundle waits since its neighbour had no room for what goes to the same
    /// node.
    pub(super) fn waits_beyond(&self, now: Instant, id: BundleId) -> bool {
        self.known_beyond(id).is_some_and(|(via, node)| {
            let neighbour = self.neighbours.get(&via);
            neighbour.is_some_and(|neighbour| neighbour.beyond.waits(now, node))
        })
    }

    /// The neighbour and the node behind it that a bundle goes to, if there was no room
    /// for that node.
    fn known_beyond(&self, id: BundleId) -> Option<(NeighbourId, u64)> {
        let stored = self.bundles.get(id)?;
        let beyond = &self.neighbours.get(&stored.neighbour)?.beyond;
        // Seldom is there any: the primary block is not decoded for nothing.
        if beyond.nodes.is_empty() {
            return None;
        }
        let node = stored.beyond()?;
        let known = beyond.nodes.contains_key(&node);
        known.then_some((stored.neighbour, node))
    }

    /// Has the first bundles of a queue wait, as if they had been refused, that go to
    /// nodes for which the neighbour has no room; whether there were any.
    pub(super) fn pass_over_beyond(
        &mut self,
        now: Instant,
        neighbour: NeighbourId,
        class: Class,
    ) -> bool {
        let waiting = self.neighbours.get(&neighbour);
        let waiting = waiting.filter(|waiting| !waiting.beyond.nodes.is_empty());
        let Some(queue) = waiting.and_then(|waiting| waiting.queues.get(&class)) else {
            return false;
        };
        let first = each(queue.in_order()).take(LOOK_AHEAD);
        let first = first.take_while(|id| self.waits_beyond(now, *id));
        let first: Vec<BundleId> = first.collect();
        for id in &first {
            let bytes = self.bundles.get(*id).map_or(0, |stored| stored.bytes);
            let neighbour = self.neighbours.get_mut(&neighbour);
            if let Some(queue) = neighbour.and_then(|neighbour| neighbour.queues.get_mut(&class)) {
                queue.remove(*id, bytes);
            }
            self.try_later(now, *id);
        }
        !first.is_empty()
    }
}
