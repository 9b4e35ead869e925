//! Routing by a contact plan, whose ways come and go while bundles wait.
//!
//! Bundles of other nodes and of this node's applications go by the plan; those of this node's own
//! services, such as streams, go by its routes. The caller that computes the plan's ways says which
//! neighbours are lost and which destinations have a better way; only bundles that these concern
//! are looked at.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use bp7::primary::PrimaryBlock;
use underpass_work::{FastMap, IdSet, each};

use super::Agent;
use super::config::NeighbourId;
use super::event::BundleId;
use super::stored::{Phase, StoredBundle};
use crate::wire::{Eid, ipn_parts};

/// The ways of a contact plan at present. They take precedence over the routes, which decide for
/// nodes that the plan does not name.
#[derive(Clone, Debug, Default)]
pub struct PlannedRoutes {
    /// The neighbour that bundles to a node are given to, by its number.
    pub next: Arc<HashMap<u64, NeighbourId>>,
    /// The neighbours, by their numbers, by which bundles of a node can come.
    pub speakers: Arc<HashMap<u64, BTreeSet<u64>>>,
}

/// The changes of a plan that concern stored bundles.
#[derive(Clone, Copy, Debug)]
pub struct PlanChanged<'a> {
    /// Neighbours to which nothing can be sent for the time being.
    pub lost: &'a BTreeSet<u64>,
    /// Destinations with a better way.
    pub moved: &'a BTreeSet<u64>,
}

/// A plan that is followed, and the bundles that go by it if it has a way.
#[derive(Debug)]
pub(super) struct Planned {
    routes: PlannedRoutes,
    stored: FastMap<u64, IdSet<BundleId>>,
}

impl Planned {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Planned { routes, stored } = self;
        tell("planned ways", routes.next.len());
        tell("planned sources", routes.speakers.len());
        tell("destinations of bundles", stored.len());
        let bundles = stored.values().map(IdSet::len);
        tell("bundles by destination", bundles.sum());
    }

    fn add(&mut self, node: u64, id: BundleId) {
        self.stored.entry(node).or_default().insert(id);
    }

    fn remove(&mut self, node: u64, id: BundleId) {
        if let Some(ids) = self.stored.get_mut(&node) {
            ids.remove(id);
            if ids.is_empty() {
                self.stored.remove(&node);
            }
        }
    }
}

impl Agent {
    /// Follows the ways of a contact plan from now on, or none. Stored bundles that the change
    /// concerns go by their new ways; bundles that the neighbour's CL has acknowledged stay and
    /// wait for their signal.
    pub fn set_planned(
        &mut self,
        now: Instant,
        routes: Option<PlannedRoutes>,
        changed: PlanChanged<'_>,
    ) {
        let Some(routes) = routes else {
            if self.planned.take().is_some() {
                self.reroute_all(now);
            }
            return;
        };
        if let Some(planned) = &mut self.planned {
            planned.routes = routes;
            self.follow_change(now, changed);
            return;
        }
        let mut planned = Planned {
            routes,
            stored: FastMap::default(),
        };
        for (id, stored) in each(self.bundles.iter()) {
            if let Some(node) = self.planned_destination(stored, &stored.primary()) {
                planned.add(node, id);
            }
        }
        let nodes: Vec<u64> = planned.stored.keys().copied().collect();
        self.planned = Some(planned);
        for node in nodes {
            self.go_by_plan(now, node, |_| true);
        }
    }

    fn follow_change(&mut self, now: Instant, PlanChanged { lost, moved }: PlanChanged<'_>) {
        let Some(planned) = &self.planned else {
            return;
        };
        let nodes: Vec<u64> = match lost.is_empty() {
            true => moved.iter().copied().collect(),
            false => planned.stored.keys().copied().collect(),
        };
        for node in nodes {
            let all = moved.contains(&node);
            self.go_by_plan(now, node, |stored| {
                // No bundle goes twice, not even by a better way.
                let begun = matches!(stored.phase, Phase::InTransmission(_));
                lost.contains(&stored.neighbour.0) || all && !begun
            });
        }
    }

    /// Moves bundles to a node to the present ways, in the order in which they came.
    fn go_by_plan(&mut self, now: Instant, node: u64, concerns: impl Fn(&StoredBundle) -> bool) {
        let planned = self.planned.as_ref();
        let ids = planned.and_then(|planned| planned.stored.get(&node));
        let ids: Vec<BundleId> = ids.map_or(Vec::new(), |ids| each(ids.iter()).collect());
        for id in ids {
            let stored = self.bundles.get(id);
            let waits = stored.is_some_and(|stored| {
                let waits = matches!(stored.phase, Phase::Waiting(_) | Phase::Suspended);
                // Other waiting bundles wait for room, and were not sent.
                let acknowledged = waits && stored.transmissions > 0;
                !acknowledged && concerns(stored)
            });
            if waits {
                self.reroute(now, id);
            }
        }
    }

    /// Moves a bundle that was sent without an answer to the present way, if it goes by the plan.
    pub(super) fn try_another_way(&mut self, now: Instant, id: BundleId) {
        if self.planned.is_some()
            && let Some(stored) = self.bundles.get(id)
            && self
                .planned_destination(stored, &stored.primary())
                .is_some()
        {
            self.reroute(now, id);
        }
    }

    /// The plan's next hop to a node, and whether to take custody on that way.
    pub(super) fn planned_route(&self, node: u64) -> Option<(NeighbourId, bool)> {
        let via = *self.planned.as_ref()?.routes.next.get(&node)?;
        // A neighbour without custody has a route to itself that says so.
        let direct = self.routes.to(via.0).filter(|(to, _)| *to == via);
        Some((via, direct.is_none_or(|(_, custody)| custody)))
    }

    /// Whether the plan has a way by a neighbour for bundles of a node.
    pub(super) fn plan_lets_speak(&self, neighbour: NeighbourId, node: u64) -> bool {
        let speakers = self.planned.as_ref();
        let speakers = speakers.and_then(|planned| planned.routes.speakers.get(&node));
        speakers.is_some_and(|speakers| speakers.contains(&neighbour.0))
    }

    pub(super) fn note_planned(&mut self, id: BundleId, primary: &PrimaryBlock) {
        if self.planned.is_none() {
            return;
        }
        let stored = self.bundles.get(id);
        let node = stored.and_then(|stored| self.planned_destination(stored, primary));
        if let Some((planned, node)) = self.planned.as_mut().zip(node) {
            planned.add(node, id);
        }
    }

    pub(super) fn forget_planned(&mut self, id: BundleId, primary: &PrimaryBlock) {
        let node = ipn_parts(&primary.destination);
        if let Some((planned, (node, _))) = self.planned.as_mut().zip(node) {
            planned.remove(node, id);
        }
    }

    /// Where a bundle goes, if it goes by the plan.
    fn planned_destination(&self, stored: &StoredBundle, primary: &PrimaryBlock) -> Option<u64> {
        let (node, _) = ipn_parts(&primary.destination)?;
        self.goes_by_plan(stored, primary).then_some(node)
    }

    fn goes_by_plan(&self, stored: &StoredBundle, primary: &PrimaryBlock) -> bool {
        !stored.own || self.is_of_application(&primary.source)
    }

    fn is_of_application(&self, source: &Eid) -> bool {
        let service = self.config.own_service(source);
        service.is_some_and(|service| self.sends_by_plan(service))
    }

    /// Whether bundles of a service of this node go by the plan.
    pub(super) fn sends_by_plan(&self, service: u64) -> bool {
        let applications = self.config.applications.as_ref();
        applications.is_some_and(|applications| applications.serves(service))
    }

    /// The next hop of a stored bundle with this primary block.
    pub(super) fn route_of(
        &self,
        stored: &StoredBundle,
        primary: &PrimaryBlock,
    ) -> Option<NeighbourId> {
        let route = match ipn_parts(&primary.destination) {
            Some((node, _)) if self.goes_by_plan(stored, primary) => self.route(node),
            Some((node, _)) => self.static_route(node),
            None => self.named_route(&primary.destination),
        };
        route.map(|(via, _)| via)
    }
}
