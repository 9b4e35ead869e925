//! Routes and limits that change while bundles are held.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::Agent;
use super::authority::Relaying;
use super::config::{NeighbourId, Route};
use super::event::{BundleId, DeleteReason};
use super::held::Phase;
use super::routes::Routes;
use crate::wire::ipn_parts;

/// What an agent keeps of bundles at most, and how far its own may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes held in all, as [`super::Config::store_bytes`].
    pub store_bytes: u64,
    /// Bundles held in all, as [`super::Config::store_bundles`].
    pub store_bundles: usize,
    /// For how long others' bundles are kept at most.
    pub foreign_lifetime: Duration,
    /// Hops a bundle of this node may take.
    pub hop_limit: u8,
}

impl Agent {
    /// Sets the limits for what comes from now on. What is held already stays,
    /// also where it is more than that.
    pub fn set_limits(&mut self, limits: Limits) {
        self.config.store_bytes = limits.store_bytes;
        self.config.store_bundles = limits.store_bundles;
        self.config.foreign_lifetime = limits.foreign_lifetime;
        self.config.hop_limit = limits.hop_limit;
    }

    /// Replaces the routes. What is held goes by the new ones: a bundle in the
    /// middle of its transfer begins anew on its new way, and the next
    /// custodian knows it again if it has come by both. What no route leads on
    /// for is given up if its neighbour is none any more.
    pub fn set_routes(&mut self, now: Instant, routes: Vec<Route>, relaying: Relaying) {
        self.routes = Routes::new(&routes);
        self.config.routes = routes;
        self.config.relaying = relaying;
        let routes = self.config.routes.iter();
        let routed: HashSet<NeighbourId> = routes.map(|route| route.neighbour).collect();
        for (id, neighbour) in &mut self.neighbours {
            neighbour.routed = routed.contains(id);
            if !neighbour.routed {
                neighbour.signals.clear();
            }
        }
        let mut ids: Vec<BundleId> = self.held.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            self.reroute(now, id);
        }
    }

    fn reroute(&mut self, now: Instant, id: BundleId) {
        let Some(held) = self.held.get(&id) else {
            return;
        };
        let node = ipn_parts(&held.primary.destination).map(|(node, _)| node);
        let next = node.and_then(|node| self.route(node)).map(|(via, _)| via);
        let before = held.neighbour;
        match next {
            Some(via) if via != before => self.send_by(id, via),
            Some(_) => {}
            // A signal to a custodian behind the neighbour that it came by has
            // no route of its own.
            None if self.is_routed(before) => {}
            None => self.give_up(now, id, DeleteReason::NoRoute),
        }
    }

    fn is_routed(&self, neighbour: NeighbourId) -> bool {
        let neighbour = self.neighbours.get(&neighbour);
        neighbour.is_some_and(|neighbour| neighbour.routed)
    }

    /// Has a held bundle go by another neighbour.
    fn send_by(&mut self, id: BundleId, via: NeighbourId) {
        let Some(held) = self.held.get(&id) else {
            return;
        };
        let waits = matches!(
            held.phase,
            Phase::KeptBack | Phase::HeldBack | Phase::Ending(_)
        );
        let (expires, before, number) = (held.expires, held.neighbour, held.number);
        if !waits {
            self.halt(id);
            self.expiries.insert((expires, id));
        }
        if let Some(number) = number {
            let neighbour = self.neighbour(before);
            neighbour.unsignalled.remove(&number);
            neighbour.answerable.remove(&number);
        }
        let Some(held) = self.held.get_mut(&id) else {
            return;
        };
        held.neighbour = via;
        held.number = None;
        held.sent = None;
        held.acknowledged = None;
        held.unanswered = 0;
        if !waits {
            self.enqueue(id);
        }
    }
}
