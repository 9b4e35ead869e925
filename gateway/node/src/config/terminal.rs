//! Terminals that a hub or relay accepts: their hops.

use std::collections::HashMap;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;
use underpass_edge::config::{PeerDialConfig, PortRange};

use super::bounds::check_within;
use super::link::{
    KnownLink, PathDirection, check_hint, check_hop, check_rates, default_mtu_bytes,
};
use super::meter::MeterSettings;
use super::on_demand::AskedSettings;

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
    /// Where its clients' connections may lead, and how many there may be.
    /// Default: as `[edge.dial]` says.
    pub dial: Option<TerminalDialConfig>,
    /// What earlier runs have found.
    #[serde(skip)]
    pub known: KnownLink,
}

/// `[terminal.dial]`: what is dialled for the clients of one terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TerminalDialConfig {
    /// In place of `allow_networks` of `[edge.dial]`, as CIDR. Default: the
    /// same.
    pub allow_networks: Option<Vec<IpNet>>,
    /// Beside `deny_networks` of `[edge.dial]`, as CIDR. Default: none.
    pub deny_networks: Vec<IpNet>,
    /// In place of `deny_ports` of `[edge.dial]`. Default: the same.
    pub deny_ports: Option<Vec<PortRange>>,
    /// Connections to origins at once. Default: `streams.max_streams`.
    pub max_connections: Option<usize>,
}

/// The dial settings that differ from the common ones, by the terminals' nodes.
pub(super) fn dialled_otherwise(terminals: &[TerminalConfig]) -> HashMap<u64, PeerDialConfig> {
    let own = terminals.iter().filter_map(|terminal| {
        let dial = terminal.dial.clone()?;
        let peer = PeerDialConfig {
            allow_networks: dial.allow_networks,
            deny_networks: dial.deny_networks,
            deny_ports: dial.deny_ports,
        };
        Some((terminal.node, peer))
    });
    own.collect()
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
    /// The start of the estimate of its link's capacity, bit/s of IP bytes.
    pub hint_bps: Option<u64>,
    /// The round trip that was measured with that; `None` where it is configured.
    pub hint_rtt: Option<Duration>,
    /// Rate from the terminal, bit/s of IP bytes.
    pub receive_rate_bps: Option<u64>,
    /// Share of the beam.
    pub weight: u32,
    /// Round-trip time without load, as far as it is known.
    pub rtt: Duration,
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
            hint_rtt: self.known.hint_rtt(self.rate_hint_bps),
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
            hint_rtt: path.known.hint_rtt(path.rate_hint_bps),
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
        if let Some(most) = self.dial.as_ref().and_then(|dial| dial.max_connections) {
            let key = format!("{at}: dial.max_connections");
            check_within(&key, most as u64, 1..=16_777_216, problems);
        }
        if self.weight == 0 {
            problems.push(format!("{at}: weight must be at least 1"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Config;

    #[test]
    fn what_is_dialled_for_a_terminal_alone_is_told_to_the_edge() {
        let text = "[node]\nnumber = 1\nrole = \"hub\"\n[tls]\nplain = true\n\
             [[listener]]\nname = \"beam\"\nlisten = \"[::]:4556\"\n\
             [[terminal]]\nnode = 10\nsend_rate_bps = 8000000\n\
             [terminal.dial]\nallow_networks = [\"10.1.0.0/16\"]\nmax_connections = 7\n\
             [[terminal]]\nnode = 11\nsend_rate_bps = 8000000\n";
        let parse = |text: &str| Config::parse(text, Path::new("node.toml"));
        let config = parse(text).expect("it is valid");
        let peers = &config.edge.dial.peers;
        assert_eq!(peers.len(), 1);
        let networks = vec!["10.1.0.0/16".parse().expect("a network")];
        assert_eq!(peers[&10].allow_networks, Some(networks));
        assert_eq!(peers[&10].deny_ports, None);
        let refused = parse(&text.replace("= 7", "= 0")).expect_err("it is no limit");
        let told = refused.to_string();
        assert!(told.contains("dial.max_connections"), "{told}");
    }
}
