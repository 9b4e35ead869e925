//! The paths that are up on demand: the reading by which each is judged, and what the node at the
//! other end says about it.
//!
//! A path that is down has no session, so no bundle that may go elsewhere waits for it. Signalling
//! alone never brings a path up: reports and custody signals would keep it up for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{self as bundle, NeighbourId};
use underpass_cla::Class;
use underpass_streams::class_of;
use underpass_work::each;

use crate::choosing::COUNTED_PEERS;
use crate::engine::{Action, Engine};
use crate::hop::{Hop, HopId};
use crate::link::Source;
use crate::on_demand::{ASKED_FOR, PathChange, Presence, Reading};
use crate::policy::{MeteredUse, PathUse};
use crate::services::Message;
use crate::steering::Pace;
use crate::streams::StreamKey;

/// The ipn service of nodes that ask for a path; 1 to 127 are for private use.
pub const ON_DEMAND_SERVICE: u64 = 84;
/// A message is one of these bytes (the path is needed, or no longer needed), then the path's name
/// at the node that dials it, in UTF-8.
const NEEDS: u8 = 1;
const NEEDS_NO_MORE: u8 = 0;
/// The longest name, bytes.
pub const LONGEST_NAME: usize = 255;

/// The other paths have room while at most this part (in 10) of their rates is sent.
const ROOM_TENTHS: u64 = 8;
/// A path that carries less than this, bit/s, is of no use at present.
const LEAST_LOAD_BPS: u64 = 10_000;

/// When paths are judged, and what the paths beside them carry.
#[derive(Debug, Default)]
pub(crate) struct OnDemandPaths {
    times: BTreeSet<(Instant, HopId)>,
    at: BTreeMap<HopId, Instant>,
    loads: BTreeMap<HopId, Pace>,
}

impl OnDemandPaths {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let OnDemandPaths { times, at, loads } = self;
        tell("paths on demand by time", times.len() + at.len());
        tell("loads beside paths on demand", loads.len());
    }

    /// When [`Engine::judge_paths_due`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }

    /// A hop is gone.
    pub fn forget(&mut self, id: HopId) {
        self.judge_at(id, None);
        self.loads.remove(&id);
    }

    fn judge_at(&mut self, id: HopId, at: Option<Instant>) {
        if let Some(before) = self.at.remove(&id) {
            self.times.remove(&(before, id));
        }
        if let Some(at) = at {
            self.at.insert(id, at);
            self.times.insert((at, id));
        }
    }
}

/// What the other paths to a neighbour can do for a class.
enum Others {
    /// The class may go by none of them.
    Forbidden,
    /// None can carry anything now.
    Unable,
    /// They carry so much together, bit/s; `None` is unknown.
    Able(Option<u64>),
}

impl Engine {
    /// Notes that an operator wants a path up or released, or leaves that to need (`None`). Returns
    /// whether the path is one that is up on demand and dialled by this node.
    pub fn hold_up(&mut self, now: Instant, id: HopId, held: Option<bool>) -> bool {
        let presence = self.presence_mut(id).filter(|own| own.config().dials);
        let Some(presence) = presence else {
            return false;
        };
        presence.hold(held);
        self.judge_path(now, id);
        self.after_change(now);
        true
    }

    /// Notes that a path could not be brought up: its command has failed.
    pub fn bring_up_failed(&mut self, now: Instant, id: HopId) {
        let change = self.presence_mut(id).and_then(|own| own.fail(now));
        self.path_changed(now, id, change);
        self.judge_path(now, id);
        self.after_change(now);
    }

    /// Notes that the process before has brought a path up, and that it is still up.
    pub fn path_goes_on(&mut self, now: Instant, id: HopId) {
        if let Some(presence) = self.presence_mut(id) {
            presence.go_on(now);
            self.judge_path(now, id);
            self.after_change(now);
        }
    }

    /// Whether a path is up on demand and released: it has no sessions.
    pub fn is_released(&self, id: HopId) -> bool {
        self.hops.get(&id).is_some_and(Hop::is_released)
    }

    fn presence_mut(&mut self, id: HopId) -> Option<&mut Presence> {
        self.hops.get_mut(&id)?.presence.as_mut()
    }

    /// Has a path judged soon, since something has changed for it.
    pub(crate) fn judge_path_soon(&mut self, now: Instant, id: HopId) {
        let hop = self.hops.get(&id);
        let Some(presence) = hop.and_then(|hop| hop.presence.as_ref()) else {
            return;
        };
        let soon = presence.soonest(now);
        if self.on_demand.at.get(&id).is_none_or(|at| *at > soon) {
            self.on_demand.judge_at(id, Some(soon));
        }
    }

    /// The same for all paths to a neighbour.
    pub(crate) fn judge_paths_soon(&mut self, now: Instant, neighbour: u64) {
        for id in self.ways.shared_hops_to(neighbour).iter() {
            self.judge_path_soon(now, *id);
        }
    }

    /// Judges the paths whose time has come.
    pub(crate) fn judge_paths_due(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.on_demand.times.first() {
            if at > now {
                return;
            }
            self.on_demand.judge_at(id, None);
            self.judge_path(now, id);
        }
    }

    fn judge_path(&mut self, now: Instant, id: HopId) {
        let Some(reading) = self.read_path(now, id) else {
            return;
        };
        let Some(presence) = self.presence_mut(id) else {
            return;
        };
        let change = presence.step(now, &reading);
        let word = presence.word(now);
        let word = word.map(|needs| (needs, presence.config().path.clone()));
        let next = presence.next(now, &reading);
        self.on_demand.judge_at(id, next);
        if let Some((needs, path)) = word {
            self.tell_need(now, id, &path, needs);
        }
        self.path_changed(now, id, change);
    }

    fn path_changed(&mut self, now: Instant, id: HopId, change: Option<PathChange>) {
        let (Some(change), Some(neighbour)) = (change, self.neighbour_of(id)) else {
            return;
        };
        self.actions.push_back(Action::Path { hop: id, change });
        self.leaves_changed(id);
        self.hops_have_changed(now, neighbour);
        self.reconsider_reading(now, neighbour);
    }

    /// Notes that a hop has its first session, or has lost its last one. Without sessions, silence
    /// of a hop that is up on demand says nothing.
    pub(crate) fn path_connected(&mut self, now: Instant, id: HopId) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let neighbour = hop.config.neighbour;
        if hop.presence.is_some() && !hop.is_up() {
            hop.link.renew(now);
            self.judge(now, id);
        }
        if self.has_path_on_demand(neighbour) {
            self.reconsider_reading(now, neighbour);
            self.judge_paths_soon(now, neighbour);
        }
    }

    fn has_path_on_demand(&self, neighbour: u64) -> bool {
        let hops = self.ways.hops_to(neighbour).iter();
        let mut hops = hops.filter_map(|id| self.hops.get(id));
        hops.any(|hop| hop.presence.is_some())
    }

    /// Notes that a flow of known size begins: a path that it needs is brought up before any
    /// backlog shows.
    pub(crate) fn expect_flow(&mut self, now: Instant, key: StreamKey, size_bytes: u64) {
        let neighbour = self.neighbour_to(key.peer);
        let hops = self.ways.shared_hops_to(neighbour);
        if !self.has_path_on_demand(neighbour) {
            return;
        }
        let queue = self.change_run(key, |mux| mux.queue_of(key.id));
        let Some(class) = queue.flatten().map(class_of) else {
            return;
        };
        for id in each(hops.iter().copied()) {
            let helps = self.helps(id, class);
            let Others::Able(Some(rate_bps)) = self.others(now, id, class) else {
                continue;
            };
            let waiting = self.waiting_for_others(id, class);
            let needs = time_of(waiting.saturating_add(size_bytes), rate_bps);
            let presence = self.presence_mut(id).filter(|_| helps);
            if presence.is_some_and(|presence| presence.expect(needs)) {
                self.judge_path(now, id);
            }
        }
    }

    /// What the other hops to a hop's neighbour can do for a class.
    fn others(&self, now: Instant, id: HopId, class: Class) -> Others {
        let neighbour = self.neighbour_of(id).unwrap_or_default();
        let others = self.ways.hops_to(neighbour).iter();
        let others = others.filter(|other| **other != id);
        let mut sum = Others::Forbidden;
        for other in others.filter_map(|other| self.hops.get(other)) {
            if self.place_on(other, class).is_none() {
                continue;
            }
            // The low rate allowed behind a first flight is no limit of the path.
            let rate_bps = self.within_share(other.config.id, other.usable_bps());
            let way = self.way(now, other, class).map(|_| rate_bps);
            sum = match (sum, way) {
                (Others::Forbidden | Others::Unable, Some(rate)) => Others::Able(rate),
                (Others::Able(sum), Some(rate)) => {
                    let rates = sum.zip(rate);
                    Others::Able(rates.map(|(sum, rate)| sum.saturating_add(rate)))
                }
                (Others::Able(sum), None) => Others::Able(sum),
                (Others::Forbidden | Others::Unable, None) => Others::Unable,
            };
        }
        sum
    }

    /// What waits in a class and in those of the same or a higher priority, and may go by the other
    /// hops that the class may use, bytes.
    fn waiting_for_others(&self, id: HopId, class: Class) -> u64 {
        let neighbour = self.neighbour_of(id).unwrap_or_default();
        let others = self.ways.hops_to(neighbour).iter().copied();
        let others = others.filter(|other| *other != id);
        let others = others.filter(|other| self.may_use(neighbour, class, *other));
        let others: Vec<HopId> = others.collect();
        self.sum_before(class, |of| {
            let mut others = others.iter();
            match of == class || others.any(|other| self.may_use(neighbour, of, *other)) {
                true => self.waiting_of(neighbour, of),
                false => 0,
            }
        })
    }

    /// Whether a backlog of a class would go by a hop that is brought up for it.
    fn helps(&self, id: HopId, class: Class) -> bool {
        let Some(hop) = self.hops.get(&id) else {
            return false;
        };
        let policy = self.policy(class);
        let Some(place) = self.place_on(hop, class) else {
            return false;
        };
        let spared = policy.metered == MeteredUse::Last && hop.meter.is_some();
        let others = self.ways.hops_to(hop.config.neighbour).iter();
        let others = others.filter(|other| **other != id);
        let mut places = others.filter_map(|other| self.place_on(self.hops.get(other)?, class));
        let comes_last = policy.uses == PathUse::Failover && places.any(|other| other <= place);
        !spared && !comes_last
    }

    /// The reading of a path; `None` for one that is not up on demand.
    fn read_path(&mut self, now: Instant, id: HopId) -> Option<Reading> {
        let hop = self.hops.get(&id)?;
        let moved_before = hop.presence.as_ref()?.moved_bytes;
        let neighbour = hop.config.neighbour;
        let loads = self.count_loads(now, neighbour);
        let hop = self.hops.get(&id)?;
        let presence = hop.presence.as_ref()?;
        let by = hop.link.blocked().map(|(source, _)| source);
        let told = [Source::Operator, Source::Contact, Source::Plan];
        let mut reading = Reading {
            connected: hop.is_up(),
            barred: by.is_some_and(|by| told.contains(&by)),
            ..Reading::default()
        };
        let load = |id: &HopId| loads.get(id).copied().unwrap_or(0);
        let own_bps = load(&id);
        let sent_bps: u64 = loads.values().sum();
        let has_streams = self.has_streams(neighbour);
        let mut moved = [0, 0];
        for class in self.classes.iter().filter(|of| **of != Class::SIGNALLING) {
            let class = *class;
            let traffic = hop.traffic.get(usize::from(class.0)).copied();
            let traffic = traffic.unwrap_or_default();
            moved[1] += traffic.received_bytes;
            if self.place_on(hop, class).is_none() {
                continue;
            }
            let waits = self.waits(neighbour, class);
            let kept = self.kept_on(class, neighbour) == Some(id);
            match self.others(now, id, class) {
                _ if kept => {}
                Others::Forbidden => {}
                Others::Unable => {
                    reading.others_down |= waits || has_streams;
                    continue;
                }
                Others::Able(rate_bps) => {
                    let Some(rate_bps) = rate_bps.filter(|_| self.helps(id, class)) else {
                        continue;
                    };
                    if waits {
                        let waiting = self.waiting_for_others(id, class);
                        reading.others_need = reading.others_need.max(time_of(waiting, rate_bps));
                    }
                    let room = rate_bps / 10 * ROOM_TENTHS;
                    reading.beyond_others |= own_bps > LEAST_LOAD_BPS && sent_bps > room;
                    continue;
                }
            }
            moved[0] += traffic.sent_bytes;
            reading.pinned |= waits;
        }
        reading.pinned |= moved[0] > moved_before[0];
        // A neighbour that never says when it needs the path may need it all the same.
        let told = presence.neighbour_tells() || !presence.config().dials;
        reading.pinned |= !told && moved[1] > moved_before[1];
        reading.active = sent_bps > LEAST_LOAD_BPS || !reading.others_need.is_zero();
        if let Some(presence) = self.presence_mut(id) {
            presence.moved_bytes = moved;
        }
        Some(reading)
    }

    /// Whether streams are open by way of a neighbour.
    fn has_streams(&self, neighbour: u64) -> bool {
        let behind = self.ways.peers_behind(neighbour).take(COUNTED_PEERS);
        let mut streams = behind.filter_map(|peer| self.peers.get(peer));
        streams.any(|streams| streams.stream_count() > 0)
    }

    fn waits(&self, neighbour: u64, class: Class) -> bool {
        let to = NeighbourId(neighbour);
        self.agent.has_pending(to, class)
            || self.peers.waits(neighbour, class)
            || self.waiting_of(neighbour, class) > 0
    }

    /// What the hops to a neighbour carry, bit/s.
    fn count_loads(&mut self, now: Instant, neighbour: u64) -> BTreeMap<HopId, u64> {
        let mut loads = BTreeMap::new();
        for id in self.ways.shared_hops_to(neighbour).iter() {
            let Some(hop) = self.hops.get(id) else {
                continue;
            };
            let pace = self.on_demand.loads.entry(*id);
            let pace = pace.or_insert_with(|| Pace::new(now, hop.given_bytes));
            pace.count(now, hop.given_bytes);
            loads.insert(*id, pace.bps());
        }
        loads
    }

    /// Tells the neighbour that this node needs a path that is dialled there, or no
    /// longer does.
    fn tell_need(&mut self, now: Instant, id: HopId, path: &str, needs: bool) {
        let Some(peer) = self.neighbour_of(id) else {
            return;
        };
        let kind = if needs { NEEDS } else { NEEDS_NO_MORE };
        let word = Message::new(
            peer,
            ON_DEMAND_SERVICE,
            Class::SIGNALLING,
            Bytes::from([&[kind], path.as_bytes()].concat()),
        );
        // If there is no room for this message, the next one says the same, or the last one lapses.
        let _ = self.send_message(now, word, ASKED_FOR);
    }

    /// Takes a neighbour's word whether it needs a path that this node dials to it. Returns whether
    /// the message is such a word. Only the neighbour itself may say it, and only for its own path.
    pub(crate) fn take_need(&mut self, now: Instant, delivery: &bundle::Delivery) -> bool {
        let source = bundle::wire::ipn_parts(&delivery.source);
        let Some((peer, ON_DEMAND_SERVICE)) = source else {
            return false;
        };
        let word = delivery.payload.split_first();
        let Some((kind @ (NEEDS | NEEDS_NO_MORE), name)) = word.map(|(kind, name)| (*kind, name))
        else {
            return false;
        };
        let hops = self.ways.shared_hops_to(peer);
        let named = |id: &&HopId| {
            let hop = self.hops.get(id);
            let config = hop.and_then(|hop| hop.config.on_demand.as_ref());
            config.is_some_and(|own| own.dials && own.path.as_bytes() == name)
        };
        let Some(id) = hops.iter().find(named).copied() else {
            return false;
        };
        let at = now.checked_sub(delivery.age).unwrap_or(now);
        if let Some(presence) = self.presence_mut(id) {
            presence.take_word(at, kind == NEEDS);
        }
        self.judge_path_soon(now, id);
        true
    }
}

fn time_of(bytes: u64, rate_bps: u64) -> Duration {
    let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(rate_bps.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
