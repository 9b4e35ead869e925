//! `[edge.interception]`.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::PortRange;

/// What happens to client traffic while the node is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fail {
    /// It is routed as if there were no node.
    #[default]
    Open,
    /// Connections that the node would have taken in are rejected.
    Closed,
}

/// `[edge.interception]`: which connections the kernel diverts to the
/// transparent listener.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InterceptionConfig {
    /// Name of the nftables table, after `underpass_`: letters, digits and
    /// underscores. One per node on a host. Default `node`.
    pub name: String,
    /// Client networks whose connections are diverted, as CIDR. Default: none.
    pub client_networks: Vec<IpNet>,
    /// Interfaces that clients are behind. Default: every interface.
    pub interfaces: Vec<String>,
    /// Destination networks that stay plain IP, as CIDR. Default: none.
    pub exclude_networks: Vec<IpNet>,
    /// Destination ports that stay plain IP. Default: none.
    pub exclude_ports: Vec<PortRange>,
    /// Whether UDP 443 of clients is rejected by ICMP, so that browsers fall
    /// back from QUIC to TCP. Default `true`.
    pub reject_quic: bool,
    /// `open` or `closed`. Default `open`.
    pub fail: Fail,
    /// Firewall mark of diverted packets; this node's own. Default 21840.
    pub mark: u32,
    /// Number of the routing table that delivers them here, and priority of
    /// its rule; this node's own. Default 21840.
    pub routing_table: u32,
}

impl Default for InterceptionConfig {
    fn default() -> InterceptionConfig {
        InterceptionConfig {
            name: "node".into(),
            client_networks: Vec::new(),
            interfaces: Vec::new(),
            exclude_networks: Vec::new(),
            exclude_ports: Vec::new(),
            reject_quic: true,
            fail: Fail::Open,
            mark: 0x5550,
            routing_table: 0x5550,
        }
    }
}
