//! Sessions over real sockets on the loopback interface, and over streams in memory.

mod answers;
mod dialling;
mod holding;
mod mptcp;
mod offering;
mod plain;
mod renewing;
mod resuming;
mod spares;
mod tls;
mod turns;
mod unproven;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use underpass_backoff::Backoff;
use underpass_tcpcl::{DialerConfig, ListenerConfig, SessionDefaults};

/// The common settings of the sessions of test node `number`.
fn defaults(number: u32) -> SessionDefaults {
    let ids = Arc::new(AtomicU64::new(1));
    let node_id = format!("ipn:{number}.0");
    let mut session = SessionDefaults::new(format!("path{number}"), node_id, ids);
    session.config.incarnation = number.into();
    session
}

/// A hub, node 2, on any free port.
fn hub() -> ListenerConfig {
    ListenerConfig {
        local: SocketAddr::from(([127, 0, 0, 1], 0)),
        session: defaults(2),
        tls: None,
        max_half_open: 16,
        max_half_open_per_source: 16,
        max_connections: 64,
    }
}

/// A terminal, node 1, that dials again quickly.
fn terminal(remote: SocketAddr) -> DialerConfig {
    DialerConfig {
        backoff: Backoff {
            base: Duration::from_millis(10),
            max: Duration::from_millis(50),
        },
        ..DialerConfig::new(remote, defaults(1))
    }
}
