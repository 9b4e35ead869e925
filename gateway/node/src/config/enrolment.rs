//! The authority that this node's certificate comes from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Uri;
use serde::Deserialize;

/// `[enrolment]`: the node renews its certificate at this control service, and
/// takes the revocation list from there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentConfig {
    /// The service's address: https://HOST[:PORT][/PREFIX].
    pub url: String,
    /// File with the certificates of the authorities that the service's is
    /// judged by, PEM. Default: ca.crt in tls.pki_dir.
    pub ca_file: Option<PathBuf>,
    /// How often it is asked, s, 5 to 86,400. Default 600.
    #[serde(default = "default_interval_s")]
    pub interval_s: u64,
}

fn default_interval_s() -> u64 {
    600
}

impl EnrolmentConfig {
    /// How often the service is asked.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval_s)
    }

    /// The authorities that the service's certificate is judged by.
    pub fn ca_file(&self, pki_dir: &Path) -> PathBuf {
        let named = self.ca_file.clone();
        named.unwrap_or_else(|| pki_dir.join("ca.crt"))
    }

    pub(super) fn check(&self, pki_dir: Option<&Path>, problems: &mut Vec<String>) {
        let uri = self.url.parse::<Uri>().ok();
        let is_https = uri.is_some_and(|uri| {
            uri.scheme_str() == Some("https") && uri.host().is_some() && uri.query().is_none()
        });
        if !is_https || self.url.contains(['@', '#']) {
            let url = &self.url;
            problems.push(format!(
                "enrolment.url = {url:?}: must be https://HOST[:PORT][/PREFIX]"
            ));
        }
        if !(5..=86_400).contains(&self.interval_s) {
            problems.push("enrolment.interval_s: must be 5 to 86400".to_owned());
        }
        if pki_dir.is_none() {
            problems.push("[enrolment] needs tls.pki_dir: it renews what is there".to_owned());
        }
    }
}
