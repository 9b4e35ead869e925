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

/// When this many bundles of messages are remembered, those that have left are removed.
const REMEMBERED: usize = 4096;

/// Opens the store and starts its tasks, if this node takes part.
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
        sent: Mutex::new(Sent::new()),
    });
    let settings = config.deferred.settings(&config.node.state_dir);
    let (handle, orders) = underpass_deferred::start(&settings, messages)?;
    shell.register(SERVICE, Arc::new(Receiver(handle.clone())));
    let patience = config.deferred.patience();
    let exchanges = dispatch(handle.clone(), orders, dialler.clone(), patience);
    Ok(Some((handle, super::background(exchanges))))
}

/// Whether this node keeps requests: it has an edge and a neighbour.
pub(crate) fn takes_part(config: &Config) -> bool {
    config.deferred.enabled && config.node.role != Role::Relay && !config.neighbours().is_empty()
}

/// Messages to peers, as bundles.
struct Messages {
    shell: Arc<Shell>,
    sent: Mutex<Sent>,
}

/// The bundle that each message was last sent in.
struct Sent {
    bundles: HashMap<(u64, Name), BundleId>,
    /// At this number, those that have left are removed.
    sweep_at: usize,
}

impl Sent {
    fn new() -> Sent {
        Sent {
            bundles: HashMap::new(),
            sweep_at: REMEMBERED,
        }
    }

    fn insert(
        &mut self,
        message: (u64, Name),
        id: BundleId,
        is_stored: impl Fn(&BundleId) -> bool,
    ) {
        if self.bundles.len() >= self.sweep_at {
            self.bundles.retain(|_, id| is_stored(id));
            // If most are still stored, the next check waits for as many more, so its cost per
            // bundle stays small.
            self.sweep_at = REMEMBERED.max(2 * self.bundles.len());
        }
        self.bundles.insert(message, id);
    }
}

impl Carrier for Messages {
    fn send(&self, peer: u64, class: u8, lifetime: Duration, name: Name, payload: Bytes) -> bool {
        let mut sent = self.sent.lock().unwrap();
        let stored = |id: &BundleId| self.shell.has_bundle(*id);
        let earlier = sent.bundles.get(&(peer, name)).copied().filter(stored);
        // A newer acknowledgement replaces the previous one. Any other message that is still here
        // need not be stored twice.
        let newer = matches!(name.kind, NameKind::Ack(_));
        if earlier.is_some() && !newer {
            return true;
        }
        let message = Message::new(peer, SERVICE, Class(class), payload);
        match self.shell.send_message(message, lifetime, earlier) {
            Ok(id) => {
                sent.insert((peer, name), id, stored);
                true
            }
            Err(SendError::NoRoom) => false,
            Err(error) => {
                // Its own timer repeats it: there may be a route later.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use underpass_deferred::Id;
    use underpass_deferred::store::Side;
    use underpass_deferred::wire::Key;

    use super::*;

    #[test]
    fn messages_that_have_not_left_are_not_looked_at_for_each_new_one() {
        let mut sent = Sent::new();
        let looks = Cell::new(0_u64);
        let messages = 4 * REMEMBERED as u64;
        let message = |number: u64| {
            let key = Key {
                id: Id(u128::from(number).to_be_bytes()),
                attempt: 1,
            };
            let (side, kind) = (Side::Dispatch, NameKind::Word);
            (1, Name { key, side, kind })
        };
        for number in 0..messages {
            sent.insert(message(number), BundleId(number), |_| {
                looks.set(looks.get() + 1);
                true
            });
        }
        assert!(looks.get() <= 2 * messages, "{} looks", looks.get());
        assert_eq!(sent.bundles.len() as u64, messages);
        // Messages that have left are forgotten in the end.
        for number in messages..3 * messages {
            sent.insert(message(number), BundleId(number), |_| false);
        }
        assert!(sent.bundles.len() <= REMEMBERED);
    }
}
