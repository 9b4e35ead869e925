//! Store-and-forward of this node: its store, its messages, its exchanges.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio_util::task::AbortOnDropHandle;
use underpass_bundle::{BundleId, SendError};
use underpass_cla::Class;
use underpass_deferred::store::StoreError;
use underpass_deferred::wire::{self, SERVICE};
use underpass_deferred::{Carrier, Handle, Name, NameKind};
use underpass_edge::dial::Dialler;
use underpass_edge::http::deferred::dispatch;
use underpass_engine::Message;

use crate::config::{Config, Role};
use crate::shell::{Service, Shell};

/// Messages whose bundles are remembered before it is looked which have left.
const REMEMBERED: usize = 4096;

/// Opens the store and starts what goes with it, unless this node does not
/// take part.
///
/// # Errors
/// When the store cannot be opened.
pub(super) fn start(
    config: &Config,
    shell: &Arc<Shell>,
    dialler: &Arc<Dialler>,
) -> Result<Option<(Handle, AbortOnDropHandle<()>)>, StoreError> {
    if !takes_part(config) {
        return Ok(None);
    }
    let messages = Arc::new(Messages {
        shell: shell.clone(),
        sent: Mutex::default(),
    });
    let settings = config.deferred.settings(&config.node.state_dir);
    let (handle, orders) = underpass_deferred::start(&settings, messages)?;
    shell.register(SERVICE, Arc::new(Receiver(handle.clone())));
    let timeout = config.deferred.response_timeout();
    let exchanges = dispatch(handle.clone(), orders, dialler.clone(), timeout);
    Ok(Some((handle, super::background(exchanges))))
}

/// Whether this node keeps requests: it has an edge and somebody to talk to.
pub(crate) fn takes_part(config: &Config) -> bool {
    config.deferred.enabled && config.node.role != Role::Relay && !config.neighbours().is_empty()
}

/// Messages to peers, as bundles.
struct Messages {
    shell: Arc<Shell>,
    /// The bundle that each was last sent in.
    sent: Mutex<HashMap<(u64, Name), BundleId>>,
}

impl Carrier for Messages {
    fn send(&self, peer: u64, class: u8, lifetime: Duration, name: Name, payload: Bytes) -> bool {
        let mut sent = self.sent.lock().unwrap();
        let stored = |id: &BundleId| self.shell.has_bundle(*id);
        let earlier = sent.get(&(peer, name)).copied().filter(stored);
        // An acknowledgement says more than the one before it; anything else
        // that is still here need not be here twice.
        let newer = matches!(name.kind, NameKind::Ack(_));
        if earlier.is_some() && !newer {
            return true;
        }
        let message = Message::new(peer, SERVICE, Class(class), payload);
        match self.shell.send_message(message, lifetime, earlier) {
            Ok(id) => {
                if sent.len() >= REMEMBERED {
                    sent.retain(|_, id| stored(id));
                }
                sent.insert((peer, name), id);
                true
            }
            Err(SendError::NoRoom) => false,
            Err(error) => {
                // Repeated by its own timer: the way may come.
                tracing::debug!(peer, %error, "message of a deferred request not sent");
                true
            }
        }
    }
}

/// Messages from peers.
struct Receiver(Handle);

impl Service for Receiver {
    fn message(&self, message: Message) {
        let peer = message.peer;
        match wire::Message::decode(message.payload) {
            Ok(decoded) => self.0.message(peer, message.class.0, message.age, decoded),
            Err(error) => tracing::warn!(peer, %error, "message of a deferred request refused"),
        }
    }

    fn peer_restarted(&self, peer: u64) {
        self.0.peer_restarted(peer);
    }
}
