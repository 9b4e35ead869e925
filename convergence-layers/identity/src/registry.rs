//! The sessions alive, by the certificate of their peer.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use underpass_cla::SessionId;

use crate::PeerIdentity;

/// Why a session ends whose peer's certificate is revoked.
const REVOKED: &str = "the peer's certificate is revoked";

/// How a session is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending<'a> {
    /// As [`underpass_cla::Session::close`].
    InOrder,
    /// As [`underpass_cla::Session::abort`], for this reason.
    AtOnce(&'a str),
}

/// Ends a session; it never blocks, and does nothing to one that is over.
pub type End = Box<dyn Fn(Ending<'_>) + Send + Sync>;

/// Finds sessions that have to be closed.
#[derive(Debug, Default)]
pub struct Registry {
    sessions: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    alive: HashMap<SessionId, Entry>,
    /// All were ended in order, and so are those that begin from now on.
    closed: bool,
}

struct Entry {
    /// The peer's, under TLS.
    certificate: Option<Certificate>,
    end: End,
}

impl Entry {
    fn abort(&self, reason: &str) {
        (self.end)(Ending::AtOnce(reason));
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// What a session lives and ends by.
#[derive(Debug)]
pub struct Certificate {
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
    /// A session begins, with the peer's certificate if it is under TLS.
    pub fn insert(&self, id: SessionId, certificate: Option<Certificate>, end: End) {
        let mut sessions = self.lock();
        if sessions.closed {
            end(Ending::InOrder);
        }
        sessions.alive.insert(id, Entry { certificate, end });
    }

    /// It is over.
    pub fn remove(&self, id: SessionId) {
        self.lock().alive.remove(&id);
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.lock().alive.is_empty()
    }

    /// Sessions at present.
    pub fn len(&self) -> usize {
        self.lock().alive.len()
    }

    /// Aborts the sessions whose peer's certificate has such a serial number (big-endian, without
    /// leading zeros). Returns how many.
    pub fn close_where(&self, predicate: &dyn Fn(&[u8]) -> bool) -> usize {
        let revoked = |certificate: &Certificate| predicate(&certificate.serial);
        self.abort(revoked, REVOKED)
    }

    /// The same for one session; no other is visited.
    pub fn close_if(&self, id: SessionId, predicate: &dyn Fn(&[u8]) -> bool) {
        let sessions = self.lock();
        let revoked = |certificate: &Certificate| predicate(&certificate.serial);
        if let Some(entry) = sessions.alive.get(&id)
            && entry.certificate.as_ref().is_some_and(revoked)
        {
            entry.abort(REVOKED);
        }
    }

    /// Aborts the sessions whose peer's certificate has ended by then, s since the Unix epoch.
    /// Returns how many.
    pub fn close_ended(&self, now_s: i64) -> usize {
        let ended = |certificate: &Certificate| certificate.not_after_s < now_s;
        self.abort(ended, "the peer's certificate has ended")
    }

    /// Aborts all sessions under TLS, since this node's certificate has ended. Returns how many.
    pub fn close_certified(&self) -> usize {
        self.abort(|_| true, "this node's certificate has ended")
    }

    fn abort(&self, is_meant: impl Fn(&Certificate) -> bool, reason: &str) -> usize {
        let sessions = self.lock();
        let meant = sessions
            .alive
            .values()
            .filter(|entry| entry.certificate.as_ref().is_some_and(&is_meant));
        meant.map(|entry| entry.abort(reason)).count()
    }

    /// Ends all sessions in order, and those that still begin as soon as they do: a contact may
    /// have completed just when dialling and accepting were stopped.
    pub fn close_all(&self) {
        let mut sessions = self.lock();
        sessions.closed = true;
        for entry in sessions.alive.values() {
            (entry.end)(Ending::InOrder);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_new_session_is_judged_without_a_look_at_the_others() {
        let registry = Registry::default();
        let mut ends = Vec::new();
        for id in 0..3u8 {
            let certificate = Certificate {
                serial: vec![id],
                not_after_s: 0,
            };
            let (sender, receiver) = channel();
            let end: End = Box::new(move |ending| {
                let _ = sender.send(ending == Ending::AtOnce(REVOKED));
            });
            registry.insert(SessionId(id.into()), Some(certificate), end);
            ends.push(receiver);
        }
        let asked = Cell::new(0);
        let is_revoked = |serial: &[u8]| {
            asked.set(asked.get() + 1);
            serial != [0]
        };
        registry.close_if(SessionId(0), &is_revoked);
        registry.close_if(SessionId(1), &is_revoked);
        assert_eq!(asked.get(), 2);
        let aborted = ends.iter().map(|end| end.try_recv() == Ok(true));
        assert_eq!(aborted.collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_session_that_begins_behind_the_end_of_all_ends_in_order() {
        let registry = Registry::default();
        let (sender, receiver) = channel();
        let ends = |id: u64| -> End {
            let sender = sender.clone();
            Box::new(move |ending| {
                let _ = sender.send((id, ending == Ending::InOrder));
            })
        };
        registry.insert(SessionId(1), None, ends(1));
        assert!(receiver.try_recv().is_err());
        registry.close_all();
        registry.insert(SessionId(2), None, ends(2));
        let ended: Vec<(u64, bool)> = receiver.try_iter().collect();
        assert_eq!(ended, [(1, true), (2, true)]);
        assert_eq!(registry.len(), 2, "until they are over");
    }
}
