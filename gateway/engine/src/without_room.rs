//! Edge nodes for whose bundles their neighbour takes no custody at present.
//!
//! A bundle sealed for such a node would wait in the store, unsent, and use up room. So the bytes
//! of its streams stay unsealed and slow their sources, while one bundle at a time asks whether
//! there is room again. The streams are looked at again when another bundle may ask, and as soon as
//! the neighbour has taken one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use underpass_bundle::NeighbourId;
use underpass_cla::Class;

use crate::engine::{Engine, STREAM_SERVICE};

/// One of them: the neighbour that leads to it, and its number.
type Behind = (u64, u64);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct WithoutRoom {
    /// When each is looked at again.
    nodes: BTreeMap<Behind, Instant>,
    /// The same, in order.
    times: BTreeSet<(Instant, Behind)>,
}

impl WithoutRoom {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let WithoutRoom { nodes, times } = self;
        tell("peers without room", nodes.len());
        tell("peers without room by time", times.len());
    }

    /// When [`Engine::look_for_room`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }

    fn insert(&mut self, node: Behind, at: Instant) {
        if let Some(before) = self.nodes.insert(node, at) {
            self.times.remove(&(before, node));
        }
        self.times.insert((at, node));
    }

    fn remove(&mut self, node: Behind) {
        if let Some(at) = self.nodes.remove(&node) {
            self.times.remove(&(at, node));
        }
    }

    fn pop_due(&mut self, now: Instant) -> Option<u64> {
        let (_, node) = self.times.first().copied().filter(|(at, _)| *at <= now)?;
        self.remove(node);
        Some(node.1)
    }

    /// Takes out one node that a neighbour leads to.
    fn pop_behind(&mut self, neighbour: u64) -> Option<u64> {
        let mut behind = self.nodes.range((neighbour, 0)..=(neighbour, u64::MAX));
        let node = behind.next().map(|(node, _)| *node)?;
        self.remove(node);
        Some(node.1)
    }
}

impl Engine {
    /// Whether nothing is to be sealed for a node in a class, since the neighbour that leads to it
    /// takes no custody of it. Then the node is looked at again later.
    pub(crate) fn has_no_room(
        &mut self,
        now: Instant,
        neighbour: u64,
        peer: u64,
        class: Class,
    ) -> bool {
        // Signalling is sent in any case.
        if class == Class::SIGNALLING {
            return false;
        }
        let (via, to) = (NeighbourId(neighbour), (peer, STREAM_SERVICE));
        let until = self.agent.without_room_until(now, via, to);
        if let Some(until) = until {
            self.without_room.insert((neighbour, peer), until);
        }
        until.is_some()
    }

    /// Looks again at nodes for which there may be room by now.
    pub(crate) fn look_for_room(&mut self, now: Instant) {
        while let Some(peer) = self.without_room.pop_due(now) {
            self.change_streams(peer, |_| ());
        }
    }

    /// Notes that a neighbour may have room again for bundles to nodes behind it.
    pub(crate) fn may_have_room(&mut self, neighbour: u64) {
        while let Some(peer) = self.without_room.pop_behind(neighbour) {
            self.change_streams(peer, |_| ());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_is_looked_at_once_at_its_last_time_or_with_its_neighbour() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let mut nodes = WithoutRoom::default();
        for (node, at) in [((5, 1), 2), ((5, 2), 1), ((6, 0), 3), ((5, 2), 4)] {
            nodes.insert(node, later(at));
        }
        assert_eq!(nodes.next_timeout(), Some(later(2)));
        assert_eq!(nodes.pop_due(later(1)), None);
        assert_eq!(nodes.pop_due(later(2)), Some(1));
        assert_eq!(nodes.pop_behind(5), Some(2));
        assert_eq!(nodes.pop_behind(5), None);
        assert_eq!(nodes.pop_due(later(3)), Some(0));
        assert_eq!(nodes.next_timeout(), None);
        assert!(nodes.nodes.is_empty());
    }
}
