//! The sessions alive, by the certificate of their peer.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::mpsc::UnboundedSender;
use underpass_cla::SessionId;

use super::handle::Command;
use crate::tls::PeerIdentity;

/// Why a session ends whose peer's certificate is revoked.
const REVOKED: &str = "the peer's certificate is revoked";

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

impl Entry {
    fn abort(&self, reason: &str) {
        let _ = self.commands.send(Command::Abort(reason.to_owned()));
    }
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
        self.abort(revoked, REVOKED)
    }

    /// The same for one session; no other is looked at.
    pub(super) fn close_if(&self, id: SessionId, predicate: &dyn Fn(&[u8]) -> bool) {
        let sessions = self.lock();
        let revoked = |certificate: &Certificate| predicate(&certificate.serial);
        if let Some(entry) = sessions.get(&id)
            && entry.certificate.as_ref().is_some_and(revoked)
        {
            entry.abort(REVOKED);
        }
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
        meant.map(|entry| entry.abort(reason)).count()
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn a_new_session_is_judged_without_a_look_at_the_others() {
        let registry = Registry::default();
        let mut commands = Vec::new();
        for id in 0..3u8 {
            let certificate = Certificate {
                serial: vec![id],
                not_after_s: 0,
            };
            let (sender, receiver) = unbounded_channel();
            registry.insert(SessionId(id.into()), Some(certificate), sender);
            commands.push(receiver);
        }
        let asked = Cell::new(0);
        let is_revoked = |serial: &[u8]| {
            asked.set(asked.get() + 1);
            serial != [0]
        };
        registry.close_if(SessionId(0), &is_revoked);
        registry.close_if(SessionId(1), &is_revoked);
        assert_eq!(asked.get(), 2);
        let aborted = commands.iter_mut().map(|c| c.try_recv().is_ok());
        assert_eq!(aborted.collect::<Vec<_>>(), [false, true, false]);
    }
}
