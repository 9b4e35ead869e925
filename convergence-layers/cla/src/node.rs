//! What the node offers to every convergence layer.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use thiserror::Error;
use underpass_payloads::Spool;

use crate::session::{Down, Session, SessionId, SessionInfo};

/// Why the node does not take an incoming bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The node has this bundle already; the sender may release it.
    #[error("the bundle is here already")]
    Completed,
    /// No room at present; the sender may try again later.
    #[error("no room for the bundle at present")]
    NoResources,
    /// The bundle is malformed, too large or not for this node.
    #[error("the bundle is not acceptable")]
    NotAcceptable,
}

impl Refusal {
    /// Its number in messages over QUIC (docs/quic.md).
    pub fn number(self) -> u8 {
        match self {
            Refusal::Completed => 1,
            Refusal::NoResources => 2,
            Refusal::NotAcceptable => 3,
        }
    }

    /// The refusal with that number, if there is one.
    pub fn numbered(number: u8) -> Option<Refusal> {
        match number {
            1 => Some(Refusal::Completed),
            2 => Some(Refusal::NoResources),
            3 => Some(Refusal::NotAcceptable),
            _ => None,
        }
    }
}

/// How a transfer ended at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The peer's CL acknowledged all of it.
    Acknowledged,
    /// The peer's CL refused it.
    Refused(Refusal),
    /// The session ended first.
    Broken {
        /// Bytes of the bundle that the peer acknowledged before the end, including those of the
        /// transfer that this one continued.
        acknowledged: u64,
    },
}

/// Takes one bundle piece by piece. Dropping it before the end discards what has come.
pub trait Intake: Send {
    /// Whether there is room for a piece. An error refuses the bundle; no other method is called
    /// after that.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>>;

    /// Takes the next piece; called once for each `Ok` of
    /// [`Intake::poll_ready`].
    fn take(&mut self, piece: Bytes);

    /// Nothing more comes. On `Ok` the node has the bundle, and the session
    /// acknowledges the transfer's last byte.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>>;
}

/// What the node offers to every convergence layer. Implementations return
/// quickly and never wait for a peer: a reader that blocks on storage can
/// deadlock both ends.
pub trait Node: Send + Sync + 'static {
    /// A session is established and authenticated. The node keeps `session`
    /// until [`Node::session_down`].
    ///
    /// `id` is the convergence layer's number for the session, unique in the process. The node
    /// returns its own number, which all other calls use, so that the number alone can show what
    /// the session belongs to.
    fn session_up(&self, id: SessionId, info: SessionInfo, session: Arc<dyn Session>) -> SessionId;

    /// Whether the node uses the session, that is, takes bundles from it and offers it some; and
    /// the number that all other calls use from then on. Until then, nothing of the peer is read.
    /// `cx` is woken when the answer may have changed. Called first when the session is up.
    fn poll_in_use(&self, id: SessionId, _cx: &mut Context<'_>) -> Poll<SessionId> {
        Poll::Ready(id)
    }

    /// The session can take one more bundle: its transport holds less than
    /// about one bundle of unsent bytes.
    fn ready(&self, id: SessionId);

    /// The transfer of a bundle begins, of `length` bytes if the peer announced it. An error
    /// refuses it before its bytes are kept.
    fn admit(&self, id: SessionId, length: Option<u64>) -> Result<(), Refusal>;

    /// As [`Node::admit`], for a session that can deliver a bundle in pieces: returns what takes it
    /// piece by piece, if it is too long for memory. [`Node::received`] is not called then.
    ///
    /// # Errors
    /// When there is no room for it.
    fn intake(&self, _id: SessionId, _length: u64) -> Result<Option<Box<dyn Intake>>, Refusal> {
        Ok(None)
    }

    /// A file for received data that is too long for memory, while its bytes come in any order and
    /// their number is unknown. Waits for the disk.
    ///
    /// # Errors
    /// When there is no room for more of these.
    fn spool(&self, _id: SessionId) -> Result<Spool, Refusal> {
        Err(Refusal::NoResources)
    }

    /// A whole bundle arrived. On `Ok` the node has it and the session
    /// acknowledges the transfer's last byte.
    fn received(&self, id: SessionId, bundle: Bytes) -> Result<(), Refusal>;

    /// The peer's CL has acknowledged the first `acknowledged` bytes of the
    /// bundle of transfer `key`.
    fn progress(&self, id: SessionId, key: u64, acknowledged: u64);

    /// Transfer `key` ended. Called exactly once for each offered transfer,
    /// before [`Node::session_down`].
    fn finished(&self, id: SessionId, key: u64, outcome: Outcome);

    /// The session is gone; `id` is not used again.
    fn session_down(&self, id: SessionId, reason: Down);
}
