//! What one end brings to a session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use underpass_cla::Class;

use super::UnfinishedTransfers;
use crate::wire::Limits;

/// Which side opened the TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that dialled.
    Active,
    /// The side that accepted.
    Passive,
}

/// One end's parameters.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The role.
    pub role: Role,
    /// Our node id, as `ipn:10.0`.
    pub node_id: String,
    /// Whether TLS is required; otherwise it is not offered.
    pub tls: bool,
    /// The node ids that the peer may have; `None` admits any. Shared by all sessions: a hub has at
    /// least as many as it has peers.
    pub accepted_peers: Option<Arc<[String]>>,
    /// Keepalive interval that we announce, s; 0 for none.
    pub keepalive_s: u16,
    /// What a passive side announces to some peers instead, s, by their node ids.
    pub keepalives_of: Arc<BTreeMap<String, u16>>,
    /// The largest segment we take, bytes of data.
    pub segment_mru_bytes: u64,
    /// The largest transfer we take, bytes.
    pub transfer_mru_bytes: u64,
    /// The largest transfer that we take into memory, bytes, and so the largest one without an
    /// announced length. Longer ones are taken in pieces.
    pub whole_mru_bytes: u64,
    /// The largest transfer that the peer takes, bytes, whatever it announces;
    /// `None` believes it.
    pub peer_transfer_mru_bytes: Option<u64>,
    /// The largest segment we send, bytes of data. Each is acknowledged, so progress is known in
    /// steps of this length.
    pub segment_bytes: u64,
    /// From the connection until the session is established, at most 60 s.
    pub contact_timeout: Duration,
    /// How long an ending session may continue without a byte from the peer.
    pub ending_timeout: Duration,
    /// Class and standby flag that an active side asks for; a passive side
    /// answers with those of its peer.
    pub class: Option<(Class, bool)>,
    /// This process' incarnation, announced beside the class.
    pub incarnation: u64,
    /// Since when no process of the run with the next lower incarnation is left, if
    /// that is known; announced with the incarnation.
    pub alone_since: Option<Instant>,
    /// Whether parts of broken transfers are kept here so that the transfers can continue;
    /// announced beside the class.
    pub resumption: bool,
    /// Bounds on what the peer may announce.
    pub limits: Limits,
    /// The transfers of peers in progress on all of their sessions.
    pub unfinished: Arc<UnfinishedTransfers>,
}

impl SessionConfig {
    /// A configuration of `node_id` with the usual values and no TLS.
    pub fn new(role: Role, node_id: impl Into<String>) -> Self {
        Self {
            role,
            node_id: node_id.into(),
            tls: false,
            accepted_peers: None,
            keepalive_s: 30,
            keepalives_of: Arc::default(),
            segment_mru_bytes: 16 << 20,
            transfer_mru_bytes: 16 << 20,
            whole_mru_bytes: u64::MAX,
            peer_transfer_mru_bytes: None,
            segment_bytes: 256 << 10,
            contact_timeout: Duration::from_secs(30),
            ending_timeout: Duration::from_secs(30),
            class: None,
            incarnation: 0,
            alone_since: None,
            resumption: true,
            limits: Limits::default(),
            unfinished: Arc::default(),
        }
    }
}
