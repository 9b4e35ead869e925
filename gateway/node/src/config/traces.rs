//! Traces of exchanges.

use std::path::PathBuf;

use serde::Deserialize;

/// `[traces]`: a part of the exchanges is traced (OpenTelemetry).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracesConfig {
    /// The collector, by OTLP over HTTP: http(s)://HOST[:PORT][/PREFIX]; traces
    /// are posted to /v1/traces behind it.
    pub url: String,
    /// File with the certificates of the authorities that the collector's is
    /// judged by, PEM. Default: the system's.
    pub ca_file: Option<PathBuf>,
    /// Part of the clients' exchanges that is traced, 0 to 1. Default 0.01.
    #[serde(default = "default_ratio")]
    pub ratio: f64,
    /// Exchanges a second that are traced at most, whoever asks for it, 0.01 to
    /// 1,000; a peer may use half of them. Default 10.
    #[serde(default = "default_most_per_s")]
    pub most_per_s: f64,
    /// Whether an HTTP client's own `traceparent` header says if its exchange is
    /// traced, and in which trace. Default false.
    #[serde(default)]
    pub client_context: bool,
    /// How long the collector may take to answer, s, 1 to 60. Default 10.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
}

fn default_ratio() -> f64 {
    0.01
}

fn default_most_per_s() -> f64 {
    10.0
}

fn default_timeout_s() -> u64 {
    10
}

impl TracesConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if let Err(why) = super::control::check_url(&self.url) {
            problems.push(format!("traces.url = {:?}: {why}", self.url));
        }
        if self.ca_file.is_some() && self.url.starts_with("http://") {
            problems.push("traces.ca_file: only https has certificates".to_owned());
        }
        if !(0.0..=1.0).contains(&self.ratio) {
            problems.push("traces.ratio: must be 0 to 1".to_owned());
        }
        if !(0.01..=1000.0).contains(&self.most_per_s) {
            problems.push("traces.most_per_s: must be 0.01 to 1000".to_owned());
        }
        if !(1..=60).contains(&self.timeout_s) {
            problems.push("traces.timeout_s: must be 1 to 60".to_owned());
        }
    }
}
