//! A plan whose document has been found good.

use std::collections::HashMap;

use crate::document::{CapacityStep, Direction, Document, Head, Line, State};
use crate::error::PlanError;

/// The largest document, bytes.
pub const MAX_DOCUMENT_BYTES: usize = 8 << 20;

/// Lines, and terminals in all of them, at most.
pub const MAX_TERMINALS: usize = 10_000;

/// Segments of a line at most.
pub const MAX_SEGMENTS: usize = 4096;

/// Steps of the capacity at most.
pub(crate) const MAX_STEPS: usize = 4096;

/// The longest id of a beam, bytes.
pub(crate) const MAX_BEAM_BYTES: usize = 64;

/// The highest rate, bit/s.
pub const MAX_RATE_BPS: u64 = 1_000_000_000_000;

/// The highest ipn node number of a terminal (RFC 9758 § 3.4.3).
pub(crate) const MAX_TERMINAL: u64 = 4_294_967_294;

/// The highest version of a plan: JSON's numbers are exact up to here.
pub(crate) const MAX_PLAN: u64 = (1 << 53) - 1;

/// The end of the year 9999: later times cannot be written.
pub(crate) const MAX_TIME_MS: u64 = 253_402_300_799_999;

/// The version of the format.
pub(crate) const VERSION: u64 = 1;

/// What the terminals of a beam may send on one link, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    document: Document,
    /// The line of each terminal.
    places: HashMap<u64, usize>,
}

impl Plan {
    /// Reads a document.
    ///
    /// # Errors
    /// When it is not a plan, or contradicts itself.
    pub fn decode(document: &[u8]) -> Result<Plan, PlanError> {
        if document.len() > MAX_DOCUMENT_BYTES {
            return Err(PlanError::Large(document.len()));
        }
        is_object(document)?;
        let head: Head = serde_json::from_slice(document)?;
        if head.version != VERSION {
            return Err(PlanError::Version(head.version));
        }
        Plan::of(serde_json::from_slice(document)?)
    }

    /// The document as JSON.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(&self.document).expect("names and numbers are always JSON")
    }

    pub(crate) fn of(document: Document) -> Result<Plan, PlanError> {
        if document.format != VERSION {
            return Err(PlanError::Version(document.format));
        }
        check_beam(&document.beam)?;
        if !(1..=MAX_PLAN).contains(&document.version) {
            return Err(PlanError::Plan(document.version));
        }
        let (issued_ms, start_ms, end_ms) =
            (document.issued_ms, document.start_ms, document.end_ms);
        if issued_ms > start_ms {
            return Err(PlanError::Issued {
                issued_ms,
                start_ms,
            });
        }
        if start_ms >= end_ms || end_ms > MAX_TIME_MS {
            return Err(PlanError::Span { start_ms, end_ms });
        }
        check_capacity(&document)?;
        at_most("lines", document.lines.len(), MAX_TERMINALS)?;
        let named = document.lines.iter().map(|line| line.terminals.len());
        at_most("terminals", named.sum(), MAX_TERMINALS)?;
        let mut places = HashMap::new();
        for (number, line) in document.lines.iter().enumerate() {
            check_line(&document, number, line)?;
            for terminal in &line.terminals {
                if !(1..=MAX_TERMINAL).contains(terminal) {
                    return Err(PlanError::Terminal(*terminal));
                }
                if places.insert(*terminal, number).is_some() {
                    return Err(PlanError::Twice(*terminal));
                }
            }
        }
        Ok(Plan { document, places })
    }

    pub(crate) fn document(&self) -> &Document {
        &self.document
    }

    /// The beam's name.
    pub fn beam(&self) -> &str {
        &self.document.beam
    }

    /// The link it is for.
    pub fn link(&self) -> Direction {
        self.document.link
    }

    /// Its version, which rises for each beam and link.
    pub fn version(&self) -> u64 {
        self.document.version
    }

    /// When control made it, ms since 1970-01-01 UTC.
    pub fn issued_ms(&self) -> u64 {
        self.document.issued_ms
    }

    /// The start of its validity, ms since 1970-01-01 UTC.
    pub fn start_ms(&self) -> u64 {
        self.document.start_ms
    }

    /// The end of its validity, ms since 1970-01-01 UTC.
    pub fn end_ms(&self) -> u64 {
        self.document.end_ms
    }

    /// What all terminals have together, in order.
    pub fn capacity(&self) -> &[CapacityStep] {
        &self.document.capacity
    }

    /// The lines.
    pub fn lines(&self) -> &[Line] {
        &self.document.lines
    }

    /// A terminal's line.
    pub fn line(&self, terminal: u64) -> Option<&Line> {
        let place = *self.places.get(&terminal)?;
        self.document.lines.get(place)
    }

    /// The terminals that it names, in no order.
    pub fn terminals(&self) -> impl Iterator<Item = u64> + '_ {
        self.places.keys().copied()
    }

    /// The capacity at a time, bit/s; after the end, that of the last step.
    pub fn capacity_at(&self, now_ms: u64) -> u64 {
        let steps = self.capacity();
        let begun = steps.partition_point(|step| step.from_ms <= now_ms);
        let step = steps.get(begun.saturating_sub(1));
        step.map_or(0, |step| step.rate_bps)
    }

    /// The next time after `now_ms` at which any line or the capacity
    /// changes, or the plan begins or ends; none once it is over.
    pub fn next_change(&self, now_ms: u64) -> Option<u64> {
        if now_ms < self.start_ms() {
            return Some(self.start_ms());
        }
        if self.end_ms() <= now_ms {
            return None;
        }
        let lines = self.lines().iter();
        let lines = lines.filter_map(|line| line.at(now_ms).map(|segment| segment.end_ms));
        let steps = self.capacity();
        let begun = steps.partition_point(|step| step.from_ms <= now_ms);
        let step = steps.get(begun).map(|step| step.from_ms);
        lines.chain(step).chain([self.end_ms()]).min()
    }

    /// The plan with one terminal's line only.
    pub fn part(&self, terminal: u64) -> Option<Plan> {
        let line = self.line(terminal)?;
        let document = Document {
            lines: vec![Line {
                terminals: vec![terminal],
                ..line.clone()
            }],
            beam: self.document.beam.clone(),
            capacity: self.document.capacity.clone(),
            ..self.document
        };
        Some(Plan {
            document,
            places: HashMap::from([(terminal, 0)]),
        })
    }
}

fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), PlanError> {
    match count <= most {
        true => Ok(()),
        false => Err(PlanError::Many { what, count, most }),
    }
}

/// A sequence would be read as an object without names.
pub(crate) fn is_object(text: &[u8]) -> Result<(), PlanError> {
    match text.trim_ascii_start().first() {
        None | Some(b'{') => Ok(()),
        Some(_) => Err(PlanError::NoObject),
    }
}

fn check_beam(beam: &str) -> Result<(), PlanError> {
    let of_id = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let first = beam.bytes().next().is_some_and(of_id);
    let rest = beam
        .bytes()
        .all(|byte| of_id(byte) || matches!(byte, b'-' | b'_'));
    match first && rest && beam.len() <= MAX_BEAM_BYTES {
        true => Ok(()),
        false => Err(PlanError::Beam),
    }
}

fn check_rate(what: &'static str, rate_bps: u64) -> Result<(), PlanError> {
    match rate_bps <= MAX_RATE_BPS {
        true => Ok(()),
        false => Err(PlanError::Rate { what, rate_bps }),
    }
}

fn check_capacity(document: &Document) -> Result<(), PlanError> {
    let steps = &document.capacity;
    at_most("steps of capacity", steps.len(), MAX_STEPS)?;
    let known = steps
        .first()
        .is_some_and(|first| first.from_ms <= document.start_ms);
    if !known || !steps.is_sorted_by(|a, b| a.from_ms < b.from_ms) {
        return Err(PlanError::Capacity);
    }
    steps
        .iter()
        .try_for_each(|step| check_rate("capacity", step.rate_bps))
}

fn check_line(document: &Document, number: usize, line: &Line) -> Result<(), PlanError> {
    if line.terminals.is_empty() {
        return Err(PlanError::Nobody(number));
    }
    check_rate("guaranteed_bps", line.guaranteed_bps)?;
    if line.segments.is_empty() {
        return Err(PlanError::Empty(number));
    }
    at_most("segments in a line", line.segments.len(), MAX_SEGMENTS)?;
    let mut expected_ms = document.start_ms;
    for (place, segment) in line.segments.iter().enumerate() {
        if segment.end_ms <= segment.start_ms {
            return Err(PlanError::Backwards {
                line: number,
                segment: place,
            });
        }
        if segment.start_ms != expected_ms {
            return Err(PlanError::Gap {
                line: number,
                segment: place,
                expected_ms,
            });
        }
        check_rate("rate_bps", segment.rate_bps)?;
        if segment.state == State::Blocked && segment.rate_bps > 0 {
            return Err(PlanError::BlockedRate {
                line: number,
                segment: place,
                rate_bps: segment.rate_bps,
            });
        }
        expected_ms = segment.end_ms;
    }
    match expected_ms == document.end_ms {
        true => Ok(()),
        false => Err(PlanError::End {
            line: number,
            end_ms: document.end_ms,
        }),
    }
}
