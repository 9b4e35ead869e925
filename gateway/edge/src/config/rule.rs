//! `[[edge.rule]]`.

use ipnet::IpNet;
use serde::Deserialize;

use super::PortRange;
use super::pattern::{ContentTypePattern, HostPattern};
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
    /// Names of hosts, as far as they are known: by a proxy's request, by the Host
    /// of an HTTP request, or by a TLS ClientHello; `"*.example.org"` are all below
    /// it.
    #[serde(default)]
    pub hosts: Option<Vec<HostPattern>>,
    /// Content types of HTTP messages; `"video/*"` are all of a type.
    #[serde(default)]
    pub content_types: Option<Vec<ContentTypePattern>>,
    /// Least size that an HTTP message declares, head and body, in bytes.
    #[serde(default)]
    pub min_size_bytes: Option<u64>,
    /// Largest size that an HTTP message declares, head and body, in bytes.
    #[serde(default)]
    pub max_size_bytes: Option<u64>,
    /// Bytes that this node has sent on the stream before: matches streams that turn out to be
    /// long.
    #[serde(default)]
    pub after_bytes: Option<u64>,
    /// Its name in status and metrics. Default `rule N`, its place in the list.
    #[serde(default)]
    pub name: Option<String>,
    /// The class, by its name. Required.
    pub class: String,
    /// Whether the connections leave from this node itself, split in the
    /// classic way and without bundles (single-box mode). Default `false`.
    #[serde(default)]
    pub direct: bool,
}

impl ClassRule {
    /// Whether it has keys for facts that are known only when a flow begins, or later.
    pub fn is_of_flows(&self) -> bool {
        self.content_types.is_some()
            || self.min_size_bytes.is_some()
            || self.max_size_bytes.is_some()
            || self.after_bytes.is_some()
    }

    /// Whether it matches every connection.
    pub fn matches_all(&self) -> bool {
        let ClassRule {
            listeners,
            protocols,
            ports,
            destinations,
            clients,
            dscp,
            min_content_length_bytes,
            hosts,
            content_types,
            min_size_bytes,
            max_size_bytes,
            after_bytes,
            name: _,
            class: _,
            direct: _,
        } = self;
        let lists = [
            listeners.is_some(),
            protocols.is_some(),
            ports.is_some(),
            destinations.is_some(),
            clients.is_some(),
            dscp.is_some(),
            hosts.is_some(),
            content_types.is_some(),
        ];
        let numbers = [
            min_content_length_bytes,
            min_size_bytes,
            max_size_bytes,
            after_bytes,
        ];
        !lists.contains(&true) && numbers.iter().all(|number| number.is_none())
    }
}
