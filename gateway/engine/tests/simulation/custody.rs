//! Custody is conserved: whatever a node has taken custody of has a custodian
//! until it is delivered.

use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

use bytes::Bytes;
use underpass_bundle::{self as bundle, wire};
use underpass_engine::Engine;

use crate::world::World;

/// A bundle's name in the network: its source's node and service, and its
/// creation timestamp.
pub type Name = (u64, u64, u64, u64);

/// What is known of all bundles under custody.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Those that have not been delivered.
    open: BTreeSet<Name>,
    /// Those that have been offered to a session, or taken up by a later run:
    /// what never was, its own node may think better of.
    pub bound: HashSet<Name>,
    delivered: HashSet<Name>,
    /// Those that were lost with a flipped bit.
    lost: u64,
}

/// The name of an encoded bundle, and its destination's node.
pub fn name_of(raw: &Bytes) -> (Name, u64) {
    let config = bundle::Config::new(0, 1);
    let decoded = wire::decode(raw, &config.decode, &config.codes);
    let primary = decoded.expect("a bundle of this program").primary;
    let destination = wire::ipn_parts(&primary.destination);
    let name = name(&primary.source, &primary.creation_timestamp);
    (name, destination.map_or(0, |(node, _)| node))
}

fn name(source: &wire::Eid, timestamp: &bp7::CreationTimestamp) -> Name {
    let (node, service) = wire::ipn_parts(source).unwrap_or_default();
    (node, service, timestamp.dtntime(), timestamp.seqno())
}

/// What a node's engines have custody of.
pub fn custody_of(engines: &[Engine], now: Instant) -> BTreeSet<Name> {
    let stored = engines.iter();
    stored
        .flat_map(|engine| engine.stored_bundles(now, usize::MAX))
        .filter(|stored| stored.custody)
        .map(|stored| name(&stored.source, &stored.timestamp))
        .collect()
}

impl World {
    pub fn delivered(&mut self, name: Name) {
        self.ledger.delivered.insert(name);
    }

    /// Nobody wants a bundle any more: it needs no custodian.
    pub fn discarded(&mut self, source: &wire::Eid, timestamp: &bp7::CreationTimestamp) {
        self.ledger.delivered.insert(name(source, timestamp));
    }

    /// A node has stopped with custody of these.
    pub fn note_custody(&mut self, number: usize) {
        let now = self.instant();
        let node = &mut self.nodes[number];
        if node.is_up() {
            node.kept = custody_of(&node.engines, now);
            self.ledger.open.extend(&node.kept);
        }
    }

    /// A node has started again: what it alone knew of, and had not made
    /// durable, is gone with its run.
    pub fn forgive(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let own = self.schedule.nodes[number].number;
        let durable = std::mem::take(&mut node.durable);
        for name in std::mem::take(&mut node.kept) {
            if name.0 == own && !durable.contains(&name) {
                self.ledger.open.remove(&name);
            } else {
                self.ledger.bound.insert(name);
            }
        }
    }

    /// Every bundle has a custodian until it is delivered.
    pub fn check_custody(&mut self) {
        let now = self.instant();
        let mut stored = BTreeSet::new();
        for node in &self.nodes {
            stored.extend(custody_of(&node.engines, now));
        }
        let ledger = &mut self.ledger;
        ledger.open.extend(&stored);
        let delivered = &ledger.delivered;
        ledger.open.retain(|name| !delivered.contains(name));
        let stopped = |name: &Name| self.nodes.iter().any(|node| node.kept.contains(name));
        let open = ledger.open.iter();
        let lost: Vec<Name> = open
            .filter(|name| !stored.contains(*name) && !stopped(name))
            .copied()
            .collect();
        for name in &lost {
            ledger.open.remove(name);
        }
        let lost: Vec<Name> = lost
            .into_iter()
            .filter(|name| ledger.bound.contains(name))
            .collect();
        ledger.lost += lost.len() as u64;
        let flipped = self.nodes.iter().filter_map(|node| node.disk.as_ref());
        let flipped: u64 = flipped.map(|disk| disk.flipped).sum();
        assert!(
            lost.is_empty() || self.ledger.lost <= flipped,
            "nobody has custody of {lost:?}, bits flipped: {flipped}: {}",
            self.describe()
        );
    }
}
