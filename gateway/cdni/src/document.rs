//! Documents of CDNI metadata (RFC 8006, 4.1), limited to what leads to sizes.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::pattern::{Effort, Pattern};

/// The longest document that is read, bytes.
pub const MOST_DOCUMENT_BYTES: usize = 1 << 20;
/// The largest object size that is believed, bytes: 1 TiB.
pub const MOST_OBJECT_BYTES: u64 = 1 << 40;
/// The most hosts and paths of one document together.
const MOST_RULES: usize = 10_000;
/// The deepest nesting of paths in one document.
const MOST_DEPTH: usize = 16;
/// The longest link, bytes.
const MOST_LINK_BYTES: usize = 2_048;
/// Our GenericMetadata object.
const OBJECT_SIZE: &str = "underpass.ObjectSize";

/// Why a document is not used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum DocumentError {
    #[error("it has more than {MOST_DOCUMENT_BYTES} bytes")]
    TooLong,
    #[error("it is not understood: {0}")]
    Malformed(String),
    #[error("it has more than {MOST_RULES} hosts and paths")]
    TooManyRules,
    #[error("its paths are nested more than {MOST_DEPTH} deep")]
    TooDeep,
}

/// The rules for a host, or for the paths that match a pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    size_bytes: Option<u64>,
    paths: Vec<(Pattern, Next)>,
}

/// Where the metadata of a host or path are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Here(Rules),
    /// In another document, at this URL.
    Link(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Document {
    /// A HostIndex: by host and, where given, port.
    Index(HashMap<String, Next>),
    /// A HostMetadata or PathMetadata.
    Rules(Rules),
}

#[derive(Deserialize)]
struct HostIndex {
    hosts: Vec<HostMatch>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct HostMatch {
    host: String,
    host_metadata: Value,
}

/// The common form of HostMetadata and PathMetadata.
#[derive(Deserialize)]
struct MatchedMetadata {
    #[serde(default)]
    metadata: Vec<Value>,
    #[serde(default)]
    paths: Vec<PathMatch>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PathMatch {
    path_pattern: PatternMatch,
    path_metadata: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PatternMatch {
    pattern: String,
    #[serde(default)]
    case_sensitive: bool,
    #[serde(default)]
    ignore_query_string: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct GenericMetadata {
    generic_metadata_type: String,
    #[serde(default)]
    generic_metadata_value: Value,
}

#[derive(Deserialize)]
struct ObjectSize {
    bytes: u64,
}

fn malformed(error: impl std::fmt::Display) -> DocumentError {
    DocumentError::Malformed(error.to_string())
}

/// How much of a document was parsed.
struct Reading {
    rules: usize,
}

impl Document {
    /// Parses a HostIndex.
    pub(crate) fn index(bytes: &[u8]) -> Result<Document, DocumentError> {
        check_length(bytes)?;
        let index: HostIndex = serde_json::from_slice(bytes).map_err(malformed)?;
        let mut reading = Reading { rules: 0 };
        let mut hosts = HashMap::new();
        for HostMatch {
            host,
            host_metadata,
        } in index.hosts
        {
            reading.one_more()?;
            let next = reading.next(host_metadata, 0)?;
            // The first entry that matches counts.
            hosts.entry(host.to_ascii_lowercase()).or_insert(next);
        }
        Ok(Document::Index(hosts))
    }

    /// Parses a HostMetadata or PathMetadata.
    pub(crate) fn rules(bytes: &[u8]) -> Result<Document, DocumentError> {
        check_length(bytes)?;
        let value: MatchedMetadata = serde_json::from_slice(bytes).map_err(malformed)?;
        let mut reading = Reading { rules: 0 };
        reading.matched(value, 0).map(Document::Rules)
    }

    /// The memory that it takes, bytes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Document::Index(hosts) => hosts
                .iter()
                .map(|(host, next)| host.len() + size_of::<Next>() + next.bytes())
                .sum(),
            Document::Rules(rules) => rules.bytes(),
        }
    }
}

fn check_length(bytes: &[u8]) -> Result<(), DocumentError> {
    match bytes.len() {
        0..=MOST_DOCUMENT_BYTES => Ok(()),
        _ => Err(DocumentError::TooLong),
    }
}

impl Reading {
    fn one_more(&mut self) -> Result<(), DocumentError> {
        self.rules += 1;
        match self.rules {
            0..=MOST_RULES => Ok(()),
            _ => Err(DocumentError::TooManyRules),
        }
    }

    /// Parses an object, or a Link to it (RFC 8006, 4.3.1).
    fn next(&mut self, value: Value, depth: usize) -> Result<Next, DocumentError> {
        if let Some(href) = value.get("href") {
            let href = href.as_str().filter(|href| href.len() <= MOST_LINK_BYTES);
            let href = href.ok_or_else(|| malformed("a link without an address"))?;
            return Ok(Next::Link(href.to_owned()));
        }
        if depth >= MOST_DEPTH {
            return Err(DocumentError::TooDeep);
        }
        let matched = serde_json::from_value(value).map_err(malformed)?;
        self.matched(matched, depth + 1).map(Next::Here)
    }

    fn matched(&mut self, from: MatchedMetadata, depth: usize) -> Result<Rules, DocumentError> {
        let mut paths = Vec::new();
        for path in from.paths {
            self.one_more()?;
            let PatternMatch {
                pattern,
                case_sensitive,
                ignore_query_string,
            } = path.path_pattern;
            let pattern = Pattern::new(&pattern, case_sensitive, ignore_query_string)
                .ok_or_else(|| malformed("a path-pattern that is too long or escapes nothing"))?;
            paths.push((pattern, self.next(path.path_metadata, depth)?));
        }
        Ok(Rules {
            size_bytes: from.metadata.into_iter().find_map(size_of_objects),
            paths,
        })
    }
}

/// The size that a GenericMetadata object gives, if the object is of our type and its
/// size is plausible; objects of other types are not parsed.
fn size_of_objects(value: Value) -> Option<u64> {
    let generic: GenericMetadata = serde_json::from_value(value).ok()?;
    if generic.generic_metadata_type != OBJECT_SIZE {
        return None;
    }
    let ObjectSize { bytes } = serde_json::from_value(generic.generic_metadata_value).ok()?;
    (bytes <= MOST_OBJECT_BYTES).then_some(bytes)
}

/// What a document says of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    /// The size, if the document gives one.
    Size(Option<u64>),
    /// Another document may say more; the size so far.
    Link(&'a str, Option<u64>),
}

impl Next {
    /// The answer for a path; none once the effort is spent. Metadata of a nested path
    /// override those above it (RFC 8006, 3.3).
    pub(crate) fn say<'a>(
        &'a self,
        target: &str,
        above: Option<u64>,
        effort: &mut Effort,
    ) -> Option<Said<'a>> {
        match self {
            Next::Link(href) => Some(Said::Link(href, above)),
            Next::Here(rules) => rules.say(target, above, effort),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Next::Here(rules) => rules.bytes(),
            Next::Link(href) => href.len(),
        }
    }
}

impl Rules {
    pub(crate) fn say<'a>(
        &'a self,
        target: &str,
        above: Option<u64>,
        effort: &mut Effort,
    ) -> Option<Said<'a>> {
        let size = self.size_bytes.or(above);
        for (pattern, next) in &self.paths {
            if pattern.matches(target, effort)? {
                return next.say(target, size, effort);
            }
        }
        Some(Said::Size(size))
    }

    fn bytes(&self) -> usize {
        let of_path = |(pattern, next): &(Pattern, Next)| {
            size_of::<(Pattern, Next)>() + pattern.bytes() + next.bytes()
        };
        self.paths.iter().map(of_path).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn size(bytes: u64) -> Value {
        json!([{
            "generic-metadata-type": OBJECT_SIZE,
            "generic-metadata-value": {"bytes": bytes},
            "mandatory-to-enforce": false,
        }])
    }

    fn path(pattern: &str, metadata: Value) -> Value {
        json!({"path-pattern": {"pattern": pattern}, "path-metadata": metadata})
    }

    fn rules(value: &Value) -> Result<Rules, DocumentError> {
        match Document::rules(value.to_string().as_bytes())? {
            Document::Rules(rules) => Ok(rules),
            Document::Index(_) => panic!("no index was read"),
        }
    }

    fn said(value: &Value, target: &str) -> Option<u64> {
        let rules = rules(value).unwrap();
        match rules.say(target, None, &mut Effort(10_000)).unwrap() {
            Said::Size(size) => size,
            Said::Link(href, _) => panic!("a link to {href}"),
        }
    }

    #[test]
    fn the_deepest_object_of_the_first_path_that_matches_counts() {
        let value = json!({
            "metadata": size(1_000),
            "paths": [
                path("/movies/*", json!({
                    "metadata": size(5_000_000),
                    "paths": [path("*/trailer*", json!({"metadata": size(70_000)}))],
                })),
                path("/movies/later/*", json!({"metadata": size(1)})),
                path("/none/*", json!({"metadata": []})),
            ],
        });
        assert_eq!(said(&value, "/x"), Some(1_000));
        assert_eq!(said(&value, "/movies/later/1"), Some(5_000_000));
        assert_eq!(said(&value, "/movies/trailer.mp4"), Some(70_000));
        assert_eq!(said(&value, "/none/1"), Some(1_000));
    }

    #[test]
    fn objects_of_others_and_sizes_beyond_belief_are_left_out() {
        for wrong in [
            json!([{"generic-metadata-type": "MI.SourceMetadata", "generic-metadata-value": {}}]),
            json!([{"generic-metadata-type": OBJECT_SIZE, "generic-metadata-value": {"bytes": -1}}]),
            json!([{"generic-metadata-type": OBJECT_SIZE}]),
            json!(["x", 7]),
            size(MOST_OBJECT_BYTES + 1),
            size(u64::MAX),
        ] {
            assert_eq!(said(&json!({"metadata": wrong}), "/x"), None, "{wrong}");
        }
        let value = json!({"metadata": size(MOST_OBJECT_BYTES)});
        assert_eq!(said(&value, "/x"), Some(MOST_OBJECT_BYTES));
    }

    #[test]
    fn documents_without_end_are_refused() {
        let mut deep = json!({});
        for _ in 0..=MOST_DEPTH {
            deep = json!({"paths": [path("*", deep)]});
        }
        assert_eq!(rules(&deep), Err(DocumentError::TooDeep));
        let one = path("/x", json!({}));
        let many = json!({"paths": vec![one; MOST_RULES + 1]});
        assert_eq!(rules(&many), Err(DocumentError::TooManyRules));
        let long = " ".repeat(MOST_DOCUMENT_BYTES + 1);
        assert_eq!(
            Document::index(long.as_bytes()).err(),
            Some(DocumentError::TooLong)
        );
        let bomb = "[".repeat(100_000);
        assert!(matches!(
            Document::rules(bomb.as_bytes()),
            Err(DocumentError::Malformed(_))
        ));
        let link = json!({"paths": [path("/x", json!({"href": "x".repeat(3_000)}))]});
        assert!(matches!(rules(&link), Err(DocumentError::Malformed(_))));
    }
}
