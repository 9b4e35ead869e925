//! Routes to nodes of the dtn scheme, by their names.
//!
//! Such a name has no node number. So bundles to it go by these routes alone, never by a contact
//! plan. Only the neighbour of a name's own route may use that name as a source.

use std::collections::BTreeMap;

use super::Agent;
use super::config::NeighbourId;
use crate::wire::Eid;

/// The routes of bundles to destinations of the dtn scheme: for each the next hop, and whether
/// custody is taken on that way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedRoutes {
    /// By the node's name: that of `dtn://node1/in` is `node1`.
    pub names: BTreeMap<String, (NeighbourId, bool)>,
    /// To all other nodes.
    pub others: Option<(NeighbourId, bool)>,
}

impl NamedRoutes {
    fn to(&self, endpoint: &Eid) -> Option<(NeighbourId, bool)> {
        let Eid::Dtn(_, address) = endpoint else {
            return None;
        };
        let named = self.names.get(address.node_name());
        named.copied().or(self.others)
    }

    /// The neighbour by which the node of an endpoint is known to be reached.
    pub(super) fn owner(&self, endpoint: &Eid) -> Option<NeighbourId> {
        let Eid::Dtn(_, address) = endpoint else {
            return None;
        };
        let named = self.names.get(address.node_name());
        named.map(|(via, _)| *via)
    }
}

impl Agent {
    /// Sets the routes to nodes of the dtn scheme, for bundles that come from now on.
    /// [`Agent::set_routes`] applies them to stored bundles, too.
    pub fn set_named_routes(&mut self, named: NamedRoutes) {
        self.config.named = named;
    }

    /// The next hop to an endpoint of the dtn scheme, and whether to take custody on
    /// that way.
    pub fn named_route(&self, endpoint: &Eid) -> Option<(NeighbourId, bool)> {
        self.config.named.to(endpoint)
    }
}
