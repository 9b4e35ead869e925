//! The document, as JSON has it.

use serde::{Deserialize, Serialize};

/// Reads members so that an error names the member that contains it.
macro_rules! named {
    ($($member:ident: $type:ty),*) => {
        mod named {
            use serde::de::{Deserialize, Deserializer, Error};
            use super::*;
            $(pub fn $member<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                <$type>::deserialize(from)
                    .map_err(|error| D::Error::custom(format_args!("{}: {error}", stringify!($member))))
            })*
        }
    };
}

named!(
    version: u64,
    beam: String,
    link: Direction,
    plan: u64,
    issued_ms: u64,
    start_ms: u64,
    end_ms: u64,
    from_ms: u64,
    rate_bps: u64,
    guaranteed_bps: u64,
    state: State,
    capacity: Vec<CapacityStep>,
    lines: Vec<Line>,
    terminals: Vec<u64>,
    segments: Vec<Segment>
);

/// The direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the hub to the terminals: the hub sends.
    Forward,
    /// From the terminals to the hub: each terminal sends.
    Return,
}

impl Direction {
    /// Its name in documents, API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Forward => "forward",
            Direction::Return => "return",
        }
    }
}

/// How a segment's rate compares with the terminal's fair share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As much as it.
    Fair,
    /// More: it is repaid later.
    Borrowing,
    /// Less: it comes back later.
    Lending,
    /// Less: what was borrowed goes back.
    Repaying,
    /// More: what was lent comes back.
    Repaid,
    /// Nothing: there is no line of sight.
    Blocked,
}

impl State {
    /// Its name in documents, API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            State::Fair => "fair",
            State::Borrowing => "borrowing",
            State::Lending => "lending",
            State::Repaying => "repaying",
            State::Repaid => "repaid",
            State::Blocked => "blocked",
        }
    }
}

/// The link's capacity from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityStep {
    /// From here on, ms since 1970-01-01 UTC.
    #[serde(deserialize_with = "named::from_ms")]
    pub from_ms: u64,
    /// Bit/s of IP bytes.
    #[serde(deserialize_with = "named::rate_bps")]
    pub rate_bps: u64,
}

/// One rate for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// It begins, ms since 1970-01-01 UTC, as a time of sending.
    #[serde(deserialize_with = "named::start_ms")]
    pub start_ms: u64,
    /// It is over.
    #[serde(deserialize_with = "named::end_ms")]
    pub end_ms: u64,
    /// Bit/s of IP bytes.
    #[serde(deserialize_with = "named::rate_bps")]
    pub rate_bps: u64,
    /// What the rate is for.
    #[serde(deserialize_with = "named::state")]
    pub state: State,
}

/// What terminals of equal allocation get, each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Their ipn node numbers.
    #[serde(deserialize_with = "named::terminals")]
    pub terminals: Vec<u64>,
    /// The rate without contact, after the plan's end, and when heard in a
    /// planned blockage, bit/s of IP bytes.
    #[serde(deserialize_with = "named::guaranteed_bps")]
    pub guaranteed_bps: u64,
    /// Without gaps, from the plan's start to its end.
    #[serde(deserialize_with = "named::segments")]
    pub segments: Vec<Segment>,
}

impl Line {
    /// The segment at a time within the plan.
    pub fn at(&self, now_ms: u64) -> Option<&Segment> {
        let passed = self
            .segments
            .partition_point(|segment| segment.end_ms <= now_ms);
        let segment = self.segments.get(passed)?;
        (segment.start_ms <= now_ms).then_some(segment)
    }

    /// When it is without line of sight, as (entry, exit) in ms; adjacent intervals are joined.
    pub fn blockages(&self) -> Vec<(u64, u64)> {
        let mut blockages: Vec<(u64, u64)> = Vec::new();
        let blocked = self.segments.iter();
        for segment in blocked.filter(|segment| segment.state == State::Blocked) {
            match blockages.last_mut() {
                Some((_, exit)) if *exit == segment.start_ms => *exit = segment.end_ms,
                _ => blockages.push((segment.start_ms, segment.end_ms)),
            }
        }
        blockages
    }
}

/// The whole document. Unknown members are ignored, since a later control
/// service may add some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Document {
    /// The version of the format.
    #[serde(rename = "version", deserialize_with = "named::version")]
    pub format: u64,
    #[serde(deserialize_with = "named::beam")]
    pub beam: String,
    #[serde(deserialize_with = "named::link")]
    pub link: Direction,
    /// The plan's own version.
    #[serde(rename = "plan", deserialize_with = "named::plan")]
    pub version: u64,
    #[serde(deserialize_with = "named::issued_ms")]
    pub issued_ms: u64,
    #[serde(deserialize_with = "named::start_ms")]
    pub start_ms: u64,
    #[serde(deserialize_with = "named::end_ms")]
    pub end_ms: u64,
    #[serde(deserialize_with = "named::capacity")]
    pub capacity: Vec<CapacityStep>,
    #[serde(deserialize_with = "named::lines")]
    pub lines: Vec<Line>,
}

/// Read before the rest, to distinguish a later version from invalid data.
#[derive(Deserialize)]
pub(crate) struct Head {
    #[serde(deserialize_with = "named::version")]
    pub version: u64,
}
