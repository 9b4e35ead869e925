//! Messages of services other than streams: each is the payload of one bundle to the same service
//! of another node.
//!
//! A message is sent under custody and in its class' turn. It may come twice or out of order after
//! a restart; the service has to allow for that. The services of this node are those of the bundle
//! node's configuration.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{self as bundle, BundleId, SendError};
use underpass_cla::Class;

use crate::engine::{Action, Engine};

/// A message to or from a service of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other node, by its ipn node number.
    pub peer: u64,
    /// The service, the same on both nodes.
    pub service: u64,
    /// Its class.
    pub class: Class,
    /// Its age on arrival; what is sent begins with none.
    pub age: Duration,
    /// To be given to [`Engine::confirm`] once it is safe with its service,
    /// where that is one that confirms; what is sent has none.
    pub ticket: Option<u64>,
    /// What it says.
    pub payload: Bytes,
}

impl Message {
    /// A message to send.
    pub fn new(peer: u64, service: u64, class: Class, payload: Bytes) -> Message {
        Message {
            peer,
            service,
            class,
            age: Duration::ZERO,
            ticket: None,
            payload,
        }
    }
}

impl Engine {
    /// Sends a message that is of use for `lifetime`. This node has custody of it until the next
    /// custodian has taken it.
    ///
    /// # Errors
    /// [`SendError::NoRoom`] while the store is full: the service waits, and sends it again. Other
    /// errors are permanent: no way leads to the peer, or the message is too large for a bundle.
    pub fn send_message(
        &mut self,
        now: Instant,
        message: Message,
        lifetime: Duration,
    ) -> Result<BundleId, SendError> {
        let sent = self.queue_message(now, message, lifetime);
        self.after_change(now);
        sent
    }

    /// As [`Engine::send_message`], but [`Engine::after_change`] is left to the caller.
    pub(crate) fn queue_message(
        &mut self,
        now: Instant,
        message: Message,
        lifetime: Duration,
    ) -> Result<BundleId, SendError> {
        let send = bundle::Send {
            lifetime: Some(lifetime),
            ..bundle::Send::new(
                bundle::wire::ipn(message.peer, message.service),
                message.service,
                self.known(message.class),
                vec![message.payload],
            )
        };
        self.agent.send(now, send)
    }

    /// Notes that a service has made the message with this ticket safe: its custodian may release
    /// it.
    pub fn confirm(&mut self, now: Instant, ticket: u64) {
        self.agent.confirm(now, ticket);
        self.after_change(now);
    }

    /// Whether this node still has a bundle in its store, not yet handed on.
    pub fn has_bundle(&self, id: BundleId) -> bool {
        self.agent.has_bundle(id)
    }

    /// A payload for a service other than streams.
    pub(crate) fn deliver_message(&mut self, delivery: bundle::Delivery) {
        let Some((peer, _)) = bundle::wire::ipn_parts(&delivery.source) else {
            let unclaimed = bundle::Event::Deliver(delivery);
            self.actions.push_back(Action::Bundle(unclaimed));
            return;
        };
        self.actions.push_back(Action::Message(Message {
            peer,
            service: delivery.service,
            class: self.known(delivery.class),
            age: delivery.age,
            ticket: delivery.ticket,
            payload: delivery.payload,
        }));
    }
}
