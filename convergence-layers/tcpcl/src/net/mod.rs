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
mod spares;
mod sparing;
mod taking;
mod task;
mod tcp_info;
mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

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

/// The settings that all sessions of a dialer or listener share.
#[derive(Clone, Debug)]
pub struct SessionDefaults {
    /// The configured path or listener, as [`underpass_cla::SessionInfo`]
    /// reports it.
    pub path: String,
    /// What each of them announces and takes; role, TLS and class are its own.
    pub config: SessionConfig,
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
        Self {
            path: path.into(),
            config: SessionConfig::new(Role::Active, node_id),
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
            role,
            tls,
            unfinished: self.partial.unfinished.clone(),
            ..self.config.clone()
        }
    }
}
