//! Beacons.

use std::path::PathBuf;

use serde::Deserialize;

use super::Config;

/// Datagrams that tell whether the links are there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BeaconsConfig {
    /// Send and hear them. Without them a blockage is known only from the
    /// plan, the modem or an operator. Default true.
    pub enabled: bool,
    /// UDP port of the side that accepts sessions, on both sides the same.
    /// Default: the number of its TCP port, or the one after its QUIC port.
    pub port: Option<u16>,
    /// File with a key that both sides share: 64 hexadecimal digits. Plain TCP
    /// has no beacons without it; under TLS each session makes its own key,
    /// and this one serves until there is any. Default none.
    pub key_file: Option<PathBuf>,
}

impl Default for BeaconsConfig {
    fn default() -> Self {
        BeaconsConfig {
            enabled: true,
            port: None,
            key_file: None,
        }
    }
}

impl BeaconsConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if self.port == Some(0) {
            problems.push("beacons.port: must not be 0".to_owned());
        }
    }
}

impl Config {
    /// Whether this node sends and hears beacons.
    pub fn has_beacons(&self) -> bool {
        self.beacons.enabled && (!self.tls.plain || self.beacons.key_file.is_some())
    }
}
