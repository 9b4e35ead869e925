//! What the agents of one node pass to each other: bundles whose next hop is
//! another agent's neighbour, and what has become of them.
//!
//! The agent where a bundle comes in does all that needs no store, reserves room and passes the
//! bundle on. The agent that has the next hop stores it, and reports back once the bundle is as
//! safe as its store makes it. Only then is custody signalled upstream. Between two agents
//! everything stays in order. A bundle that is lost on the way, as at the end of the process, was
//! not signalled, so the custodian upstream sends it again.
//!
//! All that is under way is bounded: bundles and reports have room of the quota, questions are
//! counted, and each has one answer.

use std::fmt;
use std::time::Instant;

use underpass_work::each;

use super::Agent;
use super::config::NeighbourId;
use super::event::{BundleId, DeleteReason, Event};
use super::originate::Draft;
use super::quota::Reservation;
use super::receive::Arrival;
use super::relay::Onward;
use super::signals::Way;
use super::stored::WireName;
use crate::wire::{BibeSignal, Cteb, CustodyDialect, Disposition, ipn_parts, names_node};

/// The most questions of one agent that wait for answers.
const MOST_ASKED: usize = 256;

/// What one agent of a node passes to another: to be given to
/// [`Agent::take_passed`] of the agent that [`Event::Passed`] names, in order.
pub struct Passed(Message);

impl fmt::Debug for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passed").finish_non_exhaustive()
    }
}

pub(super) enum Message {
    /// A bundle to be sent on.
    Bundle(Box<Onward>),
    /// A record of this node to be sent.
    Draft(Box<Draft>, Reservation),
    /// Whether the bundle of this name is in custody.
    Question(Box<WireName>, Owed),
    /// What has become of a bundle.
    Answer(Party, Outcome),
    /// A fragment for a service of this node, whose bundle is put together
    /// there.
    Fragment(Box<Arrival>, u64, Reservation),
    /// A custody signal of a neighbour, which came by another one.
    Signal(NeighbourId, Vec<Disposition>),
    /// The same by BIBE.
    BibeSignal(NeighbourId, BibeSignal),
}

/// Whether a bundle was taken, or why not.
pub(super) type Outcome = Result<(), DeleteReason>;

/// The party that waits to hear what becomes of a bundle.
#[derive(Debug)]
pub(super) struct Owed {
    /// The agent that is told.
    pub shard: usize,
    pub to: Party,
}

#[derive(Debug)]
pub(super) enum Party {
    /// A custodian upstream, which gets a signal.
    Custodian(Way, Cteb),
    /// As `Custodian`, for a [`Message::Question`].
    Asker(Way, Cteb),
    /// An agent that stores the bundle until it hears that it was taken.
    Keeper(BundleId),
}

impl Agent {
    /// The agent by whose neighbours bundles of so many bytes go to a node; `None` if no route
    /// leads there.
    pub fn shard_to(&self, node: u64, bytes: u64) -> Option<usize> {
        if node == self.config.node {
            return Some(self.sharding.own);
        }
        let (via, _) = self.route_of_any(node, bytes)?;
        Some(self.sharding.shard_of(via))
    }

    /// The next hop of a bundle of so many bytes to a node, by the contact plan or the routes.
    pub fn next_hop(&self, node: u64, bytes: u64) -> Option<NeighbourId> {
        self.route(node, bytes).map(|(via, _)| via)
    }

    /// As [`Agent::route`], also by neighbours of other agents. Without a
    /// route the node itself may be such a neighbour: that agent knows.
    pub(super) fn route_of_any(&self, node: u64, bytes: u64) -> Option<(NeighbourId, bool)> {
        let direct = NeighbourId(node);
        let elsewhere = || names_node(node) && !self.sharding.has(direct);
        let route = self.route(node, bytes);
        route.or_else(|| elsewhere().then_some((direct, true)))
    }

    pub(super) fn pass(&mut self, shard: usize, message: Message) {
        let passed = Passed(message);
        self.events.push_back(Event::Passed { shard, passed });
    }

    /// Takes what another agent of this node has passed to this one.
    pub fn take_passed(&mut self, now: Instant, passed: Passed) {
        match passed.0 {
            Message::Bundle(onward) => self.take_onward(now, *onward),
            Message::Draft(draft, room) => {
                let node = ipn_parts(&draft.destination).map(|(node, _)| node);
                if self.can_send_by(node, draft.via) {
                    let id = self.originate(now, *draft, room);
                    self.reroute(now, id);
                }
            }
            Message::Question(name, owed) => match &owed.to {
                Party::Asker(_, cteb) if self.has_custody(&name, Some(cteb)) => {
                    self.answer_again(now, &name, Some(owed));
                }
                _ => self.settle(now, owed, Err(DeleteReason::DepletedStorage)),
            },
            Message::Fragment(arrival, service, room) => {
                let (class, bytes) = (arrival.class, arrival.bundle.payload_bytes());
                let primary = arrival.bundle.primary.clone();
                // Its CL has acknowledged it: nobody sends it again.
                if self.assemble(now, *arrival, service, room).is_err() {
                    let reason = DeleteReason::DepletedStorage;
                    self.tell_refused(now, &primary, bytes, class, reason);
                }
            }
            Message::Signal(from, dispositions) => self.take_signal(now, from, &dispositions),
            Message::BibeSignal(of, signal) => self.take_bibe_signal(now, of, &signal),
            Message::Answer(to, outcome) => {
                let shard = self.sharding.own;
                self.settle(now, Owed { shard, to }, outcome);
            }
        }
    }

    /// Whether a bundle to a node may be queued for the neighbour that another agent has chosen.
    fn can_send_by(&self, node: Option<u64>, via: NeighbourId) -> bool {
        let routed = node.is_some_and(|node| self.has_route(node));
        let named = || each(&self.config.routes).any(|route| route.neighbour == via);
        routed || self.is_routed(via) || named()
    }

    fn take_onward(&mut self, now: Instant, onward: Onward) {
        let stored = &onward.stored;
        let kept = matches!(&onward.owed, Some(owed) if matches!(owed.to, Party::Keeper(_)));
        let cteb = match &onward.owed {
            Some(owed) => owed.to.cteb(),
            None => None,
        };
        let name = onward.name();
        if stored.custody && self.has_custody(&name, cteb) {
            self.answer_again(now, &name, onward.owed);
            return;
        }
        let primary = stored.primary();
        let node = ipn_parts(&primary.destination).map(|(node, _)| node);
        // A bundle that another agent stores already has its place, as records have.
        let storable =
            kept || stored.counted_bytes() <= self.store.free_bytes() || stored.is_record();
        let reason = if stored.expires <= now {
            Some(DeleteReason::LifetimeExpired)
        } else if !self.can_send_by(node, stored.neighbour) {
            Some(DeleteReason::NoRoute)
        } else {
            (!storable).then_some(DeleteReason::DepletedStorage)
        };
        if let Some(reason) = reason {
            if !kept {
                let (bytes, class) = (stored.bytes, stored.class);
                self.tell_refused(now, &primary, bytes, class, reason);
            }
            if let Some(owed) = onward.owed {
                self.settle(now, owed, Err(reason));
            }
            return;
        }
        let id = self.take(now, onward);
        // Routes may have changed since it was passed.
        self.reroute(now, id);
    }

    /// Asks another agent whether a bundle for which there is no room is in custody there: if so,
    /// its custodian may release it; otherwise both stores could stay full. Returns whether it was
    /// asked; then the custodian gets a signal once the answer is there.
    pub(super) fn ask(&mut self, shard: usize, name: WireName, owed: Option<Owed>) -> bool {
        let Some(Owed {
            shard: own,
            to: Party::Custodian(way, cteb),
        }) = owed
        else {
            return false;
        };
        let asks = self.asked < MOST_ASKED;
        if asks {
            self.asked += 1;
            let to = Party::Asker(way, cteb);
            let owed = Owed { shard: own, to };
            self.pass(shard, Message::Question(Box::new(name), owed));
        }
        asks
    }

    /// Tells the party that waits for a bundle what has become of it.
    pub(super) fn settle(&mut self, now: Instant, owed: Owed, outcome: Outcome) {
        let Owed { shard, to } = owed;
        if shard != self.sharding.own {
            self.pass(shard, Message::Answer(to, outcome));
            return;
        }
        let aggregate = self.config.aggregate;
        match to {
            Party::Custodian(way, cteb) => {
                self.signals
                    .add(now, aggregate, way, &cteb, outcome.is_ok());
            }
            Party::Asker(way, cteb) => {
                self.asked -= 1;
                self.signals
                    .add(now, aggregate, way, &cteb, outcome.is_ok());
            }
            Party::Keeper(id) => self.passed_on(now, id, outcome),
        }
    }
}

impl Party {
    /// Whether it waits for a BIBE custody signal.
    pub(super) fn is_told_by_bibe(&self) -> bool {
        let cteb = self.cteb();
        cteb.is_some_and(|cteb| cteb.dialect == CustodyDialect::Bibe)
    }

    fn cteb(&self) -> Option<&Cteb> {
        match self {
            Party::Custodian(_, cteb) | Party::Asker(_, cteb) => Some(cteb),
            Party::Keeper(_) => None,
        }
    }
}
