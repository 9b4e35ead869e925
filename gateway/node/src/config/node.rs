//! Who the node is, and what it logs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// At the vehicle: dials the hub, takes in the clients' connections.
    Terminal,
    /// At the ground station: accepts terminals, dials origins.
    Hub,
    /// Between nodes: forwards bundles, has no edge.
    Relay,
}

impl Role {
    /// The role's name in configuration, API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Role::Terminal => "terminal",
            Role::Hub => "hub",
            Role::Relay => "relay",
        }
    }
}

/// Who this node is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// ipn node number, 1 to 2³²−2 (RFC 9758).
    pub number: u64,
    /// terminal, hub or relay.
    pub role: Role,
    /// Folder for what must survive a restart. Default /var/lib/underpass.
    #[serde(default = "default_state_dir")]
    pub state_dir: PathBuf,
    /// How long SIGTERM waits for open streams to end, s. Default 10.
    #[serde(default = "default_drain_s")]
    pub drain_s: u64,
    /// Worker threads. Default: one per core.
    pub threads: Option<usize>,
    /// Whether the process gives away, at its start, the rights that it does
    /// not need. Default true.
    #[serde(default = "default_confine")]
    pub confine: bool,
}

fn default_state_dir() -> PathBuf {
    PathBuf::from("/var/lib/underpass")
}

fn default_confine() -> bool {
    true
}

fn default_drain_s() -> u64 {
    10
}

impl NodeConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        // RFC 9758 § 3.4.3 reserves 0 and keeps 2³²−1 for the node itself.
        if self.number == 0 || self.number >= u64::from(u32::MAX) {
            problems.push(format!(
                "node.number = {}: must be 1 to 4294967294",
                self.number
            ));
        }
        if self.threads == Some(0) {
            problems.push("node.threads = 0: must be at least 1".to_owned());
        }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// A level (error, warn, info, debug, trace) or tracing's filter
    /// directives, e.g. "info,underpass_tcpcl=debug". Default "info".
    pub level: String,
    /// text or json. Default text.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

impl LogConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if let Err(error) = EnvFilter::builder().parse(&self.level) {
            problems.push(format!("log.level: {error}"));
        }
    }
}
