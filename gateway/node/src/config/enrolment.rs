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

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str, pki_dir: Option<&Path>) -> Vec<String> {
        let config: EnrolmentConfig = toml::from_str(text).unwrap();
        let mut problems = Vec::new();
        config.check(pki_dir, &mut problems);
        problems
    }

    #[test]
    fn only_https_is_asked_and_not_without_certificates_of_ones_own() {
        let pki_dir = Path::new("/var/lib/underpass/pki");
        let right = "url = \"https://control.example:8470/fleet\"";
        assert!(problems(right, Some(pki_dir)).is_empty());
        for wrong in [
            "http://control.example",
            "control.example",
            "https://user@control.example",
            "https://control.example?x=1",
            "",
        ] {
            let told = problems(&format!("url = {wrong:?}"), Some(pki_dir));
            assert!(told[0].contains("enrolment.url"), "{wrong}: {told:?}");
        }
        assert!(problems(right, None)[0].contains("tls.pki_dir"));
        for seconds in [0, 4, 86_401] {
            let told = problems(&format!("{right}\ninterval_s = {seconds}"), Some(pki_dir));
            assert!(told[0].contains("interval_s"), "{seconds}");
        }
    }

    #[test]
    fn the_nodes_own_authority_is_trusted_unless_another_is_named() {
        let own: EnrolmentConfig = toml::from_str("url = \"https://a\"").unwrap();
        assert_eq!(own.ca_file(Path::new("/p")), Path::new("/p/ca.crt"));
        let named: EnrolmentConfig =
            toml::from_str("url = \"https://a\"\nca_file = \"/c\"").unwrap();
        assert_eq!(named.ca_file(Path::new("/p")), Path::new("/c"));
    }
}
