//! Turns between bundles left by earlier runs of this node and all others.
//!
//! After a restart about as much is in custody as was under way. The peer still waits for it, but
//! bundles of this run's services need not stay behind it. So, if their service says so, these
//! bundles go neither before all others nor after them: in a class to a neighbour each side has
//! half of the bytes while both have something, and a new stream waits for one such bundle, not for
//! all.

use underpass_cla::Class;

use super::Agent;
use super::config::NeighbourId;
use super::event::BundleId;

impl Agent {
    /// Lets a bundle that an earlier run of this node has left
    /// ([`Event::Restored`](super::Event::Restored)) take turns with all others in its class, now
    /// and whenever it is queued again.
    pub fn set_restored(&mut self, id: BundleId) {
        let Some(stored) = self.bundles.get_mut(id) else {
            return;
        };
        stored.restored = true;
        let (via, class) = (stored.neighbour, stored.class);
        let neighbour = self.neighbours.get_mut(&via);
        if let Some(queue) = neighbour.and_then(|neighbour| neighbour.queues.get_mut(&class)) {
            queue.set_restored(id);
        }
    }

    /// Whether it is the turn of others than those bundles and none of them waits here:
    /// then bundles that are sealed now go before what [`Agent::next_for`] has.
    pub fn yields(&self, neighbour: NeighbourId, class: Class) -> bool {
        let neighbour = self.neighbours.get(&neighbour);
        let queue = neighbour.and_then(|neighbour| neighbour.queues.get(&class));
        queue.is_some_and(|queue| queue.yields())
    }

    /// Counts the bytes sent of an offered bundle; [`Offer::restored`](super::Offer::restored) says
    /// whose turn that was. A bundle that is discarded instead costs nobody a turn.
    pub fn turn_taken(&mut self, neighbour: NeighbourId, class: Class, restored: bool, bytes: u64) {
        let neighbour = self.neighbours.get_mut(&neighbour);
        if let Some(queue) = neighbour.and_then(|neighbour| neighbour.queues.get_mut(&class)) {
            queue.turn_taken(restored, bytes);
        }
    }
}
