//! Leaves (a hop and a class each), and which of them the scheduler counts as ready: those with
//! something to send and a session that can take it.
//!
//! Whatever may change this names the leaf ([`Engine::leaf_changed`]). Before the scheduler is
//! asked, it is told once the present state of all named leaves.

use std::time::Instant;

use underpass_bundle::{Agent, NeighbourId};
use underpass_cla::{Class, SessionId};
use underpass_scheduler::{Leaf, LinkScheduler};

use crate::engine::Engine;
use crate::hop::{Hop, HopId};
use crate::lanes::Queues;
use crate::paths::Turn;
use crate::peers::Peers;
use crate::transfers::Session;

/// Some of an engine's classes, or of their queues, as bits by their places.
/// There are at most 128.
pub(crate) type Places = u128;

/// These places, in order.
pub(crate) fn places_in(mut places: Places) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = places.trailing_zeros() as usize;
        places &= places.checked_sub(1)?;
        Some(first)
    })
}

/// Leaves that may have changed since the scheduler was told.
#[derive(Debug, Default)]
pub(crate) struct ChangedLeaves {
    marks: Vec<(HopId, Places)>,
}

impl ChangedLeaves {
    /// Names leaves of a hop.
    pub fn mark(&mut self, id: HopId, places: Places) {
        match self.marks.last_mut() {
            Some((last, marked)) if *last == id => *marked |= places,
            _ => self.marks.push((id, places)),
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let ChangedLeaves { marks } = self;
        tell("hops with changed leaves", marks.len());
    }

    fn pop(&mut self) -> Option<(HopId, Places)> {
        self.marks.pop()
    }
}

impl Engine {
    /// Names a leaf: something has changed that may let it send, or stop it.
    pub(crate) fn leaf_changed(&mut self, id: HopId, class: Class) {
        let place = self.classes.iter().position(|known| *known == class);
        if let Some(place) = place {
            self.changed.mark(id, 1 << place);
        }
    }

    /// The same for all leaves of a hop.
    pub(crate) fn leaves_changed(&mut self, id: HopId) {
        self.changed.mark(id, Places::MAX);
    }

    /// Names the leaves that a session may carry: it can take a bundle, or cannot any more.
    pub(crate) fn session_changed(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let hop = session.hop;
        match session.info.class {
            Some(class) if class != Class::SIGNALLING => self.leaf_changed(hop, class),
            // A session without a class carries all, and so does signalling's if it is the only
            // one.
            _ => self.leaves_changed(hop),
        }
    }

    /// The same for the leaves to a neighbour.
    pub(crate) fn leaves_to_changed(&mut self, neighbour: u64, places: Places) {
        for hop in self.ways.hops_to(neighbour).iter() {
            self.changed.mark(*hop, places);
        }
    }

    /// Tells the scheduler of the leaves that have changed.
    pub(crate) fn update_leaves(&mut self, now: Instant) {
        while let Some((neighbour, places)) = self.peers.pop_changed() {
            self.leaves_to_changed(neighbour, places);
        }
        while let Some((id, places)) = self.changed.pop() {
            self.judge_path_soon(now, id);
            for place in places_in(places) {
                let Some(class) = self.classes.get(place).copied() else {
                    break;
                };
                let ready = self.may_send(now, id, class);
                let Some(hop) = self.hops.get_mut(&id) else {
                    break;
                };
                let neighbour = hop.config.neighbour;
                let ready = ready.then(|| self.peers.has_light(neighbour, class));
                set_ready(&mut self.scheduler, hop, class, ready);
            }
        }
    }

    /// Whether a leaf has something to send, a session that can take it, and its
    /// turn among the hops to its neighbour.
    fn may_send(&mut self, now: Instant, id: HopId, class: Class) -> bool {
        let Some(hop) = self.hops.get(&id) else {
            return false;
        };
        let carrier = hop.carrier(class).and_then(|id| self.sessions.get(id));
        if !carrier.is_some_and(Session::is_ready) {
            return false;
        }
        self.has_copies(id, class) || self.open_queues(now, id, class).any()
    }

    /// The queues of a class that a hop may seal from now.
    pub(crate) fn open_queues(&mut self, now: Instant, id: HopId, class: Class) -> Queues {
        if self.peers.has_lanes(class) {
            return self.queues_with_lanes(now, id, class);
        }
        let neighbour = self.neighbour_of(id).unwrap_or_default();
        let waits = is_backlogged(&self.agent, &self.peers, neighbour, class);
        Queues::of_class(class, waits && self.takes_turn(now, id, class))
    }

    /// Whether it is a leaf's turn among the hops to its neighbour; if not, it is
    /// asked again.
    pub(crate) fn takes_turn(&mut self, now: Instant, id: HopId, class: Class) -> bool {
        match self.turn(now, id, class) {
            Turn::Now => true,
            Turn::Later(late) => {
                self.ask_again(now, id, late);
                false
            }
        }
    }

    /// Has a leaf wait until it is named again.
    pub(crate) fn leaf_waits(&mut self, id: HopId, class: Class) {
        if let Some(hop) = self.hops.get_mut(&id) {
            set_ready(&mut self.scheduler, hop, class, None);
        }
    }
}

/// Tells the scheduler, if that is new to it, whether a leaf can send and whether what it sends is
/// sparse.
fn set_ready(scheduler: &mut LinkScheduler, hop: &mut Hop, class: Class, ready: Option<bool>) {
    let before = match ready {
        Some(sparse) => hop.ready.insert(class, sparse),
        None => hop.ready.remove(&class),
    };
    let terminal = hop.config.id.terminal();
    let leaf = Leaf { terminal, class };
    // Every configured hop and class is a leaf.
    if ready.unwrap_or(false) != before.unwrap_or(false) {
        let known = scheduler.set_sparse(leaf, ready.unwrap_or(false));
        debug_assert!(known.is_ok(), "{known:?}");
    }
    if ready.is_some() != before.is_some() {
        let known = scheduler.set_ready(leaf, ready.is_some());
        debug_assert!(known.is_ok(), "{known:?}");
    }
}

fn is_backlogged(agent: &Agent, peers: &Peers, neighbour: u64, class: Class) -> bool {
    let to = NeighbourId(neighbour);
    // Nothing is sealed for a neighbour without room: it would not leave.
    let paused =
        || class != Class::SIGNALLING && agent.is_paused(to) || agent.is_loading(to, class);
    agent.has_pending(to, class) || peers.waits(neighbour, class) && !paused()
}
