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
    /// The class, or `None` if either side does not support classes.
    pub class: Option<Class>,
    /// Whether this is a standby session.
    pub standby: bool,
    /// The peer's incarnation, where it announced one.
    pub incarnation: Option<u64>,
    /// A time at which no process of the previous run (the next lower incarnation) was left, if the
    /// peer said so.
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
    /// Both sides want TLS: once the output is flushed, the shell does the handshake and calls
    /// [`super::SessionCore::tls_established`].
    StartTls,
    /// The session is up.
    Established(Established),
    /// May the transfer of a bundle of `length` bytes, where known, begin? The shell must call
    /// [`super::SessionCore::answer`] or, if the transfer continues after an offset,
    /// [`super::SessionCore::resume`].
    Admit {
        /// Announced bytes, including those before the offset.
        length: Option<u64>,
        /// The peer's name for the bundle, if it uses such names.
        resumption: Option<Resumption>,
    },
    /// The session is over in the middle of a transfer that may continue elsewhere.
    Partial {
        /// The peer's name for the bundle.
        key: u64,
        /// Its first bytes.
        received: BytesMut,
    },
    /// A whole bundle arrived. The shell must call [`super::SessionCore::answer`].
    Received(Bytes),
    /// The peer acknowledged this many bytes of transfer `key`.
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
    /// The session is over. Remaining output may still be written.
    Closed(Down),
}
