//! The edge's part of the node's configuration: `[edge]` in its TOML file.

mod interception;
mod listener;
mod origin;
mod pattern;
mod port_range;
mod rule;

use ipnet::IpNet;
use serde::Deserialize;

pub use interception::{Fail, InterceptionConfig};
pub use listener::{Answer, ListenerConfig, ListenerProtocol, User};
pub use origin::{DialConfig, Family, OriginSource, PeerDialConfig};
pub use pattern::{ContentTypePattern, HostPattern, PatternError};
pub use port_range::{NoPortRange, PortRange};
pub use rule::ClassRule;

/// `[edge]`: where traffic comes in and goes out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EdgeConfig {
    /// Networks whose clients may enter, as CIDR, for every listener that has
    /// no list of its own. Default: none, so nobody may.
    pub client_networks: Vec<IpNet>,
    /// `[[edge.listener]]`: where connections come in. Default: none.
    pub listener: Vec<ListenerConfig>,
    /// `[[edge.rule]]`: classes and ways by rule, the first match wins. Default: none.
    pub rule: Vec<ClassRule>,
    /// `[edge.dial]`: how origins are dialled for streams of the peer, and in
    /// single-box mode.
    pub dial: DialConfig,
    /// `[edge.interception]`: transparent interception, for the listener with
    /// `protocol = "transparent"`. Default: none.
    pub interception: Option<InterceptionConfig>,
}
