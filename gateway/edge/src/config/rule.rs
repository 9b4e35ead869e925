//! `[[edge.rule]]`.

use ipnet::IpNet;
use serde::Deserialize;

use super::PortRange;
use crate::stream::Protocol;

/// `[[edge.rule]]`: gives a class and a way to the connections that match all
/// of its keys. A key that is left out matches every connection.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassRule {
    /// Names of listeners.
    #[serde(default)]
    pub listeners: Option<Vec<String>>,
    /// `socks5`, `http-connect`, `http-forward`, `transparent`.
    #[serde(default)]
    pub protocols: Option<Vec<Protocol>>,
    /// Destination ports: numbers or ranges such as `"5000-5100"`.
    #[serde(default)]
    pub ports: Option<Vec<PortRange>>,
    /// Destination networks, as CIDR. A destination that is a name matches
    /// none.
    #[serde(default)]
    pub destinations: Option<Vec<IpNet>>,
    /// Client networks, as CIDR.
    #[serde(default)]
    pub clients: Option<Vec<IpNet>>,
    /// DSCP values (0 to 63) of the client's SYN.
    #[serde(default)]
    pub dscp: Option<Vec<u8>>,
    /// Least Content-Length of an HTTP forward request's body, in bytes.
    #[serde(default)]
    pub min_content_length_bytes: Option<u64>,
    /// The class, by its name. Required.
    pub class: String,
    /// Whether the connections leave from this node itself, split in the
    /// classic way and without bundles (single-box mode). Default `false`.
    #[serde(default)]
    pub direct: bool,
}
