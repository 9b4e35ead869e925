//! The sessions alive, by the certificate of their peer.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::mpsc::UnboundedSender;
use underpass_cla::SessionId;

use super::handle::Command;
use crate::tls::PeerIdentity;

/// Finds sessions that have to be closed.
#[derive(Debug, Default)]
pub(super) struct Registry {
    sessions: Mutex<HashMap<SessionId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// The peer's, under TLS.
    certificate: Option<Certificate>,
    commands: UnboundedSender<Command>,
}

/// What a session lives and ends by.
#[derive(Debug)]
pub(super) struct Certificate {
    serial: Vec<u8>,
    /// The end of its validity, s since the Unix epoch.
    not_after_s: i64,
}

impl From<PeerIdentity> for Certificate {
    fn from(peer: PeerIdentity) -> Certificate {
        Certificate {
            serial: peer.serial,
            not_after_s: peer.not_after_s,
        }
    }
}

impl Registry {
    pub(super) fn insert(
        &self,
        id: SessionId,
        certificate: Option<Certificate>,
        commands: UnboundedSender<Command>,
    ) {
        let entry = Entry {
            certificate,
            commands,
        };
        self.lock().insert(id, entry);
    }

    pub(super) fn remove(&self, id: SessionId) {
        self.lock().remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Aborts the sessions whose peer's certificate has such a serial number.
    pub(super) fn close_where(&self, predicate: &dyn Fn(&[u8]) -> bool) -> usize {
        let revoked = |certificate: &Certificate| predicate(&certificate.serial);
        self.abort(revoked, "the peer's certificate is revoked")
    }

    /// Aborts the sessions whose peer's certificate has ended by then, s since
    /// the Unix epoch; says how many.
    pub(super) fn close_ended(&self, now_s: i64) -> usize {
        let ended = |certificate: &Certificate| certificate.not_after_s < now_s;
        self.abort(ended, "the peer's certificate has ended")
    }

    /// Aborts all sessions under TLS: this node's certificate has ended.
    pub(super) fn close_certified(&self) -> usize {
        self.abort(|_| true, "this node's certificate has ended")
    }

    fn abort(&self, is_meant: impl Fn(&Certificate) -> bool, reason: &str) -> usize {
        let sessions = self.lock();
        let meant = sessions
            .values()
            .filter(|entry| entry.certificate.as_ref().is_some_and(&is_meant));
        meant
            .map(|entry| {
                let _ = entry.commands.send(Command::Abort(reason.to_owned()));
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
        self.sessions.lock().unwrap()
    }
}
