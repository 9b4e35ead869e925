//! The sessions of the convergence layers: dialled and accepted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use underpass_cla::{Class, Node};
use underpass_hybla::Loader;
use underpass_tcpcl::session::KeptLimits;
use underpass_tcpcl::tls::IsRevoked;
use underpass_tcpcl::{
    Backoff, Dialer, DialerConfig, KeptParts, Listener, ListenerConfig, SessionDefaults,
    SocketOptions,
};

use super::RunError;
use super::engine::window_of;
use crate::config::{Config, ControlConfig, PathConfig};
use crate::security::Security;
use crate::shell::Shell;

/// How often the preferred congestion control is looked for again: the one
/// registered by another process of this kernel ends with it.
const CONGESTION_INTERVAL: Duration = Duration::from_secs(5);

/// Connections a listener has beyond those of its configured terminals, so
/// that old sessions may still be dying while new ones come.
const SPARE_CONNECTIONS: usize = 64;

/// Handshakes that one address may have in progress in any case: those of a
/// terminal that begins several for each of its classes.
const LEAST_PER_SOURCE: usize = 32;

/// The running dialers and listeners.
pub(super) struct Links {
    dialers: Vec<Dialer>,
    listeners: Vec<Listener>,
}

impl Links {
    /// Ends the sessions whose certificate is revoked; says how many.
    pub fn close_revoked(&self, is_revoked: &IsRevoked) -> usize {
        let dialled = self
            .dialers
            .iter()
            .map(|dialer| dialer.close_where(|serial| is_revoked(serial)));
        let accepted = self
            .listeners
            .iter()
            .map(|listener| listener.close_where(|serial| is_revoked(serial)));
        dialled.chain(accepted).sum()
    }

    /// Ends all sessions in order.
    pub async fn shutdown(&self) {
        for listener in &self.listeners {
            listener.shutdown();
        }
        let ends = self.dialers.iter().map(Dialer::shutdown);
        for end in ends {
            // A peer that is out of reach does not answer.
            let _ = tokio::time::timeout(Duration::from_secs(2), end).await;
        }
    }
}

/// Starts to dial and to listen.
pub(super) fn open(
    config: &Config,
    incarnation: u64,
    security: &Security,
    shell: &Arc<Shell>,
) -> Result<Links, RunError> {
    let ids = Arc::new(AtomicU64::new(0));
    let kept = Arc::new(KeptParts::new(KeptLimits {
        time: Duration::from_secs(config.tcp.hold_s),
        ..KeptLimits::default()
    }));
    let node: Arc<dyn Node> = shell.clone();
    let session = |name: &str| {
        let node_id = format!("ipn:{}.0", config.node.number);
        let mut session = SessionDefaults::new(name, node_id, ids.clone());
        session.incarnation = incarnation;
        session.keepalive_s = config.tcp.keepalive_s;
        session.transfer_mru_bytes = config.custody.quota_bytes / 4;
        session.kept = kept.clone();
        session
    };
    let mut links = Links {
        dialers: Vec::new(),
        listeners: Vec::new(),
    };
    for path in &config.paths {
        let mut session = session(&path.name);
        session.accepted_peers = Some(vec![format!("ipn:{}.0", path.neighbour)]);
        session.segment_bytes = segment_bytes(path.send_rate_bps);
        session.socket = dialled_socket(config, path);
        let dialer = dialer(config, path, session, security);
        links.dialers.push(Dialer::spawn(dialer, node.clone()));
    }
    for listener in &config.listeners {
        let mut session = session(&listener.name);
        let terminals = config.terminals.iter();
        session.accepted_peers = Some(terminals.map(|t| format!("ipn:{}.0", t.node)).collect());
        session.segment_bytes = segment_bytes(fastest_terminal(config));
        session.socket = accepted_socket(config);
        let sessions = config.terminals.len() * config.classes.len() * 2;
        let bound = ListenerConfig {
            local: listener.listen,
            session,
            tls: security.server(),
            max_half_open: listener.max_pending,
            max_half_open_per_source: (listener.max_pending / 4).max(LEAST_PER_SOURCE),
            max_connections: sessions * 2 + SPARE_CONNECTIONS + listener.max_pending,
        };
        let bound = Listener::bind(bound, node.clone()).map_err(|source| RunError::Listen {
            name: listener.name.clone(),
            address: listener.listen,
            source,
        })?;
        tracing::info!(listener = listener.name, address = %bound.local_addr(), "accepting sessions");
        links.listeners.push(bound);
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
    dialer.tls = security.client();
    dialer.classes = (0..config.classes.len())
        .filter_map(|number| u8::try_from(number).ok().map(Class))
        .collect();
    dialer.standby = config.tcp.standby;
    dialer.backoff = Backoff {
        base: Duration::from_secs_f64(config.tcp.backoff_min_s),
        max: Duration::from_secs_f64(config.tcp.backoff_max_s),
    };
    dialer
}

/// Segments are the steps in which the peer's acknowledgements tell how far a
/// transfer came before it broke: so much line time, and no less than
/// costs little in headers.
fn segment_bytes(rate_bps: Option<u64>) -> u64 {
    const LINE_TIME_MS: u64 = 20;
    let most = 256 << 10;
    rate_bps.map_or(most, |rate| {
        (rate / 8 * LINE_TIME_MS / 1000).clamp(16 << 10, most)
    })
}

/// The highest rate to a terminal; none where one has no limit.
fn fastest_terminal(config: &Config) -> Option<u64> {
    let rates = config.terminals.iter();
    let rates = rates.map(|terminal| terminal.send_rate_bps.or(config.beam.rate_bps));
    let rates: Option<Vec<u64>> = rates.collect();
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

fn dialled_socket(config: &Config, path: &PathConfig) -> SocketOptions {
    let rtt = Duration::from_millis(path.rtt_ms);
    SocketOptions {
        receive_buffer_bytes: path.receive_rate_bps.map(|rate| window_of(rate, rtt)),
        send_buffer_bytes: path.send_rate_bps.map(|rate| window_of(rate, rtt)),
        interface: path.interface.clone(),
        ..socket(config)
    }
}

/// A listener's sockets serve every terminal, so the largest window counts;
/// memory is used as bytes are in flight, not as windows allow.
fn accepted_socket(config: &Config) -> SocketOptions {
    let windows = |rate: fn(&crate::config::TerminalConfig) -> Option<u64>| {
        let mut largest = Some(0);
        for terminal in &config.terminals {
            let rtt = Duration::from_millis(terminal.rtt_ms);
            let window = rate(terminal).map(|rate| window_of(rate, rtt));
            largest = largest.zip(window).map(|(a, b)| a.max(b));
        }
        largest.filter(|window| *window > 0)
    };
    let beam = config.beam.rate_bps;
    let send = windows(|terminal| terminal.send_rate_bps).or_else(|| {
        let rtt = config.terminals.iter().map(|t| t.rtt_ms).max()?;
        Some(window_of(beam?, Duration::from_millis(rtt)))
    });
    SocketOptions {
        receive_buffer_bytes: windows(|terminal| terminal.receive_rate_bps),
        send_buffer_bytes: send,
        ..socket(config)
    }
}

/// The preference lists of a configuration, with whom they serve.
fn preferences(config: &Config) -> Vec<(String, Vec<String>)> {
    let sessions = !config.paths.is_empty() || !config.listeners.is_empty();
    let own = sessions.then(|| ("sessions".to_owned(), &config.tcp.congestion_control));
    let listeners = config.edge.listener.iter().map(|listener| {
        let whom = format!("clients of {:?}", listener.name);
        (whom, &listener.congestion_control)
    });
    let origins = ("origins".to_owned(), &config.edge.dial.congestion_control);
    own.into_iter()
        .chain(listeners)
        .chain([origins])
        .filter(|(_, list)| !list.is_empty())
        .map(|(whom, list)| (whom, list.clone()))
        .collect()
}

/// A task that keeps the preferred congestion controls usable, and what was
/// found at the start, for people.
pub(super) fn congestion_control(
    config: &Config,
) -> (impl Future<Output = ()> + Send + 'static, Vec<String>) {
    let preferences = preferences(config);
    let mut loader = Loader::new();
    let mut found = Vec::new();
    for (whom, list) in &preferences {
        let choice = loader.choose(list);
        tracing::info!(whom, %choice, "congestion control");
        found.push(format!("for {whom}: {choice}"));
    }
    found.push(format!(
        "on this kernel: {}",
        underpass_hybla::available().join(", ")
    ));
    let watch = async move {
        loop {
            tokio::time::sleep(CONGESTION_INTERVAL).await;
            for (_, list) in &preferences {
                loader.choose(list);
            }
        }
    };
    (watch, found)
}

/// What this machine lacks for a configuration, a line each.
pub fn advice(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    for (whom, list) in preferences(config) {
        let choice = Loader::new().choose(&list);
        lines.push(format!("congestion control for {whom}: {choice}"));
    }
    if config
        .control
        .as_ref()
        .is_some_and(ControlConfig::is_exposed)
    {
        lines.push(
            "control.url: the token goes with each request for all to read; https hides it"
                .to_owned(),
        );
    }
    lines.push(super::custody::choose(config).to_string());
    let needed = config
        .paths
        .iter()
        .map(|path| dialled_socket(config, path))
        .chain((!config.listeners.is_empty()).then(|| accepted_socket(config)));
    let largest = needed
        .flat_map(|socket| [socket.receive_buffer_bytes, socket.send_buffer_bytes])
        .flatten()
        .max()
        .unwrap_or(0);
    for key in ["rmem_max", "wmem_max"] {
        let path = format!("/proc/sys/net/core/{key}");
        let allowed = std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok());
        if let Some(allowed) = allowed
            && allowed < largest
        {
            lines.push(format!(
                "net.core.{key} = {allowed}: without CAP_NET_ADMIN, socket buffers of {largest} bytes need it raised"
            ));
        }
    }
    lines
}
