//! What a session tells its shell.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use underpass_cla::{Class, Down, Outcome};

use super::Resumption;

/// What is agreed when the session is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Established {
    /// The peer's node id.
    pub peer_node_id: String,
    /// The class, or `None` where either side does not know classes.
    pub class: Option<Class>,
    /// Whether this is a standby session.
    pub standby: bool,
    /// The peer's incarnation, where it announced one.
    pub incarnation: Option<u64>,
    /// No process of the run with the next lower incarnation was left by then, where
    /// the peer said so.
    pub former_over_by: Option<Instant>,
    /// Whether the peer stores the received parts of broken transfers.
    pub resumes: bool,
    /// The largest bundle the peer takes, bytes.
    pub transfer_mru_bytes: u64,
    /// Keepalive interval in force, s; 0 for none.
    pub keepalive_s: u16,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both sides want TLS: when the output is flushed, the shell shakes
    /// hands and calls [`super::SessionCore::tls_established`].
    StartTls,
    /// The session is up.
    Established(Established),
    /// May the transfer of a bundle of `length` bytes, where known, begin?
    /// Asks for [`super::SessionCore::answer`], or, if it is to go on behind
    /// an offset, for [`super::SessionCore::resume`].
    Admit {
        /// Bytes announced, those before the offset included.
        length: Option<u64>,
        /// The peer's name for the bundle, if it uses such names.
        resumption: Option<Resumption>,
    },
    /// The session is over in the middle of a transfer that may go on
    /// elsewhere.
    Partial {
        /// The peer's name for the bundle.
        key: u64,
        /// Its first bytes.
        received: BytesMut,
    },
    /// A whole bundle arrived. Asks for [`super::SessionCore::answer`].
    Received(Bytes),
    /// The peer acknowledged so many bytes of transfer `key`.
    Progress {
        /// The transfer.
        key: u64,
        /// Bytes acknowledged in all.
        acknowledged: u64,
    },
    /// Transfer `key` ended.
    Finished {
        /// The transfer.
        key: u64,
        /// How.
        outcome: Outcome,
    },
    /// The session is over. What output is left may still be written.
    Closed(Down),
}
