//! Gives each connection its class and its way.

use std::net::SocketAddr;

use thiserror::Error;
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

/// A rule names a class that there is not.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("there is no class {0:?}")]
pub struct UnknownClass(pub String);

/// What the rules say of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The class its bytes travel in.
    pub class: Class,
    /// Whether it leaves from this node itself, without bundles.
    pub direct: bool,
}

/// Rules in order; the first that matches gives the class.
#[derive(Clone, Debug)]
pub struct Classifier {
    rules: Vec<(ClassRule, Class)>,
    default: Class,
}

impl Classifier {
    /// A classifier with a class for what no rule matches. `named` looks the
    /// rules' classes up: their numbers are the node's to give.
    ///
    /// # Errors
    /// When a rule names a class that `named` does not know.
    pub fn new(
        rules: &[ClassRule],
        default: Class,
        named: impl Fn(&str) -> Option<Class>,
    ) -> Result<Classifier, UnknownClass> {
        let numbered = |rule: &ClassRule| match named(&rule.class) {
            Some(class) => Ok((rule.clone(), class)),
            None => Err(UnknownClass(rule.class.clone())),
        };
        Ok(Classifier {
            rules: rules.iter().map(numbered).collect::<Result<_, _>>()?,
            default,
        })
    }

    /// The class of a connection, and its way.
    pub fn classify(&self, facts: &Facts<'_>) -> Verdict {
        let rule = self.rules.iter().find(|(rule, _)| matches(rule, facts));
        Verdict {
            class: rule.map_or(self.default, |(_, class)| *class),
            direct: rule.is_some_and(|(rule, _)| rule.direct),
        }
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
        Classifier::new(&rules.rule, Class(9), number).unwrap()
    }

    /// Classes named by their numbers.
    fn number(name: &str) -> Option<Class> {
        name.parse().ok().map(Class)
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
              { ports = [22, "5000-5100"], clients = ["10.0.0.0/24"], class = "1" },
              { destinations = ["192.0.2.0/24"], class = "2" },
              { protocols = ["socks5"], dscp = [46], class = "3" },
              { min_content_length_bytes = 1000000, class = "4" },
            ]"#,
        );
        let ssh = Target::parse("192.0.2.1", 22).unwrap();
        let high = Target::parse("example.org", 5100).unwrap();
        let web = Target::parse("192.0.2.1", 80).unwrap();
        let name = Target::parse("example.org", 80).unwrap();
        assert_eq!(classifier.classify(&facts(&ssh)).class, Class(1));
        assert_eq!(classifier.classify(&facts(&high)).class, Class(1));
        assert_eq!(classifier.classify(&facts(&web)).class, Class(2));
        assert_eq!(classifier.classify(&facts(&name)).class, Class(9));
        let voice = Facts {
            dscp: Some(46),
            ..facts(&name)
        };
        assert_eq!(classifier.classify(&voice).class, Class(3));
        let large = Facts {
            content_length: Some(1_000_000),
            ..facts(&name)
        };
        assert_eq!(classifier.classify(&large).class, Class(4));
    }

    #[test]
    fn a_rule_for_a_class_that_there_is_not_is_refused() {
        let rule: ClassRule = toml::from_str("class = \"urgent\"").unwrap();
        let refused = Classifier::new(&[rule], Class(0), number).unwrap_err();
        assert_eq!(refused, UnknownClass("urgent".to_owned()));
    }

    #[test]
    fn a_rule_may_send_connections_past_the_peer() {
        let classifier = rules("rule = [{ ports = [22], class = '1', direct = true }]");
        let ssh = Target::parse("192.0.2.1", 22).unwrap();
        let web = Target::parse("192.0.2.1", 80).unwrap();
        assert!(classifier.classify(&facts(&ssh)).direct);
        assert!(!classifier.classify(&facts(&web)).direct);
    }
}
