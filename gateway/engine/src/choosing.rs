//! Several hops to one neighbour: which of them takes the bundles that wait, and what becomes of
//! those in flight on a hop that is blocked.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{BundleId, NeighbourId};
use underpass_cla::{Class, SessionId};
use underpass_completion::Estimate;
use underpass_work::each;

use crate::budget::Meter;
use crate::engine::Engine;
use crate::hop::{Hop, HopId};
use crate::link::Expectation;
use crate::migration::MigrationRule;
use crate::paths::{Turn, Way};
use crate::policy::{MeteredUse, PathUse, Policy};
use crate::transfers::Session;

/// A hop that lets others go first is asked again after at least the first and at most the second
/// of these times: rates and backlogs change meanwhile.
const ASKED_AFTER: Duration = Duration::from_millis(2);
pub(crate) const ASKED_WITHIN: Duration = Duration::from_millis(50);

/// Where another hop can carry what is in flight, a hop counts as blocked after silence of a round
/// trip and this.
pub(crate) const IMPATIENCE: Duration = Duration::from_millis(200);

/// Where a standby session can go on, the peer is asked after a round trip without an
/// acknowledgement, and the hop is blocked if there is no answer within another round trip and
/// this. What is in flight may be a segment that takes long to leave, and the request waits behind
/// it.
const UNANSWERED: Duration = Duration::from_millis(40);

/// Before a planned blockage a hop takes no bundle that would not be acknowledged by its entry: the
/// last one leaves a round trip and this before, which allows for repairs.
const REPAIRED_WITHIN: Duration = Duration::from_millis(100);

/// The backlog of at most so many nodes behind a neighbour is counted. The others only make the hop
/// of less delay carry a little more.
pub(crate) const COUNTED_PEERS: usize = 64;

/// The most that is sealed ahead for a hop while one of longer delay takes the bytes behind that.
const MOST_LEAD_BYTES: u64 = 16 << 20;
/// A hop of longer delay that begins to carry takes bytes so far behind that nobody waits for them
/// yet. Over this time its distance shrinks until it takes the next bytes. Clients are then late by
/// the difference of the delays, without a gap, and have as much to receive when the other hop
/// fails.
const LEAD_FADES: Duration = Duration::from_secs(5);

/// The most second copies of a class that wait on a hop, and the most bytes; beyond that the oldest
/// are dropped. The store no longer counts their bytes once the bundle is released.
const MOST_COPIES: usize = 64;
const MOST_COPIED_BYTES: u64 = 4 << 20;

const ANOTHER_CARRIES_ON: &str = "another path carries on what this one had";

/// A bundle that has left by another hop and goes by this one, too.
#[derive(Debug)]
pub(crate) struct CopiedBundle {
    pub bundle: BundleId,
    pub chunks: Vec<Bytes>,
    /// The hop that it has left by, if doubts about that are why it goes by this one.
    pub doubted: Option<HopId>,
}

/// Those of one class.
pub(crate) type Copies = VecDeque<CopiedBundle>;

/// A hop that a class may use now.
pub(crate) struct Candidate {
    pub id: HopId,
    place: usize,
    pub way: Way,
    /// A planned blockage is near.
    leaving: bool,
    /// It is metered, and others are to be used as long as they can carry.
    spared: bool,
    /// It stood still a while ago, and others are to be used meanwhile.
    avoided: bool,
    /// Its answers are late, or it seems to stand still, and others are to be used
    /// meanwhile.
    doubted: bool,
}

impl Engine {
    /// Whether it is a hop's turn to take what waits for its neighbour in a class. The only hop to
    /// a neighbour always has its turn, if the class may use it.
    pub(crate) fn turn(&self, now: Instant, id: HopId, class: Class) -> Turn {
        let Some(hop) = self.hops.get(&id) else {
            return Turn::Now;
        };
        if self.place_on(hop, class).is_none() {
            return Turn::Later(Duration::MAX);
        }
        let neighbour = hop.config.neighbour;
        if self.ways.hops_to(neighbour).len() < 2 {
            return Turn::Now;
        }
        let mut candidates = self.candidates(now, neighbour, class);
        let Some(own) = candidates.iter().position(|one| one.id == id) else {
            // Nothing announces that the suspicion has lapsed, so the hop asks again.
            return Turn::Later(match hop.standing.is_suspected(now, class) {
                true => ASKED_WITHIN,
                false => Duration::MAX,
            });
        };
        let waiting_bytes = self.waiting_bytes(neighbour, class, &candidates);
        let own = candidates.swap_remove(own).way;
        let others: Vec<Way> = candidates.iter().map(|other| other.way).collect();
        own.turn(&others, waiting_bytes)
    }

    /// How many bytes lie before the bundle that a hop is to take, and the hop that takes these.
    /// `None` if the hop delivers its bundle before all others, or has carried for long.
    pub(crate) fn lead(&self, now: Instant, id: HopId, class: Class) -> Option<(HopId, u64)> {
        let neighbour = self.hops.get(&id)?.config.neighbour;
        let bonded = self.policy(class).uses == PathUse::Bonded;
        if !bonded || self.ways.hops_to(neighbour).len() < 2 {
            return None;
        }
        let mut candidates = self.candidates(now, neighbour, class);
        let own = candidates.iter().position(|one| one.id == id)?;
        let waiting_bytes = self.waiting_bytes(neighbour, class, &candidates);
        let own = candidates.swap_remove(own).way;
        let nearest = candidates.iter().min_by_key(|one| one.way.delay)?.id;
        let others: Vec<Way> = candidates.iter().map(|other| other.way).collect();
        let bytes = own.lead(&others, waiting_bytes);
        let carried = match self.is_in_flight(id) {
            true => now.saturating_duration_since(self.hops.get(&id)?.in_flight_since),
            false => Duration::ZERO,
        };
        let left = LEAD_FADES.saturating_sub(carried).as_millis();
        let bytes = u128::from(bytes.min(MOST_LEAD_BYTES)) * left / LEAD_FADES.as_millis();
        let bytes = u64::try_from(bytes).unwrap_or(MOST_LEAD_BYTES);
        (bytes > 0).then_some((nearest, bytes))
    }

    /// Notes when to ask a hop again whose turn it was not.
    pub(crate) fn ask_again(&mut self, now: Instant, id: HopId, late: Duration) {
        if late < Duration::MAX {
            let at = now + late.clamp(ASKED_AFTER, ASKED_WITHIN);
            self.ask_at = Some(self.ask_at.map_or(at, |before| before.min(at)));
            self.asked.insert(id);
        }
    }

    /// Asks the hops whose turn it was not again, when it is time.
    pub(crate) fn ask_hops(&mut self, now: Instant) {
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = None;
            for id in std::mem::take(&mut self.asked) {
                self.leaves_changed(id);
            }
        }
    }

    pub(crate) fn policy(&self, class: Class) -> &Policy {
        const DEFAULT: &Policy = &Policy {
            uses: PathUse::Bonded,
            paths: Vec::new(),
            migration: MigrationRule::DEFAULT,
            estimate: Estimate::OpenSession,
            metered: MeteredUse::Last,
        };
        self.config.policies.get(&class).unwrap_or(DEFAULT)
    }

    /// The hops that a class may use now, as its policy chooses.
    pub(crate) fn candidates(&self, now: Instant, neighbour: u64, class: Class) -> Vec<Candidate> {
        let policy = self.policy(class);
        let mut able = self.able(now, neighbour, class);
        if able.iter().any(|one| !one.leaving) {
            able.retain(|one| !one.leaving);
        }
        // A doubt ends soon, either way, so a class that moves keeps its path meanwhile.
        if able.iter().any(|one| !one.doubted) {
            able.retain(|one| !one.doubted);
        }
        if policy.uses == PathUse::Migrate {
            let path = self.steering.path_of(neighbour, class);
            if able.iter().any(|one| Some(one.id) == path) {
                able.retain(|one| Some(one.id) == path);
            }
        }
        if matches!(policy.uses, PathUse::Failover | PathUse::Migrate) {
            let first = able.iter().map(|one| one.place).min();
            able.retain(|one| Some(one.place) == first);
            // Of several that are equal, the first in the configuration.
            if policy.paths.is_empty() {
                able.truncate(1);
            }
        }
        able
    }

    /// The longest bundle with a payload on disk that other hops to the neighbour take in a class
    /// now, bytes; 0 if none takes more than `mru`, which this hop takes.
    pub(crate) fn taken_by_others(&self, now: Instant, id: HopId, class: Class, mru: u64) -> u64 {
        let neighbour = self.neighbour_of(id).unwrap_or_default();
        let longer = |other: &HopId| {
            let other = self.hops.get(other);
            other.and_then(|other| other.mru_bytes) > Some(mru)
        };
        if !self.ways.hops_to(neighbour).iter().any(longer) {
            return 0;
        }
        let candidates = self.candidates(now, neighbour, class).into_iter();
        let others = candidates.filter(|other| other.id != id);
        let sessions = others.filter_map(|other| {
            let carrier = self.hops.get(&other.id)?.carrier(class)?;
            self.sessions.get(carrier)
        });
        let taking = sessions.filter(|session| session.info.takes_files);
        let most = taking.map(|session| session.info.transfer_mru_bytes).max();
        most.unwrap_or(0)
    }

    /// The hops that can carry a class, and whether each is about to be blocked.
    pub(crate) fn able_hops(
        &self,
        now: Instant,
        neighbour: u64,
        class: Class,
    ) -> BTreeMap<HopId, bool> {
        let able = self.able(now, neighbour, class).into_iter();
        able.map(|one| (one.id, one.leaving)).collect()
    }

    /// The place of a hop in a class's order of preference. `None` if the class may not go by it:
    /// the hop does not send, the policy does not allow it, or its budget is spent.
    pub(crate) fn place_on(&self, hop: &Hop, class: Class) -> Option<usize> {
        let place = self.place_by_policy(hop, class)?;
        hop.may_spend_for(class).then_some(place)
    }

    /// The same, but without regard to the hop's budget, which is renewed at times.
    pub(crate) fn place_by_policy(&self, hop: &Hop, class: Class) -> Option<usize> {
        let policy = self.policy(class);
        let forbidden = hop.meter.is_some() && policy.metered == MeteredUse::Never;
        let forbidden = forbidden || !hop.config.sends;
        let place = policy.place_of(&hop.config)?;
        (!forbidden).then_some(place)
    }

    fn able(&self, now: Instant, neighbour: u64, class: Class) -> Vec<Candidate> {
        let spares = self.policy(class).metered == MeteredUse::Last;
        let hops = self.ways.hops_to(neighbour).iter();
        let able = hops.filter_map(|id| {
            let hop = self.hops.get(id)?;
            let place = self.place_on(hop, class)?;
            let way = self.way(now, hop, class)?;
            let needed = hop.round_trip() + way.busy + REPAIRED_WITHIN;
            let entry = hop.link.next_entry(now, self.utc);
            Some(Candidate {
                id: *id,
                place,
                way,
                leaving: entry.is_some_and(|at| at <= now + needed),
                spared: spares && hop.meter.is_some(),
                avoided: hop.standing.is_avoided(now),
                doubted: hop.doubt.is_on() || hop.standing.is_suspected(now, class),
            })
        });
        let mut able: Vec<Candidate> = able.collect();
        if able.iter().any(|one| !one.avoided && !one.leaving) {
            able.retain(|one| !one.avoided);
        }
        if able.iter().any(|one| !one.spared && !one.leaving) {
            able.retain(|one| !one.spared);
        }
        able
    }

    /// A rate of a hop, bit/s of IP bytes, but no more than the hop's present share of the beam.
    pub(crate) fn within_share(&self, id: HopId, rate_bps: Option<u64>) -> Option<u64> {
        let share = self.scheduler.share_bps(id.terminal());
        rate_bps.into_iter().chain(share).min()
    }

    /// How a hop can carry a class at present; `None` if it cannot.
    pub(crate) fn way(&self, now: Instant, hop: &Hop, class: Class) -> Option<Way> {
        let rate_bps = hop.next_bps();
        let session = self.sessions.get(hop.carrier(class)?)?;
        if hop.blocked || rate_bps == Some(0) {
            return None;
        }
        let rate_bps = self.within_share(hop.config.id, rate_bps);
        // A session that should have taken the next bundle by now is held up. How much longer is
        // unknown: it is assumed to be as long again.
        let held_up = match session.is_ready() {
            true => Duration::ZERO,
            false => now.saturating_duration_since(hop.sent_by),
        };
        Some(Way {
            delay: hop.round_trip() / 2 + hop.measured.queue,
            rate_bps,
            busy: hop.sent_by.saturating_duration_since(now) + held_up,
            bundle_bytes: self.scheduler.max_bundle_bytes(hop.config.id.terminal()),
        })
    }

    /// The bytes that wait for a neighbour in a class and, as far as these hops may carry them, in
    /// those of the same or a higher priority.
    fn waiting_bytes(&self, neighbour: u64, class: Class, by: &[Candidate]) -> u64 {
        let hops: Vec<HopId> = by.iter().map(|one| one.id).collect();
        let waiting = self.sum_before(class, |of| match of == class {
            true => self.waiting_of(neighbour, of),
            false => self.waiting_for(neighbour, of, &hops),
        });
        waiting.max(1)
    }

    /// What waits in a class and in those of the same or a higher priority, and is to go by a hop.
    pub(crate) fn backlog_by(&self, neighbour: u64, class: Class, id: HopId) -> u64 {
        self.sum_before(class, |of| self.waiting_for(neighbour, of, &[id]))
    }

    /// The same without the class itself.
    pub(crate) fn backlog_of_others(&self, neighbour: u64, class: Class, id: HopId) -> u64 {
        self.sum_before(class, |of| match of == class {
            true => 0,
            false => self.waiting_for(neighbour, of, &[id]),
        })
    }

    /// The sum over a class and those of the same or a higher priority.
    pub(crate) fn sum_before(&self, class: Class, bytes: impl Fn(Class) -> u64) -> u64 {
        let classes = &self.config.scheduler.classes;
        let priority = classes.iter().find(|of| of.class == class);
        let priority = priority.map_or(0, |of| of.priority);
        let before = classes.iter().filter(|of| of.priority <= priority);
        before.map(|of| bytes(of.class)).sum()
    }

    /// What waits for a neighbour in a class and is to go by one of these hops.
    fn waiting_for(&self, neighbour: u64, class: Class, hops: &[HopId]) -> u64 {
        if !hops.iter().any(|id| self.may_use(neighbour, class, *id)) {
            return 0;
        }
        let elsewhere = self.waiting_elsewhere(neighbour, class, hops);
        self.waiting_of(neighbour, class).saturating_sub(elsewhere)
    }

    /// Whether a class may go by a hop to a neighbour, and has not moved to another one.
    pub(crate) fn may_use(&self, neighbour: u64, class: Class, id: HopId) -> bool {
        let hop = self.hops.get(&id);
        let path = self.steering.path_of(neighbour, class);
        path.is_none_or(|path| path == id)
            && hop.is_some_and(|hop| self.place_on(hop, class).is_some())
    }

    /// What waits for a neighbour in a class alone.
    pub(crate) fn waiting_of(&self, neighbour: u64, class: Class) -> u64 {
        let behind = self.ways.peers_behind(neighbour).take(COUNTED_PEERS);
        let streams = behind.filter_map(|peer| self.peers.get(peer));
        let unsealed = streams.map(|streams| streams.backlog(class).bytes);
        self.agent.backlog_bytes(NeighbourId(neighbour), class) + unsealed.sum::<u64>()
    }

    /// The streams to a neighbour that have something of a class to be sealed.
    pub(crate) fn backlogged_streams(&self, neighbour: u64, class: Class) -> usize {
        let behind = self.ways.peers_behind(neighbour).take(COUNTED_PEERS);
        let streams = behind.filter_map(|peer| self.peers.get(peer));
        streams.map(|streams| streams.backlog(class).streams).sum()
    }

    pub(crate) fn note_given(&mut self, now: Instant, id: HopId, ip_bytes: u64) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let nanos = hop.pace_bps().map_or(0, |rate| {
            u128::from(ip_bytes) * 8_000_000_000 / u128::from(rate.max(1))
        });
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        hop.sent_by = hop.sent_by.max(now) + time;
        hop.given_bytes += ip_bytes;
        let neighbour = hop.config.neighbour;
        self.spend(now, id, ip_bytes);
        self.steer_soon(now, neighbour);
        self.judge_paths_soon(now, neighbour);
    }

    /// To be called before a hop is given a bundle: if it had nothing in flight, answers are
    /// expected from now on.
    pub(crate) fn expect_answers(&mut self, now: Instant, id: HopId) {
        self.wake(now, id);
        if self.is_in_flight(id) {
            return;
        }
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.in_flight_since = now;
        }
        // The bundle itself is not counted as in flight yet.
        let expectation = self.expectation(id);
        let missed = self.missed_behind(now, id, now);
        if let (Some(hop), Some(_)) = (self.hops.get_mut(&id), expectation) {
            hop.link.expect(expectation);
            hop.doubt.expect(missed);
            // A deadline that has passed already is still to be judged.
            let due = hop.link_at;
            self.watch(now, id, due);
        }
    }

    /// Notes that the transports of a hop's sessions wait for no acknowledgement: silence counts
    /// from now on.
    pub fn nothing_unanswered(&mut self, now: Instant, id: HopId) {
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.in_flight_since = now;
            hop.link.expect_since(now);
        }
    }

    /// Sets how soon a hop's silence means a blockage: sooner where answers are due, and another
    /// hop or a standby session could carry what is in flight.
    pub(crate) fn set_expectation(&mut self, id: HopId) {
        let expectation = self.is_in_flight(id).then(|| self.expectation(id));
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.link.expect(expectation.flatten());
        }
    }

    fn expectation(&self, id: HopId) -> Option<Expectation> {
        let hop = self.hops.get(&id)?;
        let (rtt, queue) = (hop.round_trip(), hop.measured.queue);
        let elsewhere = self.has_another(id);
        let within = if elsewhere {
            rtt + queue + IMPATIENCE
        } else if self.has_standby(hop) {
            // Where acknowledgements come in bunches, round trips are longer than without load.
            let smoothed = hop.measured.smoothed_rtt.map(|(_, rtt)| rtt);
            let rtt = smoothed.map_or(rtt + queue, |smoothed| smoothed.max(rtt + queue));
            2 * (rtt + hop.segment_time()) + UNANSWERED
        } else {
            return None;
        };
        Some(Expectation {
            since: hop.in_flight_since,
            within,
            elsewhere,
        })
    }

    /// Whether a class has a standby session that can resume a transfer in its middle: then little
    /// is lost by changing over too soon.
    fn has_standby(&self, hop: &Hop) -> bool {
        let resumes = |id: &SessionId| {
            let session = self.sessions.get(*id);
            session.is_some_and(|session| session.info.resumes)
        };
        let mut classes = hop.sessions.iter();
        classes.any(|sessions| sessions.len() > 1 && sessions.iter().all(resumes))
    }

    pub(crate) fn is_in_flight(&self, id: HopId) -> bool {
        let hop = self.hops.get(&id);
        let mut sessions = hop.into_iter().flat_map(Hop::all_sessions);
        sessions.any(|id| {
            let session = self.sessions.get(id);
            session.is_some_and(Session::has_in_flight)
        })
    }

    /// Whether another hop to the same neighbour can carry something.
    fn has_another(&self, id: HopId) -> bool {
        let Some(hop) = self.hops.get(&id) else {
            return false;
        };
        let hops = self.ways.hops_to(hop.config.neighbour).iter();
        let closed = |hop: &Hop| hop.meter.as_ref().is_some_and(Meter::is_closed);
        let able = |hop: &Hop| hop.config.sends && hop.is_up() && !hop.blocked && !closed(hop);
        hops.filter(|other| **other != id)
            .any(|other| self.hops.get(other).is_some_and(able))
    }

    /// Notes that a hop has come, gone, or was blocked or released. Its neighbour's hops are asked
    /// anew which of them take what waits, and what blocked ones have in flight goes by the others.
    pub(crate) fn hops_have_changed(&mut self, now: Instant, neighbour: u64) {
        let hops = self.hops_to(neighbour);
        if hops.len() < 2 {
            return;
        }
        for id in each(hops.iter().copied()) {
            let blocked = self.hops.get(&id).is_some_and(|hop| hop.blocked);
            if blocked && self.has_another(id) {
                let hop = &self.hops[&id];
                let sessions: Vec<_> = hop.all_sessions().collect();
                for session in sessions {
                    let state = self.sessions.get(session);
                    if state.is_some_and(Session::has_in_flight) {
                        self.give_up_session(now, session, ANOTHER_CARRIES_ON);
                    }
                }
            }
            self.leaves_changed(id);
        }
        self.steer(now, neighbour);
    }

    /// Sends a bundle that leaves by one hop by another one, too, if its class wants that.
    pub(crate) fn copy_to_another(
        &mut self,
        now: Instant,
        id: HopId,
        class: Class,
        bundle: BundleId,
        chunks: &[Bytes],
    ) {
        if self.policy(class).uses != PathUse::Duplicated {
            return;
        }
        let Some(neighbour) = self.neighbour_of(id) else {
            return;
        };
        let candidates = self.candidates(now, neighbour, class).into_iter();
        let others = candidates.filter(|one| one.id != id);
        let second = others.min_by_key(|one| one.way.busy + one.way.delay);
        let hop = second.and_then(|one| self.hops.get_mut(&one.id));
        if let Some(hop) = hop {
            let copies = hop.copies.entry(class).or_default();
            copies.push_back(CopiedBundle {
                bundle,
                chunks: chunks.to_vec(),
                doubted: None,
            });
            let mut bytes: u64 = copies.iter().map(|copy| length(&copy.chunks)).sum();
            while copies.len() > MOST_COPIES || bytes > MOST_COPIED_BYTES {
                let oldest = copies.pop_front();
                bytes -= oldest.map_or(bytes, |copy| length(&copy.chunks));
            }
            let id = hop.config.id;
            self.leaf_changed(id, class);
        }
    }

    /// Whether a hop has copies of bundles of a class to send, and still may send them: its budget
    /// and the policy may have changed since they were made.
    pub(crate) fn has_copies(&self, id: HopId, class: Class) -> bool {
        let Some(hop) = self.hops.get(&id) else {
            return false;
        };
        let copies = hop.copies.get(&class);
        copies.is_some_and(|copies| !copies.is_empty()) && self.place_on(hop, class).is_some()
    }

    /// The next copy that a hop is to send, of a bundle that no custodian has acknowledged. A
    /// bundle that was given back is sent again itself, so its copy is not.
    pub(crate) fn next_copy(&mut self, id: HopId, class: Class, mru: u64) -> Option<Vec<Bytes>> {
        if !self.has_copies(id, class) {
            return None;
        }
        let copies = self.hops.get_mut(&id)?.copies.get_mut(&class)?;
        while let Some(CopiedBundle { bundle, chunks, .. }) = copies.pop_front() {
            let needed = self.agent.has_bundle(bundle) && !self.agent.is_queued(bundle);
            if needed && length(&chunks) <= mru {
                return Some(chunks);
            }
        }
        None
    }
}

pub(crate) fn length(chunks: &[Bytes]) -> u64 {
    chunks.iter().map(|chunk| chunk.len() as u64).sum()
}
