//! Which hops lead to which neighbours, and which neighbours to which nodes. A query about one of
//! them looks at no other.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use underpass_work::FastMap;

use crate::config::{HopConfig, RouteEntry};
use crate::hop::HopId;

/// Hops, neighbours and nodes, by each other.
#[derive(Debug)]
pub(crate) struct Ways {
    names: HashMap<String, HopId>,
    /// By neighbour, and the path or listener that sessions come by.
    known_as: HashMap<(u64, String), HopId>,
    /// By neighbour.
    hops: FastMap<u64, Arc<[HopId]>>,
    /// For each node that is no neighbour: the neighbour that takes its bundles.
    via: FastMap<u64, u64>,
    /// The nodes routed by each neighbour, in the order of their routes.
    routed: FastMap<u64, Vec<u64>>,
    /// Nodes that streams lead to, by the neighbour.
    peers: FastMap<u64, BTreeSet<u64>>,
}

impl Ways {
    /// Of several routes to one node the first counts.
    pub fn new(hops: &[HopConfig], routes: &[RouteEntry]) -> Ways {
        let mut names = HashMap::new();
        let mut known_as = HashMap::new();
        let mut by_neighbour: FastMap<u64, Vec<HopId>> = FastMap::default();
        for hop in hops {
            names.entry(hop.name.clone()).or_insert(hop.id);
            for way in [&hop.name].into_iter().chain(&hop.known_as) {
                let way = (hop.neighbour, way.clone());
                known_as.entry(way).or_insert(hop.id);
            }
            by_neighbour.entry(hop.neighbour).or_default().push(hop.id);
        }
        let mut via = FastMap::default();
        let mut routed: FastMap<u64, Vec<u64>> = FastMap::default();
        for route in routes {
            if let Entry::Vacant(first) = via.entry(route.node) {
                first.insert(route.via);
                routed.entry(route.via).or_default().push(route.node);
            }
        }
        let hops = by_neighbour.into_iter();
        Ways {
            names,
            known_as,
            hops: hops
                .map(|(neighbour, hops)| (neighbour, hops.into()))
                .collect(),
            via,
            routed,
            peers: FastMap::default(),
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Ways {
            names,
            known_as,
            hops,
            via,
            routed,
            peers,
        } = self;
        tell("names of hops", names.len());
        tell("ways of sessions", known_as.len());
        tell("neighbours with hops", hops.len());
        tell(
            "hops of neighbours",
            hops.values().map(|hops| hops.len()).sum(),
        );
        tell("nodes with a way", via.len());
        tell("neighbours with nodes behind", routed.len());
        tell(
            "nodes behind neighbours",
            routed.values().map(Vec::len).sum(),
        );
        tell("neighbours with peers", peers.len());
        tell(
            "peers behind neighbours",
            peers.values().map(BTreeSet::len).sum(),
        );
    }

    /// Replaces the hops and routes; the nodes that streams lead to stay.
    pub fn replace(&mut self, hops: &[HopConfig], routes: &[RouteEntry]) {
        let before = std::mem::replace(self, Ways::new(hops, routes));
        for peer in before.peers.into_values().flatten() {
            self.add_peer(peer);
        }
    }

    /// Nodes that hops lead to.
    pub fn neighbours(&self) -> impl Iterator<Item = u64> + '_ {
        self.hops.keys().copied()
    }

    /// The hop of a path or terminal.
    pub fn hop_named(&self, name: &str) -> Option<HopId> {
        self.names.get(name).copied()
    }

    /// The hop of a session with a neighbour that came by a path or listener; the first hop if none
    /// is known by that name.
    pub fn hop_of(&self, neighbour: u64, way: &str) -> Option<HopId> {
        let known = self.known_as.get(&(neighbour, way.to_owned()));
        known.or_else(|| self.hops_to(neighbour).first()).copied()
    }

    /// The hops to a neighbour.
    pub fn hops_to(&self, neighbour: u64) -> &[HopId] {
        self.hops.get(&neighbour).map_or(&[], |hops| hops)
    }

    /// The same, to be kept while the engine changes.
    pub fn shared_hops_to(&self, neighbour: u64) -> Arc<[HopId]> {
        self.hops.get(&neighbour).cloned().unwrap_or_default()
    }

    /// The neighbour that takes bundles for `node`: itself, or the one routed.
    pub fn neighbour_to(&self, node: u64) -> u64 {
        self.via.get(&node).copied().unwrap_or(node)
    }

    /// The nodes routed by a neighbour.
    pub fn routed_by(&self, neighbour: u64) -> Vec<u64> {
        self.routed.get(&neighbour).cloned().unwrap_or_default()
    }

    /// Streams lead to a node from now on.
    pub fn add_peer(&mut self, peer: u64) {
        let neighbour = self.neighbour_to(peer);
        self.peers.entry(neighbour).or_default().insert(peer);
    }

    /// The nodes by way of a neighbour that streams lead to.
    pub fn peers_behind(&self, neighbour: u64) -> impl Iterator<Item = u64> + '_ {
        self.peers.get(&neighbour).into_iter().flatten().copied()
    }
}
