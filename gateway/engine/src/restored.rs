//! Streams' bundles that earlier runs of this node had sealed ahead.
//!
//! Their streams ended with the process, but their bytes are still due to the peer, whose sockets
//! may live. They exceed the credit that the peer's run had given. So the peer is asked, and
//! answers how much of each stream may leave.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use underpass_bundle::wire::{Eid, ipn_parts};
use underpass_bundle::{BundleId, Note};
use underpass_handover::{HandoverError, ensure};
use underpass_streams::{FormerLimit, Peer, StreamId};
use underpass_work::each;

use crate::engine::Engine;

/// A stream of a former run: its peer, the run's incarnation, its id.
pub(crate) type FormerStream = (u64, u64, StreamId);

#[derive(Debug, Default)]
struct Withheld {
    /// The run of the peer that the stream was with; 0 if none was heard.
    receiver: u64,
    /// Bundles by the offset at which their bytes end.
    bundles: BTreeSet<(u64, BundleId)>,
    /// Bundles up to this offset may leave, by the peer's answer.
    below: Option<u64>,
    /// How many these are.
    leaving: usize,
}

impl Withheld {
    fn may_leave(&self, end: u64) -> bool {
        self.below.is_some_and(|below| end <= below)
    }

    /// Allows the bundles up to an offset to leave; those already allowed are not visited again.
    fn raise(&mut self, below: u64) {
        if self.below < Some(below) {
            let from = self.below.map_or(0, |below| below + 1);
            let more = each(self.bundles.range((from, BundleId(0))..));
            self.leaving += more.take_while(|(end, _)| *end <= below).count();
            self.below = Some(below);
        }
    }

    /// Takes the permission to leave back from all.
    fn withhold_all(&mut self) {
        self.below = None;
        self.leaving = 0;
    }

    /// Takes the first bundle out, if it may leave.
    fn pop_leaving(&mut self) -> Option<BundleId> {
        let (end, id) = self.bundles.first().copied()?;
        self.may_leave(end).then(|| self.remove(end, id))?;
        Some(id)
    }

    fn remove(&mut self, end: u64, id: BundleId) {
        if self.bundles.remove(&(end, id)) && self.may_leave(end) {
            self.leaving -= 1;
        }
    }
}

/// [`RestoredStreams`], to be handed over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RestoredState {
    withheld: Vec<WithheldState>,
    asked: Vec<(u64, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WithheldState {
    peer: u64,
    run: u64,
    stream: u64,
    receiver: u64,
    bundles: Vec<(u64, u64)>,
    below: Option<u64>,
}

/// What is withheld of former runs.
#[derive(Debug, Default)]
pub(crate) struct RestoredStreams {
    withheld: BTreeMap<FormerStream, Withheld>,
    places: HashMap<BundleId, (FormerStream, u64)>,
    /// Which run of each peer has been asked.
    asked: BTreeMap<u64, u64>,
}

impl RestoredStreams {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let RestoredStreams {
            withheld,
            places,
            asked,
        } = self;
        tell("restored streams", withheld.len());
        let bundles = withheld.values().map(|withheld| withheld.bundles.len());
        tell("restored bundles of streams", bundles.sum());
        tell("places of restored bundles", places.len());
        tell("peers asked", asked.len());
    }

    pub fn hand_over(self) -> RestoredState {
        let withheld = self.withheld.into_iter().map(|((peer, run, id), of)| {
            let bundles = of.bundles.into_iter();
            WithheldState {
                peer,
                run,
                stream: id.0,
                receiver: of.receiver,
                bundles: bundles.map(|(end, bundle)| (end, bundle.0)).collect(),
                below: of.below,
            }
        });
        RestoredState {
            withheld: withheld.collect(),
            asked: self.asked.into_iter().collect(),
        }
    }

    /// Takes over what was handed over; to be called while nothing is known here yet. `has` says
    /// whether a bundle is in the store.
    pub fn take_over(
        &mut self,
        state: RestoredState,
        has: impl Fn(BundleId) -> bool,
    ) -> Result<(), HandoverError> {
        for state in state.withheld {
            let key = (state.peer, state.run, StreamId(state.stream));
            let mut withheld = Withheld {
                receiver: state.receiver,
                ..Withheld::default()
            };
            for (end, bundle) in state.bundles {
                let bundle = BundleId(bundle);
                let known = self.places.insert(bundle, (key, end)).is_some();
                ensure(has(bundle) && !known, "a withheld bundle is missing")?;
                withheld.bundles.insert((end, bundle));
            }
            if let Some(below) = state.below {
                withheld.raise(below);
            }
            self.withheld.insert(key, withheld);
        }
        self.asked = state.asked.into_iter().collect();
        Ok(())
    }

    fn of_peer(&self, peer: u64) -> Vec<FormerStream> {
        let first = (peer, 0, StreamId(0));
        let streams = each(self.withheld.range(first..)).map(|(stream, _)| *stream);
        streams.take_while(|stream| stream.0 == peer).collect()
    }
}

/// The note for a later run about a withheld payload of a stream with the run `receiver`.
pub(crate) fn note(receiver: u64, id: StreamId, end: u64) -> Note {
    [receiver, id.0, end]
}

impl Engine {
    pub(crate) fn restore_withheld(&mut self, id: BundleId, to: &Eid, run: u64, note: Note) {
        let Some((peer, _)) = ipn_parts(to) else {
            return;
        };
        let [receiver, stream, end] = note;
        let key = (peer, run, StreamId(stream));
        let withheld = self.restored.withheld.entry(key).or_default();
        withheld.receiver = withheld.receiver.max(receiver);
        withheld.bundles.insert((end, id));
        self.restored.places.insert(id, (key, end));
    }

    /// Forgets a bundle that is given up.
    pub(crate) fn forget_withheld(&mut self, id: BundleId) {
        let Some((key, end)) = self.restored.places.remove(&id) else {
            return;
        };
        if let Some(withheld) = self.restored.withheld.get_mut(&key) {
            withheld.remove(end, id);
            if withheld.bundles.is_empty() {
                self.restored.withheld.remove(&key);
            }
        }
    }

    /// Asks a run of a peer, once it is heard of, about what is withheld for it. Bundles for an
    /// earlier run of the peer are of no use: its sockets are gone.
    pub(crate) fn ask_about_withheld(&mut self, now: Instant, peer: u64) {
        let run_of_peer = self.peers.get(peer).and_then(|s| s.peer_incarnation());
        let Some(run_of_peer) = run_of_peer else {
            return;
        };
        if self.restored.asked.insert(peer, run_of_peer) == Some(run_of_peer) {
            return;
        }
        let streams = self.restored.of_peer(peer);
        for key in streams {
            let (_, run, id) = key;
            let Some(withheld) = self.restored.withheld.get_mut(&key) else {
                continue;
            };
            withheld.withhold_all();
            let receiver = withheld.receiver;
            if receiver != 0 && receiver < run_of_peer {
                self.discard_withheld(now, key, Some((peer, receiver)));
            } else {
                self.change_streams(peer, |streams| streams.ask(run, id));
            }
        }
    }

    /// Lets the bundles leave for which a peer has answered.
    pub(crate) fn heed_limits(&mut self, now: Instant, peer: u64) {
        while let Some(limit) = self.change_streams(peer, Peer::poll_limit).flatten() {
            let FormerLimit { run, id, below } = limit;
            let key = (peer, run, id);
            match below {
                Some(below) => self.let_leave_below(key, below),
                None => self.discard_withheld(now, key, None),
            }
        }
    }

    /// Lets a stream's bundles up to an offset take turns with the streams of this run.
    fn let_leave_below(&mut self, key: FormerStream, below: u64) {
        let (peer, run, id) = key;
        let Some(withheld) = self.restored.withheld.get_mut(&key) else {
            return;
        };
        withheld.raise(below);
        let count = withheld.leaving;
        let first = withheld.bundles.first().map(|(_, id)| *id);
        let class = first.and_then(|id| self.agent.class_of(id));
        if let Some(class) = class {
            self.change_streams(peer, |streams| {
                streams.let_restored_leave(run, id, class, count);
            });
        }
    }

    /// The next bundle of a stream that may leave.
    pub(crate) fn let_restored_leave(&mut self, key: FormerStream) -> Option<BundleId> {
        let withheld = self.restored.withheld.get_mut(&key)?;
        let id = withheld.pop_leaving()?;
        self.restored.places.remove(&id);
        match withheld.bundles.first() {
            // Read while the others have their turns.
            Some((_, next)) => self.agent.expect(*next),
            None => drop(self.restored.withheld.remove(&key)),
        }
        Some(id)
    }

    fn discard_withheld(&mut self, now: Instant, key: FormerStream, outlived: Option<(u64, u64)>) {
        self.change_streams(key.0, |streams| streams.forget_restored(key.1, key.2));
        let withheld = self.restored.withheld.remove(&key).unwrap_or_default();
        for (_, id) in withheld.bundles {
            self.restored.places.remove(&id);
            self.discard(now, id, outlived);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use underpass_work::{assert_bounded, of};

    #[test]
    fn a_limit_visits_what_it_lets_leave_and_no_more() {
        let steps = |count: u64| {
            let mut withheld = Withheld::default();
            let bundles = (0..count).map(|number| (number * 10, BundleId(number)));
            withheld.bundles.extend(bundles);
            let steps = of(|| {
                for below in [0, 5, 300, 300, 20, 309, 310] {
                    withheld.raise(below);
                }
            });
            assert_eq!(withheld.leaving, 32);
            withheld.remove(300, BundleId(30));
            withheld.remove(400, BundleId(40));
            assert_eq!(withheld.leaving, 31);
            let left = std::iter::from_fn(|| withheld.pop_leaving());
            assert_eq!(left.count(), 31);
            assert_eq!(withheld.leaving, 0);
            withheld.withhold_all();
            assert_eq!(withheld.pop_leaving(), None);
            steps
        };
        assert_bounded("LIMIT", steps(100), steps(10_000));
    }
}
