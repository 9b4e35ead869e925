//! The sessions alive, by the certificate of their peer.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use underpass_cla::SessionId;

use super::handle::Command;

/// Finds sessions that have to be closed.
#[derive(Debug, Default)]
pub(super) struct Registry {
    sessions: Mutex<HashMap<SessionId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// Serial number of the peer's certificate, under TLS.
    serial: Option<Vec<u8>>,
    commands: UnboundedSender<Command>,
}

impl Registry {
    pub(super) fn insert(
        &self,
        id: SessionId,
        serial: Option<Vec<u8>>,
        commands: UnboundedSender<Command>,
    ) {
        self.lock().insert(id, Entry { serial, commands });
    }

    pub(super) fn remove(&self, id: SessionId) {
        self.lock().remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Aborts the sessions whose peer's certificate has such a serial number.
    pub(super) fn close_where(&self, predicate: &dyn Fn(&[u8]) -> bool) -> usize {
        let sessions = self.lock();
        let hit = sessions
            .values()
            .filter(|entry| entry.serial.as_deref().is_some_and(predicate));
        hit.map(|entry| {
            let reason = "the peer's certificate is revoked".to_owned();
            let _ = entry.commands.send(Command::Abort(reason));
        })
        .count()
    }

    /// Ends all sessions in order.
    pub(super) fn close_all(&self) {
        for entry in self.lock().values() {
            let _ = entry.commands.send(Command::Close);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Entry>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
