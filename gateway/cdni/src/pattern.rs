//! PatternMatch (RFC 8006, 4.1.5).

/// The length of the longest pattern that is accepted, bytes.
pub(crate) const MOST_PATTERN_BYTES: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    parts: Vec<Part>,
    case_sensitive: bool,
    ignores_query: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Byte(u8),
    /// `?`: any one byte.
    One,
    /// `*`: any number of any bytes.
    Any,
}

/// The remaining steps that comparing patterns may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort(pub(crate) u32);

impl Pattern {
    /// Parses a pattern; none if it is too long, or has a `$` that escapes nothing.
    pub(crate) fn new(text: &str, case_sensitive: bool, ignores_query: bool) -> Option<Pattern> {
        if text.len() > MOST_PATTERN_BYTES {
            return None;
        }
        let mut parts = Vec::with_capacity(text.len());
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            parts.push(match byte {
                b'$' => match bytes.next() {
                    Some(escaped @ (b'$' | b'*' | b'?')) => Part::Byte(escaped),
                    _ => return None,
                },
                b'*' => Part::Any,
                b'?' => Part::One,
                // Only ASCII letters have a case here, in names and in percent-encoding.
                plain if case_sensitive => Part::Byte(plain),
                plain => Part::Byte(plain.to_ascii_lowercase()),
            });
        }
        Some(Pattern {
            parts,
            case_sensitive,
            ignores_query,
        })
    }

    /// Whether a path with its query matches; none once the effort is spent.
    pub(crate) fn matches(&self, target: &str, effort: &mut Effort) -> Option<bool> {
        let target = match target.split_once('?') {
            Some((path, _)) if self.ignores_query => path,
            _ => target,
        };
        let text = target.as_bytes();
        let (mut at, mut part) = (0, 0);
        // Where matching resumes if the text behind the last `*` does not match.
        let mut again: Option<(usize, usize)> = None;
        loop {
            effort.0 = effort.0.checked_sub(1)?;
            match (self.parts.get(part), text.get(at)) {
                (None, None) => return Some(true),
                (Some(Part::Any), _) => {
                    again = Some((at, part));
                    part += 1;
                    continue;
                }
                (Some(Part::One), Some(_)) => {
                    (at, part) = (at + 1, part + 1);
                    continue;
                }
                (Some(Part::Byte(wanted)), Some(byte)) if self.is_same(*wanted, *byte) => {
                    (at, part) = (at + 1, part + 1);
                    continue;
                }
                _ => {}
            }
            let Some((from, star)) = again else {
                return Some(false);
            };
            if from >= text.len() {
                return Some(false);
            }
            again = Some((from + 1, star));
            (at, part) = (from + 1, star + 1);
        }
    }

    fn is_same(&self, wanted: u8, byte: u8) -> bool {
        match self.case_sensitive {
            true => wanted == byte,
            false => wanted == byte.to_ascii_lowercase(),
        }
    }

    /// The memory that it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.len() * size_of::<Part>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, target: &str) -> bool {
        let pattern = Pattern::new(pattern, false, false).expect("a pattern");
        let matched = pattern.matches(target, &mut Effort(100_000));
        matched.expect("little effort")
    }

    #[test]
    fn wildcards_match_as_the_rfc_says() {
        for (pattern, target) in [
            ("/movies/*", "/movies/"),
            ("/movies/*", "/Movies/a/b.mp4"),
            ("*/b?.mp4", "/movies/a/b1.mp4"),
            ("/a$*b$?$$", "/a*b?$"),
            ("*", ""),
            ("/a*c*e", "/abcbce"),
        ] {
            assert!(matches(pattern, target), "{pattern} {target}");
        }
        for (pattern, target) in [
            ("/movies/*", "/movie"),
            ("/b?.mp4", "/b.mp4"),
            ("/a$*", "/ab"),
            ("/a*c", "/abcd"),
            ("/a", "/a?x=1"),
        ] {
            assert!(!matches(pattern, target), "{pattern} {target}");
        }
    }

    #[test]
    fn case_and_query_count_as_they_are_told_to() {
        let mut effort = Effort(1_000);
        let strict = Pattern::new("/A", true, true).unwrap();
        assert_eq!(strict.matches("/A?x=1", &mut effort), Some(true));
        assert_eq!(strict.matches("/a", &mut effort), Some(false));
    }

    #[test]
    fn a_dollar_that_escapes_nothing_is_no_pattern() {
        for wrong in ["/a$", "/a$b", &"x".repeat(MOST_PATTERN_BYTES + 1)] {
            assert_eq!(Pattern::new(wrong, false, false), None, "{wrong}");
        }
    }

    #[test]
    fn a_pattern_that_is_made_to_be_slow_spends_its_effort() {
        let pattern = Pattern::new(&"*a".repeat(500), false, false).unwrap();
        let mut effort = Effort(10_000);
        let target = "b".repeat(100_000);
        assert_eq!(pattern.matches(&target, &mut effort), None);
    }

    /// Matches by the definition, however long that takes.
    fn plainly(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| plainly(rest, &text[skip..])),
            ([b'?', rest @ ..], [_, more @ ..]) => plainly(rest, more),
            ([wanted, rest @ ..], [byte, more @ ..]) => wanted == byte && plainly(rest, more),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_matches_what_its_definition_does(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let expected = plainly(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(&pattern, &text), expected);
        }
    }
}
