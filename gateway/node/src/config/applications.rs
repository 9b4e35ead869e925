//! Applications that send and receive bundles.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use underpass_bundle::{Amount, Applications, ECHO_NAME, named_service};
use underpass_engine::{ON_DEMAND_SERVICE, STREAM_SERVICE};

use super::bounds::{MOST_BYTES, check_within};
use super::traffic::{ClassSettings, class_named};

/// The highest ipn service number that an application may have.
const HIGHEST_SERVICE: u64 = u32::MAX as u64;

/// Characters of a service's name at most.
const MOST_NAME_CHARACTERS: usize = 128;

/// Services that an application may have at most.
const MOST_SERVICES: u64 = 65_536;

/// `[applications]`: programs on this machine send and receive bundles over a
/// Unix socket.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationsConfig {
    /// The socket's path; owner and group may use it (mode 0660).
    pub socket: PathBuf,
    /// The services of this node that applications may have: ipn services, each a
    /// number or a range such as "64-79", those of the node itself left out; and
    /// names such as "incoming", of the endpoint dtn://NAME/incoming of a node with
    /// a name. Default ["1-127"], the private numbers.
    #[serde(default = "default_services")]
    pub services: Vec<String>,
    /// The service at which this node answers pings; 0 for none. Default 7.
    #[serde(default = "default_echo")]
    pub echo: u64,
    /// Pings of one node that are answered in a second at most. Default 10.
    #[serde(default = "default_echo_per_s")]
    pub echo_per_s: u32,
    /// The class of applications' bundles. Default: the lowest.
    pub class: Option<String>,
    /// Clients at once. Default 32.
    #[serde(default = "default_clients")]
    pub max_clients: usize,
    /// Largest payload of a bundle that a client sends, bytes, 1 to 16 MiB.
    /// Default 1 MiB.
    #[serde(default = "default_payload_bytes")]
    pub max_payload_bytes: u32,
    /// Bytes of bundles that wait for applications, on disk. Default 256 MiB.
    #[serde(default = "default_quota_bytes")]
    pub quota_bytes: u64,
    /// Bundles that wait for applications. Default 65,536.
    #[serde(default = "default_quota_bundles")]
    pub quota_bundles: u64,
}

fn default_services() -> Vec<String> {
    vec!["1-127".to_owned()]
}

fn default_echo() -> u64 {
    7
}

fn default_echo_per_s() -> u32 {
    10
}

fn default_clients() -> usize {
    32
}

fn default_payload_bytes() -> u32 {
    1 << 20
}

fn default_quota_bytes() -> u64 {
    256 << 20
}

fn default_quota_bundles() -> u64 {
    65_536
}

/// The services that the node itself has.
fn reserved() -> BTreeSet<u64> {
    BTreeSet::from([
        0,
        STREAM_SERVICE,
        ON_DEMAND_SERVICE,
        underpass_deferred::wire::SERVICE,
        underpass_reports::SERVICE,
        underpass_plans::SERVICE,
        underpass_provision::SERVICE,
        crate::provider::SERVICE,
    ])
}

/// Whether a text that is no number or range is a service's name in the dtn scheme.
/// It begins with a letter: "~" begins a group's (RFC 9171 §4.2.5.1.1).
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    begins && text.len() <= MOST_NAME_CHARACTERS && text.bytes().all(plain)
}

fn range(text: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let range = number(first)?..=number(last)?;
    let fits = *range.start() > 0 && range.start() <= range.end();
    (fits && *range.end() <= HIGHEST_SERVICE).then_some(range)
}

impl ApplicationsConfig {
    pub(super) fn check(
        &self,
        classes: &[ClassSettings],
        node_has_name: bool,
        problems: &mut Vec<String>,
    ) {
        let mut services = 0;
        let mut named = BTreeSet::new();
        for text in &self.services {
            match range(text) {
                Some(range) => services += range.end() - range.start() + 1,
                None if is_name(text) => {
                    services += 1;
                    if self.echo > 0 && text == ECHO_NAME {
                        problems.push(format!(
                            "applications.services: {text:?} is the echo's name (applications.echo)"
                        ));
                    }
                    // The same name, or one with the same number inside the node.
                    if !named.insert(named_service(text)) {
                        problems.push(format!(
                            "applications.services: {text:?} is given twice, or cannot be told from another name and needs a different one"
                        ));
                    }
                }
                None => problems.push(format!(
                    "applications.services: {text:?} is no service number or range of 1 to {HIGHEST_SERVICE}, and no name that begins with a letter, of letters, digits and -._~/"
                )),
            }
        }
        if !named.is_empty() && !node_has_name {
            problems.push("applications.services: names need node.name".to_owned());
        }
        if services == 0 || services > MOST_SERVICES {
            problems.push(format!(
                "applications.services: must be 1 to {MOST_SERVICES} services"
            ));
        }
        if self.echo > 0 && reserved().contains(&self.echo) {
            problems.push(format!(
                "applications.echo = {}: this service is the node's own",
                self.echo
            ));
        }
        if let Some(class) = &self.class
            && class_named(classes, class).is_none()
        {
            problems.push(format!(
                "applications.class: there is no [[class]] {class:?}"
            ));
        }
        if self.quota_bytes / 4 < self.max_payload_bytes.into() {
            problems.push(
                "applications.quota_bytes: must be four times max_payload_bytes at least"
                    .to_owned(),
            );
        }
        for (key, value, bounds) in [
            ("echo", self.echo, 0..=HIGHEST_SERVICE),
            (
                "max_payload_bytes",
                self.max_payload_bytes.into(),
                1..=16 << 20,
            ),
            ("max_clients", self.max_clients as u64, 1..=65_536),
            ("quota_bytes", self.quota_bytes, 1..=MOST_BYTES),
            ("quota_bundles", self.quota_bundles, 1..=1_000_000_000),
        ] {
            check_within(&format!("applications.{key}"), value, bounds, problems);
        }
    }

    /// The services that belong to applications.
    pub fn applications(&self) -> Applications {
        let numbers = self.services.iter().filter_map(|text| range(text));
        let named = self.names().map(named_service);
        let services = numbers.chain(named.map(|number| number..=number));
        let most = Amount {
            bytes: self.quota_bytes,
            bundles: self.quota_bundles,
        };
        Applications::new(services.collect(), reserved(), self.echo(), most)
    }

    /// The names among the services.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.services.iter().map(String::as_str);
        names.filter(|text| range(text).is_none() && is_name(text))
    }

    /// The service that answers pings.
    pub fn echo(&self) -> Option<u64> {
        (self.echo > 0).then_some(self.echo)
    }

    /// Where bundles wait.
    pub fn mailbox(state_dir: &Path) -> PathBuf {
        state_dir.join("applications.sqlite")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(keys: &str) -> Vec<String> {
        let config: ApplicationsConfig =
            toml::from_str(&format!("socket = \"/run/x.sock\"\n{keys}")).unwrap();
        let mut problems = Vec::new();
        let classes = super::super::traffic::default_classes();
        config.check(&classes, true, &mut problems);
        problems
    }

    #[test]
    fn names_of_services_need_a_node_with_a_name() {
        let text = "socket = \"/run/x.sock\"\nservices = [\"64-79\", \"in/box\"]";
        let config: ApplicationsConfig = toml::from_str(text).unwrap();
        let classes = super::super::traffic::default_classes();
        let mut problems = Vec::new();
        config.check(&classes, true, &mut problems);
        assert_eq!(problems, Vec::<String>::new());
        config.check(&classes, false, &mut problems);
        assert_eq!(problems, ["applications.services: names need node.name"]);
        assert_eq!(config.names().collect::<Vec<_>>(), ["in/box"]);
        let all = config.applications();
        assert!(all.keeps(named_service("in/box")) && all.keeps(64));
        assert!(!all.keeps(named_service("in")) && !all.keeps(80));
    }

    #[test]
    fn the_defaults_fit_together() {
        assert_eq!(problems(""), Vec::<String>::new());
        assert_eq!(
            problems("class = \"bulk\"\nservices = [\"64-79\", \"2047\"]"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_does_not_fit_is_told() {
        for (keys, told) in [
            ("services = [\"0-5\"]", "0-5"),
            ("services = [\"9-5\"]", "9-5"),
            ("services = [\"~x\"]", "\"~x\""),
            ("services = [\"a b\"]", "\"a b\""),
            ("services = [\"echo\"]", "the echo's"),
            ("services = [\"in\", \"in\"]", "twice"),
            ("services = []", "1 to 65536"),
            ("services = [\"1-4294967295\"]", "1 to 65536"),
            ("echo = 80", "echo = 80"),
            ("class = \"none\"", "\"none\""),
            ("max_payload_bytes = 0", "max_payload_bytes"),
            ("max_clients = 0", "max_clients"),
            ("quota_bytes = 1000", "quota_bytes"),
        ] {
            let problems = problems(keys);
            assert!(
                problems.iter().any(|problem| problem.contains(told)),
                "{keys}: {problems:?}"
            );
        }
    }
}
