//! gpsd's JSON protocol, version 3, from the client's side.
//!
//! After the greeting the client asks to watch, and gpsd sends one object per line: a *TPV* (time,
//! position, velocity) for each epoch, and others, which are skipped. The control service reads
//! recorded reports in the same way; both are tested with `docs/vectors/gpsd.json`.
//! <https://gpsd.gitlab.io/gpsd/gpsd_json.html>

mod objects;

use std::time::{Duration, Instant};

use crate::feed::{Counts, Event, Feed, FeedError};
use crate::lines::{Line, Lines};
use crate::sequence::Sequence;
use objects::{Object, Tpv};

/// gpsd's own bound of a line is 10,240 bytes; a later release may have a higher one.
const LINE_BYTES: usize = 64 << 10;
/// The most characters of gpsd's messages that operators see.
const WORDS: usize = 200;
/// The major version of the protocol.
const VERSION: u64 = 3;
/// After this silence gpsd is asked whether it is still there, and after as much again it counts as
/// gone: without satellites it may have nothing to send.
const SILENCE: Duration = Duration::from_secs(10);

/// A client of gpsd.
#[derive(Debug)]
pub struct Client {
    /// The receiver wanted, if gpsd has several.
    device: Option<String>,
    not_before_ms: u64,
    lines: Lines,
    sequence: Sequence,
    counts: Counts,
    heard: Instant,
    /// Whether gpsd was asked for a sign of life since.
    asked: bool,
    transmit: Vec<String>,
}

impl Client {
    /// A client of any receiver of gpsd's, or of the one at `device`; times
    /// whose day is before `not_before_ms`, UTC, ms since 1970, are those of a
    /// receiver that lost count of its weeks.
    pub fn new(now: Instant, device: Option<String>, not_before_ms: u64) -> Client {
        Client {
            device,
            not_before_ms,
            lines: Lines::new(LINE_BYTES),
            sequence: Sequence::default(),
            counts: Counts::default(),
            heard: now,
            asked: false,
            transmit: Vec::new(),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<Event>, FeedError> {
        let Ok(object) = serde_json::from_slice(line) else {
            self.counts.spoilt += 1;
            return Ok(None);
        };
        self.counts.sentences += 1;
        match object {
            Object::Version { proto_major } if proto_major != VERSION => {
                Err(FeedError::Version(proto_major))
            }
            Object::Tpv(tpv) if self.wants(tpv.device.as_deref()) => Ok(self.position(&tpv)),
            Object::Device { path, activated } if self.wants(path.as_deref()) => {
                let went = activated.as_f64() == Some(0.0);
                Ok(went.then(|| lost(path.as_deref().unwrap_or_default())))
            }
            Object::Devices { devices } => Ok(self.missing(&devices)),
            Object::Error { message } => {
                let message = words(&message);
                Ok(Some(Event::Trouble(format!("gpsd: {message}"))))
            }
            _ => Ok(None),
        }
    }

    fn wants(&self, device: Option<&str>) -> bool {
        self.device.is_none() || self.device.as_deref() == device
    }

    fn missing(&self, devices: &[objects::Device]) -> Option<Event> {
        let mut paths = devices.iter().map(|device| device.path.as_deref());
        match &self.device {
            _ if devices.is_empty() => Some(Event::Trouble("gpsd has no receiver".to_owned())),
            Some(wanted) if !paths.any(|path| path == Some(wanted)) => {
                let wanted = words(wanted);
                Some(Event::Trouble(format!("gpsd has no receiver {wanted}")))
            }
            _ => None,
        }
    }

    fn position(&mut self, tpv: &Tpv) -> Option<Event> {
        let fix = match tpv.fix(self.not_before_ms) {
            Ok(Some(fix)) => fix,
            Ok(None) => {
                self.counts.without_fix += 1;
                return Some(Event::NoFix);
            }
            Err(_) => {
                self.counts.rejected += 1;
                return None;
            }
        };
        if fix.time_ms.is_some_and(|at| !self.sequence.follows(at)) {
            self.counts.rejected += 1;
            return None;
        }
        self.counts.fixes += 1;
        Some(Event::Fix(fix))
    }
}

fn lost(path: &str) -> Event {
    Event::Trouble(format!("gpsd lost the receiver {}", words(path)))
}

/// Words of gpsd as an operator may see them.
fn words(text: &str) -> String {
    text.chars()
        .filter(|char| !char.is_control())
        .take(WORDS)
        .collect()
}

impl Feed for Client {
    fn open(&mut self, now: Instant) {
        let mut watch = serde_json::json!({ "enable": true, "json": true });
        // gpsd takes no null for a name.
        if let Some(device) = &self.device {
            watch["device"] = device.as_str().into();
        }
        *self = Client {
            counts: self.counts,
            transmit: vec![format!("?WATCH={watch};\n")],
            ..Client::new(now, self.device.take(), self.not_before_ms)
        };
    }

    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<Vec<Event>, FeedError> {
        (self.heard, self.asked) = (now, false);
        let (mut events, mut failed) = (vec![], None);
        // Taken out for the time, since each line changes the rest.
        let mut lines = std::mem::replace(&mut self.lines, Lines::new(LINE_BYTES));
        lines.push(bytes, |line| match line {
            Line::Overlong => self.counts.spoilt += 1,
            Line::Whole(_) if failed.is_some() => {}
            Line::Whole(line) => match self.line(line) {
                Ok(event) => events.extend(event),
                Err(error) => failed = Some(error),
            },
        });
        self.lines = lines;
        failed.map_or(Ok(events), Err)
    }

    fn deadline(&self) -> Instant {
        self.heard + if self.asked { 2 * SILENCE } else { SILENCE }
    }

    fn elapse(&mut self, now: Instant) -> Result<Vec<Event>, FeedError> {
        let quiet = now.saturating_duration_since(self.heard);
        if quiet >= 2 * SILENCE {
            return Err(FeedError::Silent(2 * SILENCE));
        }
        if quiet >= SILENCE && !self.asked {
            self.asked = true;
            self.transmit.push("?DEVICES;\n".to_owned());
        }
        Ok(vec![])
    }

    fn poll_transmit(&mut self) -> Option<String> {
        self.transmit.pop()
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests;
