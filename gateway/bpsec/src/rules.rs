//! Which bundles are secured, and how.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;
use underpass_bundle::wire::{Eid, ipn_parts};

use crate::Failure;
use crate::confidentiality::{Cipher, IV_BYTES, Variant};
use crate::integrity::Hash;
use crate::keys::Key;

/// The most rules of a node.
pub const MAX_RULES: usize = 256;
/// The most keys of a rule for one operation. A bundle that no key verifies costs one
/// attempt with each of them.
pub const MAX_KEYS: usize = 4;

/// Why a text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "must be \"*\", \"ipn:NODE.SERVICE\" with numbers or *, or \"dtn://…\", which may end in *"
)]
pub struct PatternError;

/// A set of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every endpoint, including the null endpoint.
    Any,
    /// Endpoints of the ipn scheme; without a node or service, any matches.
    Ipn {
        /// Node number, with its allocator.
        node: Option<u64>,
        /// Service number.
        service: Option<u64>,
    },
    /// Endpoints of the dtn scheme.
    Dtn {
        /// The whole name, or its beginning.
        name: String,
        /// Whether `name` is only the beginning.
        prefix: bool,
    },
}

impl Pattern {
    /// Whether an endpoint is in the set.
    pub fn matches(&self, endpoint: &Eid) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Ipn { node, service } => ipn_parts(endpoint).is_some_and(|(n, s)| {
                node.is_none_or(|node| node == n) && service.is_none_or(|service| service == s)
            }),
            Pattern::Dtn { name, prefix } => {
                let endpoint = endpoint.to_string();
                match prefix {
                    true => endpoint.starts_with(name.as_str()),
                    false => endpoint == *name,
                }
            }
        }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        if text == "*" {
            return Ok(Pattern::Any);
        }
        if let Some(rest) = text.strip_prefix("dtn://") {
            let cut = text.strip_suffix('*');
            let mut name = cut.unwrap_or(text).to_owned();
            if name.contains('*') {
                return Err(PatternError);
            }
            // A node's own endpoint ends in a slash, also where a bundle names it without.
            if cut.is_none() && !rest.contains('/') {
                name.push('/');
            }
            return Ok(Pattern::Dtn {
                name,
                prefix: cut.is_some(),
            });
        }
        let numbers = text
            .strip_prefix("ipn:")
            .and_then(|rest| rest.split_once('.'));
        let (node, service) = numbers.ok_or(PatternError)?;
        let number = |text: &str| match text {
            "*" => Ok(None),
            _ => text.parse().map(Some).map_err(|_| PatternError),
        };
        Ok(Pattern::Ipn {
            node: number(node)?,
            service: number(service)?,
        })
    }
}

/// How bundles from some sources to some destinations are secured. As security source,
/// this node uses the first key; as verifier, it tries all keys. Without keys nothing is
/// secured or required.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Sources of the bundles.
    pub source: Pattern,
    /// Destinations of the bundles.
    pub destination: Pattern,
    /// Keys for the HMAC of primary block and payload.
    pub integrity_keys: Vec<Key>,
    /// The hash of that HMAC, where this node computes it.
    pub hash: Hash,
    /// Keys that wrap the payload's encryption keys.
    pub confidentiality_keys: Vec<Key>,
    /// Whether this node verifies the integrity of bundles that only pass it.
    pub verify_in_transit: bool,
}

impl Rule {
    /// Whether payloads are encrypted; AES-GCM then protects their integrity too.
    pub(crate) fn encrypts(&self) -> bool {
        !self.confidentiality_keys.is_empty()
    }

    pub(crate) fn signs(&self) -> bool {
        !self.integrity_keys.is_empty()
    }

    /// Whether bundles have to be as it says where they begin or end (`at_end`), or where
    /// they pass.
    pub(crate) fn is_required(&self, at_end: bool) -> bool {
        (self.signs() || self.encrypts()) && (at_end || self.verify_in_transit)
    }
}

/// A rule in force.
#[derive(Debug)]
pub(crate) struct Active {
    pub rule: Rule,
    pub sealing: Option<Sealing>,
}

impl Active {
    /// # Errors
    /// When the first confidentiality key is not an AES key.
    pub fn new(rule: Rule) -> Result<Active, Failure> {
        let first = rule.confidentiality_keys.first();
        let sealing = first.map(Sealing::new).transpose()?;
        Ok(Active { rule, sealing })
    }
}

/// The first rule that matches a bundle between these endpoints.
pub(crate) fn find<'a>(rules: &'a [Active], source: &Eid, destination: &Eid) -> Option<&'a Active> {
    rules.iter().find(|active| {
        active.rule.source.matches(source) && active.rule.destination.matches(destination)
    })
}

/// A key that encrypts payloads: new each time the rules are loaded, and wrapped in the
/// configured key. So a counter is enough for its initialization vectors: none is used
/// twice, whatever an earlier run has used.
pub(crate) struct Sealing {
    pub cipher: Cipher,
    /// The same for payloads on disk.
    pub key: Key,
    pub variant: Variant,
    pub wrapped: Vec<u8>,
    used: AtomicU64,
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing").finish_non_exhaustive()
    }
}

impl Sealing {
    fn new(wrapping: &Key) -> Result<Sealing, Failure> {
        let variant = Variant::of_key(wrapping.bytes()).ok_or(Failure::Unknown)?;
        let mut material = vec![0; wrapping.bytes()];
        let random = SystemRandom::new().fill(&mut material);
        let key = Key::new(material);
        random.map_err(|_| Failure::Unknown)?;
        Ok(Sealing {
            cipher: variant.cipher(&key)?,
            variant,
            wrapped: wrapping.wrap_key(&key)?,
            key,
            used: AtomicU64::new(0),
        })
    }

    pub fn next_iv(&self) -> [u8; IV_BYTES] {
        let mut iv = [0; IV_BYTES];
        let count = self.used.fetch_add(1, Ordering::Relaxed);
        iv[IV_BYTES - 8..].copy_from_slice(&count.to_be_bytes());
        iv
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use underpass_bundle::wire::ipn;

    #[test]
    fn patterns_match_what_they_name() {
        let dtn = Eid::with_dtn("//node/in").unwrap();
        for (pattern, yes, no) in [
            ("*", vec![ipn(1, 2), Eid::none(), dtn.clone()], vec![]),
            (
                "ipn:*.*",
                vec![ipn(1, 2)],
                vec![Eid::none(), dtn.clone(), ipn(0, 0)],
            ),
            (
                "ipn:20.*",
                vec![ipn(20, 0), ipn(20, 7)],
                vec![ipn(2, 0), ipn(200, 7)],
            ),
            ("ipn:*.7", vec![ipn(20, 7)], vec![ipn(7, 20)]),
            ("ipn:20.7", vec![ipn(20, 7)], vec![ipn(20, 70)]),
            (
                "dtn://node/*",
                vec![dtn.clone()],
                vec![ipn(1, 1), Eid::with_dtn("//other/in").unwrap()],
            ),
            (
                "dtn://node/in",
                vec![dtn.clone()],
                vec![Eid::with_dtn("//node/inn").unwrap()],
            ),
            (
                "dtn://node",
                vec![
                    Eid::with_dtn("//node/").unwrap(),
                    Eid::with_dtn("//node").unwrap(),
                ],
                vec![dtn.clone(), Eid::with_dtn("//node-2/").unwrap()],
            ),
        ] {
            let parsed: Pattern = pattern.parse().unwrap();
            assert!(yes.iter().all(|eid| parsed.matches(eid)), "{pattern}");
            assert!(!no.iter().any(|eid| parsed.matches(eid)), "{pattern}");
        }
    }

    #[test]
    fn other_texts_are_no_patterns() {
        for text in [
            "",
            "ipn:",
            "ipn:1",
            "ipn:1.x",
            "ipn:-1.2",
            "20.7",
            "dtn://a*b*",
            "dtn:none",
            "**",
        ] {
            assert_eq!(text.parse::<Pattern>(), Err(PatternError), "{text}");
        }
    }

    #[test]
    fn no_initialization_vector_is_used_twice() {
        let sealing = Sealing::new(&Key::new(vec![1; 32])).unwrap();
        let first = sealing.next_iv();
        assert_ne!(first, sealing.next_iv());
        let again = Sealing::new(&Key::new(vec![1; 32])).unwrap();
        assert_ne!(
            sealing.wrapped, again.wrapped,
            "another key for the same vectors"
        );
    }
}
