//! Paths, listeners, terminals: the hops to the neighbours.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use super::bounds::{MOST_BYTES, check_within};
use super::meter::MeterSettings;
use super::mptcp::{self, EndpointConfig};
use super::on_demand::{AskedSettings, OnDemandSettings};

/// How convergence-layer sessions are secured.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// This node's folder as `underpass pki issue` made it (nodes/NUMBER in
    /// that of the authority): node.crt, node.key, ca.crt, ca.crl. Changes
    /// are followed while the node runs.
    pub pki_dir: Option<PathBuf>,
    /// true: plain TCP, nobody is authenticated. Default false.
    pub plain: bool,
    /// Accept a peer's node id in a URI SAN, as some implementations put it.
    /// Default false.
    pub accept_uri_san: bool,
}

impl TlsConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        match (&self.pki_dir, self.plain) {
            (Some(_), true) => {
                problems.push("tls: pki_dir and plain = true exclude each other".to_owned());
            }
            (None, true) | (Some(_), false) => {}
            (None, false) => problems.push(
                "tls: set pki_dir (see `underpass pki init`), or plain = true on a network that you trust"
                    .to_owned(),
            ),
        }
    }
}

/// What carries the sessions of a path or listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConvergenceLayer {
    /// TCPCLv4 over TCP and TLS.
    #[default]
    Tcpcl,
    /// A bundle per QUIC stream.
    Quic,
    /// Bundles behind their lengths on TCP, as ION-DTN has it.
    Stcp,
    /// Bundles as CBOR byte strings on TCP, as dtn7-rs and µD3TN have it.
    Mtcp,
    /// A bundle per UDP datagram.
    Udp,
    /// LTP over UDP.
    Ltp,
    /// The external convergence layer of a daemon of dtn7-rs.
    Ecla,
}

impl ConvergenceLayer {
    /// Whether it authenticates nobody, so that a neighbour is known by its
    /// address alone.
    pub fn is_bare(self) -> bool {
        !matches!(self, ConvergenceLayer::Tcpcl | ConvergenceLayer::Quic)
    }

    /// Whether nothing below bundles keeps to what the link carries.
    fn needs_rate(self) -> bool {
        matches!(self, ConvergenceLayer::Udp | ConvergenceLayer::Ltp)
    }

    /// The port of the beacons beside sessions at this one, where it is not
    /// configured: QUIC has its UDP port for itself.
    pub fn beacon_port(self, sessions: u16) -> u16 {
        match self {
            ConvergenceLayer::Tcpcl
            | ConvergenceLayer::Stcp
            | ConvergenceLayer::Mtcp
            | ConvergenceLayer::Ecla => sessions,
            ConvergenceLayer::Quic | ConvergenceLayer::Udp | ConvergenceLayer::Ltp => {
                sessions.wrapping_add(1).max(1)
            }
        }
    }
}

/// Which bundles go by a path, as its node sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathDirection {
    /// Those of both directions, as far as the neighbour sends any.
    #[default]
    Both,
    /// Those of the neighbour: this node sends none by it.
    Receive,
}

/// The least `mtu_bytes` of a path that QUIC goes over: its datagrams of 1200
/// bytes (RFC 9000, 14), behind IPv6 and UDP headers.
const LEAST_QUIC_MTU_BYTES: u32 = 1_248;

/// The congestion control of QUIC sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuicCongestionControl {
    /// The allocated rate, and Hybla while there is none.
    #[default]
    HyblaDama,
    /// TCP Hybla.
    Hybla,
}

/// QUIC options of convergence-layer sessions; `keepalive_s`, `hold_s`,
/// `backoff_min_s`, `backoff_max_s`, `standby` and `mark` of `[tcp]` hold for
/// them, too.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuicConfig {
    /// hybla_dama or hybla. Default hybla_dama.
    pub congestion_control: QuicCongestionControl,
}

/// TCP options of convergence-layer sessions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpConfig {
    /// Congestion controls, the first usable one is taken. Default
    /// ["hybla_dama", "hybla", "hybla_bpf", "bbr", "cubic"].
    pub congestion_control: Vec<String>,
    /// TCPCL keepalive, s; 0 switches it off. Default 30.
    pub keepalive_s: u16,
    /// How long a blocked link holds each connection before it is reset, s;
    /// also TCP_USER_TIMEOUT: how long unacknowledged bytes are waited for
    /// before a session counts as broken. Default 3600.
    pub hold_s: u64,
    /// Bounds of the pause between attempts to dial after a peer has answered
    /// with no session, s; where nobody answers, a fresh connection is begun
    /// at each `backoff_min_s`. Default 0.5 and 30.
    pub backoff_min_s: f64,
    /// See `backoff_min_s`.
    pub backoff_max_s: f64,
    /// Keep a standby session for each class. Default true.
    pub standby: bool,
    /// Mark of the sessions' packets (SO_MARK), so that policy routing and
    /// firewalls can tell them. Default none.
    pub mark: Option<u32>,
}

impl Default for TcpConfig {
    fn default() -> Self {
        TcpConfig {
            congestion_control: ["hybla_dama", "hybla", "hybla_bpf", "bbr", "cubic"]
                .map(str::to_owned)
                .to_vec(),
            keepalive_s: 30,
            hold_s: 3_600,
            backoff_min_s: 0.5,
            backoff_max_s: 30.0,
            standby: true,
            mark: None,
        }
    }
}

impl TcpConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if self.congestion_control.is_empty() {
            problems.push("tcp.congestion_control: name at least one".to_owned());
        }
        check_within("tcp.hold_s", self.hold_s, 1..=2_000_000, problems);
        let pauses = 0.01..=3_600.0;
        let (least, most) = (self.backoff_min_s, self.backoff_max_s);
        if !pauses.contains(&least) || !pauses.contains(&most) || least > most {
            problems.push(
                "tcp: backoff_min_s and backoff_max_s must be 0.01 to 3600, in this order"
                    .to_owned(),
            );
        }
        if self.mark == Some(0) {
            problems.push("tcp.mark: must not be 0".to_owned());
        }
    }
}

/// A way to a neighbour that this node dials.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathConfig {
    /// Its name in API and metrics.
    pub name: String,
    /// The neighbour's ipn node number.
    pub neighbour: u64,
    /// The neighbour's address and TCPCL port (4556 by custom), or UDP port of
    /// its QUIC listener.
    pub remote: SocketAddr,
    /// tcpcl or quic, as the neighbour's listener; or stcp, mtcp, udp or ltp, for
    /// a neighbour that is known by its address alone; or ecla, for a daemon of
    /// dtn7-rs at `remote`, its web port. Default tcpcl.
    #[serde(default)]
    pub convergence_layer: ConvergenceLayer,
    /// true: no TLS on this path, whatever `[tls]` says; the neighbour is not
    /// authenticated. For implementations without TLS, on a network that you
    /// trust. Default false.
    #[serde(default)]
    pub plain: bool,
    /// With ecla: ipn node numbers that the daemon is told of as its peers, by way
    /// of this node.
    #[serde(default)]
    pub announces: Vec<u64>,
    /// With tcpcl: the largest bundle that the neighbour takes, bytes, where it
    /// takes others than it announces. Default: what it announces.
    pub transfer_mru_bytes: Option<u64>,
    /// With stcp, mtcp, udp and ltp: the address and port that the neighbour
    /// sends to.
    pub listen: Option<SocketAddr>,
    /// true: its sessions are over MPTCP, where neighbour and kernel have it.
    /// With tcpcl. Default false.
    #[serde(default)]
    pub mptcp: bool,
    /// With `mptcp`: local addresses that further subflows begin at.
    /// Default: those that the system has for MPTCP.
    #[serde(default)]
    pub mptcp_endpoints: Vec<EndpointConfig>,
    /// Local address to dial from. Default: as routing decides.
    pub local: Option<IpAddr>,
    /// Interface to dial from. Default: as routing decides.
    pub interface: Option<String>,
    /// Most that is sent, bit/s of IP bytes; a plan may give less, never more.
    /// Default: what the link is measured to carry.
    pub send_rate_bps: Option<u64>,
    /// Where the estimate of what the link carries starts, bit/s of IP bytes; no more
    /// than `send_rate_bps`. Default: what the last run has found, or that rate, or
    /// what the first packets show.
    pub rate_hint_bps: Option<u64>,
    /// Rate from this node before there has been any plan, bit/s of IP bytes.
    /// Default: send_rate_bps.
    pub guaranteed_rate_bps: Option<u64>,
    /// The beam whose plans it follows. Default: any whose plans come by its
    /// neighbour.
    pub beam: Option<String>,
    /// Rate to this node, bit/s of IP bytes. Default: unlimited.
    pub receive_rate_bps: Option<u64>,
    /// Round-trip time without load, ms. Default: 600, or what is measured if
    /// that is longer.
    pub rtt_ms: Option<u64>,
    /// Largest IP packet on the path, bytes. Default 1500.
    #[serde(default = "default_mtu_bytes")]
    pub mtu_bytes: u32,
    /// both, or receive: this node sends no bundle by it. Default both.
    #[serde(default)]
    pub direction: PathDirection,
    /// Networks that routing reaches by this path, as CIDR: the plain IP that
    /// intercepted clients send there is measured and taken from the rate.
    /// Default: none.
    #[serde(default)]
    pub networks: Vec<IpNet>,
    /// Its bytes are paid for. Default: they are not.
    pub meter: Option<MeterSettings>,
    /// It is up only while it is needed. Default: it is always up.
    pub on_demand: Option<OnDemandSettings>,
    /// What earlier runs have found.
    #[serde(skip)]
    pub known: KnownLink,
}

/// The round trip of a hop while nothing is known of it: a GEO satellite's.
pub const GUESSED_RTT: Duration = Duration::from_millis(600);

/// What is known of a hop without having been configured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KnownLink {
    /// What it carried from this node when that was last measured, bit/s of IP
    /// bytes.
    pub capacity_bps: Option<u64>,
    /// Its round-trip time without load.
    pub rtt: Option<Duration>,
}

impl KnownLink {
    /// Where the estimate of what the hop carries starts, bit/s of IP bytes.
    fn hint_bps(&self, hint: Option<u64>, most: Option<u64>) -> Option<u64> {
        let first = hint.or(self.capacity_bps)?;
        Some(most.map_or(first, |most| first.min(most)))
    }

    fn rtt(&self, rtt_ms: Option<u64>) -> Duration {
        let guessed = || GUESSED_RTT.max(self.rtt.unwrap_or_default());
        rtt_ms.map_or_else(guessed, Duration::from_millis)
    }
}

fn default_mtu_bytes() -> u32 {
    1_500
}

impl PathConfig {
    /// The round-trip time without load, as far as it is known.
    pub fn rtt(&self) -> Duration {
        self.known.rtt(self.rtt_ms)
    }

    /// Where the estimate of what the path carries starts, bit/s of IP bytes.
    pub fn hint_bps(&self) -> Option<u64> {
        self.known.hint_bps(self.rate_hint_bps, self.send_rate_bps)
    }

    /// Whether sessions of this path can go on under another configuration of
    /// it: it leads the same way to the same neighbour, always or on demand.
    pub fn is_same_way(&self, other: &PathConfig) -> bool {
        let way = |path: &PathConfig| {
            let from = (path.local, path.listen, path.interface.clone());
            let (name, layer) = (path.name.clone(), path.convergence_layer);
            let peer = (path.transfer_mru_bytes, path.announces.clone());
            let kind = (layer, path.plain, path.mptcp, peer);
            let on_demand = path.on_demand.is_some();
            (name, path.neighbour, path.remote, kind, from, on_demand)
        };
        way(self) == way(other)
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let at = format!("path {:?}", self.name);
        if self.name.is_empty() {
            problems.push("path: a name must not be empty".to_owned());
        }
        check_rates(&at, self.send_rate_bps, self.receive_rate_bps, problems);
        check_hint(&at, self.rate_hint_bps, self.send_rate_bps, problems);
        let guaranteed = self.guaranteed_rate_bps;
        check_rate(&format!("{at}: guaranteed_rate_bps"), guaranteed, problems);
        if guaranteed
            .zip(self.send_rate_bps)
            .is_some_and(|(g, s)| g > s)
        {
            problems.push(format!(
                "{at}: guaranteed_rate_bps must not exceed send_rate_bps"
            ));
        }
        check_hop(&at, self.rtt_ms, self.mtu_bytes, problems);
        if let Some(bytes) = self.transfer_mru_bytes {
            let key = format!("{at}: transfer_mru_bytes");
            check_within(&key, bytes, 1..=MOST_BYTES, problems);
        }
        if self.convergence_layer == ConvergenceLayer::Quic && self.mtu_bytes < LEAST_QUIC_MTU_BYTES
        {
            problems.push(format!(
                "{at}: convergence_layer = \"quic\" needs mtu_bytes of at least {LEAST_QUIC_MTU_BYTES}"
            ));
        }
        if self.plain && self.convergence_layer == ConvergenceLayer::Quic {
            problems.push(format!("{at}: plain = true: there is no plain QUIC"));
        }
        if let Some(local) = self.local
            && local.is_ipv4() != self.remote.is_ipv4()
        {
            problems.push(format!("{at}: local and remote are of different families"));
        }
        self.check_listen(&at, problems);
        if let Some(on_demand) = &self.on_demand {
            on_demand.check(&at, &self.name, problems);
        }
        let layer = self.convergence_layer;
        mptcp::check(&at, layer, self.mptcp, &self.mptcp_endpoints, problems);
    }

    /// What authenticates nobody is for one address, and listens there.
    fn check_listen(&self, at: &str, problems: &mut Vec<String>) {
        let ecla = self.convergence_layer == ConvergenceLayer::Ecla;
        if ecla == self.announces.is_empty() {
            problems.push(format!(
                "{at}: convergence_layer = \"ecla\" and announces need each other"
            ));
        }
        let bare = self.convergence_layer.is_bare();
        match self.listen {
            None if bare && !ecla => problems.push(format!(
                "{at}: this convergence_layer needs listen, the address that the neighbour sends to"
            )),
            Some(_) if !bare || ecla => problems.push(format!(
                "{at}: listen is for convergence_layer stcp, mtcp, udp and ltp; sessions of others are accepted by a [[listener]]"
            )),
            Some(listen) if listen.port() == 0 => {
                problems.push(format!("{at}: listen needs a port"));
            }
            _ => {}
        }
        if bare && (self.remote.ip().is_unspecified() || self.remote.ip().is_multicast()) {
            problems.push(format!(
                "{at}: this convergence_layer knows the neighbour by its address alone: remote must be the address of one host"
            ));
        }
        if bare && self.local.is_some() {
            problems.push(format!("{at}: local is the address of listen"));
        }
        if self.convergence_layer.needs_rate() && self.send_rate_bps.is_none() {
            problems.push(format!(
                "{at}: this convergence_layer needs send_rate_bps: nothing in it finds out what the link carries"
            ));
        }
    }
}

/// An address at which this node accepts sessions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerConfig {
    /// Its name in API and metrics.
    pub name: String,
    /// Address and port, e.g. "[::]:4556" (both families); UDP for QUIC.
    pub listen: SocketAddr,
    /// tcpcl or quic. Default tcpcl.
    #[serde(default)]
    pub convergence_layer: ConvergenceLayer,
    /// true: sessions of terminals that ask for it are over MPTCP. With tcpcl.
    /// Default false.
    #[serde(default)]
    pub mptcp: bool,
    /// With `mptcp`: further addresses of this node that terminals are told, to
    /// begin subflows to. Default: those that the system has for MPTCP.
    #[serde(default)]
    pub mptcp_endpoints: Vec<EndpointConfig>,
    /// Handshakes in progress at once, a quarter of them (at least 32) from
    /// one address. Default 256.
    #[serde(default = "default_pending")]
    pub max_pending: usize,
}

fn default_pending() -> usize {
    256
}

impl ListenerConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if self.name.is_empty() {
            problems.push("listener: a name must not be empty".to_owned());
        }
        if self.convergence_layer.is_bare() {
            problems.push(format!(
                "listener {:?}: stcp, mtcp, udp and ltp authenticate nobody: each neighbour needs a [[path]] with its address and its own listen",
                self.name
            ));
        }
        let at = format!("listener {:?}", self.name);
        let layer = self.convergence_layer;
        mptcp::check(&at, layer, self.mptcp, &self.mptcp_endpoints, problems);
        let key = format!("{at}: max_pending");
        check_within(&key, self.max_pending as u64, 1..=1_048_576, problems);
    }
}

/// A terminal that a hub or relay accepts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalConfig {
    /// Its ipn node number.
    pub node: u64,
    /// Most that is sent to the terminal, bit/s of IP bytes. Default: the
    /// beam's rate.
    pub send_rate_bps: Option<u64>,
    /// Where the estimate of what its link carries starts, bit/s of IP bytes; no more
    /// than `send_rate_bps`. Default: what the last run has found, or that rate, or
    /// what the first packets show.
    pub rate_hint_bps: Option<u64>,
    /// Rate from the terminal, bit/s of IP bytes. Default: unlimited.
    pub receive_rate_bps: Option<u64>,
    /// Share of the beam among the terminals. Default 1.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Round-trip time without load, ms. Default: 600, or what is measured if
    /// that is longer.
    pub rtt_ms: Option<u64>,
    /// Largest IP packet on the path, bytes. Default 1500.
    #[serde(default = "default_mtu_bytes")]
    pub mtu_bytes: u32,
    /// both, or receive: this node sends no bundle by it. Default both.
    #[serde(default)]
    pub direction: PathDirection,
    /// Networks of the clients behind the terminal, as CIDR: where there is
    /// interception, the plain IP that is routed there is measured and taken
    /// from the rate. Default: none.
    #[serde(default)]
    pub networks: Vec<IpNet>,
    /// Its other paths, each by a listener of its own. The keys above are of
    /// the path by the other listeners.
    #[serde(default, rename = "path")]
    pub paths: Vec<TerminalPathConfig>,
    /// The bytes of its own path are paid for. Default: they are not.
    pub meter: Option<MeterSettings>,
    /// The terminal brings its own path up when it is needed. Default: it is always
    /// up.
    pub on_demand: Option<AskedSettings>,
    /// What earlier runs have found.
    #[serde(skip)]
    pub known: KnownLink,
}

/// Another path of a terminal: its sessions come in by one listener.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalPathConfig {
    /// The listener's name.
    pub listener: String,
    /// As of a terminal. Default: what the link is measured to carry.
    pub send_rate_bps: Option<u64>,
    /// As of a terminal.
    pub rate_hint_bps: Option<u64>,
    /// As of a terminal.
    pub receive_rate_bps: Option<u64>,
    /// As of a terminal.
    pub rtt_ms: Option<u64>,
    /// As of a terminal.
    #[serde(default = "default_mtu_bytes")]
    pub mtu_bytes: u32,
    /// both, or receive: this node sends no bundle by it. Default both.
    #[serde(default)]
    pub direction: PathDirection,
    /// As of a terminal.
    pub meter: Option<MeterSettings>,
    /// As of a terminal.
    pub on_demand: Option<AskedSettings>,
    /// What earlier runs have found.
    #[serde(skip)]
    pub known: KnownLink,
}

/// A hop whose sessions are accepted: a terminal's, or one of its other paths.
#[derive(Clone, Debug)]
pub struct AcceptedHop {
    /// Its name in API and metrics.
    pub name: String,
    /// The terminal's ipn node number.
    pub node: u64,
    /// The listener that all of its sessions come by; without one, those that
    /// no other path of the terminal has.
    pub listener: Option<String>,
    /// Listeners that are other paths' of the terminal.
    others: Vec<String>,
    /// Most that is sent, bit/s of IP bytes.
    pub send_rate_bps: Option<u64>,
    /// Where the estimate of what its link carries starts, bit/s of IP bytes.
    pub hint_bps: Option<u64>,
    /// Rate from the terminal, bit/s of IP bytes.
    pub receive_rate_bps: Option<u64>,
    /// Share of the beam.
    pub weight: u32,
    /// Round-trip time without load, as far as it is known.
    pub rtt: Duration,
    /// That is a guess.
    pub rtt_is_guess: bool,
    /// Largest IP packet, bytes.
    pub mtu_bytes: u32,
    /// Which bundles go by it.
    pub direction: PathDirection,
    /// Its bytes are paid for.
    pub meter: Option<MeterSettings>,
    /// The terminal brings it up when it is needed.
    pub on_demand: Option<AskedSettings>,
}

impl AcceptedHop {
    /// Whether sessions of the terminal that come by a listener are of this
    /// hop.
    pub fn comes_by(&self, listener: &str) -> bool {
        match &self.listener {
            Some(own) => own == listener,
            None => !self.others.iter().any(|other| other == listener),
        }
    }
}

fn default_weight() -> u32 {
    1
}

impl TerminalConfig {
    /// The round-trip time without load, as far as it is known.
    pub fn rtt(&self) -> Duration {
        self.known.rtt(self.rtt_ms)
    }

    /// Where the estimate of what its link carries starts, bit/s of IP bytes;
    /// the beam's rate is no limit here.
    pub fn hint_bps(&self) -> Option<u64> {
        self.known.hint_bps(self.rate_hint_bps, self.send_rate_bps)
    }

    /// Its name in API and metrics.
    pub fn name(&self) -> String {
        format!("terminal-{}", self.node)
    }

    /// The name of one of its other paths.
    pub fn name_of(&self, path: &TerminalPathConfig) -> String {
        format!("terminal-{}-{}", self.node, path.listener)
    }

    /// Its own hop; under a beam's rate where it has none.
    pub fn hop(&self, beam_bps: Option<u64>) -> AcceptedHop {
        let others = self.paths.iter().map(|path| path.listener.clone());
        AcceptedHop {
            name: self.name(),
            node: self.node,
            listener: None,
            others: others.collect(),
            send_rate_bps: self.send_rate_bps.or(beam_bps),
            hint_bps: self.hint_bps(),
            receive_rate_bps: self.receive_rate_bps,
            weight: self.weight,
            rtt: self.rtt(),
            rtt_is_guess: self.rtt_ms.is_none(),
            mtu_bytes: self.mtu_bytes,
            direction: self.direction,
            meter: self.meter.clone(),
            on_demand: self.on_demand.clone(),
        }
    }

    /// The hops of its other paths.
    pub fn other_hops(&self) -> impl Iterator<Item = AcceptedHop> + '_ {
        self.paths.iter().map(|path| AcceptedHop {
            name: self.name_of(path),
            node: self.node,
            listener: Some(path.listener.clone()),
            others: Vec::new(),
            send_rate_bps: path.send_rate_bps,
            hint_bps: path.known.hint_bps(path.rate_hint_bps, path.send_rate_bps),
            receive_rate_bps: path.receive_rate_bps,
            weight: 1,
            rtt: path.known.rtt(path.rtt_ms),
            rtt_is_guess: path.rtt_ms.is_none(),
            mtu_bytes: path.mtu_bytes,
            direction: path.direction,
            meter: path.meter.clone(),
            on_demand: path.on_demand.clone(),
        })
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let at = format!("terminal {}", self.node);
        for path in &self.paths {
            let at = format!("{at}, path by {:?}", path.listener);
            check_rates(&at, path.send_rate_bps, path.receive_rate_bps, problems);
            check_hint(&at, path.rate_hint_bps, path.send_rate_bps, problems);
            check_hop(&at, path.rtt_ms, path.mtu_bytes, problems);
        }
        check_rates(&at, self.send_rate_bps, self.receive_rate_bps, problems);
        check_hint(&at, self.rate_hint_bps, self.send_rate_bps, problems);
        check_hop(&at, self.rtt_ms, self.mtu_bytes, problems);
        if self.weight == 0 {
            problems.push(format!("{at}: weight must be at least 1"));
        }
    }
}

/// The capacity that the terminals of a hub share.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BeamConfig {
    /// Its id in plans. Default: that of the first plan, until it is over.
    pub id: Option<String>,
    /// Forward capacity of the beam, bit/s of IP bytes. Default: unlimited.
    pub rate_bps: Option<u64>,
}

impl BeamConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        check_rate("beam: rate_bps", self.rate_bps, problems);
    }
}

/// Rates that can be set, bit/s of IP bytes.
pub const RATES_BPS: std::ops::RangeInclusive<u64> = 8_000..=100_000_000_000;

fn check_rates(at: &str, send: Option<u64>, receive: Option<u64>, problems: &mut Vec<String>) {
    check_rate(&format!("{at}: send_rate_bps"), send, problems);
    check_rate(&format!("{at}: receive_rate_bps"), receive, problems);
}

fn check_rate(at: &str, rate_bps: Option<u64>, problems: &mut Vec<String>) {
    if let Some(bps) = rate_bps {
        check_within(at, bps, RATES_BPS, problems);
    }
}

fn check_hint(at: &str, hint: Option<u64>, most: Option<u64>, problems: &mut Vec<String>) {
    check_rate(&format!("{at}: rate_hint_bps"), hint, problems);
    if hint.zip(most).is_some_and(|(hint, most)| hint > most) {
        problems.push(format!("{at}: rate_hint_bps must not exceed send_rate_bps"));
    }
}

/// Round trips that can be set, ms.
pub const RTTS_MS: std::ops::RangeInclusive<u64> = 1..=60_000;

fn check_hop(at: &str, rtt_ms: Option<u64>, mtu_bytes: u32, problems: &mut Vec<String>) {
    if let Some(ms) = rtt_ms {
        check_within(&format!("{at}: rtt_ms"), ms, RTTS_MS, problems);
    }
    check_within(
        &format!("{at}: mtu_bytes"),
        mtu_bytes,
        576..=65_535,
        problems,
    );
}
