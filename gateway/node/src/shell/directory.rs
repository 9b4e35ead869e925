//! Which shard a neighbour, a hop, a node or a number belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use underpass_bundle::{NeighbourId, NextHops, Routes, Sharding};
use underpass_cla::SessionId;
use underpass_engine::{EngineConfig, HopId};

/// The part of a configuration that leads to shards. Another configuration gets a new directory.
#[derive(Debug)]
pub struct Directory {
    shards: Sharding,
    /// The neighbours' ipn node numbers, by the node ids that they announce.
    neighbours: HashMap<String, u64>,
    /// The neighbour that takes bundles for a node that is not a neighbour.
    via: HashMap<u64, u64>,
    /// Where bundles of applications go, by the routes.
    routes: Routes,
    /// The same by the contact plan, which takes precedence.
    planned: Arc<NextHops>,
    /// The shard of each hop.
    hops: HashMap<HopId, usize>,
    names: HashMap<String, HopId>,
}

impl Directory {
    /// If there are several routes to a node, the first applies, as in the engines.
    pub fn new(config: &EngineConfig, count: usize) -> Directory {
        let shards = Sharding { own: 0, count };
        let mut directory = Directory {
            shards,
            neighbours: HashMap::new(),
            via: HashMap::new(),
            routes: Routes::new(&config.bundle_routes()),
            planned: Arc::default(),
            hops: HashMap::new(),
            names: HashMap::new(),
        };
        for hop in &config.hops {
            let neighbour = hop.neighbour;
            // RFC 9758.
            let announced = format!("ipn:{neighbour}.0");
            directory.neighbours.insert(announced, neighbour);
            let shard = shards.shard_of(NeighbourId(neighbour));
            directory.hops.insert(hop.id, shard);
            directory.names.entry(hop.name.clone()).or_insert(hop.id);
        }
        for route in &config.routes {
            directory.via.entry(route.node).or_insert(route.via);
        }
        directory
    }

    /// The ipn node number of a neighbour by its node id, with its shard.
    pub fn neighbour(&self, node_id: &str) -> Option<(u64, usize)> {
        let neighbour = *self.neighbours.get(node_id)?;
        Some((neighbour, self.shards.shard_of(NeighbourId(neighbour))))
    }

    /// The shard of a node's streams and messages: that of the neighbour through which it is
    /// reached.
    pub fn of_peer(&self, peer: u64) -> usize {
        let neighbour = self.via.get(&peer).copied().unwrap_or(peer);
        self.shards.shard_of(NeighbourId(neighbour))
    }

    /// Goes by these ways of a contact plan.
    pub fn set_planned(&mut self, planned: Arc<NextHops>) {
        self.planned = planned;
    }

    /// The shard of an application's bundles of so many bytes to a node: that of the next hop.
    pub fn of_bundles_to(&self, node: u64, bytes: u64) -> usize {
        match self.planned.to(node, bytes) {
            Some(via) => self.shards.shard_of(via),
            None => self.shards.shard_to(&self.routes, node),
        }
    }

    /// The shard of a hop. For a removed hop, which no shard knows, the first.
    pub fn of_hop(&self, hop: HopId) -> usize {
        self.hops.get(&hop).copied().unwrap_or_default()
    }

    /// The hop of a path or terminal.
    pub fn hop_named(&self, name: &str) -> Option<HopId> {
        self.names.get(name).copied()
    }
}

/// The number of a session or ticket outside its shard: it is unique in the node, and identifies
/// the shard.
pub(super) fn outside(shard: Sharding, number: u64) -> u64 {
    number * shard.count as u64 + shard.own as u64
}

/// The shard of such a number, and the number that was given to [`outside`].
pub(super) fn inside(count: usize, outside: u64) -> (usize, u64) {
    let count = count as u64;
    let shard = usize::try_from(outside % count).unwrap_or_default();
    (shard, outside / count)
}

pub(super) fn of_session(count: usize, id: SessionId) -> usize {
    inside(count, id.0).0
}
