//! The control service that a hub works with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Uri;
use serde::Deserialize;

use super::bounds::{MOST_BYTES, check_within};

/// `[control]`: reports are posted to this service, and plans come from it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlConfig {
    /// The service's address: https://HOST[:PORT][/PREFIX], or http://… on a
    /// network that is trusted.
    pub url: String,
    /// File with the bearer token, of role gateway and for this node.
    pub token_file: PathBuf,
    /// File with the certificates of the authorities that the service's is
    /// judged by, PEM. Default: the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether this hub's terminals are those that the service lists, beside the
    /// ones that are written here. Default false.
    #[serde(default)]
    pub terminals: bool,
    /// How often the status of this node's links is reported, and what is not
    /// urgent is posted, ms, 100 to 60,000. Default 1000.
    #[serde(default = "default_interval_ms")]
    pub interval_ms: u64,
    /// How long an answer may take, s, 1 to 300. Default 10.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
    /// File that keeps reports while the service is away, where custody is
    /// durable. Default control.sqlite in node.state_dir.
    pub spool_file: Option<PathBuf>,
    /// Bytes of reports that are kept at most; beyond, the oldest are dropped
    /// and counted. Default 256 MiB.
    #[serde(default = "default_spool_bytes")]
    pub spool_bytes: u64,
}

fn default_interval_ms() -> u64 {
    1000
}

fn default_timeout_s() -> u64 {
    10
}

fn default_spool_bytes() -> u64 {
    256 << 20
}

impl ControlConfig {
    /// How often the status is reported.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// The spool's file.
    pub fn spool_file(&self, state_dir: &Path) -> PathBuf {
        let named = self.spool_file.clone();
        named.unwrap_or_else(|| state_dir.join("control.sqlite"))
    }

    /// Whether the token is sent over the network unencrypted.
    pub fn is_exposed(&self) -> bool {
        let host = self.url.parse::<Uri>().ok();
        let host = host
            .as_ref()
            .and_then(|uri| Some((uri.scheme_str()?, uri.host()?)));
        host.is_some_and(|(scheme, host)| {
            let host = host.trim_matches(['[', ']']);
            let address = host.parse::<std::net::IpAddr>();
            let local = address.map_or(host == "localhost", |address| address.is_loopback());
            scheme == "http" && !local
        })
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if let Err(why) = check_url(&self.url) {
            problems.push(format!("control.url = {:?}: {why}", self.url));
        }
        if self.ca_file.is_some() && self.url.starts_with("http://") {
            problems.push("control.ca_file: only https has certificates".to_owned());
        }
        for (key, value, bounds) in [
            ("interval_ms", self.interval_ms, 100..=60_000),
            ("timeout_s", self.timeout_s, 1..=300),
            ("spool_bytes", self.spool_bytes, 4 << 20..=MOST_BYTES),
        ] {
            check_within(&format!("control.{key}"), value, bounds, problems);
        }
    }
}

/// Whether a service can have this address.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let authority = uri.authority().ok_or("must be https://HOST[:PORT]")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("must begin with https:// or http://".to_owned());
    }
    if authority.as_str().contains('@') {
        return Err("no user and no token may stand before the host".to_owned());
    }
    if uri.query().is_some() || url.contains('#') {
        return Err("must have neither query nor fragment".to_owned());
    }
    Ok(())
}
