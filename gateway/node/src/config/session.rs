//! Sessions of the convergence layers: how they are secured, and their TCP and
//! QUIC options.

use std::path::PathBuf;

use serde::Deserialize;

use super::Config;
use super::bounds::check_within;

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuicCongestionControl {
    /// The allocated rate, and Hybla while there is none.
    #[default]
    HyblaDama,
    /// TCP Hybla.
    Hybla,
}

/// QUIC options of convergence-layer sessions; `keepalive_s`, `metered_keepalive_s`
/// (while the path rests), `hold_s`, `backoff_min_s`, `backoff_max_s`, `standby` and
/// `mark` of `[tcp]` hold for them, too.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuicConfig {
    /// hybla_dama or hybla. Default hybla_dama.
    pub congestion_control: QuicCongestionControl,
}

/// What may be set as the keepalive of paths with a meter, s: NATs forget a connection sooner
/// or later, and a peer is given up after twice as long.
const METERED_KEEPALIVES_S: std::ops::RangeInclusive<u64> = 15..=600;

/// TCP options of convergence-layer sessions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpConfig {
    /// Congestion controls, the first usable one is taken. Default
    /// ["hybla_dama", "hybla", "hybla_bpf", "bbr", "cubic"].
    pub congestion_control: Vec<String>,
    /// TCPCL keepalive, s; 0 switches it off. Default 30.
    pub keepalive_s: u16,
    /// The same of paths with a meter, which beacons watch, s; `keepalive_s` if that is
    /// longer or 0. Default 150.
    pub metered_keepalive_s: u16,
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
            metered_keepalive_s: 150,
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
        check_within(
            "tcp.metered_keepalive_s",
            self.metered_keepalive_s,
            METERED_KEEPALIVES_S,
            problems,
        );
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

impl Config {
    /// The keepalive of a path that has a meter, or has none, s; 0 for none.
    pub fn keepalive_s(&self, is_metered: bool) -> u16 {
        let usual = self.tcp.keepalive_s;
        // Without beacons, nothing else shows that a peer is silent.
        match is_metered && usual > 0 && self.has_beacons() {
            true => usual.max(self.tcp.metered_keepalive_s),
            false => usual,
        }
    }
}
