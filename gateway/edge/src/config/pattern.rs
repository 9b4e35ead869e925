//! Names of hosts and content types in rules.

use serde::Deserialize;
use thiserror::Error;

use crate::stream::{Host, HostError};

/// A host's name, or all names below one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct HostPattern {
    /// In lower case, without a final dot.
    name: String,
    below: bool,
}

/// A content type, or all of a type.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ContentTypePattern {
    /// In lower case; if all subtypes match, it ends with the slash.
    text: String,
    whole_type: bool,
}

/// What is no pattern.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PatternError {
    /// No name of a host.
    #[error("{text:?}: {source}; \"*.\" before a name stands for all below it")]
    Host {
        /// What was given.
        text: String,
        /// What is wrong.
        source: HostError,
    },
    /// No content type.
    #[error("{0:?}: a content type is such as \"text/html\" or \"video/*\"")]
    ContentType(String),
}

impl HostPattern {
    /// Whether a name matches, in whatever case.
    pub fn matches(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        match self.below {
            false => host.eq_ignore_ascii_case(&self.name),
            true => {
                let (host, name) = (host.as_bytes(), self.name.as_bytes());
                host.len() > name.len() && {
                    let (above, tail) = host.split_at(host.len() - name.len());
                    above.ends_with(b".") && tail.eq_ignore_ascii_case(name)
                }
            }
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<HostPattern, PatternError> {
        let (bare, below) = match text.strip_prefix("*.") {
            Some(bare) => (bare, true),
            None => (text.as_str(), false),
        };
        match Host::new(bare) {
            Ok(host) => Ok(HostPattern {
                name: host.as_str().trim_end_matches('.').to_owned(),
                below,
            }),
            Err(source) => Err(PatternError::Host { text, source }),
        }
    }
}

impl ContentTypePattern {
    /// Whether a type and subtype match, in whatever case.
    pub fn matches(&self, content_type: &str) -> bool {
        match self.whole_type {
            false => content_type.eq_ignore_ascii_case(&self.text),
            true => content_type
                .get(..self.text.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(&self.text)),
        }
    }
}

impl TryFrom<String> for ContentTypePattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<ContentTypePattern, PatternError> {
        let token = |part: &str| {
            let octet = |b: u8| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b);
            !part.is_empty() && part.bytes().all(octet)
        };
        match text.split_once('/') {
            Some((kind, "*")) if token(kind) => Ok(ContentTypePattern {
                text: format!("{}/", kind.to_ascii_lowercase()),
                whole_type: true,
            }),
            Some((kind, subtype)) if token(kind) && token(subtype) => Ok(ContentTypePattern {
                text: text.to_ascii_lowercase(),
                whole_type: false,
            }),
            _ => Err(PatternError::ContentType(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HostPattern {
        text.to_owned().try_into().expect("a pattern")
    }

    fn content(text: &str) -> ContentTypePattern {
        text.to_owned().try_into().expect("a pattern")
    }

    #[test]
    fn a_name_matches_itself_and_a_star_all_below() {
        assert!(host("Example.org").matches("example.ORG."));
        assert!(!host("example.org").matches("www.example.org"));
        assert!(host("*.example.org").matches("a.b.Example.org"));
        for other in ["example.org", "badexample.org", ".org", "", "org"] {
            assert!(!host("*.example.org").matches(other), "{other}");
        }
    }

    #[test]
    fn a_type_matches_itself_and_a_star_all_of_it() {
        assert!(content("text/html").matches("Text/HTML"));
        assert!(!content("text/html").matches("text/htm"));
        assert!(content("video/*").matches("video/mp4"));
        for other in ["videos/mp4", "video", "", "v\u{ef}d\u{e9}o/mp4"] {
            assert!(!content("video/*").matches(other), "{other}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["*", "*.", "a b", "a/*", "", "10.0.0.1", "*.*.org"] {
            assert!(HostPattern::try_from(text.to_owned()).is_err(), "{text}");
        }
        for text in ["*/*", "video", "video/", "/mp4", "video/mp4; a=b", ""] {
            assert!(
                ContentTypePattern::try_from(text.to_owned()).is_err(),
                "{text}"
            );
        }
    }
}
