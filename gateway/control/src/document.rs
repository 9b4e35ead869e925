//! What is posted, and what comes back (`docs/control-protocol.md`, *From the
//! hub to the control service*).

use std::fmt::Write;

use serde::Deserialize;

/// Reports in one post at most.
pub const MAX_REPORTS: usize = 1000;

/// Most bytes of reports in one post: the service takes 4 MiB in all.
pub const MAX_BYTES: usize = 3 << 20;

/// The largest answer, bytes: every report refused, with a reason.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A report in a post.
#[derive(Clone, Copy, Debug)]
pub struct Posted<'a> {
    /// Whose it is: an ipn node number.
    pub node: u64,
    /// How long ago it was made, ms.
    pub age_ms: u64,
    /// The report, as JSON.
    pub report: &'a str,
}

/// A post of `node` with these reports, sent at `sent_ms` by its clock.
pub fn post<'a>(node: u64, sent_ms: u64, reports: impl Iterator<Item = Posted<'a>>) -> String {
    let mut text = format!(r#"{{"version":1,"node":{node},"sent_ms":{sent_ms},"reports":["#);
    for (count, posted) in reports.enumerate() {
        let comma = if count == 0 { "" } else { "," };
        let Posted {
            node,
            age_ms,
            report,
        } = posted;
        // Writing to a String does not fail.
        let _ = write!(
            text,
            r#"{comma}{{"node":{node},"age_ms":{age_ms},"report":{report}}}"#
        );
    }
    text.push_str("]}");
    text
}

/// The answer to a post that was understood.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Answer {
    /// Reports taken in.
    pub accepted: usize,
    /// Those refused.
    pub refused: Vec<Refused>,
    /// When the service received the post, ms since the Unix epoch.
    pub received_ms: u64,
    /// When it answered.
    pub answered_ms: u64,
}

/// A report that the service will never take.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Refused {
    /// Its place in the post, from 0.
    pub index: usize,
    /// Why.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn post_and_answer_are_what_the_vector_shows() {
        let text = include_str!("../../../docs/vectors/control/post.json");
        let vector: Value = serde_json::from_str(text).unwrap();
        let entries = vector["post"]["reports"].as_array().unwrap();
        let reports: Vec<String> = entries.iter().map(|e| e["report"].to_string()).collect();
        let posted = entries.iter().zip(&reports).map(|(entry, report)| Posted {
            node: entry["node"].as_u64().unwrap(),
            age_ms: entry["age_ms"].as_u64().unwrap(),
            report,
        });
        let written = post(1, 1_795_230_001_000, posted);
        let written: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(written, vector["post"]);
        let answer: Answer = serde_json::from_value(vector["answer"].clone()).unwrap();
        assert_eq!((answer.accepted, answer.refused.len()), (1, 1));
        assert_eq!(answer.refused[0].index, 1);
        assert!(answer.received_ms <= answer.answered_ms);
    }

    #[test]
    fn post_of_nothing_is_one_too() {
        let written = post(1, 5, std::iter::empty());
        assert_eq!(
            written,
            r#"{"version":1,"node":1,"sent_ms":5,"reports":[]}"#
        );
    }
}
