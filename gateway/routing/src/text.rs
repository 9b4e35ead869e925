//! Contact plans as files: the format of ION-DTN's `ionadmin`, and JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;
use time::PrimitiveDateTime;
use time::macros::format_description;

use crate::contact::{Contact, MOST_CONTACTS, Node};

/// Why a text is not a contact plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct PlanError {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong there.
    pub problem: String,
}

/// An interval during which the distance of two nodes is known.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    end_ms: u64,
    owlt_ms: u64,
}

/// The ranges of one pair of nodes by start; they do not overlap.
type OfPair = BTreeMap<u64, Range>;

/// The ranges from one node to another.
type Ranges = BTreeMap<(Node, Node), OfPair>;

/// Sender, receiver, start and line.
type Key = (Node, Node, u64, usize);

/// Reads the commands of `ionadmin` that make a contact plan:
///
/// ```text
/// a contact FROM_TIME TO_TIME FROM_NODE TO_NODE BYTES_PER_SECOND [CONFIDENCE]
/// c contact FROM_TIME FROM_NODE TO_NODE BYTES_PER_SECOND [CONFIDENCE]
/// d contact FROM_TIME|* FROM_NODE TO_NODE
/// a range FROM_TIME TO_TIME ONE_NODE OTHER_NODE LIGHT_SECONDS [CONFIDENCE]
/// d range FROM_TIME|* ONE_NODE OTHER_NODE
/// ```
///
/// Times are `+SECONDS` after `reference_ms` (ms since the Unix epoch) or after the last
/// `@ TIME` (`@ 0` is the present, that is `reference_ms` again), or `yyyy/mm/dd-hh:mm:ss` in
/// UTC. A range from the smaller to the larger node number holds in both directions, unless
/// another range is given for the reverse direction; a range from the larger to the smaller number
/// holds in that direction only (ionrc(5)). Comments begin with `#`.
///
/// A contact gets the light time of the ranges that hold during it, and is split where
/// that changes; a contact without any range is an error. Ignored are registrations (a
/// node with itself, from `-1` on), hypothetical contacts (from or until `0`), contacts of
/// confidence 0, the confidence of ranges, commands for other purposes, and, between
/// `## begin` and `## end`, commands for programs other than `ionadmin`.
///
/// # Errors
/// The first line that cannot be understood or that contradicts another, and why.
pub fn read_ion(text: &str, reference_ms: u64) -> Result<Vec<Contact>, PlanError> {
    let mut commands = Commands {
        present_ms: reference_ms,
        reference_ms,
        contacts: BTreeMap::new(),
        ranges: Ranges::new(),
    };
    let mut for_others = false;
    for (index, whole) in text.lines().enumerate() {
        let line = index + 1;
        let marked: Vec<&str> = whole.split_whitespace().take(3).collect();
        match marked[..] {
            ["##", "begin", program] => for_others = program != "ionadmin",
            ["##", "end", _] => for_others = false,
            _ if for_others => {}
            _ => {
                let said = whole.split_once('#').map_or(whole, |(said, _)| said);
                let taken = commands.take(line, said);
                taken.map_err(|problem| PlanError { line, problem })?;
            }
        }
    }
    place(commands.contacts, &commands.ranges)
}

/// The result of the commands so far.
struct Commands {
    present_ms: u64,
    reference_ms: u64,
    contacts: BTreeMap<Key, Contact>,
    ranges: Ranges,
}

impl Commands {
    fn take(&mut self, line: usize, said: &str) -> Result<(), String> {
        let words: Vec<&str> = said.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["@", "0"] => self.reference_ms = self.present_ms,
            ["@", time] => self.reference_ms = moment(time, self.reference_ms)?,
            // Registrations and hypothetical contacts: nothing is sent in these.
            ["a", "contact", "-1", _, node, same, ..] if node == same => {}
            ["a", "contact", "0", ..]
            | ["a", "contact", _, "0", ..]
            | ["d", "contact", "-1" | "0", _, _] => {}
            ["a", "contact", start, end, from, to, rate, ref rest @ ..] => {
                let (start_ms, end_ms) = interval(start, end, self.reference_ms)?;
                let contact = Contact {
                    from: number(from, "node")?,
                    to: number(to, "node")?,
                    start_ms,
                    end_ms,
                    rate_bytes_per_s: rate_bytes_per_s(rate)?,
                    owlt_ms: 0,
                    booked_bytes: 0,
                };
                let believed = confidence(rest)?;
                if self.contacts.len() >= MOST_CONTACTS {
                    return Err(format!("more than {MOST_CONTACTS} contacts"));
                }
                if believed && contact.from != contact.to {
                    self.add(line, contact)?;
                }
            }
            ["c", "contact", start, from, to, rate, ref rest @ ..] => {
                let rate_bytes_per_s = rate_bytes_per_s(rate)?;
                let keys = self.keys(Some(start), from, to)?;
                if keys.is_empty() {
                    return Err(format!("no contact of {from} to {to} begins at {start}"));
                }
                let believed = confidence(rest)?;
                for key in keys {
                    match self.contacts.get_mut(&key).filter(|_| believed) {
                        Some(contact) => contact.rate_bytes_per_s = rate_bytes_per_s,
                        None => drop(self.contacts.remove(&key)),
                    }
                }
            }
            // Deleting a contact that does not exist is not an error.
            ["d", "contact", start, from, to] => {
                for key in self.keys((start != "*").then_some(start), from, to)? {
                    self.contacts.remove(&key);
                }
            }
            ["a", "range", start, end, one, other, light, ref rest @ ..] => {
                // ionadmin takes a confidence here, too, and does not use it.
                confidence(rest)?;
                let (start_ms, end_ms) = interval(start, end, self.reference_ms)?;
                let nodes = (number(one, "node")?, number(other, "node")?);
                let owlt_ms = number(light, "light time")?.checked_mul(1_000);
                let owlt_ms = owlt_ms.ok_or("the light time is too long")?;
                let range = Range { end_ms, owlt_ms };
                let of_pair = self.ranges.entry(nodes).or_default();
                // Only the last of the ranges that begin before its end can overlap it.
                let before = of_pair.range(..end_ms).next_back();
                let reaches = before.is_some_and(|(_, other)| start_ms < other.end_ms);
                if reaches && of_pair.get(&start_ms) != Some(&range) {
                    return Err(format!(
                        "another range of nodes {one} and {other} holds at that time"
                    ));
                }
                of_pair.insert(start_ms, range);
            }
            ["d", "range", start, one, other] => {
                let nodes = (number(one, "node")?, number(other, "node")?);
                if start == "*" {
                    self.ranges.remove(&nodes);
                } else {
                    let start_ms = moment(start, self.reference_ms)?;
                    if let Some(of_pair) = self.ranges.get_mut(&nodes) {
                        of_pair.remove(&start_ms);
                    }
                }
            }
            // Other commands of a node's file do not say who can send to whom.
            [
                "1" | "s" | "x" | "v" | "h" | "?" | "q" | "e" | "w" | "t" | "r" | "m" | "l" | "i"
                | "b" | "!" | "^",
                ..,
            ] => {}
            _ => {
                return Err(format!(
                    "expected `a contact` or `a range` with all their values, not {:?}",
                    said.trim()
                ));
            }
        }
        Ok(())
    }

    /// Adds a contact, unless it exists already.
    fn add(&mut self, line: usize, contact: Contact) -> Result<(), String> {
        let (from, to) = (contact.from, contact.to);
        let before = (from, to, 0, 0)..(from, to, contact.end_ms, 0);
        // Only the last of the contacts that begin before its end can overlap it.
        let last = self.contacts.range(before).next_back();
        match last.filter(|(_, other)| contact.start_ms < other.end_ms) {
            Some((_, other)) if *other == contact => {}
            Some(_) => {
                return Err(format!(
                    "another contact of {from} to {to} holds at that time"
                ));
            }
            None => drop(
                self.contacts
                    .insert((from, to, contact.start_ms, line), contact),
            ),
        }
        Ok(())
    }

    /// The contacts from one node to another that begin at `start`; all of them without
    /// `start`.
    fn keys(&self, start: Option<&str>, from: &str, to: &str) -> Result<Vec<Key>, String> {
        let (from, to) = (number(from, "node")?, number(to, "node")?);
        let (first_ms, last_ms) = match start {
            Some(start) => {
                let start_ms = moment(start, self.reference_ms)?;
                (start_ms, start_ms)
            }
            None => (0, u64::MAX),
        };
        let keys = (from, to, first_ms, 0)..=(from, to, last_ms, usize::MAX);
        Ok(self.contacts.range(keys).map(|(key, _)| *key).collect())
    }
}

/// Gives each contact the light times of the ranges that hold during it; keeps the order
/// of the lines.
fn place(contacts: BTreeMap<Key, Contact>, ranges: &Ranges) -> Result<Vec<Contact>, PlanError> {
    let contacts = contacts.into_iter();
    let mut in_order: Vec<(usize, Contact)> = contacts
        .map(|((.., line), contact)| (line, contact))
        .collect();
    in_order.sort_unstable_by_key(|(line, _)| *line);
    let mut placed: Vec<Contact> = Vec::with_capacity(in_order.len());
    for (line, contact) in in_order {
        let fail = |problem: String| PlanError { line, problem };
        let before = placed.len();
        let mut from_ms = contact.start_ms;
        while let Some(part) = part(&contact, from_ms, ranges) {
            from_ms = part.end_ms;
            let last = placed[before..].last_mut();
            let last =
                last.filter(|last| (last.end_ms, last.owlt_ms) == (part.start_ms, part.owlt_ms));
            if let Some(last) = last {
                last.end_ms = part.end_ms;
                continue;
            }
            if placed.len() >= MOST_CONTACTS {
                return Err(fail(format!("more than {MOST_CONTACTS} contacts")));
            }
            placed.push(part);
        }
        if placed.len() == before {
            let (from, to) = (contact.from, contact.to);
            let problem =
                format!("no range from node {from} to node {to} holds during the contact");
            return Err(fail(problem));
        }
    }
    Ok(placed)
}

/// The first part of a contact from `from_ms` on during which one range holds.
fn part(contact: &Contact, from_ms: u64, ranges: &Ranges) -> Option<Contact> {
    let (from, to) = (contact.from, contact.to);
    let own = ranges.get(&(from, to));
    let own = own.and_then(|own| next_range(own, from_ms));
    let back = ranges.get(&(to, from)).filter(|_| to < from);
    let back = back.and_then(|back| next_range(back, from_ms));
    let (start_ms, end_ms, owlt_ms) = match (own, back) {
        (Some((own_ms, _)), Some((start_ms, range))) if start_ms < own_ms => {
            (start_ms, range.end_ms.min(own_ms), range.owlt_ms)
        }
        (Some((start_ms, range)), _) | (None, Some((start_ms, range))) => {
            (start_ms, range.end_ms, range.owlt_ms)
        }
        (None, None) => return None,
    };
    let end_ms = end_ms.min(contact.end_ms);
    (start_ms < end_ms).then(|| Contact {
        start_ms,
        end_ms,
        owlt_ms,
        ..contact.clone()
    })
}

/// The range that holds at `from_ms`, or else the first one after it; and from when on.
fn next_range(of_pair: &OfPair, from_ms: u64) -> Option<(u64, &Range)> {
    let before = of_pair.range(..=from_ms).next_back();
    let holds = before.filter(|(_, range)| from_ms < range.end_ms);
    let (start_ms, range) = holds.or_else(|| of_pair.range(from_ms..).next())?;
    Some((from_ms.max(*start_ms), range))
}

fn rate_bytes_per_s(word: &str) -> Result<u64, String> {
    match number(word, "rate")? {
        0 => Err("a contact's rate must not be 0".to_owned()),
        rate => Ok(rate),
    }
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
/// When the text is not such JSON, with the line; for a contact that is impossible, line
/// 0 and the contact's index in the list.
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
