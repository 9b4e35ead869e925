//! The parts of broken transfers, shared by all sessions of a process.
//!
//! A peer may continue a transfer before this end knows that its first session is dead. Then that
//! session is ended here, and the new one waits the short time until the received part is
//! available.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::BytesMut;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use underpass_cla::SessionId;

use super::handle::Command;
use super::now;
use crate::session::{Found, PartialLimits, PartialTransfers, UnfinishedTransfers};

/// A peer's name for a transfer: node id, incarnation, key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) peer: String,
    pub(super) incarnation: u64,
    pub(super) key: u64,
}

/// The state here of a transfer that a peer continues.
#[derive(Debug)]
pub(super) enum Claim {
    Found(Found),
    /// It comes when its session has ended.
    Awaited(oneshot::Receiver<Found>),
}

/// See the module's page.
#[derive(Debug)]
pub struct SharedPartials {
    inner: Mutex<Inner>,
    /// The transfers in progress, of which a part is left if their session breaks.
    pub(super) unfinished: Arc<UnfinishedTransfers>,
}

#[derive(Debug)]
struct Inner {
    partial: PartialTransfers,
    /// Transfers that are being received, at most one for each session.
    live: HashMap<Name, Live>,
}

#[derive(Debug)]
struct Live {
    session: SessionId,
    commands: UnboundedSender<Command>,
    /// The session that waits for it.
    awaited: Option<oneshot::Sender<Found>>,
}

impl Default for SharedPartials {
    fn default() -> Self {
        Self::new(PartialLimits::default())
    }
}

impl SharedPartials {
    /// Nothing yet.
    pub fn new(limits: PartialLimits) -> Self {
        let inner = Inner {
            partial: PartialTransfers::new(limits),
            live: HashMap::new(),
        };
        Self {
            inner: Mutex::new(inner),
            unfinished: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// A session of `peer` is up.
    pub(super) fn enter(&self, peer: &str, incarnation: u64) {
        self.lock().partial.enter(now(), peer, incarnation);
    }

    /// A session begins to receive a transfer.
    pub(super) fn begin(&self, name: Name, session: SessionId, commands: UnboundedSender<Command>) {
        let live = Live {
            session,
            commands,
            awaited: None,
        };
        self.lock().live.insert(name, live);
    }

    /// A peer continues a transfer on another session.
    pub(super) fn claim(&self, name: &Name) -> Claim {
        let mut inner = self.lock();
        if let Some(live) = inner.live.get_mut(name) {
            let (sender, receiver) = oneshot::channel();
            let reason = "the peer goes on with its transfer on another session";
            let _ = live.commands.send(Command::Abort(reason.to_owned()));
            live.awaited = Some(sender);
            return Claim::Awaited(receiver);
        }
        let now = now();
        Claim::Found(
            inner
                .partial
                .take(now, &name.peer, name.incarnation, name.key),
        )
    }

    /// A session has received all of a transfer.
    pub(super) fn complete(&self, name: &Name, session: SessionId) {
        let mut inner = self.lock();
        inner
            .partial
            .complete(&name.peer, name.incarnation, name.key);
        if let Some(waiter) = inner.end(name, session) {
            let _ = waiter.send(Found::Completed);
        }
    }

    /// A session has ended in the middle of a transfer.
    pub(super) fn store(&self, name: &Name, session: SessionId, received: BytesMut) {
        let mut inner = self.lock();
        if let Some(waiter) = inner.end(name, session) {
            match waiter.send(Found::Part(received)) {
                Ok(()) | Err(Found::Completed | Found::Nothing) => {}
                Err(Found::Part(received)) => inner.store(name, received),
            }
        } else {
            inner.store(name, received);
        }
    }

    /// A session no longer receives a transfer, and keeps nothing of it.
    pub(super) fn end(&self, name: &Name, session: SessionId) {
        drop(self.lock().end(name, session));
    }
}

impl Inner {
    fn store(&mut self, name: &Name, received: BytesMut) {
        let now = now();
        self.partial
            .store(now, &name.peer, name.incarnation, name.key, received);
    }

    /// Ends what `session` was receiving. Returns the session that waits for it.
    fn end(&mut self, name: &Name, session: SessionId) -> Option<oneshot::Sender<Found>> {
        let own = self.live.get(name).is_some_and(|l| l.session == session);
        own.then(|| self.live.remove(name)?.awaited).flatten()
    }
}
