//! Bundles of this node's applications.
//!
//! They go through store, custody and scheduler as those of streams do, in a
//! class of the caller's choice.

use std::sync::Arc;
use std::time::Instant;

use underpass_bundle::wire::Eid;
use underpass_bundle::{self as bundle, BundleId, NeighbourId, SendError, Signed, Unsigned};
use underpass_payloads::PayloadFile;

use crate::engine::Engine;

/// Applications leave this part (1/n) of what may be stored for a neighbour
/// free: streams and signals must find room while an application floods.
const PART_LEFT_FREE: u64 = 4;

/// A bundle that was taken from an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentBundle {
    /// In the store.
    pub id: BundleId,
    /// Its creation timestamp: DTN time, ms, and sequence number. `None` for a bundle to this node
    /// itself, which goes over no wire.
    pub created: Option<(u64, u64)>,
}

impl Engine {
    /// This node's ipn node number.
    pub fn node(&self) -> u64 {
        self.config.agent.node
    }

    /// The service of this node that an endpoint is of; `None` if it is another node's.
    pub fn own_service(&self, endpoint: &Eid) -> Option<u64> {
        self.config.agent.own_service(endpoint)
    }

    /// A service's endpoint; `None` if it has a name and the node has none.
    pub fn endpoint(&self, service: u64) -> Option<Eid> {
        self.config.agent.endpoint(service)
    }

    /// The next hop to an endpoint of the dtn scheme.
    pub fn named_next_hop(&self, endpoint: &Eid) -> Option<NeighbourId> {
        self.agent.named_route(endpoint).map(|(via, _)| via)
    }

    /// Begins a bundle of an application whose payload is on disk, if it has to be secured: see
    /// [`bundle::Agent::draft_file`].
    ///
    /// # Errors
    /// As there.
    pub fn draft_for_application(
        &mut self,
        now: Instant,
        send: &bundle::Send,
    ) -> Result<Option<Unsigned>, SendError> {
        self.agent.draft_file(now, send)
    }

    /// Sends a bundle for an application, with the payload of `file`, if given, instead of its own,
    /// and what secures that, if it has to be. It is under custody only where the route says so: a neighbour without custody would never
    /// signal.
    ///
    /// # Errors
    /// As [`bundle::Agent::send`]; [`SendError::NoRoom`] also while what is
    /// stored for that neighbour leaves too little for streams.
    pub fn send_for_application(
        &mut self,
        now: Instant,
        mut send: bundle::Send,
        file: Option<(Arc<PayloadFile>, Option<Signed>)>,
    ) -> Result<SentBundle, SendError> {
        let to = bundle::wire::ipn_parts(&send.destination).map(|(node, _)| node);
        let here = self.own_service(&send.destination).is_some();
        let named = self.agent.named_route(&send.destination);
        let bytes: u64 = send.payload.iter().map(|piece| piece.len() as u64).sum();
        let all_bytes = bytes + file.as_ref().map_or(0, |(file, _)| file.len());
        send.class = self.known(send.class);
        send.custody &= match to {
            Some(node) => self.agent.takes_custody_to(node, all_bytes),
            None => named.is_none_or(|(_, custody)| custody),
        };
        if !here {
            let via = match to {
                Some(node) => self.agent.next_hop(node, all_bytes),
                // A sender by name asks each shard; the one that has the neighbour takes the
                // bundle.
                None => named
                    .map(|(via, _)| via)
                    .filter(|via| self.sharding.shard_of(*via) == self.sharding.own),
            };
            let via = via.ok_or(SendError::NoRoute)?;
            let left = self.agent.quota_left_bytes(via).saturating_sub(bytes);
            if left < self.agent.most_bytes(via) / PART_LEFT_FREE {
                return Err(SendError::NoRoom);
            }
        }
        let sent = match file {
            Some((file, Some(signed))) => self.agent.send_signed(now, send, file, signed),
            Some((file, None)) => self.agent.send_file(now, send, file),
            None => self.agent.send(now, send),
        };
        let sent = sent.map(|id| SentBundle {
            id,
            created: self.agent.created(id),
        });
        self.after_change(now);
        sent
    }

    pub(crate) fn is_of_application(&self, service: u64) -> bool {
        let applications = self.config.agent.applications.as_ref();
        applications.is_some_and(|applications| applications.serves(service))
    }
}
