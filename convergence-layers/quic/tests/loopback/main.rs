//! Sessions over real sockets on the loopback interface.

mod bundles;
mod coded;
mod dialling;
mod hostile;
mod room;
mod taking_over;
mod trust;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use underpass_backoff::Backoff;
use underpass_cla::{Session, SessionId};
use underpass_quic::{
    Dialer, DialerConfig, Listener, ListenerConfig, ListenerKey, SessionDefaults,
};

use underpass_cla_testing::node::TestNode;
use underpass_cla_testing::pki::{Ca, Naming, nothing_revoked};

/// The common settings of the sessions of test node `number`.
fn defaults(number: u32) -> SessionDefaults {
    let ids = Arc::new(AtomicU64::new(1));
    SessionDefaults {
        incarnation: number.into(),
        rtt: Duration::from_millis(10),
        ending_timeout: Duration::from_secs(2),
        room_timeout: Duration::from_millis(300),
        transfer_mru_bytes: 4 << 20,
        whole_mru_bytes: 4 << 20,
        ..SessionDefaults::new(format!("path{number}"), format!("ipn:{number}.0"), ids)
    }
}

/// A hub, node 2, on any free port.
fn hub(ca: &Ca) -> ListenerConfig {
    ListenerConfig {
        local: SocketAddr::from(([127, 0, 0, 1], 0)),
        session: defaults(2),
        tls: ca.server(&ca.node("ipn:2.0", 2, Naming::OtherName), nothing_revoked()),
        max_half_open: 16,
        max_half_open_per_source: 16,
        max_connections: 64,
        key: ListenerKey([7; 32]),
    }
}

/// A terminal, node 1, that dials again quickly.
fn terminal(ca: &Ca, remote: SocketAddr) -> DialerConfig {
    terminal_of(ca, remote, 1)
}

/// The same with another number.
fn terminal_of(ca: &Ca, remote: SocketAddr, number: u8) -> DialerConfig {
    let node = ca.node(&format!("ipn:{number}.0"), number, Naming::OtherName);
    let tls = ca.client(&node, nothing_revoked());
    DialerConfig {
        backoff: Backoff {
            base: Duration::from_millis(50),
            max: Duration::from_millis(200),
        },
        ..DialerConfig::new(remote, defaults(number.into()), tls)
    }
}

struct End {
    node: TestNode,
    id: SessionId,
    session: Arc<dyn Session>,
}

/// A terminal and a hub with one session.
struct Pair {
    near: End,
    far: End,
    dialer: Dialer,
    listener: Listener,
}

impl Pair {
    async fn new() -> Pair {
        let ca = Ca::new();
        let (mut near, mut far) = (TestNode::new(), TestNode::new());
        let listener = Listener::bind(hub(&ca), far.node.clone()).expect("a free port");
        let dialling = terminal(&ca, listener.local_addr());
        let dialer = Dialer::spawn(dialling, near.node.clone());
        let (id, info, session) = near.up().await;
        assert_eq!(info.peer_node_id, "ipn:2.0");
        assert!(info.tls);
        let (far_id, far_info, far_session) = far.up().await;
        assert_eq!(far_info.peer_node_id, "ipn:1.0");
        assert_eq!(info.exported_key, far_info.exported_key);
        Pair {
            near: End {
                node: near,
                id,
                session,
            },
            far: End {
                node: far,
                id: far_id,
                session: far_session,
            },
            dialer,
            listener,
        }
    }
}
