//! Sessions over QUIC, as configured.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use underpass_cla::Node;
use underpass_quic::{
    Algorithm, Coding, Dialer, DialerConfig, Listener, ListenerConfig, SessionDefaults,
    SocketOptions,
};

use super::engine::window_of;
use super::links::{Sessions, backoff, classes, connections, per_source, spare_connections};
use crate::config::{self, Coded, Config, PathConfig, QuicCongestionControl};
use crate::security::Security;
use crate::upgrade::Sockets;

/// QUIC has no sessions without certificates; the configuration's check refuses such a
/// configuration.
fn no_certificates() -> io::Error {
    io::Error::other("convergence_layer = \"quic\" needs tls.pki_dir")
}

/// Begins to dial by a path.
pub(super) fn dial(
    sessions: &Sessions,
    config: &Config,
    path: &PathConfig,
    security: &Security,
    node: Arc<dyn Node>,
) -> io::Result<Dialer> {
    let tls = security.client().ok_or_else(no_certificates)?;
    let mut dialer = DialerConfig::new(path.remote, dialled(sessions, config, path), tls);
    dialer.local = path.local.map(|address| SocketAddr::new(address, 0));
    dialer.classes = classes(config);
    dialer.standby = config.tcp.standby;
    dialer.backoff = backoff(config);
    Ok(Dialer::spawn(dialer, node))
}

/// Listens; without `reads`, another process still has what comes to the port.
pub(super) fn listen(
    sessions: &Sessions,
    config: &Config,
    listener: &config::ListenerConfig,
    security: &Security,
    sockets: &Sockets,
    node: Arc<dyn Node>,
    reads: bool,
) -> io::Result<Listener> {
    let accepting = ListenerConfig {
        local: listener.listen,
        session: accepted(sessions, config, &listener.name),
        tls: security.server().ok_or_else(no_certificates)?,
        max_half_open: listener.max_pending,
        max_half_open_per_source: per_source(listener),
        max_connections: connections(config) + spare_connections(listener),
        key: sessions.quic_key.of_listener(&listener.name),
    };
    let name = format!("QUIC sessions {}", listener.name);
    let bound = sockets.bind(&name, listener.listen, || underpass_quic::bind(&accepting))?;
    Listener::accept_on(bound, accepting, node, reads)
}

/// What the sessions of a path have in common.
pub(super) fn dialled(sessions: &Sessions, config: &Config, path: &PathConfig) -> SessionDefaults {
    let mut session = defaults(sessions, config, &path.name);
    session.accepted_peers = Some([format!("ipn:{}.0", path.neighbour)].into());
    session.rtt = path.rtt();
    session.mtu_bytes = path.mtu_bytes;
    session.receive_window_bytes = window_of(path.receive_rate_bps, path.rtt()).into();
    session.socket.interface = path.interface.clone();
    session
}

/// The same for a listener: it serves every terminal, so it uses the largest window and the
/// smallest packets.
pub(super) fn accepted(sessions: &Sessions, config: &Config, listener: &str) -> SessionDefaults {
    let mut session = defaults(sessions, config, listener);
    let hops = || config.accepted_hops().filter(|hop| hop.comes_by(listener));
    session.accepted_peers = Some(hops().map(|hop| format!("ipn:{}.0", hop.node)).collect());
    let windows = hops().map(|hop| window_of(hop.receive_rate_bps, hop.rtt));
    let without = || window_of(None, session.rtt);
    session.receive_window_bytes = windows.max().unwrap_or_else(without).into();
    let usual = (session.rtt, session.mtu_bytes);
    session.rtt = hops().map(|hop| hop.rtt).max().unwrap_or(usual.0);
    session.mtu_bytes = hops().map(|hop| hop.mtu_bytes).min().unwrap_or(usual.1);
    session
}

fn defaults(sessions: &Sessions, config: &Config, name: &str) -> SessionDefaults {
    let node_id = format!("ipn:{}.0", config.node.number);
    let mut session = SessionDefaults::new(name, node_id, sessions.ids.clone());
    session.incarnation = sessions.incarnation;
    session.keepalive_s = config.keepalive_s(false);
    session.resting_keepalive_s = config.keepalive_s(true);
    session.hold = Duration::from_secs(config.tcp.hold_s);
    session.transfer_mru_bytes = config.transfer_mru_bytes();
    session.whole_mru_bytes = config.whole_mru_bytes();
    if sessions.has_payloads {
        session.in_memory_bytes = config.in_memory_bytes();
    }
    session.rooms = sessions.quic_rooms.clone();
    session.algorithm = match config.quic.congestion_control {
        QuicCongestionControl::HyblaDama => Algorithm::Allocated,
        QuicCongestionControl::Hybla => Algorithm::Hybla,
    };
    session.coding = config::coded(&config.classes)
        .into_iter()
        .map(|coded| match coded {
            Coded::Never => Coding::Never,
            Coded::Tail => Coding::Tail,
            Coded::Always => Coding::Always,
        })
        .collect();
    session.socket = SocketOptions {
        interface: None,
        mark: config.tcp.mark,
    };
    session
}
