//! The authority that this node's certificate comes from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Uri;
use serde::Deserialize;

use super::bounds::check_within;

/// `[enrolment]`: the node renews its certificate at the control service, and
/// takes the revocation list from there: by its own way (`url`), or through its
/// hub (`to`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentConfig {
    /// The service's address: https://HOST[:PORT][/PREFIX].
    pub url: Option<String>,
    /// The hub that it asks by bundles: its ipn node number.
    pub to: Option<u64>,
    /// File with the certificates of the authorities that the service's is
    /// judged by, PEM. Default: ca.crt in tls.pki_dir.
    pub ca_file: Option<PathBuf>,
    /// How often it asks, s, 5 to 86,400. Default 600.
    #[serde(default = "default_interval_s")]
    pub interval_s: u64,
}

fn default_interval_s() -> u64 {
    600
}

impl EnrolmentConfig {
    /// How often it asks.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval_s)
    }

    /// The authorities that the service's certificate is judged by.
    pub fn ca_file(&self, pki_dir: &Path) -> PathBuf {
        let named = self.ca_file.clone();
        named.unwrap_or_else(|| pki_dir.join("ca.crt"))
    }

    pub(super) fn check(&self, pki_dir: Option<&Path>, problems: &mut Vec<String>) {
        if self.url.is_some() == self.to.is_some() {
            problems.push("[enrolment] needs either url or to".to_owned());
        }
        if self.to.is_some() && self.ca_file.is_some() {
            problems.push("enrolment.ca_file belongs to enrolment.url".to_owned());
        }
        if let Some(url) = self.url.as_ref().filter(|url| !is_https(url)) {
            problems.push(format!(
                "enrolment.url = {url:?}: must be https://HOST[:PORT][/PREFIX]"
            ));
        }
        check_within(
            "enrolment.interval_s",
            self.interval_s,
            5..=86_400,
            problems,
        );
        if pki_dir.is_none() {
            problems.push("[enrolment] needs tls.pki_dir: it renews what is there".to_owned());
        }
    }
}

fn is_https(url: &str) -> bool {
    let uri = url.parse::<Uri>().ok();
    let fits = uri.is_some_and(|uri| {
        uri.scheme_str() == Some("https") && uri.host().is_some() && uri.query().is_none()
    });
    fits && !url.contains(['@', '#'])
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
    fn asks_the_service_or_the_hub() {
        let pki_dir = Some(Path::new("/p"));
        assert!(problems("to = 1", pki_dir).is_empty());
        for wrong in ["", "to = 1\nurl = \"https://a\"", "interval_s = 60"] {
            let told = problems(wrong, pki_dir);
            assert!(told[0].contains("either url or to"), "{wrong}: {told:?}");
        }
        let told = problems("to = 1\nca_file = \"/x\"", pki_dir);
        assert!(told[0].contains("ca_file"), "{told:?}");
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
