//! The authority of neighbours: a neighbour speaks for itself and for the nodes that routes lead to
//! by way of it, never for this node or another neighbour. With a contact plan, a neighbour also
//! speaks for the nodes, other neighbours included, from which contacts lead here by way of it.
//! This is checked where a bundle comes in, before anything acts on it.

use std::collections::BTreeSet;

use bp7::primary::PrimaryBlock;
use thiserror::Error;

use super::Agent;
use super::config::NeighbourId;
use super::deliver::MAX_WAITING_EVENTS;
use super::event::{Event, Reject};
use super::receive::Arrival;
use crate::wire::{Eid, ipn_parts, is_null, names_node};

/// Between which neighbours bundles of others are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relaying {
    /// All of them: the node is a relay.
    All,
    /// These pairs, both ways; the lower number first.
    Pairs(BTreeSet<(NeighbourId, NeighbourId)>),
}

impl Relaying {
    /// Whether bundles of one go to the other.
    pub fn allows(&self, one: NeighbourId, other: NeighbourId) -> bool {
        match self {
            Relaying::All => true,
            Relaying::Pairs(pairs) => pairs.contains(&(one.min(other), one.max(other))),
        }
    }
}

/// A claim that a neighbour may not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Forgery {
    #[error("its source is not behind the neighbour")]
    Source,
    #[error("its custodian is not behind the neighbour")]
    Custodian,
    #[error("nothing is relayed from this neighbour to its destination")]
    Relay,
    #[error("it signals custody of what was not sent to the neighbour")]
    Signal,
}

impl Agent {
    /// Whether a neighbour speaks for a node: for itself, for those that configured routes lead to
    /// by way of it, and for those whose bundles can come by it under the contact plan.
    fn speaks_for(&self, neighbour: NeighbourId, node: u64) -> bool {
        if node == self.config.node || !names_node(node) {
            return false;
        }
        let by_route = match self.routes.to(node) {
            Some((via, _)) => via == neighbour,
            None => node == neighbour.0,
        };
        by_route || self.plan_lets_speak(neighbour, node)
    }

    /// Whether a neighbour may use an endpoint's name. A name of the dtn scheme that
    /// is neither this node's nor has a route of its own belongs to no node here, so
    /// it proves nothing.
    fn may_name(&self, neighbour: NeighbourId, endpoint: &Eid) -> bool {
        match ipn_parts(endpoint) {
            Some((node, _)) => self.speaks_for(neighbour, node),
            None if self.config.own_service(endpoint).is_some() => false,
            None => {
                let owner = self.config.named.owner(endpoint);
                owner.is_none_or(|owner| owner == neighbour)
            }
        }
    }

    /// Checks the source and the custodian that an arriving bundle names.
    ///
    /// # Errors
    /// When its neighbour does not speak for them.
    pub(super) fn check_authority(&self, arrival: &Arrival) -> Result<(), Forgery> {
        let from = arrival.from;
        if !self.may_name(from, &arrival.bundle.primary.source) {
            return Err(Forgery::Source);
        }
        match arrival.cteb() {
            Some(cteb) if !self.may_name(from, &cteb.custodian) => Err(Forgery::Custodian),
            _ => Ok(()),
        }
    }

    pub(super) fn forged(&mut self, arrival: &Arrival, forgery: Forgery) -> Reject {
        if self.events.len() < MAX_WAITING_EVENTS {
            self.events.push_back(Event::Forged {
                from: arrival.from,
                source: arrival.bundle.primary.source.clone(),
                forgery,
            });
        }
        forgery.into()
    }

    /// Whether status reports on an arriving bundle may go where it says: a neighbour must not make
    /// this node write to others.
    pub(super) fn may_report_to(&self, from: NeighbourId, primary: &PrimaryBlock) -> bool {
        let to = &primary.report_to;
        let back = || self.named_route(to).is_some_and(|(via, _)| via == from);
        match to {
            // The owner of such a name is not always known, so reports only go back the way the
            // bundle came.
            Eid::Dtn(..) => self.may_name(from, to) && back(),
            _ => is_null(to) || self.may_name(from, to),
        }
    }

    /// Whether a neighbour may make the claims in a primary block.
    pub(super) fn believes_primary(&self, from: NeighbourId, primary: &PrimaryBlock) -> bool {
        self.may_name(from, &primary.source) && self.may_report_to(from, primary)
    }
}
