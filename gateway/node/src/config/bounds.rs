//! What must hold of any number and any text of the configuration.

use std::ops::RangeInclusive;

use toml::{Table, Value};

/// Texts are names, addresses and paths: the longest path of Linux, with its NUL.
const LONGEST_TEXT_BYTES: usize = 4_096;
/// Error messages show at most this much of a text.
const SHOWN_CHARS: usize = 40;
/// Ten years, s: a longer time is a mistake.
pub(super) const TEN_YEARS_S: u64 = 10 * 365 * 86_400;
/// More bytes than any disk or memory of a node has: a pebibyte.
pub(super) const MOST_BYTES: u64 = 1 << 50;

/// Reports a number that is beyond its bounds.
pub(super) fn check_within(
    key: &str,
    value: impl TryInto<u64>,
    bounds: RangeInclusive<u64>,
    problems: &mut Vec<String>,
) {
    let value = value.try_into().unwrap_or(u64::MAX);
    if !bounds.contains(&value) {
        let (least, most) = bounds.into_inner();
        problems.push(format!("{key} = {value}: must be {least} to {most}"));
    }
}

/// Reports each text that is empty, too long, or has control characters: a path must not contain
/// NUL, and a name with a line feed would break the line in which it is shown.
pub(super) fn check_texts(table: &Table, problems: &mut Vec<String>) {
    for (key, value) in table {
        check_text(key, value, problems);
    }
}

fn check_text(key: &str, value: &Value, problems: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let wrong = if text.is_empty() {
                "must not be empty; leave the key out for its default"
            } else if text.len() > LONGEST_TEXT_BYTES {
                "is too long"
            } else if text.contains(char::is_control) {
                "must not have control characters"
            } else {
                return;
            };
            let shown: String = text.chars().take(SHOWN_CHARS).collect();
            problems.push(format!("{key} = {shown:?}: {wrong}"));
        }
        Value::Array(values) => values.iter().for_each(|one| check_text(key, one, problems)),
        Value::Table(table) => {
            for (name, value) in table {
                check_text(&format!("{key}.{name}"), value, problems);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_its_bounds_is_told_with_them() {
        let mut problems = Vec::new();
        for value in [1, 10] {
            check_within("a.b", value, 1..=10, &mut problems);
        }
        assert!(problems.is_empty(), "{problems:?}");
        check_within("a.b", 0_usize, 1..=10, &mut problems);
        check_within("a.b", u64::MAX, 1..=10, &mut problems);
        let told = [
            "a.b = 0: must be 1 to 10",
            "a.b = 18446744073709551615: must be 1 to 10",
        ];
        assert_eq!(problems, told);
    }

    #[test]
    fn texts_are_held_wherever_they_are() {
        let text = format!(
            "a = \"\"\n[b]\nc = [\"right\", \"a\\nb\"]\n[[d]]\ne = \"/x\\u0000\"\nf = \"{}\"\n",
            "x".repeat(LONGEST_TEXT_BYTES + 1)
        );
        let mut problems = Vec::new();
        check_texts(&text.parse().unwrap(), &mut problems);
        assert_eq!(problems.len(), 4, "{problems:?}");
        for (key, wrong) in [
            ("a = \"\"", "empty"),
            ("b.c = \"a\\nb\"", "control"),
            ("d.e = \"/x\\0\"", "control"),
            ("d.f = \"xxx", "too long"),
        ] {
            let is_told = |told: &String| told.starts_with(key) && told.contains(wrong);
            assert!(problems.iter().any(is_told), "{key}: {problems:?}");
        }
    }
}
