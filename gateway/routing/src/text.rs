//! Contact plans as files: those of ION-DTN's `ionadmin`, and JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;
use time::PrimitiveDateTime;
use time::macros::format_description;

use crate::contact::{Contact, MOST_CONTACTS, Node};

/// Why a text is no contact plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct PlanError {
    /// Where, from 1 on.
    pub line: usize,
    /// What.
    pub problem: String,
}

/// A time during which the distance of two nodes is known.
struct Range {
    end_ms: u64,
    owlt_ms: u64,
}

/// Those from one node to another, by the time that they begin; they do not overlap.
type Ranges = BTreeMap<(Node, Node), BTreeMap<u64, Range>>;

/// Reads `a contact` and `a range` commands, as `ionadmin` has them:
///
/// ```text
/// a contact FROM_TIME TO_TIME FROM_NODE TO_NODE BYTES_PER_SECOND [CONFIDENCE]
/// a range FROM_TIME TO_TIME ONE_NODE OTHER_NODE LIGHT_SECONDS
/// ```
///
/// Times are `+SECONDS` after `reference_ms` (ms since the Unix epoch), or after
/// the last `@ TIME`, or `yyyy/mm/dd-hh:mm:ss` in UTC. A range holds both ways,
/// unless one from the larger to the smaller number says otherwise. Comments
/// begin with `#`. A contact's range is the one in force at its start; without
/// one it is an error. Passed over are registrations (of a node with itself, from
/// `-1` on), hypothetical contacts (until `0`) and those of a confidence of 0.
///
/// # Errors
/// The first line that is neither, and why.
pub fn read_ion(text: &str, reference_ms: u64) -> Result<Vec<Contact>, PlanError> {
    let mut reference_ms = reference_ms;
    let mut contacts: Vec<(usize, Contact)> = Vec::new();
    let mut ranges = Ranges::new();
    for (index, whole) in text.lines().enumerate() {
        let line = index + 1;
        let fail = |problem: String| PlanError { line, problem };
        let said = whole.split_once('#').map_or(whole, |(said, _)| said);
        let words: Vec<&str> = said.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["@", time] => reference_ms = moment(time, reference_ms).map_err(fail)?,
            // Who belongs to a region, or may turn up: nothing is sent by these.
            ["a", "contact", "-1", _, node, same, ..] if node == same => {}
            ["a", "contact", _, "0", ..] => {}
            ["a", "contact", start, end, from, to, rate, ref rest @ ..] => {
                let (start_ms, end_ms) = interval(start, end, reference_ms).map_err(fail)?;
                let contact = Contact {
                    from: number(from, "node").map_err(fail)?,
                    to: number(to, "node").map_err(fail)?,
                    start_ms,
                    end_ms,
                    rate_bytes_per_s: number(rate, "rate").map_err(fail)?,
                    owlt_ms: 0,
                    booked_bytes: 0,
                };
                let believed = confidence(rest).map_err(fail)?;
                if contact.rate_bytes_per_s == 0 {
                    return Err(fail("a contact's rate must not be 0".to_owned()));
                }
                if contacts.len() >= MOST_CONTACTS {
                    return Err(fail(format!("more than {MOST_CONTACTS} contacts")));
                }
                if believed && contact.from != contact.to {
                    contacts.push((line, contact));
                }
            }
            ["a", "range", start, end, one, other, light] => {
                let (start_ms, end_ms) = interval(start, end, reference_ms).map_err(fail)?;
                let nodes = (
                    number(one, "node").map_err(fail)?,
                    number(other, "node").map_err(fail)?,
                );
                let owlt_ms = number(light, "light time").map_err(fail)?;
                let owlt_ms = owlt_ms
                    .checked_mul(1_000)
                    .ok_or_else(|| fail("the light time is too long".to_owned()))?;
                let of_pair = ranges.entry(nodes).or_default();
                // Of those before its end, the last one alone may reach into it.
                let before = of_pair.range(..end_ms).next_back();
                if before.is_some_and(|(_, other)| start_ms < other.end_ms) {
                    let problem =
                        format!("another range of nodes {one} and {other} holds at that time");
                    return Err(fail(problem));
                }
                of_pair.insert(start_ms, Range { end_ms, owlt_ms });
            }
            _ => {
                let problem = format!(
                    "expected `a contact` or `a range` with all their values, not {:?}",
                    said.trim()
                );
                return Err(fail(problem));
            }
        }
    }
    place(contacts, &ranges)
}

/// Gives each contact the range in force at its start.
fn place(contacts: Vec<(usize, Contact)>, ranges: &Ranges) -> Result<Vec<Contact>, PlanError> {
    let at = |pair: (Node, Node), ms: u64| {
        let (_, range) = ranges.get(&pair)?.range(..=ms).next_back()?;
        (ms < range.end_ms).then_some(range)
    };
    let mut placed: Vec<Contact> = Vec::with_capacity(contacts.len());
    for (line, mut contact) in contacts {
        let (from, to, start_ms) = (contact.from, contact.to, contact.start_ms);
        let range = at((from, to), start_ms).or_else(|| at((to, from), start_ms));
        let Some(range) = range else {
            let problem =
                format!("no range from node {from} to node {to} holds at the contact's start");
            return Err(PlanError { line, problem });
        };
        contact.owlt_ms = range.owlt_ms;
        placed.push(contact);
    }
    Ok(placed)
}

fn number(word: &str, what: &str) -> Result<u64, String> {
    word.parse()
        .map_err(|_| format!("{what} {word:?} is no whole number"))
}

fn confidence(rest: &[&str]) -> Result<bool, String> {
    match rest {
        [] => Ok(true),
        [word] => match word.parse::<f64>() {
            Ok(value) if (0.0..=1.0).contains(&value) => Ok(value > 0.0),
            _ => Err(format!("confidence {word:?} is not between 0 and 1")),
        },
        [_, other, ..] => Err(format!("{other:?} is one value too many")),
    }
}

fn interval(start: &str, end: &str, reference_ms: u64) -> Result<(u64, u64), String> {
    let times = (moment(start, reference_ms)?, moment(end, reference_ms)?);
    if times.0 >= times.1 {
        return Err(format!("it ends ({end}) before it begins ({start})"));
    }
    Ok(times)
}

fn moment(word: &str, reference_ms: u64) -> Result<u64, String> {
    if let Some(seconds) = word.strip_prefix('+') {
        let later = number(seconds, "time")?.checked_mul(1_000);
        let moment = later.and_then(|later| reference_ms.checked_add(later));
        return moment.ok_or_else(|| format!("time {word:?} is too far"));
    }
    let format = format_description!("[year]/[month]/[day]-[hour]:[minute]:[second]");
    let time = PrimitiveDateTime::parse(word, &format);
    let time =
        time.map_err(|_| format!("time {word:?} is neither +SECONDS nor yyyy/mm/dd-hh:mm:ss"))?;
    let seconds = u64::try_from(time.assume_utc().unix_timestamp());
    seconds
        .map(|s| s * 1_000)
        .map_err(|_| format!("time {word:?} is before 1970"))
}

/// Reads `{"contacts": [{"from", "to", "start_ms", "end_ms",
/// "rate_bytes_per_s", "owlt_ms"}, …]}`, times in ms since the Unix epoch.
///
/// # Errors
/// What is wrong, with its line; for a contact that cannot be, line 0 and its
/// place in the list.
pub fn read_json(text: &str) -> Result<Vec<Contact>, PlanError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Plan {
        contacts: Vec<Contact>,
    }
    let plan: Plan = serde_json::from_str(text).map_err(|error| PlanError {
        line: error.line(),
        problem: error.to_string(),
    })?;
    for (index, contact) in plan.contacts.iter().enumerate() {
        let problem = if contact.start_ms >= contact.end_ms {
            "it ends before it begins"
        } else if contact.from == contact.to {
            "it is of a node with itself"
        } else if contact.rate_bytes_per_s == 0 {
            "its rate is 0"
        } else if index >= MOST_CONTACTS {
            "there are too many"
        } else {
            continue;
        };
        let problem = format!("contact {}: {problem}", index + 1);
        return Err(PlanError { line: 0, problem });
    }
    Ok(plan.contacts)
}
