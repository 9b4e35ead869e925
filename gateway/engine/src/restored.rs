//! Streams' bundles that earlier runs of this node had in custody.
//!
//! Their streams ended with the process, but what they carry is still due to
//! the peer. So it is known for each peer which runs have bundles left, and
//! told when the last of a run is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use underpass_bundle::BundleId;
use underpass_bundle::wire::{Eid, ipn_parts};

use crate::engine::{Action, Engine};

/// A former run of this node with bundles for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerRun {
    /// The peer.
    pub peer: u64,
    /// The run's incarnation, as its streams' payloads name it.
    pub incarnation: u64,
    /// Bundles still in custody.
    pub bundles: usize,
}

/// What is left of former runs.
#[derive(Debug, Default)]
pub(crate) struct RestoredStreams {
    runs: BTreeMap<(u64, u64), BTreeSet<BundleId>>,
    run_of: HashMap<BundleId, (u64, u64)>,
}

impl Engine {
    /// The former runs of this node that have bundles of streams left, by
    /// peer.
    pub fn former_runs(&self) -> impl Iterator<Item = FormerRun> + '_ {
        let runs = self.restored.runs.iter();
        runs.map(|((peer, incarnation), bundles)| FormerRun {
            peer: *peer,
            incarnation: *incarnation,
            bundles: bundles.len(),
        })
    }

    pub(crate) fn stream_bundle_restored(&mut self, id: BundleId, to: &Eid, incarnation: u64) {
        let Some((peer, _)) = ipn_parts(to) else {
            return;
        };
        let run = (peer, incarnation);
        self.restored.runs.entry(run).or_default().insert(id);
        self.restored.run_of.insert(id, run);
    }

    /// Notes the end of a bundle; tells whether a former run had sealed it.
    pub(crate) fn former_bundle_ended(&mut self, id: BundleId) -> bool {
        let Some(run) = self.restored.run_of.remove(&id) else {
            return false;
        };
        if let Some(bundles) = self.restored.runs.get_mut(&run) {
            bundles.remove(&id);
            if bundles.is_empty() {
                self.restored.runs.remove(&run);
                let (peer, incarnation) = run;
                self.actions
                    .push_back(Action::FormerRunEnded { peer, incarnation });
            }
        }
        true
    }
}
