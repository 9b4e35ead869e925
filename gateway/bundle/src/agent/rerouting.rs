//! Routes and limits that change while bundles are stored.

use std::time::{Duration, Instant};

use super::Agent;
use super::authority::Relaying;
use super::config::{NeighbourId, Route};
use super::event::{BundleId, DeleteReason};
use super::routes::Routes;
use super::stored::Phase;
use crate::wire::ipn_parts;

/// Limits on the bundles that an agent stores, and on the hops of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes stored in all, as [`super::Config::store_bytes`].
    pub store_bytes: u64,
    /// Bundles stored in all, as [`super::Config::store_bundles`].
    pub store_bundles: usize,
    /// The part of both that is guaranteed, as
    /// [`super::Config::guaranteed_percent`].
    pub guaranteed_percent: u8,
    /// The longest time that bundles of other nodes are kept.
    pub foreign_lifetime: Duration,
    /// Hops a bundle of this node may take.
    pub hop_limit: u8,
}

impl Agent {
    /// Sets the limits for bundles that come from now on. Stored bundles stay, even if they exceed
    /// the limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.config.store_bytes = limits.store_bytes;
        self.config.store_bundles = limits.store_bundles;
        self.config.guaranteed_percent = limits.guaranteed_percent;
        self.usage.set_limits(self.config.division());
        self.config.foreign_lifetime = limits.foreign_lifetime;
        self.config.hop_limit = limits.hop_limit;
    }

    /// The routes in force.
    pub fn routes(&self) -> &[Route] {
        &self.config.routes
    }

    /// Replaces the routes, also for stored bundles. A bundle in the middle of its transfer begins
    /// anew on its new way; if it arrives by both ways, the next custodian recognises the
    /// duplicate. A bundle whose way leads by another agent's neighbour is passed to that agent,
    /// and stays here until it is safe there. A bundle without a route is given up if its neighbour
    /// is not one any more.
    pub fn set_routes(&mut self, now: Instant, routes: Vec<Route>, relaying: Relaying) {
        self.routes = Routes::new(&routes);
        self.config.routes = routes;
        self.config.relaying = relaying;
        let routed = self.config.neighbours();
        self.usage.set_neighbours(routed.clone());
        for (id, neighbour) in &mut self.neighbours {
            neighbour.routed = routed.contains(id);
            if !neighbour.routed {
                for to in neighbour.signals.drain(..) {
                    self.signals.forget(&to);
                }
            }
        }
        self.reroute_all(now);
    }

    /// Moves all stored bundles to the present routes.
    pub(super) fn reroute_all(&mut self, now: Instant) {
        for id in self.bundles.keys().collect::<Vec<BundleId>>() {
            self.reroute(now, id);
        }
    }

    /// Moves a stored bundle to the present routes. A bundle that was passed to another agent waits
    /// for the answer first.
    pub(super) fn reroute(&mut self, now: Instant, id: BundleId) {
        let stored = self.bundles.get(id);
        let Some(stored) = stored.filter(|stored| stored.phase != Phase::Passing) else {
            return;
        };
        let primary = stored.primary();
        let node = ipn_parts(&primary.destination).map(|(node, _)| node);
        let next = self.route_of(stored, &primary);
        let before = stored.neighbour;
        let direct = node.map(NeighbourId);
        let elsewhere = direct.filter(|direct| !self.sharding.has(*direct));
        match next {
            Some(via) if via != before => self.send_by(id, via),
            Some(_) => {}
            // A signal to a custodian behind the neighbour that it came by has
            // no route of its own.
            None if self.is_routed(before) => {}
            // Another agent may have the destination itself as a neighbour.
            None if elsewhere == Some(before) => {}
            None if let Some(direct) = elsewhere => self.send_by(id, direct),
            None => self.give_up(now, id, DeleteReason::NoRoute),
        }
    }

    pub(super) fn is_routed(&self, neighbour: NeighbourId) -> bool {
        let neighbour = self.neighbours.get(&neighbour);
        neighbour.is_some_and(|neighbour| neighbour.routed)
    }

    /// Moves a stored bundle to another neighbour.
    pub(super) fn send_by(&mut self, id: BundleId, via: NeighbourId) {
        self.note_moved(id, via);
        let Some(stored) = self.bundles.get(id) else {
            return;
        };
        let waits = matches!(
            stored.phase,
            Phase::AwaitingEarlier | Phase::Withheld | Phase::Ending(_)
        );
        let (since, expires) = (stored.since, stored.expires);
        let (before, number) = (stored.neighbour, stored.number);
        let (class, bytes) = (stored.class, stored.counted_bytes());
        // The bundle moves even if there is no room for it.
        let room = self.usage.reserve_anyway(via, bytes);
        self.usage.keep(via, room);
        self.free(before, bytes);
        self.unseal(before, class, id);
        if !waits {
            self.halt(id);
            self.expiries.insert(since, expires, id);
        }
        if let Some(number) = number {
            let neighbour = self.neighbour(before);
            neighbour.unsignalled.remove(&number);
            neighbour.answerable.remove(&number);
        }
        let Some(stored) = self.bundles.get_mut(id) else {
            return;
        };
        stored.neighbour = via;
        stored.number = None;
        stored.sent = None;
        stored.acknowledged = None;
        stored.unanswered = 0;
        if !waits {
            self.enqueue(id);
        }
    }
}
