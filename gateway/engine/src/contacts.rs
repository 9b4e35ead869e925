//! A contact plan: the neighbours by which bundles go, and the neighbours to which anything can be
//! sent at present.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use underpass_bundle::{NeighbourId, PlanChanged, PlannedRoutes};

use crate::engine::Engine;

/// What a contact plan says at present.
#[derive(Clone, Debug, Default)]
pub struct Contacts {
    /// The ways of bundles; `None` if no plan is followed.
    pub routes: Option<PlannedRoutes>,
    /// For each neighbour that the plan has contacts with: whether there is one now. Nothing is
    /// sent to a neighbour without a contact.
    pub open: BTreeMap<u64, bool>,
    /// Neighbours to which nothing can be sent any more for the time being.
    pub lost: BTreeSet<u64>,
    /// Destinations whose bundles have a better way now, each with a size of bundle.
    pub moved: BTreeSet<(u64, u64)>,
}

impl Engine {
    /// Follows a contact plan as it is now. Links without a contact are blocked;
    /// bundles that the change concerns go by other ways.
    pub fn set_contacts(&mut self, now: Instant, contacts: &Contacts) {
        let Contacts {
            routes,
            open,
            lost,
            moved,
        } = contacts;
        for id in self.hop_ids() {
            let Some(hop) = self.hops.get_mut(&id) else {
                continue;
            };
            let contact = open.get(&hop.config.neighbour);
            if hop.link.set_without_contact(contact == Some(&false)) {
                self.judge(now, id);
            }
        }
        let changed = PlanChanged { lost, moved };
        self.agent.set_planned(now, routes.clone(), changed);
        self.after_change(now);
    }

    /// As [`Agent::take_planned_sizes`](underpass_bundle::Agent::take_planned_sizes).
    pub fn take_planned_sizes(&mut self) -> BTreeSet<u64> {
        self.agent.take_planned_sizes()
    }

    /// As [`Agent::take_given`](underpass_bundle::Agent::take_given).
    pub fn take_given(&mut self) -> BTreeMap<(u64, u64, u64), i64> {
        self.agent.take_given()
    }

    /// The engine of this node that has the neighbour by which bundles of so many bytes to `node`
    /// go.
    pub fn shard_to(&self, node: u64, bytes: u64) -> Option<usize> {
        self.agent.shard_to(node, bytes)
    }

    /// The neighbour that bundles of so many bytes to a node are given to at present.
    pub fn next_hop(&self, node: u64, bytes: u64) -> Option<u64> {
        self.agent.next_hop(node, bytes).map(|NeighbourId(via)| via)
    }
}
