//! Services of this node other than streams.

use std::sync::Arc;

use underpass_bundle::{BundleId, SendError};
use underpass_engine::Message;

use super::{Effect, Inner, Shell};

/// A service that sends messages to its like on other nodes. Its calls come
/// from whatever task the engine was called on, so they must not wait.
pub trait Service: Send + Sync {
    /// A message has come; it may have come before.
    fn message(&self, message: Message);

    /// A peer has restarted: what it had not stored is lost.
    fn peer_restarted(&self, peer: u64);
}

impl Shell {
    /// Gives messages for the service of this number to `service` from now
    /// on. The engine's configuration says which numbers there are.
    pub fn register(&self, number: u64, service: Arc<dyn Service>) {
        self.lock().services.insert(number, service);
    }

    /// Sends a message, of use for `lifetime`, in the place of an earlier one
    /// that has not left, if one is named.
    ///
    /// # Errors
    /// When there is no room for it at present, or no way at all.
    pub fn send_message(
        &self,
        message: Message,
        lifetime: std::time::Duration,
        instead_of: Option<BundleId>,
    ) -> Result<BundleId, SendError> {
        self.with(|engine, now| {
            if let Some(earlier) = instead_of {
                engine.cancel(now, earlier);
            }
            engine.send_message(now, message, lifetime)
        })
    }
}

impl Inner {
    pub(super) fn message(&self, message: Message, effects: &mut Vec<Effect>) {
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
