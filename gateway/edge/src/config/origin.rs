//! `[edge.dial]`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use super::PortRange;

/// What the origin sees of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginSource {
    /// Nothing: the node's own address.
    #[default]
    Node,
    /// The client's own address (IP_TRANSPARENT). The origin's answers must
    /// be routed to this node. A client of the other address family appears
    /// as the node.
    Client,
    /// The node's address, and the client's in a PROXY protocol v2 header.
    ProxyProtocol,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Mail from server to server (RFC 5321).
const SMTP: PortRange = PortRange {
    first: 25,
    last: 25,
};

/// `[edge.dial]`: how origins are dialled.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DialConfig {
    /// Time to resolve and connect, in seconds. Default 10.
    pub connect_timeout_s: f64,
    /// Networks that may be dialled although they are loopback, link-local,
    /// private or multicast, as CIDR. An address of this host and a metadata
    /// service of a cloud provider are dialled only where the very address is
    /// named (`/32`, `/128`), or for loopback a network of it. Default: none.
    pub allow_networks: Vec<IpNet>,
    /// Addresses that lead to this host though no interface has them, as where
    /// a provider translates them. Default: none.
    pub own_addresses: Vec<IpAddr>,
    /// Networks that are never dialled, as CIDR. Default: none.
    pub deny_networks: Vec<IpNet>,
    /// Ports that are never dialled. Default 25: a client that sends spam
    /// brings this host's address on block lists, and mail is submitted by
    /// 465 and 587.
    pub deny_ports: Vec<PortRange>,
    /// Look-ups and dials at once that each terminal, or each client of this
    /// node itself, may have whatever others do. Default 64.
    pub guaranteed_dials: usize,
    /// Further ones, for whoever needs them. Nobody takes more than half of
    /// what is free. Default 1024.
    pub common_dials: usize,
    /// `node`, `client` or `proxy-protocol`. Default `node`.
    pub origin_source: OriginSource,
    /// Congestion controls for the origin leg, by preference: the first that
    /// the kernel has. Default: the kernel's.
    pub congestion_control: Vec<String>,
    /// Firewall mark (SO_MARK) of the sockets. Default: none.
    pub mark: Option<u32>,
    /// Address families that are reached, `ipv4` and `ipv6`. Default: as the
    /// routes of this host allow at each moment.
    pub families: Option<Vec<Family>>,
    /// What differs for the streams of peers, by their nodes.
    #[serde(skip)]
    pub peers: HashMap<u64, PeerDialConfig>,
}

/// Where a peer's streams may lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerDialConfig {
    /// In place of [`DialConfig::allow_networks`].
    pub allow_networks: Option<Vec<IpNet>>,
    /// Beside [`DialConfig::deny_networks`].
    pub deny_networks: Vec<IpNet>,
    /// In place of [`DialConfig::deny_ports`].
    pub deny_ports: Option<Vec<PortRange>>,
}

impl Default for DialConfig {
    fn default() -> DialConfig {
        DialConfig {
            connect_timeout_s: 10.0,
            allow_networks: Vec::new(),
            own_addresses: Vec::new(),
            deny_networks: Vec::new(),
            deny_ports: vec![SMTP],
            guaranteed_dials: 64,
            common_dials: 1024,
            origin_source: OriginSource::Node,
            congestion_control: Vec::new(),
            mark: None,
            families: None,
            peers: HashMap::new(),
        }
    }
}

impl DialConfig {
    /// The time limit.
    pub fn connect_timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.connect_timeout_s).unwrap_or(Duration::from_secs(10))
    }
}
