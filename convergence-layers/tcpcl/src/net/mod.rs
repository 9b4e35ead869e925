//! Sockets and tasks that carry sessions: the thin shell around
//! [`crate::session::SessionCore`].
//!
//! One task per session reads, writes and keeps its timer ([`driver`]); the
//! node reaches it through a handle that never blocks ([`handle`]).

mod address;
mod attempts;
mod contact;
mod dialer;
mod driver;
mod handle;
mod input;
mod kernel;
mod lane;
mod listener;
mod mptcp;
mod nudge;
mod offering;
mod output;
mod pace;
mod pacing;
mod partial;
mod receiving;
mod single;
mod socket;
mod taking;
mod task;
mod tcp_info;
mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use underpass_cla::SessionId;

use crate::session::{Role, SessionConfig};

pub use dialer::{Dialer, DialerConfig, DialerStatus, LaneStatus, SlotStatus};
pub use kernel::{Pacing, Socket};
pub use listener::{Listener, ListenerConfig, listen};
pub use pacing::payload_bytes_per_second;
pub use partial::SharedPartials;
pub use single::{Side, run_session};
pub use socket::SocketOptions;
pub use transport::Transport;

/// The runtime's time, which simulations advance by themselves.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What all sessions of a dialer or listener have in common.
#[derive(Clone, Debug)]
pub struct SessionDefaults {
    /// The configured path or listener, as [`underpass_cla::SessionInfo`]
    /// reports it.
    pub path: String,
    /// Our node id.
    pub node_id: String,
    /// This process' incarnation.
    pub incarnation: u64,
    /// The node ids that peers may have; `None` admits any.
    pub accepted_peers: Option<Arc<[String]>>,
    /// Keepalive interval, s; 0 for none.
    pub keepalive_s: u16,
    /// The largest segment we take, bytes.
    pub segment_mru_bytes: u64,
    /// The largest bundle we take, bytes.
    pub transfer_mru_bytes: u64,
    /// The largest bundle that we take into memory, bytes; longer ones are
    /// taken piece by piece ([`underpass_cla::Node::intake`]).
    pub whole_mru_bytes: u64,
    /// The largest bundle that the peer takes, bytes, whatever it announces;
    /// `None` believes it.
    pub peer_transfer_mru_bytes: Option<u64>,
    /// The largest segment we send, bytes.
    pub segment_bytes: u64,
    /// From TCP connection to established session.
    pub contact_timeout: Duration,
    /// How long an ending session may be silent.
    pub ending_timeout: Duration,
    /// Options of the sockets.
    pub socket: SocketOptions,
    /// Parts of broken transfers, one place for all sessions of the process.
    pub partial: Arc<SharedPartials>,
    /// Where session ids come from, one source for all CLs of the process.
    pub session_ids: Arc<AtomicU64>,
}

impl SessionDefaults {
    /// The usual values.
    pub fn new(
        path: impl Into<String>,
        node_id: impl Into<String>,
        session_ids: Arc<AtomicU64>,
    ) -> Self {
        let usual = SessionConfig::new(Role::Active, node_id);
        Self {
            path: path.into(),
            node_id: usual.node_id,
            incarnation: usual.incarnation,
            accepted_peers: None,
            keepalive_s: usual.keepalive_s,
            segment_mru_bytes: usual.segment_mru_bytes,
            transfer_mru_bytes: usual.transfer_mru_bytes,
            whole_mru_bytes: usual.whole_mru_bytes,
            peer_transfer_mru_bytes: None,
            segment_bytes: usual.segment_bytes,
            contact_timeout: usual.contact_timeout,
            ending_timeout: usual.ending_timeout,
            socket: SocketOptions::default(),
            partial: Arc::default(),
            session_ids,
        }
    }

    fn next_id(&self) -> SessionId {
        SessionId(self.session_ids.fetch_add(1, Ordering::Relaxed))
    }

    fn session_config(&self, role: Role, tls: bool) -> SessionConfig {
        SessionConfig {
            tls,
            accepted_peers: self.accepted_peers.clone(),
            keepalive_s: self.keepalive_s,
            segment_mru_bytes: self.segment_mru_bytes,
            transfer_mru_bytes: self.transfer_mru_bytes,
            whole_mru_bytes: self.whole_mru_bytes,
            peer_transfer_mru_bytes: self.peer_transfer_mru_bytes,
            segment_bytes: self.segment_bytes,
            contact_timeout: self.contact_timeout,
            ending_timeout: self.ending_timeout,
            incarnation: self.incarnation,
            unfinished: self.partial.unfinished.clone(),
            ..SessionConfig::new(role, self.node_id.clone())
        }
    }
}
