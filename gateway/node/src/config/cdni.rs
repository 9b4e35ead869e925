//! Where sizes of objects are told.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use underpass_cdni::ClientConfig;

use super::bounds::check_within;

/// `[cdni]`: metadata of a content provider (RFC 8006), for sizes of objects.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CdniConfig {
    /// The HostIndex: http(s)://HOST[:PORT]/PATH.
    pub url: String,
    /// File with the certificates of the authorities that the server's is
    /// judged by, PEM. Default: the system's.
    pub ca_file: Option<PathBuf>,
    /// How long a document may take, s, 1 to 300. Default 10.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
}

fn default_timeout_s() -> u64 {
    10
}

impl CdniConfig {
    pub fn client(&self) -> ClientConfig {
        ClientConfig {
            url: self.url.clone(),
            ca_file: self.ca_file.clone(),
            timeout: Duration::from_secs(self.timeout_s),
        }
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if let Err(error) = underpass_cdni::check(&self.url) {
            problems.push(error.to_string());
        }
        if self.ca_file.is_some() && self.url.starts_with("http://") {
            problems.push("cdni.ca_file: only https has certificates".to_owned());
        }
        check_within("cdni.timeout_s", self.timeout_s, 1..=300, problems);
    }
}
