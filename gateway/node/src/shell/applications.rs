//! Bundles of this node's applications.

use std::sync::Arc;

use underpass_applications::Report;
use underpass_bundle::wire::ipn_parts;
use underpass_bundle::{Delivery, Event, Send, SendError, Signed};
use underpass_engine::SentBundle;
use underpass_payloads::PayloadFile;

use super::directory::outside;
use super::{Effect, Inner, Shell};

/// Takes what comes for applications. It is called from the task that called the engine, so it must
/// not wait.
pub trait ApplicationDesk: std::marker::Send + Sync {
    /// A bundle for an application, or the echo.
    fn bundle(&self, delivery: Delivery);

    /// A status report on a bundle of an application.
    fn report(&self, report: Report);
}

impl Shell {
    /// Passes what comes for applications to `desk` from now on.
    pub fn attach_applications(&self, desk: &Arc<dyn ApplicationDesk>) {
        for shard in self.numbers() {
            self.lock(shard).applications = Some(desk.clone());
        }
    }

    /// Sends a bundle of an application, with the payload of `file` if there is one. Waits for the
    /// disk if that has to be secured.
    ///
    /// # Errors
    /// When there is no room for it at present, or no route.
    pub fn send_for_application(
        &self,
        send: Send,
        file: Option<Arc<PayloadFile>>,
    ) -> Result<SentBundle, SendError> {
        let file = match file {
            Some(file) => {
                let signed = self.sign(&send, &file)?;
                Some((file, signed))
            }
            None => None,
        };
        let Some((node, _)) = ipn_parts(&send.destination) else {
            return self.send_by_name(&send, file.as_ref());
        };
        let payload = send.payload.iter().map(|piece| piece.len() as u64);
        let bytes = payload.sum::<u64>() + file.as_ref().map_or(0, |(file, _)| file.len());
        let shard = self.directory().of_bundles_to(node, bytes);
        let send_by = |shard: usize, send: Send| {
            self.with_inner(shard, |inner, now| {
                let sent = inner.engine.send_for_application(now, send, file.clone());
                let other = matches!(sent, Err(SendError::NoRoute))
                    .then(|| inner.engine.shard_to(node, bytes))
                    .flatten();
                (sent, other)
            })
        };
        match send_by(shard, send.clone()) {
            // The route has just changed to another shard's neighbour.
            (Err(SendError::NoRoute), Some(other)) if other != shard => send_by(other, send).0,
            (sent, _) => sent,
        }
    }

    /// Secures a bundle whose payload is on disk, if it has to be. All of the payload is read for
    /// that, while no engine waits.
    fn sign(&self, send: &Send, file: &PayloadFile) -> Result<Option<Signed>, SendError> {
        let unsigned = self.with_first(|engine, now| engine.draft_for_application(now, send))?;
        let Some(unsigned) = unsigned else {
            return Ok(None);
        };
        unsigned.sign(file).map_err(|error| {
            tracing::warn!(%error, "a payload on disk cannot be secured");
            SendError::NoRoom
        })
    }

    /// Sends a bundle to a node of the dtn scheme, whose name determines no shard. A bundle to this
    /// node itself may go by any.
    fn send_by_name(
        &self,
        send: &Send,
        file: Option<&(Arc<PayloadFile>, Option<Signed>)>,
    ) -> Result<SentBundle, SendError> {
        let mut sent = Err(SendError::NoRoute);
        for shard in self.numbers() {
            sent = self.with_inner(shard, |inner, now| {
                let (send, file) = (send.clone(), file.cloned());
                inner.engine.send_for_application(now, send, file)
            });
            if !matches!(sent, Err(SendError::NoRoute)) {
                break;
            }
        }
        sent
    }
}

impl Inner {
    pub(super) fn application_bundle(&self, mut delivery: Delivery, effects: &mut Vec<Effect>) {
        delivery.ticket = delivery.ticket.map(|ticket| outside(self.own, ticket));
        if let Some(desk) = &self.applications {
            effects.push(Effect::Application(desk.clone(), Box::new(delivery)));
        }
    }

    pub(super) fn application_report(&self, event: &Event, effects: &mut Vec<Effect>) {
        let report = Report::of(event, |endpoint| self.engine.own_service(endpoint));
        if let Some((desk, report)) = self.applications.clone().zip(report) {
            effects.push(Effect::ApplicationReport(desk, report));
        }
    }
}
