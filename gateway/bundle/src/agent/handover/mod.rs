//! The agent, as one process of the node hands it over to the next.
//!
//! The run of the node goes on: custody sequences, the names of bundles and the memory of others'
//! bundles continue. Queues are built anew, and all deadlines stay.

mod bundle;
mod names;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use underpass_handover::{HandoverError, Moment, ensure};
use underpass_work::each;

use super::Agent;
use super::config::NeighbourId;
use super::confirming::UnconfirmedState;
use super::event::BundleId;
use super::memory::EntryState;
use super::neighbour::{Neighbour, Pause, SignalDelay, Size};
use super::signals::{SignalToState, SignalsState};
use super::stored::{Phase, StoredBundle};
use super::stored_record;
use super::timestamps::TimestampsState;
use crate::store::DurableRecord;
use bundle::{BundleState, PhaseState};
pub(super) use names::EidState;
pub(super) use names::{
    CtebState, NameGroupState, WayState, WireNameState, way, way_state, wire_name,
};

/// A node that counts a million each second reaches this after a hundred thousand years: a greater
/// number is a mistake, and might soon overflow.
const MOST_COUNTED: u64 = 1 << 62;

/// All of an [`Agent`] that does not follow from the configuration or from the other fields, to be
/// read and written by serde.
#[derive(Debug, Serialize, Deserialize)]
pub struct AgentState {
    run_nonce: u64,
    first_free_id: u64,
    next_key: u64,
    timestamps: TimestampsState,
    neighbours: Vec<NeighbourState>,
    /// In the order in which they were stored.
    bundles: Vec<BundleState>,
    seen: Vec<(NameGroupState, EntryState)>,
    taken: Vec<((EidState, u64), EntryState)>,
    signals: SignalsState,
    unconfirmed: UnconfirmedState,
}

/// A neighbour; what waits for it is among the bundles.
#[derive(Debug, Serialize, Deserialize)]
struct NeighbourState {
    id: u64,
    sequence: u64,
    next_number: u64,
    answerable: Vec<u64>,
    down: bool,
    paused: Option<Moment>,
    refusals: u32,
    /// Mean and deviation, ns.
    delay: Option<(u64, u64)>,
    /// Signals whose time has come.
    signals: Vec<SignalToState>,
}

impl AgentState {
    /// What names the run of the node: [`super::Config::run_nonce`].
    pub fn run_nonce(&self) -> u64 {
        self.run_nonce
    }
}

impl Agent {
    /// What prevents [`Agent::hand_over`] at present, if anything does.
    pub fn handover_obstacle(&self) -> Option<&'static str> {
        let passing = |stored: &StoredBundle| stored.phase == Phase::Passing;
        if !self.uncommitted.is_empty() {
            Some("bundles are not on the disk yet")
        } else if self.asked > 0 || each(self.bundles.values()).any(|stored| passing(stored)) {
            Some("bundles are under way between shards")
        } else if !self.transmissions.is_empty() {
            Some("bundles are in transmission")
        } else {
            let all = || each(self.bundles.iter());
            let nameless = || all().any(|(id, stored)| self.is_nameless(id, stored));
            let unwritten = || nameless().then_some("payloads on disk have no names yet");
            self.lasting_obstacle().or_else(unwritten)
        }
    }

    /// An obstacle that may last for as long as bundles live, so that waiting for its end is of no
    /// use.
    pub fn lasting_obstacle(&self) -> Option<&'static str> {
        let kept = |stored: &StoredBundle| stored.custody && self.store.is_durable();
        let ends = |stored: &StoredBundle| stored.file.is_some() && !kept(stored);
        let any = each(self.bundles.values()).any(|stored| ends(stored));
        any.then_some("bundles without custody wait whose payloads are on disk")
    }

    /// Whether the payload is a file that has no name, at least not yet.
    fn is_nameless(&self, id: BundleId, stored: &StoredBundle) -> bool {
        stored.file.is_some() && self.store.in_memory_alone(id).is_some()
    }

    /// Hands all over to another process of this run of the node, except for what its store finds
    /// on its disk. Events must have been taken, and nothing may be under way
    /// ([`Agent::handover_obstacle`]).
    pub fn hand_over(mut self, now: Instant) -> AgentState {
        debug_assert!(self.handover_obstacle().is_none() && self.events.is_empty());
        self.forget_full();
        // Without `..`: a field that is added has to be thought of here.
        let Agent {
            config,
            // The next process takes these from its configuration, or begins them anew.
            sharding: _,
            usage: _,
            routes: _,
            planned: _,
            admin: _,
            reports: _,
            common,
            store,
            timestamps,
            bundles,
            // Computed from the bundles.
            by_name: _,
            ordered: _,
            tally: _,
            custody_timers: _,
            expiries: _,
            leaving: _,
            uncommitted: _,
            asked: _,
            transmissions: _,
            unconfirmed,
            neighbours,
            // Computed from the neighbours.
            sequences: _,
            pauses: _,
            next_key,
            seen,
            taken,
            signals,
            // Fragments are not under custody: a bundle that is not whole is sent again, or lost.
            reassembly: _,
            events: _,
            woken: _,
            // Services that wait for room ask again.
            without_room: _,
        } = self;
        let bundles = bundles.into_iter().map(|(id, stored)| {
            let payload = store.in_memory_alone(id);
            BundleState::of(id, *stored, payload, now)
        });
        let neighbours: BTreeMap<NeighbourId, Neighbour> = neighbours.into_iter().collect();
        let neighbours = neighbours.into_iter();
        AgentState {
            run_nonce: config.run_nonce,
            bundles: bundles.collect(),
            neighbours: neighbours
                .map(|(id, neighbour)| NeighbourState::of(id, neighbour, now))
                .collect(),
            first_free_id: common.first_free_id().0,
            next_key,
            timestamps: timestamps.hand_over(now),
            seen: seen.hand_over(now, |group| group.into()),
            taken: taken.hand_over(now, |(custodian, sequence)| (custodian.into(), *sequence)),
            signals: signals.hand_over(now),
            unconfirmed: unconfirmed.hand_over(),
        }
    }

    /// Takes over what the process before has handed over, into an agent of the same run that has
    /// nothing yet. Bundles in the store that the state does not know are removed.
    ///
    /// # Errors
    /// When the state contradicts itself or the store.
    pub fn take_over(&mut self, now: Instant, state: AgentState) -> Result<(), HandoverError> {
        let fresh = self.bundles.is_empty() && self.neighbours.is_empty();
        let same = state.run_nonce == self.config.run_nonce;
        ensure(fresh && same, "it is another run's")?;
        let counted = state.first_free_id.max(state.next_key);
        ensure(counted < MOST_COUNTED, "a number is too great")?;
        self.common.begin_ids_at(BundleId(state.first_free_id));
        self.next_key = state.next_key;
        self.timestamps.take_over(now, state.timestamps);
        for neighbour in state.neighbours {
            self.take_neighbour_over(now, neighbour)?;
        }
        let kept = self.store.restore().into_iter();
        let mut kept: BTreeMap<BundleId, u64> = kept
            .map(|restored| (restored.id, restored.payload_bytes))
            .collect();
        for bundle in state.bundles {
            let on_disk = kept.remove(&BundleId(bundle.id));
            self.take_bundle_over(now, bundle, on_disk)?;
        }
        for id in kept.into_keys() {
            self.store.remove(now, id);
        }
        for (group, entry) in state.seen {
            self.seen.take_over(now, group.group()?, entry)?;
        }
        for ((custodian, sequence), entry) in state.taken {
            let name = (custodian.eid()?, sequence);
            self.taken.take_over(now, name, entry)?;
        }
        self.signals.take_over(now, state.signals)?;
        self.unconfirmed.take_over(state.unconfirmed)?;
        self.tell_storable();
        Ok(())
    }

    fn take_neighbour_over(
        &mut self,
        now: Instant,
        state: NeighbourState,
    ) -> Result<(), HandoverError> {
        let id = NeighbourId(state.id);
        ensure(self.sharding.has(id), "a neighbour is another shard's")?;
        let counted = state.next_number < MOST_COUNTED;
        ensure(counted, "a number is too great")?;
        let mut neighbour = Neighbour::new(state.sequence);
        neighbour.next_number = state.next_number;
        neighbour.answerable = state.answerable.into_iter().collect();
        neighbour.down = state.down;
        neighbour.routed = self.config.neighbours().contains(&id);
        neighbour.delay = state.delay.map(SignalDelay::of_nanos);
        neighbour.pause = Pause {
            until: state.paused.map(|at| at.instant(now)),
            refusals: state.refusals,
        };
        if let Some(until) = neighbour.pause.until {
            self.pauses.insert((until, (id, Size::Any)));
        }
        for to in state.signals {
            neighbour.signals.push_back(to.to()?);
        }
        let named = self.sequences.insert(neighbour.sequence, id).is_some();
        let known = self.neighbours.insert(id, neighbour).is_some();
        ensure(!named && !known, "a neighbour is there twice")
    }

    fn take_bundle_over(
        &mut self,
        now: Instant,
        mut bundle: BundleState,
        on_disk: Option<u64>,
    ) -> Result<(), HandoverError> {
        let id = BundleId(bundle.id);
        let (mut stored, named) = bundle.stored(now)?;
        let via = stored.neighbour;
        let numbered = self.sharding.has(via) || stored.number.is_none();
        ensure(numbered, "a bundle is another shard's")?;
        let known = self.bundles.contains_key(id);
        let next = id < self.common.first_free_id();
        ensure(!known && next, "a bundle is there twice")?;
        if let Some(named) = named {
            let primary = stored.primary();
            let file = self.take_up_file(id, &primary, &named);
            let lacks = |_| HandoverError::Inconsistent("a payload on disk is missing");
            stored.file = Some(file.map_err(lacks)?);
            ensure(on_disk.is_some(), "the store lacks a bundle")?;
        }
        match (on_disk, bundle.payload.take()) {
            // The store has nothing of a payload that is a file.
            (Some(0), _) if stored.file.is_some() => {}
            (Some(bytes), _) => ensure(bytes == stored.bytes, "the store has another payload")?,
            (None, Some(payload)) => self.put_again(now, id, &mut stored, payload),
            (None, None) => {
                return Err(HandoverError::Inconsistent("the store lacks a payload"));
            }
        }
        if let Some(number) = stored.number {
            let neighbour = self.neighbour(via);
            let next = number < neighbour.next_number;
            let free = neighbour.unsignalled.insert(number, id).is_none();
            ensure(next && free, "two bundles have one number")?;
        }
        let room = self.usage.reserve_anyway(via, stored.counted_bytes());
        match bundle.phase {
            PhaseState::Queued | PhaseState::Withheld => self.insert(id, stored, room),
            // A waiting bundle was sent before, so it waits for no earlier one.
            PhaseState::Waiting(_) | PhaseState::Suspended | PhaseState::Ending(_) => {
                let stored = StoredBundle {
                    phase: Phase::Withheld,
                    ..stored
                };
                self.insert(id, stored, room);
            }
        }
        match bundle.phase {
            PhaseState::Queued | PhaseState::Withheld => {}
            PhaseState::Waiting(until) => {
                let until = until.instant(now);
                self.set_phase(id, Phase::Waiting(until));
                self.custody_timers.insert((until, id));
            }
            PhaseState::Suspended => self.set_phase(id, Phase::Suspended),
            PhaseState::Ending(reason) => self.give_up(now, id, reason),
        }
        Ok(())
    }

    fn set_phase(&mut self, id: BundleId, phase: Phase) {
        if let Some(stored) = self.bundles.get_mut(id) {
            stored.phase = phase;
        }
    }

    /// Stores a payload that the process before had in memory alone.
    fn put_again(
        &mut self,
        now: Instant,
        id: BundleId,
        stored: &mut StoredBundle,
        payload: Vec<Bytes>,
    ) {
        let durable = (stored.custody && self.store.is_durable()).then(|| {
            // The store counts a bundle's time from now on.
            let age_ms = stored.age_ms_at(now);
            let before = std::mem::replace(&mut stored.age_ms, age_ms);
            let record = stored_record::encode(stored);
            stored.age_ms = before;
            DurableRecord {
                record,
                urgent: false,
                file: stored.file.clone(),
            }
        });
        self.store.put(now, id, durable, payload);
    }
}

impl NeighbourState {
    fn of(id: NeighbourId, neighbour: Neighbour, now: Instant) -> NeighbourState {
        // Without `..`: a field that is added has to be thought of here.
        let Neighbour {
            // Computed from the bundles.
            queues: _,
            unsignalled: _,
            signals,
            // As many may come beside those that are sealed.
            sealed: _,
            sequence,
            next_number,
            answerable,
            down,
            // The next process has its own routes.
            routed: _,
            pause: Pause { until, refusals },
            // The next process finds this out again.
            long_pause: _,
            // What waited for it is queued.
            beyond: _,
            delay,
        } = neighbour;
        NeighbourState {
            id: id.0,
            sequence,
            next_number,
            answerable: answerable.into_iter().collect(),
            down,
            paused: until.map(|until| Moment::of(until, now)),
            refusals,
            delay: delay.map(SignalDelay::nanos),
            signals: signals.iter().map(Into::into).collect(),
        }
    }
}

impl SignalDelay {
    fn nanos(self) -> (u64, u64) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        (nanos(self.mean), nanos(self.deviation))
    }

    fn of_nanos((mean, deviation): (u64, u64)) -> SignalDelay {
        // No signal takes years, so sums of delays must not overflow.
        let bounded = |nanos: u64| Duration::from_nanos(nanos.min(1 << 56));
        SignalDelay {
            mean: bounded(mean),
            deviation: bounded(deviation),
        }
    }
}
