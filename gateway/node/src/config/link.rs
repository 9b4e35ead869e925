//! Paths, listeners, beams: what the hops to the neighbours are made of.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use super::bounds::{MOST_BYTES, check_within};
use super::meter::MeterSettings;
use super::mptcp::{self, EndpointConfig};
use super::on_demand::OnDemandSettings;

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

    /// Whether nothing below the bundles limits the rate to what the link carries.
    fn needs_rate(self) -> bool {
        matches!(self, ConvergenceLayer::Udp | ConvergenceLayer::Ltp)
    }

    /// The default port of beacons beside sessions at this port: QUIC needs its UDP port for
    /// itself.
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
    /// The largest bundle that the neighbour takes, bytes: with tcpcl, where it
    /// takes others than it announces; with stcp, mtcp and ltp, where nothing
    /// announces it. Default: what it announces, or a quarter of
    /// `custody.quota_bytes`.
    pub transfer_mru_bytes: Option<u64>,
    /// With stcp, mtcp, udp and ltp: the address and port that the neighbour
    /// sends to.
    pub listen: Option<SocketAddr>,
    /// true: bundles without custody go as green blocks, which are sent once. With
    /// ltp. Default false.
    #[serde(default)]
    pub green: bool,
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
    /// Its capacity from this node when last measured, bit/s of IP bytes.
    pub capacity_bps: Option<u64>,
    /// Its round-trip time without load.
    pub rtt: Option<Duration>,
    /// The same for small amounts, which do not wait for access.
    pub path_rtt: Option<Duration>,
}

impl KnownLink {
    /// The start of the estimate of the hop's capacity, bit/s of IP bytes.
    pub(super) fn hint_bps(&self, hint: Option<u64>, most: Option<u64>) -> Option<u64> {
        let first = hint.or(self.capacity_bps)?;
        Some(most.map_or(first, |most| first.min(most)))
    }

    /// The round trip that was measured with that; `None` where the start is configured.
    pub(super) fn hint_rtt(&self, hint: Option<u64>) -> Option<Duration> {
        self.path_rtt.filter(|_| hint.is_none())
    }

    pub(super) fn rtt(&self, rtt_ms: Option<u64>) -> Duration {
        let guessed = || GUESSED_RTT.max(self.rtt.unwrap_or_default());
        rtt_ms.map_or_else(guessed, Duration::from_millis)
    }
}

pub(super) fn default_mtu_bytes() -> u32 {
    1_500
}

impl PathConfig {
    /// The round-trip time without load, as far as it is known.
    pub fn rtt(&self) -> Duration {
        self.known.rtt(self.rtt_ms)
    }

    /// The start of the estimate of the path's capacity, bit/s of IP bytes.
    pub fn hint_bps(&self) -> Option<u64> {
        self.known.hint_bps(self.rate_hint_bps, self.send_rate_bps)
    }

    /// The round trip that was measured with that; `None` where it is configured.
    pub fn hint_rtt(&self) -> Option<Duration> {
        self.known.hint_rtt(self.rate_hint_bps)
    }

    /// Whether sessions of this path can continue under another configuration of it: it leads in
    /// the same way to the same neighbour, and both are always up, or both on demand.
    pub fn is_same_way(&self, other: &PathConfig) -> bool {
        let way = |path: &PathConfig| {
            let from = (path.local, path.listen, path.interface.clone());
            let (name, layer) = (path.name.clone(), path.convergence_layer);
            let peer = (path.transfer_mru_bytes, path.announces.clone(), path.green);
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
        if self.green && self.convergence_layer != ConvergenceLayer::Ltp {
            problems.push(format!(
                "{at}: green = true is for convergence_layer = \"ltp\""
            ));
        }
        if let Some(on_demand) = &self.on_demand {
            on_demand.check(&at, &self.name, problems);
        }
        let layer = self.convergence_layer;
        mptcp::check(&at, layer, self.mptcp, &self.mptcp_endpoints, problems);
    }

    /// A layer without authentication serves one address, and listens there.
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
    /// Handshakes in progress at once, a quarter of them (at least 32) from one
    /// address, and up to half if a peer from there has proved who it is: one more
    /// has the place of one that has said nothing yet, where there is any. Default 256.
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

pub(super) fn check_rates(
    at: &str,
    send: Option<u64>,
    receive: Option<u64>,
    problems: &mut Vec<String>,
) {
    check_rate(&format!("{at}: send_rate_bps"), send, problems);
    check_rate(&format!("{at}: receive_rate_bps"), receive, problems);
}

fn check_rate(at: &str, rate_bps: Option<u64>, problems: &mut Vec<String>) {
    if let Some(bps) = rate_bps {
        check_within(at, bps, RATES_BPS, problems);
    }
}

pub(super) fn check_hint(
    at: &str,
    hint: Option<u64>,
    most: Option<u64>,
    problems: &mut Vec<String>,
) {
    check_rate(&format!("{at}: rate_hint_bps"), hint, problems);
    if hint.zip(most).is_some_and(|(hint, most)| hint > most) {
        problems.push(format!("{at}: rate_hint_bps must not exceed send_rate_bps"));
    }
}

/// Round trips that can be set, ms.
pub const RTTS_MS: std::ops::RangeInclusive<u64> = 1..=60_000;

pub(super) fn check_hop(at: &str, rtt_ms: Option<u64>, mtu_bytes: u32, problems: &mut Vec<String>) {
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
