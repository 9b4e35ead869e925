//! Certificates and the revocation list through the hop: a terminal asks
//! ([`Asking`]), its hub answers and asks the control service ([`Answering`]).

mod answering;
mod asking;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use underpass_bundle::{BundleId, SendError};
use underpass_cla::Class;
use underpass_control_client::Service as ControlService;
use underpass_engine::Message as Envelope;
use underpass_provision::SERVICE;

use super::background;
use super::engine::lowest_class;
use crate::config::{Config, Current, Role};
use crate::known_time::KnownTime;
use crate::shell::{Service, Shell};
use answering::Answering;
use asking::Asking;

/// Messages that may wait for the task that reads them.
const WAITING: usize = 256;

/// A larger message, such as a long revocation list, leaves in the lowest class, where it delays
/// nothing else.
const URGENT_BYTES: usize = 16 << 10;

/// Begins to ask or to answer, as configured.
pub(super) fn start(
    current: &Arc<Current>,
    shell: &Arc<Shell>,
    time: &Arc<KnownTime>,
    control: Option<Arc<ControlService>>,
) -> Vec<AbortOnDropHandle<()>> {
    let config = current.get();
    if !takes_part(&config) {
        return Vec::new();
    }
    let (messages, inbox) = mpsc::channel(WAITING);
    let (restarts, restarted) = mpsc::channel(1);
    shell.register(SERVICE, Arc::new(Receiver { messages, restarts }));
    if let Some(asking) = Asking::of(&config, current, shell, time) {
        return vec![background(asking.run(inbox, restarted))];
    }
    match control {
        Some(control) => Answering::start(current, shell, control, inbox),
        None => Vec::new(),
    }
}

/// Whether this node sends or takes such messages.
pub(crate) fn takes_part(config: &Config) -> bool {
    let asks = config.enrolment.as_ref().is_some_and(|e| e.to.is_some());
    let answers = config.control.is_some() && config.tls.pki_dir.is_some();
    asks || answers
}

/// The terminals that a hub answers.
fn answered(config: &Config) -> BTreeSet<u64> {
    match config.node.role {
        Role::Hub => super::plans::reached(config),
        _ => BTreeSet::new(),
    }
}

/// Queues messages for a task, since the engine's calls must not wait. Messages that do not fit are
/// dropped; the sender asks again.
struct Receiver {
    messages: mpsc::Sender<Envelope>,
    /// Peers that have restarted and so lost the questions to them.
    restarts: mpsc::Sender<u64>,
}

impl Service for Receiver {
    fn message(&self, message: Envelope) {
        let _ = self.messages.try_send(message);
    }

    fn peer_restarted(&self, peer: u64) {
        let _ = self.restarts.try_send(peer);
    }
}

/// Sends a payload to a node, replacing an earlier one that has not left.
fn send(
    config: &Config,
    shell: &Shell,
    peer: u64,
    payload: Vec<u8>,
    instead_of: Option<BundleId>,
) -> Result<BundleId, SendError> {
    let class = match payload.len() {
        0..=URGENT_BYTES => Class::SIGNALLING,
        _ => lowest_class(config),
    };
    let lifetime = Duration::from_secs(config.custody.lifetime_s);
    let envelope = Envelope::new(peer, SERVICE, class, Bytes::from(payload));
    shell.send_message(envelope, lifetime, instead_of)
}
