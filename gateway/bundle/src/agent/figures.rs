//! What the agent has stored, in figures and as a list, without visiting every bundle.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bp7::dtntime::CreationTimestamp;
use underpass_cla::Class;
use underpass_work::{IdSet, each};

use super::Agent;
use super::config::NeighbourId;
use super::event::BundleId;
use super::quota::Amount;
use super::stored::{Phase, StoredBundle};
use crate::wire::Eid;

/// Custody and store, in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CustodyFigures {
    /// Bytes that this agent has stored, as the quota counts them.
    pub used_bytes: u64,
    /// Bytes that wait for their service with it, as the quota counts them.
    pub undelivered_bytes: u64,
    /// Bundles that it has stored.
    pub bundles: usize,
    /// By class.
    pub classes: BTreeMap<Class, ClassFigures>,
}

/// Bundles that wait for one neighbour, as the quota counts them, those included
/// that come from other agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourFigures {
    /// What is stored.
    pub used: Amount,
    /// What has room whatever others have.
    pub guaranteed: Amount,
}

/// Bundles of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassFigures {
    /// Bundles stored.
    pub bundles: u64,
    /// Payload bytes stored.
    pub bytes: u64,
    /// Bundles in this node's custody.
    pub custody_bundles: u64,
    /// Payload bytes in this node's custody.
    pub custody_bytes: u64,
    /// For how long the oldest has been stored.
    pub oldest: Duration,
}

/// A stored bundle, for the API.
#[derive(Clone, Debug)]
pub struct BundleInfo {
    /// The bundle.
    pub id: BundleId,
    /// Who sent it.
    pub source: Eid,
    /// Its creation timestamp: with the source, its name in the network.
    pub timestamp: CreationTimestamp,
    /// Where it goes.
    pub destination: Eid,
    /// The next hop.
    pub neighbour: NeighbourId,
    /// Its class.
    pub class: Class,
    /// Its payload's bytes.
    pub bytes: u64,
    /// For how long it has been stored.
    pub stored_for: Duration,
    /// Whether this node has custody of it.
    pub custody: bool,
    /// Transfers begun.
    pub transmissions: u32,
    /// Whether it is in transmission now.
    pub in_transmission: bool,
}

/// The stored bundles of each class, with their sums.
#[derive(Debug, Default)]
pub(super) struct Tally {
    classes: BTreeMap<Class, OfClass>,
}

#[derive(Debug, Default)]
struct OfClass {
    /// In the order in which they came.
    ids: IdSet<BundleId>,
    bytes: u64,
    custody_bundles: u64,
    custody_bytes: u64,
}

impl Tally {
    pub fn add(&mut self, id: BundleId, stored: &StoredBundle) {
        let class = self.classes.entry(stored.class).or_default();
        class.ids.insert(id);
        class.bytes += stored.bytes;
        if stored.custody {
            class.custody_bundles += 1;
            class.custody_bytes += stored.bytes;
        }
    }

    pub fn remove(&mut self, id: BundleId, stored: &StoredBundle) {
        let Some(class) = self.classes.get_mut(&stored.class) else {
            return;
        };
        class.ids.remove(id);
        class.bytes -= stored.bytes;
        if stored.custody {
            class.custody_bundles -= 1;
            class.custody_bytes -= stored.bytes;
        }
        if class.ids.is_empty() {
            self.classes.remove(&stored.class);
        }
    }

    /// The oldest `limit` that came after `after`.
    fn oldest(&self, after: Option<BundleId>, limit: usize) -> Vec<BundleId> {
        let first = after.map_or(0, |after| after.0.saturating_add(1));
        let of_class = |class: &'_ OfClass| -> Vec<BundleId> {
            let ids = class.ids.iter_from(BundleId(first)).take(limit);
            each(ids).collect()
        };
        let mut ids: Vec<BundleId> = self.classes.values().flat_map(of_class).collect();
        ids.sort_unstable();
        ids.truncate(limit);
        ids
    }
}

impl Agent {
    /// Custody and store, in figures.
    pub fn custody(&self, now: Instant) -> CustodyFigures {
        let figures = |class: &OfClass| {
            let oldest = class.ids.first().and_then(|id| self.bundles.get(id));
            ClassFigures {
                bundles: class.ids.len() as u64,
                bytes: class.bytes,
                custody_bundles: class.custody_bundles,
                custody_bytes: class.custody_bytes,
                oldest: oldest.map_or(Duration::ZERO, |stored| {
                    now.saturating_duration_since(stored.since)
                }),
            }
        };
        let classes = each(&self.tally.classes);
        CustodyFigures {
            used_bytes: self.usage.stored().bytes,
            undelivered_bytes: self.usage.undelivered().bytes,
            bundles: self.bundles.len(),
            classes: classes.map(|(class, of)| (*class, figures(of))).collect(),
        }
    }

    /// What waits for each neighbour of this agent that routes lead to.
    pub fn custody_by_neighbour(&self) -> BTreeMap<NeighbourId, NeighbourFigures> {
        each(self.usage.of_neighbours())
            .filter(|(neighbour, _)| self.sharding.has(*neighbour))
            .collect()
    }

    /// At most `limit` stored bundles, oldest first, from behind `after` on.
    pub fn list(&self, now: Instant, after: Option<BundleId>, limit: usize) -> Vec<BundleInfo> {
        let described = |id: BundleId| {
            let stored = self.bundles.get(id)?;
            let primary = stored.primary();
            Some(BundleInfo {
                id,
                source: primary.source,
                timestamp: primary.creation_timestamp,
                destination: primary.destination,
                neighbour: stored.neighbour,
                class: stored.class,
                bytes: stored.bytes,
                stored_for: now.saturating_duration_since(stored.since),
                custody: stored.custody,
                transmissions: stored.transmissions,
                in_transmission: matches!(stored.phase, Phase::InTransmission(_)),
            })
        };
        let ids = self.tally.oldest(after, limit).into_iter();
        ids.filter_map(described).collect()
    }
}
