//! Services of this node other than streams.

use std::sync::Arc;

use underpass_bundle::{BundleId, SendError};
use underpass_engine::Message;

use super::directory::{inside, outside};
use super::{Effect, Inner, Shell};

/// A service that exchanges messages with the same service on other nodes. It is called from the
/// task that called the engine, so it must not wait.
pub trait Service: Send + Sync {
    /// A message has come; it may have come before.
    fn message(&self, message: Message);

    /// A peer has restarted, and lost what it had not stored.
    fn peer_restarted(&self, peer: u64);
}

impl Shell {
    /// Passes messages for the service of this number to `service` from now on. The engines'
    /// configuration lists the numbers.
    pub fn register(&self, number: u64, service: Arc<dyn Service>) {
        for shard in self.numbers() {
            self.lock(shard).services.insert(number, service.clone());
        }
    }

    /// Sends a message with this lifetime, replacing the earlier one that is named, if that has not
    /// left.
    ///
    /// # Errors
    /// When there is no room for it at present, or no route.
    pub fn send_message(
        &self,
        message: Message,
        lifetime: std::time::Duration,
        instead_of: Option<BundleId>,
    ) -> Result<BundleId, SendError> {
        let shard = self.directory().of_peer(message.peer);
        let (missing, sent) = self.with_inner(shard, |inner, now| {
            let missing = instead_of.filter(|earlier| !inner.engine.cancel(now, *earlier));
            (missing, inner.engine.send_message(now, message, lifetime))
        });
        if let Some(earlier) = missing {
            // It may have left, or the route to the peer may have been another one then.
            let mut others = self.numbers().filter(|other| *other != shard);
            others.any(|other| self.cancel_at(other, earlier));
        }
        sent
    }

    /// A service has stored what came with this ticket safely: its custodian may release it.
    pub fn confirm(&self, ticket: u64) {
        let (shard, ticket) = inside(self.shards.len(), ticket);
        self.with_inner(shard, |inner, now| inner.engine.confirm(now, ticket));
    }
}

impl Inner {
    pub(super) fn message(&self, mut message: Message, effects: &mut Vec<Effect>) {
        message.ticket = message.ticket.map(|ticket| outside(self.own, ticket));
        match self.services.get(&message.service) {
            Some(service) => effects.push(Effect::Message(service.clone(), message)),
            None => tracing::debug!(
                peer = message.peer,
                service = message.service,
                bytes = message.payload.len(),
                "no service takes this message"
            ),
        }
    }

    /// Tells every service that a peer has restarted.
    pub(super) fn restarted(&self, peer: u64, effects: &mut Vec<Effect>) {
        let services = self.services.values().cloned();
        effects.extend(services.map(|service| Effect::Restarted(service, peer)));
    }
}
