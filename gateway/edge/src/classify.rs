//! Gives each connection its class.

use std::net::SocketAddr;

use underpass_cla::Class;

use crate::config::ClassRule;
use crate::stream::{Protocol, Target};

/// What is known of a connection when it is classified.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Name of the listener.
    pub listener: &'a str,
    /// How the connection came in.
    pub protocol: Protocol,
    /// Where it goes.
    pub target: &'a Target,
    /// The client.
    pub client: SocketAddr,
    /// DSCP of the client's SYN (0 to 63).
    pub dscp: Option<u8>,
    /// Bytes of the body, where HTTP tells.
    pub content_length: Option<u64>,
}

/// Rules in order; the first that matches gives the class.
#[derive(Clone, Debug)]
pub struct Classifier {
    rules: Vec<ClassRule>,
    default: Class,
}

impl Classifier {
    /// A classifier with a class for what no rule matches.
    pub fn new(rules: Vec<ClassRule>, default: Class) -> Classifier {
        Classifier { rules, default }
    }

    /// The class of a connection.
    pub fn classify(&self, facts: &Facts<'_>) -> Class {
        let rule = self.rules.iter().find(|rule| matches(rule, facts));
        rule.map_or(self.default, |rule| Class(rule.class))
    }
}

/// A key that a rule does not have matches everything; a fact that is not
/// known matches no key.
fn matches(rule: &ClassRule, facts: &Facts<'_>) -> bool {
    let client = facts.client.ip().to_canonical();
    let all = [
        rule.listeners
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name == facts.listener)),
        rule.protocols
            .as_ref()
            .is_none_or(|protocols| protocols.contains(&facts.protocol)),
        rule.ports.as_ref().is_none_or(|ports| {
            ports
                .iter()
                .any(|range| range.contains(facts.target.port()))
        }),
        rule.destinations.as_ref().is_none_or(|nets| {
            let ip = facts.target.ip();
            ip.is_some_and(|ip| nets.iter().any(|net| net.contains(&ip)))
        }),
        rule.clients
            .as_ref()
            .is_none_or(|nets| nets.iter().any(|net| net.contains(&client))),
        rule.dscp
            .as_ref()
            .is_none_or(|values| facts.dscp.is_some_and(|dscp| values.contains(&dscp))),
        rule.min_content_length_bytes
            .is_none_or(|least| facts.content_length.is_some_and(|length| length >= least)),
    ];
    all.into_iter().all(|matched| matched)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Classifier {
        #[derive(serde::Deserialize)]
        struct Rules {
            rule: Vec<ClassRule>,
        }
        let rules: Rules = toml::from_str(text).unwrap();
        Classifier::new(rules.rule, Class(9))
    }

    fn facts(target: &Target) -> Facts<'_> {
        Facts {
            listener: "socks",
            protocol: Protocol::Socks5,
            target,
            client: "[::ffff:10.0.0.5]:1234".parse().unwrap(),
            dscp: None,
            content_length: None,
        }
    }

    #[test]
    fn first_rule_that_matches_in_all_its_keys_wins() {
        let classifier = rules(
            r#"
            rule = [
              { ports = [22, "5000-5100"], clients = ["10.0.0.0/24"], class = 1 },
              { destinations = ["192.0.2.0/24"], class = 2 },
              { protocols = ["socks5"], dscp = [46], class = 3 },
              { min_content_length_bytes = 1000000, class = 4 },
            ]"#,
        );
        let ssh = Target::parse("192.0.2.1", 22).unwrap();
        let high = Target::parse("example.org", 5100).unwrap();
        let web = Target::parse("192.0.2.1", 80).unwrap();
        let name = Target::parse("example.org", 80).unwrap();
        assert_eq!(classifier.classify(&facts(&ssh)), Class(1));
        assert_eq!(classifier.classify(&facts(&high)), Class(1));
        assert_eq!(classifier.classify(&facts(&web)), Class(2));
        assert_eq!(classifier.classify(&facts(&name)), Class(9));
        let voice = Facts {
            dscp: Some(46),
            ..facts(&name)
        };
        assert_eq!(classifier.classify(&voice), Class(3));
        let large = Facts {
            content_length: Some(1_000_000),
            ..facts(&name)
        };
        assert_eq!(classifier.classify(&large), Class(4));
    }
}
