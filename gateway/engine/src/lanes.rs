//! The lanes of a class whose policy is *minfct*, and from which of them a hop
//! seals.
//!
//! Flows of such a class wait in lanes, one for each hop to the neighbour. A hop seals from its own
//! lane. As the hops of a bonded class do, it also seals from the lanes of hops that cannot carry
//! at present, and from the class' own queue, which holds the streams without an announced flow. A
//! hop that is tried again also seals from all other lanes.

use std::time::Instant;

use underpass_bundle::NeighbourId;
use underpass_cla::Class;
use underpass_streams::{class_of, lane, lanes};

use crate::choosing::{ASKED_WITHIN, COUNTED_PEERS};
use crate::completing::Completing;
use crate::engine::Engine;
use crate::hop::HopId;
use crate::policy::PathUse;

/// The queues of a class that a hop may seal from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    class: Class,
    /// The class' own queue, and bundles that were sealed before.
    pub of_class: bool,
    /// Lanes, as bits by their places.
    lanes: u8,
}

impl Queues {
    pub fn of_class(class: Class, open: bool) -> Queues {
        Queues {
            class,
            of_class: open,
            lanes: 0,
        }
    }

    pub fn any(&self) -> bool {
        self.of_class || self.lanes != 0
    }

    /// All of them, those behind `last` first.
    fn behind(self, last: Option<Class>) -> impl Iterator<Item = Class> {
        let own = self.of_class.then_some(self.class);
        let open = move |place: &usize| self.lanes & 1 << place != 0;
        let of_lanes = move || (0..8).filter(open).filter_map(move |p| lane(self.class, p));
        let all = move || own.into_iter().chain(of_lanes());
        let is_behind = move |queue: &Class| last.is_some_and(|last| queue.0 > last.0);
        let first = all().filter(is_behind);
        first.chain(all().filter(move |queue| !is_behind(queue)))
    }
}

impl Engine {
    /// Adds lanes to the classes whose policy wants them.
    pub(crate) fn lay_lanes(&mut self) {
        let policies = self.config.policies.iter();
        let wants = policies.filter(|(_, policy)| policy.uses == PathUse::MinFct);
        let wants: Vec<Class> = wants.map(|(class, _)| *class).collect();
        for class in wants {
            self.peers.add_lanes(class);
        }
        self.completing = Completing::default();
    }

    pub(crate) fn lane_of(&self, neighbour: u64, class: Class, id: HopId) -> Option<Class> {
        let mut hops = self.hops_with_lanes(neighbour, class);
        lane(class, hops.position(|hop| hop == id)?)
    }

    /// The hop that was chosen for the flows in a queue; `None` if the queue is no lane, or the
    /// class' policy does not choose hops any more.
    pub(crate) fn hop_of_lane(&self, neighbour: u64, queue: Class) -> Option<HopId> {
        let class = class_of(queue);
        if self.policy(class).uses != PathUse::MinFct {
            return None;
        }
        let place = lanes(class).position(|lane| lane == queue)?;
        self.hops_with_lanes(neighbour, class).nth(place)
    }

    /// The hops that the policy of a class names, in its order: each has a lane, whatever its
    /// budget and whether it can carry.
    fn hops_with_lanes(&self, neighbour: u64, class: Class) -> impl Iterator<Item = HopId> {
        let hops = self.ways.hops_to(neighbour).iter().copied();
        hops.filter(move |id| {
            let hop = self.hops.get(id);
            hop.is_some_and(|hop| self.place_by_policy(hop, class).is_some())
        })
    }

    /// What waits in a class for other hops than these, bytes. Hops that cannot carry leave what
    /// waits for them to the others.
    pub(crate) fn waiting_elsewhere(&self, neighbour: u64, class: Class, hops: &[HopId]) -> u64 {
        if self.policy(class).uses != PathUse::MinFct {
            return 0;
        }
        let carries = |id: &HopId| {
            let hop = self.hops.get(id).filter(|hop| !hop.blocked);
            hop.is_some_and(|hop| {
                hop.carrier(class).is_some() && self.place_on(hop, class).is_some()
            })
        };
        let lanes = self.hops_with_lanes(neighbour, class).zip(lanes(class));
        let elsewhere = lanes.filter(|(id, _)| !hops.contains(id) && carries(id));
        let behind = || self.ways.peers_behind(neighbour).take(COUNTED_PEERS);
        let waiting = elsewhere.map(|(_, lane)| {
            let streams = behind().filter_map(|peer| self.peers.get(peer));
            streams.map(|streams| streams.waiting_in(lane)).sum::<u64>()
        });
        waiting.sum()
    }

    /// The queues of a class with lanes that a hop may seal from now.
    pub(crate) fn queues_with_lanes(&mut self, now: Instant, id: HopId, class: Class) -> Queues {
        let mut queues = Queues::of_class(class, false);
        let Some(neighbour) = self.neighbour_of(id) else {
            return queues;
        };
        let to = NeighbourId(neighbour);
        let paused = self.agent.is_paused(to) || self.agent.is_loading(to, class);
        let candidates = self.candidates(now, neighbour, class);
        let is_candidate = |hop: &HopId| candidates.iter().any(|one| one.id == *hop);
        let keeps = self.policy(class).uses == PathUse::MinFct && is_candidate(&id);
        let hops: Vec<HopId> = self.hops_with_lanes(neighbour, class).collect();
        let (mut free, mut of_others, mut elsewhere) = (0, 0, false);
        for (place, lane) in lanes(class).enumerate() {
            if paused || !self.peers.waits(neighbour, lane) {
                continue;
            }
            let of_lane = hops.get(place);
            if keeps && of_lane == Some(&id) {
                queues.lanes |= 1 << place;
            } else if !keeps || of_lane.is_none_or(|hop| !is_candidate(hop)) {
                free |= 1 << place;
            } else {
                of_others |= 1 << place;
                elsewhere = true;
            }
        }
        if elsewhere && !self.may_help(now, id, queues.lanes != 0) {
            of_others = 0;
        }
        if elsewhere {
            // The hop of that lane may be about to stop carrying.
            self.ask_again(now, id, ASKED_WITHIN);
        }
        let of_class = self.peers.waits(neighbour, class) && !paused;
        let shared = self.agent.has_pending(to, class) || of_class || free | of_others != 0;
        if shared && self.takes_turn(now, id, class) {
            queues.of_class = true;
            queues.lanes |= free | of_others;
            if of_others != 0 {
                self.begin_to_help(now, id);
            }
        }
        queues
    }

    /// The queues that a leaf seals from, in their turn.
    pub(crate) fn in_turn(&self, id: HopId, queues: Queues) -> impl Iterator<Item = Class> + use<> {
        let last = self.completing.last.get(&(id, queues.class)).copied();
        queues.behind(last)
    }

    /// A leaf has sealed from a queue of a class with lanes.
    pub(crate) fn note_turn(&mut self, id: HopId, class: Class, queue: Class) {
        if self.peers.has_lanes(class) {
            self.completing.last.insert((id, class), queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_take_turns() {
        let queues = Queues {
            class: Class(2),
            of_class: true,
            lanes: 0b101,
        };
        let (near, far) = (lane(Class(2), 0), lane(Class(2), 2));
        let order = |last| queues.behind(last).map(Some).collect::<Vec<_>>();
        let own = Some(Class(2));
        assert_eq!(order(None), [own, near, far]);
        assert_eq!(order(own), [near, far, own]);
        assert_eq!(order(near), [far, own, near]);
        assert_eq!(order(far), [own, near, far]);
    }
}
