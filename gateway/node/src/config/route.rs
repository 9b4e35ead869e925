//! Where bundles and streams go.

use ipnet::IpNet;
use serde::Deserialize;

/// A static route for bundles to a node that is no neighbour; or, with itself
/// as `via`, to a neighbour for which no custody is taken.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The destination's ipn node number.
    pub node: u64,
    /// The neighbour that its bundles are given to.
    pub via: u64,
    /// Whether this node takes custody of what it forwards there.
    /// Default true.
    #[serde(default = "default_custody")]
    pub custody: bool,
}

/// Two neighbours whose bundles for each other, or for what lies behind, this
/// node forwards.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayConfig {
    /// Their ipn node numbers; both ways.
    pub between: [u64; 2],
}

fn default_custody() -> bool {
    true
}

/// Which node the connections to some destinations go to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutletConfig {
    /// The edge node that dials these destinations.
    pub node: u64,
    /// Destination networks; the longest prefix wins. Empty: all
    /// destinations, and all names. Default empty.
    #[serde(default)]
    pub destinations: Vec<IpNet>,
}
