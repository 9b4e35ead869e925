//! The bundle protocol agent: one state machine, one verb per file.

mod accounts;
mod applications;
mod authority;
mod beyond;
mod bibe;
mod config;
mod confirming;
mod custody;
mod deliver;
mod event;
mod expiries;
mod figures;
mod fixed;
mod footprint;
mod forward;
mod fragment;
mod handover;
mod leaving;
mod long;
mod memory;
mod named;
mod names;
mod neighbour;
mod order;
mod originate;
mod own_names;
mod passing;
mod planned;
mod quota;
mod reassembly;
mod receive;
mod relay;
mod report;
mod rerouting;
mod routes;
mod security;
mod sharding;
mod signals;
mod signing;
mod storage;
mod stored;
mod stored_record;
mod timestamps;
mod turns;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use underpass_cla::Class;
use underpass_work::FastMap;

pub use applications::{Applications, ECHO_NAME};
pub use authority::{Forgery, Relaying};
pub use config::{Config, CustodyTimer, DuplicateLimits, NeighbourId, Route};
pub use event::{
    BundleId, DeleteReason, Delivery, Event, Offer, Reject, ReportRequest, Send, SendError,
};
pub use figures::{BundleInfo, ClassFigures, CustodyFigures, NeighbourFigures};
pub use handover::AgentState;
pub use long::{LongDecoded, LongDecoding};
pub use named::NamedRoutes;
pub use own_names::{OwnNames, is_named_service, named_service};
pub use passing::Passed;
pub use planned::{NextHops, PlanChanged, PlannedRoutes};
pub use quota::{Amount, Quota, largest_bundle_bytes};
pub use receive::{Decoded, Decoder, Opened, Unopened};
pub use rerouting::Limits;
pub use routes::Routes;
pub use security::{Encrypted, Following, Insecure, Secured, Security};
pub use sharding::{Common, Sharding};
pub use signing::{Signed, Unsigned};
pub use stored::Note;
pub use stored_record::destination_of;

use crate::store::{MemoryStore, Store};
use crate::wire::{Eid, ipn, names_node};
use accounts::Purpose;
use confirming::Unconfirmed;
use expiries::Expiries;
use figures::Tally;
use leaving::Leaving;
use memory::Memory;
use names::{Bundles, Names};
use neighbour::{Neighbour, Queue, Size};
use order::Ordered;
use passing::Owed;
use planned::Planned;
use quota::{Reservation, Usage};
use reassembly::Reassembly;
use report::ReportRate;
use signals::Signals;
use stored::{NameGroup, Phase};
use timestamps::Timestamps;

/// A full store still takes messages of the signalling class up to this size.
const SHORT_BYTES: u64 = 4096;

/// How many bundles whose lifetimes or custody timers end together are looked at in one step, so
/// that others have their turn in between.
const DUE_AT_ONCE: usize = 1_024;

/// A node's bundle protocol agent and custodian.
///
/// A pure state machine: calls bring input and the time; [`Agent::poll_event`]
/// and [`Agent::next_for`] give output, [`Agent::next_timeout`] the next
/// deadline.
pub struct Agent {
    config: Config,
    sharding: Sharding,
    common: Common,
    /// What it uses of the node's quota.
    usage: Usage,
    routes: Routes,
    /// The contact plan, where one is followed.
    planned: Option<Planned>,
    admin: Eid,
    store: Box<dyn Store>,
    timestamps: Timestamps,
    /// Boxed, since the table never shrinks.
    bundles: Bundles,
    /// What this node has custody of, by its name on the wire.
    by_name: Names,
    ordered: Ordered,
    tally: Tally,
    /// The party to tell once the store has made a bundle safe.
    uncommitted: FastMap<BundleId, Owed>,
    leaving: Leaving,
    /// Questions to other agents that wait for their answers.
    asked: usize,
    /// Bundles that their services have not confirmed yet.
    unconfirmed: Unconfirmed,
    neighbours: FastMap<NeighbourId, Neighbour>,
    /// The neighbour that each custody sequence is for.
    sequences: FastMap<u64, NeighbourId>,
    transmissions: FastMap<u64, BundleId>,
    next_key: u64,
    /// Names of bundles delivered here or taken into custody.
    seen: Memory<NameGroup>,
    /// Custody taken, by the earlier custodian's own naming.
    taken: Memory<(Eid, u64)>,
    signals: Signals,
    reassembly: Reassembly,
    custody_timers: BTreeSet<(Instant, BundleId)>,
    expiries: Expiries,
    pauses: BTreeSet<(Instant, (NeighbourId, Size))>,
    reports: ReportRate,
    events: VecDeque<Event>,
    woken: BTreeSet<(NeighbourId, Option<Class>)>,
    /// Neighbours that are woken when a bundle stored for them is gone.
    without_room: BTreeSet<NeighbourId>,
}

impl Agent {
    /// An agent whose store is memory.
    pub fn new(config: Config) -> Agent {
        Agent::with_store(config, Box::new(MemoryStore::default()))
    }

    /// An agent with a store of its own kind. [`Agent::restore`] takes over what an earlier run has
    /// left there.
    pub fn with_store(config: Config, store: Box<dyn Store>) -> Agent {
        let common = Common::new(&config, 1);
        Agent::in_shard(config, store, common, Sharding::ALONE)
    }

    /// One of the agents of a node, each with its part of the neighbours: it must know only
    /// these. All agents of a node have the same configuration, and all are created before any is
    /// used.
    pub fn in_shard(
        config: Config,
        store: Box<dyn Store>,
        common: Common,
        sharding: Sharding,
    ) -> Agent {
        let DuplicateLimits { age, ranges } = config.duplicates;
        let ranges = ranges / sharding.count;
        common.begin_ids_at(store.first_free_id());
        Agent {
            sharding,
            usage: Usage::new(Arc::clone(&common.quota)),
            common,
            admin: ipn(config.node, 0),
            routes: Routes::new(&config.routes),
            planned: None,
            timestamps: Timestamps::new(config.run_nonce, sharding),
            bundles: Bundles::default(),
            store,
            by_name: Names::default(),
            ordered: Ordered::new(),
            tally: Tally::default(),
            uncommitted: FastMap::default(),
            leaving: Leaving::default(),
            asked: 0,
            unconfirmed: Unconfirmed::default(),
            neighbours: FastMap::default(),
            sequences: FastMap::default(),
            transmissions: FastMap::default(),
            next_key: 0,
            seen: Memory::new(ranges, age),
            taken: Memory::new(ranges, age),
            signals: Signals::default(),
            reassembly: Reassembly::default(),
            custody_timers: BTreeSet::new(),
            expiries: Expiries::default(),
            pauses: BTreeSet::new(),
            reports: ReportRate::new(config.status_reports_per_s),
            events: VecDeque::new(),
            woken: BTreeSet::new(),
            without_room: BTreeSet::new(),
            config,
        }
    }

    /// Tells the agent the time of day: DTN time in ms at `now`. Until then
    /// bundles are created with time 0.
    pub fn set_clock(&mut self, now: Instant, dtn_time_ms: u64) {
        self.timestamps.set_clock(now, dtn_time_ms);
    }

    /// Tells the agent the time of a clock that is known to be right: DTN time in ms at `now`, or
    /// `None` if there is no such clock. By it a bundle without an age block is as old as its
    /// creation time says.
    pub fn set_known_time(&mut self, now: Instant, dtn_time_ms: Option<u64>) {
        self.timestamps.set_known(now, dtn_time_ms);
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some((neighbour, class)) = self.woken.pop_first() {
            return Some(Event::Woken { neighbour, class });
        }
        let event = self.events.pop_front()?;
        if let Event::Deliver(delivery) = &event {
            self.usage.free_undelivered(delivery.payload.len() as u64);
        }
        Some(event)
    }

    /// Whether a payload of so many bytes may have room, to be sent or relayed
    /// to some neighbour.
    pub fn room(&self, bytes: u64) -> bool {
        self.usage.has_room(bytes) && bytes <= self.store.free_bytes()
    }

    /// What the store of the agent that has a neighbour can take, bytes.
    fn storable(&self, via: NeighbourId) -> u64 {
        match self.sharding.has(via) {
            true => self.store.free_bytes(),
            false => self.common.storable(self.sharding.shard_of(via)),
        }
    }

    /// Room for a payload that goes by a neighbour of one of the node's agents.
    fn reserve(&self, via: NeighbourId, bytes: u64) -> Option<Reservation> {
        let room =
            (bytes <= self.storable(via)).then(|| self.usage.reserve(via, bytes, Purpose::Bundle));
        room.flatten()
    }

    /// Room for a payload that this node sends in a class.
    fn reserve_to_send(&self, via: NeighbourId, bytes: u64, class: Class) -> Option<Reservation> {
        let short = class == Class::SIGNALLING && bytes <= SHORT_BYTES;
        let beyond = || self.usage.reserve(via, bytes, Purpose::Emptying);
        let room = self.reserve(via, bytes);
        room.or_else(|| short.then(beyond).flatten())
    }

    /// As [`Agent::free_bytes`], for what this node sends in a class.
    pub fn free_bytes_of(&self, via: NeighbourId, class: Class) -> u64 {
        let short = || {
            let purpose = Purpose::Emptying;
            self.usage.has_room_for(via, SHORT_BYTES, purpose)
        };
        let least = match class == Class::SIGNALLING && short() {
            true => SHORT_BYTES,
            false => 0,
        };
        self.free_bytes(via).max(least)
    }

    /// The largest payload that has room, to be sent or relayed by way of a
    /// neighbour, bytes.
    pub fn free_bytes(&self, via: NeighbourId) -> u64 {
        let free = self.usage.free_bytes(via);
        free.min(self.store.free_bytes())
    }

    /// As [`Agent::free_bytes`], but without regard to what the store can take at the moment.
    pub fn quota_left_bytes(&self, via: NeighbourId) -> u64 {
        self.usage.free_bytes(via)
    }

    /// Asks for [`Event::Woken`] once a bundle that was stored for a neighbour is gone.
    pub fn await_room(&mut self, via: NeighbourId) {
        self.without_room.insert(via);
    }

    /// Frees the room of a bundle that was stored for a neighbour.
    fn free(&mut self, via: NeighbourId, bytes: u64) {
        self.usage.free(via, bytes);
        if self.without_room.remove(&via) {
            self.woken.insert((via, None));
        }
    }

    /// The most bytes that ever have room at once by way of a neighbour, while
    /// other neighbours have what they have now.
    pub fn burst_bytes(&self, via: NeighbourId) -> u64 {
        self.usage.most_bytes(via).min(self.store.burst_bytes())
    }

    /// The most bytes that can be stored for a neighbour, while others have what
    /// they have now.
    pub fn most_bytes(&self, via: NeighbourId) -> u64 {
        self.usage.most_bytes(via)
    }

    /// Whether a payload of so many bytes can wait for its service. This room
    /// is apart from the store: two nodes whose stores are full of bundles for
    /// each other must still be able to take them in.
    pub fn delivery_room(&self, bytes: u64) -> bool {
        self.usage.has_room_undelivered(bytes)
    }

    /// The next deadline: call [`Agent::handle_timeout`] then.
    pub fn next_timeout(&self) -> Option<Instant> {
        let earliest = [
            self.signals.next_timeout(),
            self.custody_timers.first().map(|(at, _)| *at),
            self.expiries.next_timeout(),
            self.pauses.first().map(|(at, _)| *at),
            self.leaving.next_timeout(),
            self.reassembly.next_timeout(),
            self.store.next_timeout(),
        ];
        earliest.into_iter().flatten().min()
    }

    /// Does what is due at `now`, or a part of it if that is much: then the next deadline is in the
    /// past.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(to) = self.signals.pop_due(now) {
            let via = to.way.via;
            self.neighbour(via).signals.push_back(to);
            self.woken.insert((via, Some(Class::SIGNALLING)));
        }
        while let Some((_, (neighbour, size))) = self.pauses.pop_first_if_due(now) {
            self.end_pause(neighbour, size);
        }
        for _ in 0..DUE_AT_ONCE {
            let Some((_, id)) = self.custody_timers.pop_first_if_due(now) else {
                break;
            };
            self.custody_timer_fired(now, id);
        }
        for _ in 0..DUE_AT_ONCE {
            let Some(id) = self.next_expired(now) else {
                break;
            };
            self.give_up(now, id, DeleteReason::LifetimeExpired);
        }
        self.take_placed(now);
        for unjudged in self.reassembly.handle_timeout(now) {
            self.expire_whole(now, *unjudged.whole);
        }
        self.store.handle_timeout(now);
        self.handle_store(now);
        self.pass_leaving(now);
    }

    fn next_expired(&mut self, now: Instant) -> Option<BundleId> {
        let bundles = &self.bundles;
        let expires = |id| bundles.get(id).map(|stored| stored.expires);
        self.expiries.pop_due(now, expires)
    }

    /// Whether what is stored survives the end of the process.
    pub fn is_durable(&self) -> bool {
        self.store.is_durable()
    }

    /// Whether a bundle is stored.
    pub fn has_bundle(&self, id: BundleId) -> bool {
        self.bundles.contains_key(id)
    }

    /// Gives up a bundle; a transfer in progress ends without effect. Returns whether there was
    /// such a bundle.
    pub fn cancel(&mut self, now: Instant, id: BundleId) -> bool {
        let stored = self.bundles.contains_key(id);
        self.give_up(now, id, DeleteReason::Cancelled);
        stored
    }

    /// The state of a neighbour. All custody sequences of the node have different names, whichever
    /// agent has the neighbour.
    fn neighbour(&mut self, id: NeighbourId) -> &mut Neighbour {
        debug_assert!(self.sharding.has(id), "{id} is another agent's");
        let Sharding { own, count } = self.sharding;
        let place = (self.neighbours.len() * count + own) as u64;
        // Sequences of another run never look like this one's: a late signal
        // must not release a bundle that only shares a number.
        let base = (self.config.run_nonce & 0xFFFF_FFFF).max(1);
        let sequences = &mut self.sequences;
        self.neighbours.entry(id).or_insert_with(|| {
            let sequence = base + place;
            sequences.insert(sequence, id);
            Neighbour::new(sequence)
        })
    }

    /// The next hop of a bundle of so many bytes to a node, and whether to take custody on that
    /// way: by the contact plan, or else by the routes.
    fn route(&self, node: u64, bytes: u64) -> Option<(NeighbourId, bool)> {
        let planned = self.planned_route(node, bytes);
        planned.or_else(|| self.static_route(node))
    }

    /// Whether a route leads to a node: if none does for small bundles, none does for large ones.
    fn has_route(&self, node: u64) -> bool {
        self.route(node, 0).is_some()
    }

    /// The next hop to a node by the routes.
    fn static_route(&self, node: u64) -> Option<(NeighbourId, bool)> {
        if !names_node(node) {
            return None;
        }
        let direct = NeighbourId(node);
        // A neighbour that was removed from the routes is no route to itself.
        let itself = || {
            let neighbour = self.neighbours.get(&direct);
            neighbour.is_some_and(|neighbour| neighbour.routed)
        };
        let routed = self.routes.to(node);
        routed.or_else(|| itself().then_some((direct, true)))
    }

    /// Queues a stored bundle: with the bundles of earlier runs that take turns, if it is one of
    /// them; otherwise with those that are sent again, if it was sent before.
    fn enqueue(&mut self, id: BundleId) {
        self.enqueue_as(id, false);
    }

    /// The same; `unanswered` if it was sent before and has probably arrived.
    fn enqueue_as(&mut self, id: BundleId, unanswered: bool) {
        let Some(stored) = self.bundles.get_mut(id) else {
            return;
        };
        if !self.sharding.has(stored.neighbour) {
            stored.phase = Phase::Leaving;
            self.leaving.add(id, stored.since);
            return;
        }
        stored.phase = Phase::Queued;
        let (via, class) = (stored.neighbour, stored.class);
        let (again, bytes) = (stored.transmissions > 0, stored.bytes);
        let restored = stored.restored;
        let neighbour = self.neighbour(via);
        let queue: &mut Queue = neighbour.queues.entry(class).or_default();
        match again {
            true if unanswered => queue.unanswered.insert(id),
            _ if restored => queue.restored.insert(id),
            true => queue.again.insert(id),
            false => queue.fresh.insert(id),
        };
        queue.bytes += bytes;
        // This applies even if others wait already: the session may be able to take this one but
        // not those.
        if neighbour.has_pending(class) {
            self.woken.insert((via, Some(class)));
        }
    }
}

/// Takes what is due from a set ordered by time.
trait PopDue<T> {
    fn pop_first_if_due(&mut self, now: Instant) -> Option<(Instant, T)>;
}

impl<T: Ord + Copy> PopDue<T> for BTreeSet<(Instant, T)> {
    fn pop_first_if_due(&mut self, now: Instant) -> Option<(Instant, T)> {
        match self.first() {
            Some((at, _)) if *at <= now => self.pop_first(),
            _ => None,
        }
    }
}
