//! Gives each connection its class and its way out, and each of its flows a class.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
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
    /// Bytes of the body, if the HTTP message declares them.
    pub content_length: Option<u64>,
    /// What is known of a flow that begins or goes on.
    pub flow: FlowFacts<'a>,
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowFacts<'a> {
    /// The host's name.
    pub host: Option<&'a str>,
    /// Type and subtype.
    pub content_type: Option<&'a str>,
    /// What it says that it has, bytes.
    pub size_bytes: Option<u64>,
    /// What was sent on its stream so far, bytes.
    pub sent_bytes: Option<u64>,
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
    /// The place of the rule that says so; none if none matches.
    pub rule: Option<usize>,
}

/// Rules in order; the first that matches gives the class.
#[derive(Clone, Debug)]
pub struct Classifier {
    rules: Vec<Rule>,
    default: Class,
}

#[derive(Clone, Debug)]
struct Rule {
    keys: ClassRule,
    name: Arc<str>,
    class: Class,
    /// Connections and flows that matched.
    matched: Arc<AtomicU64>,
}

/// A rule and how often it matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCount {
    /// Its name; `rule N` if it has none.
    pub name: String,
    /// The name of its class.
    pub class: String,
    /// Connections and flows that matched since the start.
    pub matched: u64,
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
        let numbered = |(keys, place): (&ClassRule, usize)| match named(&keys.class) {
            Some(class) => Ok(Rule {
                keys: keys.clone(),
                name: match &keys.name {
                    Some(name) => name.as_str().into(),
                    None => format!("rule {place}").into(),
                },
                class,
                matched: Arc::default(),
            }),
            None => Err(UnknownClass(keys.class.clone())),
        };
        let rules = rules.iter().zip(1..).map(numbered);
        Ok(Classifier {
            rules: rules.collect::<Result<_, _>>()?,
            default,
        })
    }

    /// Continues the counters of rules of the same names.
    pub fn count_on(&mut self, before: &Classifier) {
        for rule in &mut self.rules {
            let known = before.rules.iter().find(|known| known.name == rule.name);
            if let Some(known) = known {
                rule.matched = known.matched.clone();
            }
        }
    }

    /// How often each rule matched.
    pub fn counts(&self) -> Vec<RuleCount> {
        let rules = self.rules.iter();
        let counted = rules.map(|rule| RuleCount {
            name: rule.name.to_string(),
            class: rule.keys.class.clone(),
            matched: rule.matched.load(Ordering::Relaxed),
        });
        counted.collect()
    }

    /// The class of a connection, and its way.
    pub fn classify(&self, facts: &Facts<'_>) -> Verdict {
        let mut rules = self.rules.iter();
        let place = rules.position(|rule| matches(&rule.keys, facts));
        let rule = place.map(|place| &self.rules[place]);
        if let Some(rule) = rule {
            rule.matched.fetch_add(1, Ordering::Relaxed);
        }
        Verdict {
            class: rule.map_or(self.default, |rule| rule.class),
            direct: rule.is_some_and(|rule| rule.keys.direct),
            rule: place,
        }
    }

    /// The name of the rule at a place.
    pub fn name_of(&self, place: usize) -> Option<Arc<str>> {
        Some(self.rules.get(place)?.name.clone())
    }

    /// The class of a flow, by the first matching rule that has a key for its host, its content
    /// type, its size, or the bytes sent before. The connection has been classified already. Other
    /// rules concern how a connection came in, which the other end of a stream does not know.
    ///
    /// Also returns the rule's name.
    pub fn classify_flow(&self, facts: &Facts<'_>) -> Option<(Class, &Arc<str>)> {
        let mut rules = self.rules.iter().filter(|rule| {
            let keys = &rule.keys;
            keys.is_of_flows() || keys.hosts.is_some() && !keys.direct
        });
        let rule = rules.find(|rule| matches(&rule.keys, facts))?;
        rule.matched.fetch_add(1, Ordering::Relaxed);
        Some((rule.class, &rule.name))
    }

    /// The next number of sent bytes, above `sent_bytes`, at which a rule may begin to match.
    pub fn next_promotion(&self, sent_bytes: u64) -> Option<u64> {
        let after = self.rules.iter().filter_map(|rule| rule.keys.after_bytes);
        after.filter(|after| *after > sent_bytes).min()
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
        rule.hosts.as_ref().is_none_or(|hosts| {
            let host = facts.flow.host.or_else(|| facts.target.name());
            host.is_some_and(|host| hosts.iter().any(|pattern| pattern.matches(host)))
        }),
        rule.content_types.as_ref().is_none_or(|types| {
            let of_flow = facts.flow.content_type;
            of_flow.is_some_and(|of_flow| types.iter().any(|pattern| pattern.matches(of_flow)))
        }),
        rule.min_size_bytes
            .is_none_or(|least| facts.flow.size_bytes.is_some_and(|size| size >= least)),
        rule.max_size_bytes
            .is_none_or(|most| facts.flow.size_bytes.is_some_and(|size| size <= most)),
        rule.after_bytes
            .is_none_or(|after| facts.flow.sent_bytes.is_some_and(|sent| sent >= after)),
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
            flow: FlowFacts::default(),
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

    #[test]
    fn a_flow_is_classified_by_what_it_says_of_itself() {
        let classifier = rules(
            r#"
            rule = [
              { listeners = ["socks"], class = "1" },
              { hosts = ["*.cdn.example"], content_types = ["video/*"], class = "2" },
              { min_size_bytes = 1000, max_size_bytes = 5000, class = "3" },
              { after_bytes = 100000, class = "4" },
            ]"#,
        );
        let target = Target::parse("a.cdn.example", 80).unwrap();
        let of = |flow: FlowFacts<'static>| {
            let facts = Facts {
                flow,
                ..facts(&target)
            };
            classifier.classify_flow(&facts).map(|(class, _)| class)
        };
        let video = FlowFacts {
            content_type: Some("video/mp4"),
            size_bytes: Some(2000),
            sent_bytes: Some(0),
            host: None,
        };
        // The first rule is about how the connection came in.
        assert_eq!(of(video), Some(Class(2)));
        let elsewhere = FlowFacts {
            host: Some("b.example"),
            ..video
        };
        assert_eq!(of(elsewhere), Some(Class(3)));
        let large = FlowFacts {
            size_bytes: Some(5001),
            ..elsewhere
        };
        assert_eq!(of(large), None);
        let long = FlowFacts {
            sent_bytes: Some(100_000),
            ..large
        };
        assert_eq!(of(long), Some(Class(4)));
        assert_eq!(classifier.next_promotion(0), Some(100_000));
        assert_eq!(classifier.next_promotion(100_000), None);
        let counts = classifier.counts();
        let counts: Vec<_> = counts.iter().map(|of| (&*of.name, of.matched)).collect();
        assert_eq!(
            counts,
            [("rule 1", 0), ("rule 2", 1), ("rule 3", 1), ("rule 4", 1)]
        );
    }

    #[test]
    fn a_rule_of_the_same_name_counts_on() {
        let before = rules("rule = [{ name = 'all', class = '1' }]");
        let target = Target::parse("example.org", 80).unwrap();
        before.classify(&facts(&target));
        let mut after =
            rules("rule = [{ ports = [1], class = '2' }, { name = 'all', class = '3' }]");
        after.count_on(&before);
        after.classify(&facts(&target));
        let counts: Vec<_> = after.counts().iter().map(|of| of.matched).collect();
        assert_eq!(counts, [0, 2]);
    }
}
