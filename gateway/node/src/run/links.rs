//! The sessions of the convergence layers: dialled and accepted.

mod handing_over;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use underpass_backoff::Backoff;
use underpass_bare::LtpMemory;
use underpass_cla::{Class, Node};
use underpass_identity::Registry;
use underpass_quic::{ListenerKey, PeerRooms};
use underpass_tcpcl::session::PartialLimits;
use underpass_tcpcl::{
    Dialer, DialerConfig, Listener, ListenerConfig, SessionDefaults, SharedPartials, SocketOptions,
};

use super::carriers::{PathDialer, SessionListener};
use super::engine::window_of;
use super::foundation::Run;
use super::{RunError, bare_sessions, on_demand, quic_sessions};
use crate::config::{self, AcceptedHop, Config, ConvergenceLayer, PathConfig};
use crate::security::{Certified, Security};
use crate::upgrade::Sockets;

/// Connections that a listener allows beyond those of its configured terminals, so that new
/// sessions can come while old ones are still ending.
const SPARE_CONNECTIONS: usize = 64;

/// Handshakes that one address may always have in progress: as many as a terminal begins that opens
/// several for each class.
const LEAST_PER_SOURCE: usize = 32;

/// The running dialers and listeners.
pub(super) struct Links {
    sessions: Sessions,
    security: Security,
    node: Arc<dyn Node>,
    /// By their paths' names.
    dialers: Mutex<BTreeMap<String, PathDialer>>,
    /// With their names.
    listeners: Mutex<Vec<(String, SessionListener)>>,
    sockets: Arc<Sockets>,
    /// Connections that the listeners allow for sessions of terminals.
    connections: AtomicUsize,
    /// Whether the previous process still has the node.
    is_early: AtomicBool,
}

/// What all sessions of this run share.
pub(super) struct Sessions {
    pub(super) incarnation: u64,
    alone_since: Option<Instant>,
    pub(super) ids: Arc<AtomicU64>,
    partial: Arc<SharedPartials>,
    pub(super) quic_rooms: Arc<PeerRooms>,
    pub(super) quic_key: ListenerKey,
    /// Whether there is a folder of long payloads, which is opened only at the start.
    pub(super) has_payloads: bool,
    pub(super) ltp_memory: Arc<LtpMemory>,
}

impl Certified for Links {
    fn close(&self, closing: &dyn Fn(&Registry) -> usize) -> usize {
        let dialers = self.dialers();
        let dialled = dialers.values().filter_map(PathDialer::registry);
        let listeners = self.listeners();
        let accepted = listeners.iter().map(|(_, listener)| listener.registry());
        dialled.chain(accepted).map(closing).sum()
    }
}

impl Links {
    /// Stops dialling by a path.
    pub fn remove_path(&self, name: &str) {
        self.sockets.forget(&bare_sessions::socket_name(name));
        if let Some(dialer) = self.dialers().remove(name) {
            tokio::spawn(async move { dialer.shutdown().await });
        }
    }

    /// Stops dialling on a path, and waits until its sessions have ended, at most `within`.
    pub async fn end_path(&self, name: &str, within: Duration) {
        self.sockets.forget(&bare_sessions::socket_name(name));
        let dialer = self.dialers().remove(name);
        if let Some(dialer) = dialer {
            // An unreachable peer does not answer.
            let _ = tokio::time::timeout(within, dialer.shutdown()).await;
        }
    }

    /// Begins to dial by a path.
    pub fn add_path(&self, config: &Config, path: &PathConfig) {
        let (sessions, security, node) = (&self.sessions, &self.security, self.node.clone());
        let (sockets, early) = (&self.sockets, self.is_early());
        let dialer = match path.convergence_layer {
            ConvergenceLayer::Tcpcl => {
                let session = sessions.dialled(config, path);
                let dialer = dialer(config, path, session, security);
                PathDialer::Tcpcl(Arc::new(Dialer::spawn(dialer, node)))
            }
            ConvergenceLayer::Quic => {
                match quic_sessions::dial(sessions, config, path, security, node) {
                    Ok(dialer) => PathDialer::Quic(Arc::new(dialer)),
                    // A configuration without certificates was refused before.
                    Err(error) => {
                        tracing::error!(path = path.name, %error, "the path is not dialled");
                        return;
                    }
                }
            }
            _ => match bare_sessions::open(sessions, config, path, node, sockets, early) {
                Ok(neighbour) => PathDialer::Bare(Arc::new(neighbour)),
                Err(error) => {
                    tracing::error!(path = path.name, %error, "the path is not used");
                    return;
                }
            },
        };
        self.dialers().insert(path.name.clone(), dialer);
    }

    /// Uses another configuration for sessions that begin from now on. Its new paths have been
    /// added before, and removed ones closed.
    pub fn reconfigure(&self, config: &Config) {
        for path in &config.paths {
            match self.dialers().get(&path.name) {
                Some(PathDialer::Tcpcl(dialer)) => {
                    dialer.set_session(self.sessions.dialled(config, path));
                }
                Some(PathDialer::Quic(dialer)) => {
                    dialer.set_session(quic_sessions::dialled(&self.sessions, config, path));
                }
                // A session goes on as it began.
                Some(PathDialer::Bare(_)) | None => {}
            }
        }
        let connections = connections(config);
        let before = self.connections.fetch_max(connections, Ordering::Relaxed);
        for (name, listener) in &*self.listeners() {
            match listener {
                SessionListener::Tcpcl(listener) => {
                    listener.set_session(self.sessions.accepted(config, name));
                }
                SessionListener::Quic(listener) => {
                    listener.set_session(quic_sessions::accepted(&self.sessions, config, name));
                }
            }
            listener.add_connections(connections.saturating_sub(before));
        }
    }

    pub fn dialled_on_demand(&self, config: &Config) -> BTreeSet<String> {
        let dialers = self.dialers();
        let on_demand = config.paths.iter().filter(|path| path.on_demand.is_some());
        let dialled = on_demand.filter(|path| dialers.contains_key(&path.name));
        dialled.map(|path| path.name.clone()).collect()
    }

    /// Whether a path is dialled without extension items.
    pub fn is_without_items(&self, path: &str) -> bool {
        let dialers = self.dialers();
        dialers.get(path).is_some_and(PathDialer::is_without_items)
    }

    /// Ends all sessions in order.
    pub async fn shutdown(&self) {
        for (_, listener) in &*self.listeners() {
            listener.shutdown();
        }
        let dialers: Vec<_> = self.dialers().values().cloned().collect();
        for dialer in dialers {
            // An unreachable peer does not answer.
            let _ = tokio::time::timeout(Duration::from_secs(2), dialer.shutdown()).await;
        }
    }

    fn is_early(&self) -> bool {
        self.is_early.load(Ordering::Relaxed)
    }

    fn add_listener(
        &self,
        config: &Config,
        listener: &config::ListenerConfig,
    ) -> Result<(), RunError> {
        let (name, address) = (&listener.name, listener.listen);
        let bound = match listener.convergence_layer {
            ConvergenceLayer::Tcpcl => self.accept_tcp(config, listener),
            ConvergenceLayer::Quic => quic_sessions::listen(
                &self.sessions,
                config,
                listener,
                &self.security,
                &self.sockets,
                self.node.clone(),
                !self.is_early(),
            )
            .map(SessionListener::Quic),
            // The configuration's check has refused it.
            _ => Err(io::Error::other("this layer has no listeners")),
        };
        let bound = bound.map_err(|source| RunError::Listen {
            name: name.clone(),
            address,
            source,
        })?;
        tracing::info!(listener = name, address = %bound.local_addr(), "accepting sessions");
        self.listeners().push((name.clone(), bound));
        Ok(())
    }

    fn accept_tcp(
        &self,
        config: &Config,
        listener: &config::ListenerConfig,
    ) -> io::Result<SessionListener> {
        let (name, address) = (&listener.name, listener.listen);
        let accepting = ListenerConfig {
            local: address,
            session: self.sessions.accepted(config, name),
            tls: self.security.server(),
            max_half_open: listener.max_pending,
            max_half_open_per_source: per_source(listener),
            max_connections: connections(config) + spare_connections(listener),
        };
        // A socket of the previous process keeps its protocol.
        let [own, other] = match listener.mptcp {
            true => ["MPTCP sessions", "sessions"],
            false => ["sessions", "MPTCP sessions"],
        };
        if self
            .sockets
            .bound(&format!("{other} {name}"), address)?
            .is_some()
        {
            return Err(io::Error::other(
                "mptcp of a listener cannot change while the node runs: restart it",
            ));
        }
        let bound = self.sockets.bind(&format!("{own} {name}"), address, || {
            underpass_tcpcl::listen(&accepting)
        })?;
        let listener = Listener::accept_on(bound, accepting, self.node.clone())?;
        Ok(SessionListener::Tcpcl(listener))
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<(String, SessionListener)>> {
        self.listeners.lock().unwrap()
    }

    fn dialers(&self) -> MutexGuard<'_, BTreeMap<String, PathDialer>> {
        self.dialers.lock().unwrap()
    }
}

impl Sessions {
    fn defaults(&self, config: &Config, name: &str) -> SessionDefaults {
        let node_id = format!("ipn:{}.0", config.node.number);
        let mut session = SessionDefaults::new(name, node_id, self.ids.clone());
        session.config.incarnation = self.incarnation;
        session.config.alone_since = self.alone_since;
        session.config.keepalive_s = config.tcp.keepalive_s;
        session.config.transfer_mru_bytes = config.transfer_mru_bytes();
        session.config.whole_mru_bytes = config.whole_mru_bytes();
        session.partial = self.partial.clone();
        session
    }

    fn dialled(&self, config: &Config, path: &PathConfig) -> SessionDefaults {
        let mut session = self.defaults(config, &path.name);
        session.config.accepted_peers = Some([format!("ipn:{}.0", path.neighbour)].into());
        // A neighbour without TLS has no beacons.
        let is_metered = path.meter.is_some() && !path.plain;
        session.config.keepalive_s = config.keepalive_s(is_metered);
        session.config.peer_transfer_mru_bytes = path.transfer_mru_bytes;
        session.config.segment_bytes = segment_bytes(path.send_rate_bps.or(path.hint_bps()));
        session.socket = dialled_socket(config, path);
        session
    }

    fn accepted(&self, config: &Config, listener: &str) -> SessionDefaults {
        let mut session = self.defaults(config, listener);
        let hops = config.accepted_hops();
        let hops: Vec<AcceptedHop> = hops.filter(|hop| hop.comes_by(listener)).collect();
        let peers = hops.iter().map(|hop| format!("ipn:{}.0", hop.node));
        session.config.accepted_peers = Some(peers.collect());
        let metered = hops.iter().filter(|hop| hop.meter.is_some());
        let keepalive_s = config.keepalive_s(true);
        let keepalives = metered.map(|hop| (format!("ipn:{}.0", hop.node), keepalive_s));
        session.config.keepalives_of = Arc::new(keepalives.collect());
        session.config.segment_bytes = segment_bytes(fastest(&hops));
        session.socket = SocketOptions {
            mptcp: config.is_mptcp(listener),
            ..accepted_socket(config, &hops)
        };
        session
    }
}

/// Connections for the sessions of all terminals, including old ones that are still ending while
/// new ones come.
pub(super) fn connections(config: &Config) -> usize {
    config.accepted_hops().count() * config.classes.len() * 2 * 2
}

/// Connections beyond those.
pub(super) fn spare_connections(listener: &config::ListenerConfig) -> usize {
    SPARE_CONNECTIONS + listener.max_pending
}

/// Handshakes that one address may have in progress.
pub(super) fn per_source(listener: &config::ListenerConfig) -> usize {
    (listener.max_pending / 4).max(LEAST_PER_SOURCE)
}

/// The numbers of all classes, which have sessions of their own.
pub(super) fn classes(config: &Config) -> Vec<Class> {
    (0..config.classes.len())
        .filter_map(|number| u8::try_from(number).ok().map(Class))
        .collect()
}

/// When a peer is dialled again.
pub(super) fn backoff(config: &Config) -> Backoff {
    Backoff {
        base: Duration::from_secs_f64(config.tcp.backoff_min_s),
        max: Duration::from_secs_f64(config.tcp.backoff_max_s),
    }
}

/// Starts to dial and to listen; of the paths on demand only on those that are up. If `is_early`,
/// what two processes cannot share waits for [`Links::begin`].
pub(super) fn open(
    config: &Config,
    run: &Run,
    security: &Security,
    node: Arc<dyn Node>,
    up: &BTreeSet<String>,
    is_early: bool,
) -> Result<Links, RunError> {
    let partial = SharedPartials::new(PartialLimits {
        time: Duration::from_secs(config.tcp.hold_s),
        ..PartialLimits::default()
    });
    let sessions = Sessions {
        incarnation: run.incarnation,
        alone_since: run.alone_since,
        ids: Arc::new(AtomicU64::new(0)),
        partial: Arc::new(partial),
        quic_rooms: Arc::default(),
        quic_key: run.quic_key,
        has_payloads: config.long_payloads().is_some(),
        ltp_memory: LtpMemory::new(config.ltp_common_bytes()),
    };
    let links = Links {
        sessions,
        security: security.clone(),
        node,
        dialers: Mutex::default(),
        listeners: Mutex::default(),
        sockets: run.sockets.clone(),
        connections: AtomicUsize::new(connections(config)),
        is_early: AtomicBool::new(is_early),
    };
    for path in on_demand::dialled(config, up) {
        links.add_path(config, path);
    }
    for listener in &config.listeners {
        links.add_listener(config, listener)?;
    }
    Ok(links)
}

fn dialer(
    config: &Config,
    path: &PathConfig,
    session: SessionDefaults,
    security: &Security,
) -> DialerConfig {
    let mut dialer = DialerConfig::new(path.remote, session);
    dialer.local = path.local.map(|address| SocketAddr::new(address, 0));
    dialer.tls = security.client().filter(|_| !path.plain);
    dialer.classes = classes(config);
    dialer.standby = config.tcp.standby;
    dialer.backoff = backoff(config);
    dialer
}

/// The peer acknowledges a transfer segment by segment, which shows how far it came before it
/// broke. So a segment is a certain line time, but long enough that its header costs little.
fn segment_bytes(rate_bps: Option<u64>) -> u64 {
    const LINE_TIME_MS: u64 = 20;
    let most = 256 << 10;
    rate_bps.map_or(most, |rate| {
        (rate / 8 * LINE_TIME_MS / 1000).clamp(16 << 10, most)
    })
}

/// The highest rate of these; none where one has no limit.
fn fastest(hops: &[AcceptedHop]) -> Option<u64> {
    let rates: Option<Vec<u64>> = hops.iter().map(|hop| hop.send_rate_bps).collect();
    rates?.into_iter().max()
}

fn socket(config: &Config) -> SocketOptions {
    SocketOptions {
        congestion_control: config.tcp.congestion_control.clone(),
        user_timeout: Some(Duration::from_secs(config.tcp.hold_s)),
        mark: config.tcp.mark,
        ..SocketOptions::default()
    }
}

pub(super) fn dialled_socket(config: &Config, path: &PathConfig) -> SocketOptions {
    let rtt = path.rtt();
    SocketOptions {
        receive_buffer_bytes: Some(window_of(path.receive_rate_bps, rtt)),
        send_buffer_bytes: Some(window_of(path.send_rate_bps, rtt)),
        interface: path.interface.clone(),
        mptcp: path.mptcp,
        ..socket(config)
    }
}

/// A listener's sockets serve every terminal, so the largest window counts; memory is used as bytes
/// wait, not as windows allow.
pub(super) fn accepted_socket(config: &Config, hops: &[AcceptedHop]) -> SocketOptions {
    let window = |of: fn(&AcceptedHop) -> Option<u64>| {
        let windows = hops.iter().map(|hop| window_of(of(hop), hop.rtt));
        windows.max()
    };
    SocketOptions {
        receive_buffer_bytes: window(|hop| hop.receive_rate_bps),
        send_buffer_bytes: window(|hop| hop.send_rate_bps),
        ..socket(config)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const COMMON: &str = r#"
[tls]
plain = true
[beacons]
key_file = "/beacons.key"
"#;

    fn parse(text: &str) -> Config {
        Config::parse(&format!("{text}{COMMON}"), Path::new("node.toml")).unwrap()
    }

    fn sessions() -> Sessions {
        Sessions {
            incarnation: 1,
            alone_since: None,
            ids: Arc::default(),
            partial: Arc::default(),
            quic_rooms: Arc::default(),
            quic_key: ListenerKey([0; 32]),
            has_payloads: false,
            ltp_memory: LtpMemory::new(0),
        }
    }

    /// A hub of 40 Mbit/s terminals at 600 ms; `other` is in the table of one more.
    fn hub_beside(other: &str) -> Config {
        parse(&format!(
            r#"
[node]
number = 1
role = "hub"
[[listener]]
name = "beam"
listen = "[::]:4556"
[[terminal]]
node = 10
rtt_ms = 600
send_rate_bps = 40_000_000
receive_rate_bps = 40_000_000
[[terminal]]
node = 11
rtt_ms = 600
{other}
"#
        ))
    }

    #[test]
    fn a_terminal_without_rates_narrows_no_window_of_the_others() {
        const TOLD: u32 = 4 * 3_000_000;
        const UNTOLD: u32 = 64 << 20;
        let buffers = |other: &str| {
            let socket = sessions().accepted(&hub_beside(other), "beam").socket;
            (socket.receive_buffer_bytes, socket.send_buffer_bytes)
        };
        let told = "send_rate_bps = 2_000_000\nreceive_rate_bps = 2_000_000";
        assert_eq!(buffers(told), (Some(TOLD), Some(TOLD)));
        assert_eq!(buffers(""), (Some(UNTOLD), Some(UNTOLD)));
        let receives = "send_rate_bps = 2_000_000";
        assert_eq!(buffers(receives), (Some(UNTOLD), Some(TOLD)));
    }

    #[test]
    fn both_ends_of_a_metered_path_announce_a_longer_keepalive_there() {
        let terminal = parse(
            r#"
[node]
number = 10
role = "terminal"
[[path]]
name = "satellite"
neighbour = 1
remote = "10.9.0.1:4556"
[[path]]
name = "lte"
neighbour = 1
remote = "10.9.1.1:4566"
[path.meter]
"#,
        );
        let dialled = |path: &PathConfig| sessions().dialled(&terminal, path).config.keepalive_s;
        let dialled: Vec<u16> = terminal.paths.iter().map(dialled).collect();
        assert_eq!(dialled, [30, 150]);
        let quic = quic_sessions::dialled(&sessions(), &terminal, &terminal.paths[1]);
        assert_eq!((quic.keepalive_s, quic.resting_keepalive_s), (30, 150));
        let hub = parse(
            r#"
[node]
number = 1
role = "hub"
[[listener]]
name = "beam"
listen = "[::]:4556"
[[listener]]
name = "lte"
listen = "[::]:4566"
[[terminal]]
node = 10
[[terminal.path]]
listener = "lte"
[terminal.path.meter]
"#,
        );
        let sessions = sessions();
        let [beam, lte] = ["beam", "lte"].map(|name| sessions.accepted(&hub, name).config);
        assert!(beam.keepalives_of.is_empty());
        assert_eq!((beam.keepalive_s, lte.keepalive_s), (30, 30));
        let of_lte: Vec<(&str, u16)> = lte
            .keepalives_of
            .iter()
            .map(|(peer, s)| (peer.as_str(), *s))
            .collect();
        assert_eq!(of_lte, [("ipn:10.0", 150)]);
    }
}
