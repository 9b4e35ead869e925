//! Custody is conserved: every bundle that a node has taken custody of has a custodian
//! until it is delivered.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;

use bytes::Bytes;
use underpass_bundle::{self as bundle, wire};
use underpass_engine::{Engine, STREAM_SERVICE};
use underpass_streams::decode_frames;

use crate::world::World;

/// A bundle's name in the network: its source's node and service, and its
/// creation timestamp.
pub type Name = (u64, u64, u64, u64);

/// The state of all bundles under custody.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Bundles that have a custodian; some of them have been delivered meanwhile.
    open: BTreeSet<Name>,
    /// Bundles that have been offered to a session, or restored by a later run. The
    /// source node may still drop any other bundle.
    pub bound: HashSet<Name>,
    delivered: HashSet<Name>,
    /// For bundles of streams that were offered: the destination node and the run of it
    /// that they are for, 0 if unknown.
    addressed: HashMap<Name, (u64, u64)>,
    /// The number of bundles that were lost with a flipped bit.
    lost: u64,
}

impl Ledger {
    /// Records an offer of an encoded bundle; returns its name, and its destination's
    /// node.
    pub fn offered(&mut self, raw: &Bytes) -> (Name, u64) {
        let config = bundle::Config::new(0, 1);
        let decoded = wire::decode(raw, &config.decode, &config.codes);
        let bundle = decoded.expect("a bundle of this program");
        let primary = bundle.primary;
        let (node, service) = wire::ipn_parts(&primary.destination).unwrap_or_default();
        let name = name(&primary.source, &primary.creation_timestamp);
        if service == STREAM_SERVICE {
            let (header, _) = decode_frames(&bundle.payload).expect("a payload of streams");
            self.addressed.insert(name, (node, header.receiver));
        }
        self.bound.insert(name);
        (name, node)
    }
}

fn name(source: &wire::Eid, timestamp: &bp7::CreationTimestamp) -> Name {
    let (node, service) = wire::ipn_parts(source).unwrap_or_default();
    (node, service, timestamp.dtntime(), timestamp.seqno())
}

/// The bundles in custody of a node's engines.
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

    /// A bundle that nobody wants any more needs no custodian. A node may forget its own
    /// bundles for a former run of their destination, and those that its disk withholds
    /// and the destination does not want.
    pub fn discarded(
        &mut self,
        node: usize,
        source: &wire::Eid,
        created: (u64, u64),
        outlived: Option<(u64, u64)>,
    ) {
        let (number, service) = wire::ipn_parts(source).unwrap_or_default();
        let name = (number, service, created.0, created.1);
        let own = self.schedule.nodes[node].number;
        assert_eq!(number, own, "node {node} forgets another's bundle");
        let what = match outlived {
            Some((peer, run)) => {
                let mut nodes = self.nodes.iter().zip(&self.schedule.nodes);
                let present = nodes.find(|(_, plan)| plan.number == peer);
                let present = present.map_or(0, |(node, _)| node.incarnation);
                assert!(0 < run && run < present, "run {run} of {peer} is not over");
                let addressed = self.ledger.addressed.get(&name);
                assert!(
                    addressed.is_none_or(|of| *of == (peer, run)),
                    "{addressed:?}"
                );
                "outlived"
            }
            None => {
                assert!(
                    self.nodes[node].disk.is_some(),
                    "node {node} forgets {name:?}"
                );
                "discarded"
            }
        };
        self.count(what, 1);
        self.ledger.delivered.insert(name);
    }

    /// Notes the custody of a node that stops.
    pub fn note_custody(&mut self, number: usize) {
        let now = self.instant();
        let node = &mut self.nodes[number];
        if node.is_up() {
            node.kept = custody_of(&node.engines, now);
            self.ledger.open.extend(&node.kept);
        }
    }

    /// A node has started again: bundles that only it knew of, and had not made durable,
    /// are gone with its former run.
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

    /// Checks that every bundle has a custodian until it is delivered. `custody` has what each
    /// node has custody of now.
    pub fn check_custody(&mut self, custody: &[BTreeSet<Name>]) {
        let stored: BTreeSet<Name> = custody.iter().flatten().copied().collect();
        let stopped = |name: &Name| self.nodes.iter().any(|node| node.kept.contains(name));
        let ledger = &mut self.ledger;
        let gone = ledger.open.difference(&stored).copied();
        let gone = gone.filter(|name| !ledger.delivered.contains(name));
        let (kept, lost): (Vec<Name>, Vec<Name>) = gone.partition(stopped);
        ledger.open = stored;
        ledger.open.extend(kept);
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
