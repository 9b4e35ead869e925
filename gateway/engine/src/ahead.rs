//! Reading ahead while blocked: servers give up clients that take nothing for a minute. So with
//! durable custody, bytes of streams are taken into custody, slowly, and beyond the peer's credit.
//! The remaining bytes of ended streams are taken into custody as well.
//!
//! The bundle node withholds such a bundle until its stream has its turn, and credit that covers
//! the bundle. Each stream may have as much beyond its credit as any other; this grows with time
//! and is bounded by the stream's share of the store.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use underpass_bundle::{BundleId, NeighbourId};
use underpass_cla::BUNDLE_OVERHEAD_BYTES;
use underpass_streams::Flow;
use underpass_work::each;

use crate::engine::Engine;
use crate::hop::{Hop, HopId};
use crate::restored;
use crate::streams::StreamKey;

/// The longest time that bytes wait for more before they are sealed.
const AGE: Duration = Duration::from_millis(250);

/// A request to open is not sealed for so long while there is no session with the neighbour: the
/// peer may be restarting, and what was sealed for its earlier run is of no use to the next.
const OPENING: Duration = Duration::from_secs(30);

/// What each stream may have beyond its credit grows by so much ...
const STEP_BYTES: u64 = 64 << 10;
/// ... at each of so many ages: 2.9 MB in 45 s.
const AGES_PER_STEP: u64 = 4;

/// The greatest part (n/8) of a neighbour's room in the store for what is read beyond credit: the
/// rest is for what others have in custody here.
const STORE_EIGHTHS: u64 = 6;

/// Bundles that are withheld, and the pace of reading.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// By stream, the oldest first.
    withheld: BTreeMap<StreamKey, VecDeque<BundleId>>,
    /// When bytes that wait are sealed next.
    at: Option<Instant>,
    /// Ages passed, by neighbours to which nothing can be sent.
    ages: BTreeMap<u64, u64>,
}

impl ReadAhead {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let ReadAhead {
            withheld,
            at: _,
            ages,
        } = self;
        tell("streams sealed ahead", withheld.len());
        tell(
            "bundles withheld",
            withheld.values().map(VecDeque::len).sum(),
        );
        tell("neighbours out of reach", ages.len());
    }

    /// What is withheld of each stream, to be handed over. The pace of reading is not: it begins
    /// anew.
    pub fn into_withheld(self) -> BTreeMap<StreamKey, VecDeque<BundleId>> {
        let ReadAhead {
            withheld,
            at: _,
            ages: _,
        } = self;
        withheld
    }

    /// From what was handed over.
    pub fn of_withheld(withheld: BTreeMap<StreamKey, VecDeque<BundleId>>) -> ReadAhead {
        ReadAhead {
            withheld,
            ..ReadAhead::default()
        }
    }

    /// When [`Engine::read_ahead`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.at
    }
}

impl Engine {
    /// A hop to `neighbour` is blocked, or free again.
    pub(crate) fn reconsider_reading(&mut self, now: Instant, neighbour: u64) {
        let hops = self.hops_to(neighbour);
        let hops: Vec<&Hop> = hops.iter().filter_map(|id| self.hops.get(id)).collect();
        // A hop without sessions carries nothing either.
        let carries = |hop: &&Hop| hop.is_up() && !hop.blocked;
        let is_away = |hop: &&Hop| hop.blocked || hop.presence.is_some();
        let all_blocked = hops.iter().any(is_away) && !hops.iter().any(carries);
        let reads = self.config.edge && self.agent.is_durable() && all_blocked;
        if reads {
            self.ahead.ages.entry(neighbour).or_default();
            self.ahead.at.get_or_insert(now + AGE);
        } else if self.ahead.ages.remove(&neighbour).is_some() {
            for peer in self.peers_behind(neighbour) {
                self.set_beyond_credit(peer, 0);
            }
        }
        if self.ahead.ages.is_empty() {
            self.ahead.at = None;
        }
    }

    /// Seals what waits for neighbours out of reach, and reads on.
    pub(crate) fn read_ahead(&mut self, now: Instant) {
        if self.ahead.at.is_none_or(|at| at > now) {
            return;
        }
        self.ahead.at = Some(now + AGE);
        let neighbours: Vec<u64> = self.ahead.ages.keys().copied().collect();
        for neighbour in neighbours {
            let share = self.share_beyond_credit(neighbour);
            let ages = self.ahead.ages.entry(neighbour).or_default();
            *ages += 1;
            let beyond = (ages.div_ceil(AGES_PER_STEP) * STEP_BYTES).min(share);
            for peer in self.peers_behind(neighbour) {
                self.seal_ahead(now, peer);
                self.set_beyond_credit(peer, beyond);
            }
        }
    }

    /// What one stream by way of a neighbour may have in the store beyond its
    /// credit.
    fn share_beyond_credit(&self, neighbour: u64) -> u64 {
        let store = self.agent.most_bytes(NeighbourId(neighbour)) / 8 * STORE_EIGHTHS;
        let peers = self.ways.peers_behind(neighbour);
        let streams = each(peers).filter_map(|peer| Some(self.peers.get(peer)?.stream_count()));
        store / streams.sum::<usize>().max(1) as u64
    }

    /// The nodes by way of a neighbour that streams lead to.
    pub(crate) fn peers_behind(&self, neighbour: u64) -> Vec<u64> {
        each(self.ways.peers_behind(neighbour)).collect()
    }

    fn set_beyond_credit(&mut self, peer: u64, bytes: u64) {
        self.change_streams(peer, |streams| streams.current().set_beyond_credit(bytes));
    }

    /// The largest payload that may be sealed ahead for a peer. Every way to it must take the
    /// bundle, since a bundle under custody is not fragmented, and it must delay no way longer than
    /// any other bundle.
    fn largest_ahead(&self, peer: u64) -> Option<u64> {
        let hops = self.hops_to(self.neighbour_to(peer));
        // What a hop takes is unknown until it was up once.
        let largest = hops.iter().filter_map(|id| {
            let line = self.scheduler.max_bundle_bytes(id.terminal());
            Some(self.hops.get(id)?.mru_bytes?.min(line))
        });
        let least = largest.min()?;
        Some(least.saturating_sub(BUNDLE_OVERHEAD_BYTES))
    }

    /// Takes into custody what the streams with a peer have waiting.
    fn seal_ahead(&mut self, now: Instant, peer: u64) {
        let hops = self.hops_to(self.neighbour_to(peer));
        let up = |id: &HopId| self.hops.get(id).is_some_and(Hop::is_up);
        let opened_by = match hops.iter().any(up) {
            true => now,
            false => now.checked_sub(OPENING).unwrap_or(now),
        };
        let ids = self.change_streams(peer, |streams| {
            streams.current().streams_with_output(opened_by)
        });
        for id in ids.unwrap_or_default() {
            self.seal_stream_ahead(now, self.key(peer, id));
        }
    }

    /// Takes into custody what a stream has waiting.
    fn seal_stream_ahead(&mut self, now: Instant, key: StreamKey) {
        // What a neighbour takes is unknown until it was up once.
        let (peer, Some(most)) = (key.peer, self.largest_ahead(key.peer)) else {
            return;
        };
        let receiver = self.peers.get(peer).and_then(|s| s.peer_incarnation());
        // The epoch of the run that it is sealed for: the stream may be with an earlier one.
        let epoch = self.epoch_of(peer);
        // Where the store has no room, bytes wait and slow their source. Messages about them need
        // room as well.
        let to = NeighbourId(self.neighbour_to(peer));
        while let free = self
            .agent
            .free_bytes(to)
            .saturating_sub(self.least_free(to))
            && free > 0
            && let limit = usize::try_from(most.min(free)).unwrap_or(usize::MAX)
            && let sealed = self.change_run(key, |mux| mux.seal_ahead(key.id, limit))
            && let Some(ahead) = sealed.flatten()
        {
            let send = self.stream_bundle(peer, ahead.class, ahead.payload.clone(), false);
            let note = restored::note(receiver.unwrap_or(0), key.id, ahead.end);
            match self.agent.withhold(now, send, note) {
                Ok(bundle) => {
                    let withheld = self.ahead.withheld.entry(key).or_default();
                    withheld.push_back(bundle);
                    self.carries(bundle, (peer, epoch, vec![key.id]));
                }
                Err(_) => {
                    self.give_up(peer, &ahead.payload);
                    self.acknowledge((peer, epoch, vec![key.id]));
                }
            }
        }
    }

    /// Takes into custody what is left of streams that their applications have ended in both
    /// directions: nobody waits any more who would notice if it were lost with the process.
    pub(crate) fn seal_ended(&mut self, now: Instant) {
        self.forget_unwanted(now);
        for key in self.peers.take_ended() {
            if self.agent.is_durable() {
                self.seal_stream_ahead(now, key);
            }
        }
    }

    /// Discards withheld bundles that nobody wants. To be called first: a stream that begins anew
    /// with the peer's next run is sealed again under the same name.
    pub(crate) fn forget_unwanted(&mut self, now: Instant) {
        for key in self.peers.take_unwanted() {
            for bundle in self.ahead.withheld.remove(&key).unwrap_or_default() {
                self.discard(now, bundle, None);
            }
        }
    }

    /// Lets the oldest bundle of a flow leave, if it is withheld: it is the flow's turn.
    pub(crate) fn let_leave(&mut self, peer: u64, flow: Flow) -> Option<BundleId> {
        let id = match flow {
            Flow::Restored { run, id } => self.let_restored_leave((peer, run, id))?,
            Flow::Stream(id) => {
                let key = self.key(peer, id);
                let withheld = self.ahead.withheld.get_mut(&key)?;
                let oldest = withheld.pop_front();
                match withheld.front() {
                    // Read while the others have their turns.
                    Some(next) => self.agent.expect(*next),
                    None => drop(self.ahead.withheld.remove(&key)),
                }
                oldest?
            }
        };
        self.agent.let_go(id);
        Some(id)
    }
}
