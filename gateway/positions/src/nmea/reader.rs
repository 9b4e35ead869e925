//! Sentences of one epoch make one fix.

use super::fields::{long_date, place, scaled, short_date, time_of_day};
use super::sentence::{Sentence, SentenceError};
use crate::calendar::{DAY_MS, roll_on};
use crate::feed::{Counts, Event};
use crate::fix::{ESTIMATED_M, Fix};
use crate::sequence::Sequence;

const KNOTS: f64 = 1852.0 / 3600.0;
const KMH: f64 = 1.0 / 3.6;
/// A dilution of precision of 1 is this error across the ground, m, one
/// standard deviation.
const RANGE_ERROR_M: f64 = 3.0;
/// A time of day that falls back further than this, µs, has passed midnight.
const MIDNIGHT_MICROS: u64 = 43_200_000_000;

/// What the sentences of one time of day have said so far.
#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    /// µs since midnight.
    time_of_day: u64,
    place: Option<(f64, f64)>,
    valid: Option<bool>,
    altitude_m: Option<f64>,
    speed_mps: Option<f64>,
    heading_deg: Option<f64>,
    accuracy_m: Option<f64>,
    /// Its fix is made; further sentences of it come too late.
    closed: bool,
}

/// Makes fixes of lines.
///
/// The date comes from RMC or ZDA; a fix before the first one has no time. A date before
/// `not_before_ms` counts as one whose week number rolled over.
#[derive(Debug)]
pub struct Reader {
    not_before_ms: u64,
    midnight_ms: Option<u64>,
    epoch: Option<Epoch>,
    sequence: Sequence,
    counts: Counts,
    ready: Vec<Event>,
    /// A sentence has come for an epoch that was closed.
    late: bool,
}

impl Reader {
    /// A reader that takes days before `not_before_ms`, UTC, ms since 1970,
    /// for those of a receiver that lost count of its weeks.
    pub fn new(not_before_ms: u64) -> Reader {
        Reader {
            not_before_ms,
            midnight_ms: None,
            epoch: None,
            sequence: Sequence::default(),
            counts: Counts::default(),
            ready: Vec::new(),
            late: false,
        }
    }

    /// Forgets what was said, as after a break; counts go on.
    pub fn restart(&mut self) {
        *self = Reader {
            counts: self.counts,
            ..Reader::new(self.not_before_ms)
        };
    }

    /// What became of the sentences.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes a line.
    pub fn line(&mut self, line: &[u8]) {
        let Ok(read) = Sentence::parse(line) else {
            self.counts.spoilt += u64::from(!line.trim_ascii().is_empty());
            return;
        };
        self.counts.sentences += 1;
        let outcome = match read.kind {
            "RMC" => self.rmc(&read),
            "GGA" => self.gga(&read),
            "GNS" => self.gns(&read),
            "GLL" => self.gll(&read),
            "GST" => self.gst(&read),
            "VTG" => {
                self.vtg(&read);
                Ok(())
            }
            "ZDA" => self.zda(&read),
            _ => Ok(()),
        };
        self.counts.rejected += u64::from(outcome.is_err());
    }

    /// Counts a line that was too long to be taken.
    pub fn overlong(&mut self) {
        self.counts.spoilt += 1;
    }

    /// The present epoch is probably over: its sentences come together, and then nothing until the
    /// next one.
    pub fn finish(&mut self) {
        self.close();
    }

    /// Whether sentences of an epoch have come whose fix is not made.
    pub fn is_open(&self) -> bool {
        self.epoch.is_some_and(|epoch| !epoch.closed)
    }

    /// Whether a sentence has come since for an epoch that was considered over.
    pub fn take_late(&mut self) -> bool {
        std::mem::take(&mut self.late)
    }

    /// What the lines have made.
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.ready)
    }

    fn rmc(&mut self, read: &Sentence<'_>) -> Result<(), SentenceError> {
        self.at(read.field(0))?;
        if !read.field(8).is_empty() {
            self.date(short_date(read.field(8))?);
        }
        let mode = read.field(11);
        self.learn(Epoch {
            place: place(read, 2)?,
            valid: Some(read.field(1) == "A" && is_measured(mode)),
            accuracy_m: (mode == "E").then_some(ESTIMATED_M),
            speed_mps: scaled(read.field(6), KNOTS),
            heading_deg: course(read.field(7)),
            ..Epoch::default()
        });
        Ok(())
    }

    fn gga(&mut self, read: &Sentence<'_>) -> Result<(), SentenceError> {
        self.at(read.field(0))?;
        let quality = read.field(5);
        let dilution = scaled(read.field(7), RANGE_ERROR_M);
        self.learn(Epoch {
            place: place(read, 1)?,
            // 7 is typed in and 8 simulated: neither is a fix. 6 is dead
            // reckoning; the others see satellites.
            valid: Some(match quality {
                "1" | "2" | "3" | "4" | "5" => sees_satellites(read),
                _ => quality == "6",
            }),
            accuracy_m: if quality == "6" {
                Some(ESTIMATED_M)
            } else {
                dilution
            },
            altitude_m: altitude(read),
            ..Epoch::default()
        });
        Ok(())
    }

    fn gns(&mut self, read: &Sentence<'_>) -> Result<(), SentenceError> {
        self.at(read.field(0))?;
        // One letter for each system: autonomous, differential, precise, real
        // time kinematic or float. A place of dead reckoning alone has E.
        let modes = read.field(5);
        let measured = modes.contains(['A', 'D', 'P', 'R', 'F']);
        let estimated = !measured && modes.contains('E');
        let measured = measured && sees_satellites(read);
        let dilution = scaled(read.field(7), RANGE_ERROR_M);
        self.learn(Epoch {
            place: place(read, 1)?,
            valid: Some(measured || estimated),
            accuracy_m: if estimated {
                Some(ESTIMATED_M)
            } else {
                dilution
            },
            altitude_m: altitude(read),
            ..Epoch::default()
        });
        Ok(())
    }

    fn gll(&mut self, read: &Sentence<'_>) -> Result<(), SentenceError> {
        self.at(read.field(4))?;
        let mode = read.field(6);
        self.learn(Epoch {
            place: place(read, 0)?,
            valid: Some(read.field(5) == "A" && is_measured(mode)),
            accuracy_m: (mode == "E").then_some(ESTIMATED_M),
            ..Epoch::default()
        });
        Ok(())
    }

    fn gst(&mut self, read: &Sentence<'_>) -> Result<(), SentenceError> {
        self.at(read.field(0))?;
        let both = scaled(read.field(5), 1.0).zip(scaled(read.field(6), 1.0));
        self.learn(Epoch {
            accuracy_m: both.map(|(north, east)| ((north * north + east * east) / 2.0).sqrt()),
            ..Epoch::default()
        });
        Ok(())
    }

    /// It has no time of its own: it belongs to the epoch that is open.
    fn vtg(&mut self, read: &Sentence<'_>) {
        let kmh = scaled(read.field(6), KMH);
        let knots = scaled(read.field(4), KNOTS);
        self.learn(Epoch {
            speed_mps: kmh.or(knots),
            heading_deg: course(read.field(0)),
            ..Epoch::default()
        });
    }

    fn zda(&mut self, read: &Sentence<'_>) -> Result<(), SentenceError> {
        self.at(read.field(0))?;
        if let Some(midnight) = long_date(read, 1)? {
            self.date(midnight);
        }
        Ok(())
    }

    /// Turns to the epoch of a time of day; the one before is over.
    fn at(&mut self, text: &str) -> Result<(), SentenceError> {
        let time_of_day = time_of_day(text)?;
        let before = self.epoch.map(|epoch| epoch.time_of_day);
        if before == Some(time_of_day) {
            return Ok(());
        }
        self.close();
        let fell_back = before.is_some_and(|before| before > time_of_day + MIDNIGHT_MICROS);
        if let Some(midnight) = self.midnight_ms.as_mut().filter(|_| fell_back) {
            *midnight += DAY_MS;
        }
        self.epoch = Some(Epoch {
            time_of_day,
            ..Epoch::default()
        });
        Ok(())
    }

    fn date(&mut self, midnight_ms: u64) {
        self.midnight_ms = Some(roll_on(midnight_ms, self.not_before_ms));
    }

    fn learn(&mut self, said: Epoch) {
        let Some(epoch) = self.epoch.as_mut().filter(|epoch| !epoch.closed) else {
            self.late = self.epoch.is_some();
            return;
        };
        // One sentence that says there is no fix outweighs one that repeats
        // the last place.
        epoch.valid = match (epoch.valid, said.valid) {
            (Some(before), Some(now)) => Some(before && now),
            (before, now) => before.or(now),
        };
        epoch.place = said.place.or(epoch.place);
        epoch.altitude_m = said.altitude_m.or(epoch.altitude_m);
        epoch.speed_mps = said.speed_mps.or(epoch.speed_mps);
        epoch.heading_deg = said.heading_deg.or(epoch.heading_deg);
        epoch.accuracy_m = said.accuracy_m.or(epoch.accuracy_m);
    }

    fn close(&mut self) {
        let Some(epoch) = self.epoch.as_mut().filter(|epoch| !epoch.closed) else {
            return;
        };
        epoch.closed = true;
        let epoch = *epoch;
        let Some(valid) = epoch.valid else {
            return;
        };
        let Some((longitude, latitude)) = epoch.place.filter(|_| valid) else {
            self.counts.without_fix += 1;
            self.ready.push(Event::NoFix);
            return;
        };
        let of_day_ms = (epoch.time_of_day + 500) / 1000;
        let fix = Fix {
            time_ms: self.midnight_ms.map(|midnight| midnight + of_day_ms),
            longitude,
            latitude,
            altitude_m: epoch.altitude_m,
            speed_mps: epoch.speed_mps,
            heading_deg: epoch.heading_deg,
            accuracy_m: epoch.accuracy_m,
        };
        match fix.checked() {
            Ok(fix) if fix.time_ms.is_none_or(|at| self.sequence.follows(at)) => {
                self.counts.fixes += 1;
                self.ready.push(Event::Fix(fix));
            }
            _ => self.counts.rejected += 1,
        }
    }
}

/// Whether the position of GGA or GNS is from satellites, and not a repetition of the last one.
fn sees_satellites(read: &Sentence<'_>) -> bool {
    !matches!(read.field(6), "0" | "00")
}

/// A course over ground, degrees. An invalid one is left out without losing the fix.
fn course(text: &str) -> Option<f64> {
    scaled(text, 1.0).filter(|degrees| (0.0..=360.0).contains(degrees))
}

/// A mode means a place, but for none, typed in and simulated.
fn is_measured(mode: &str) -> bool {
    !matches!(mode, "N" | "M" | "S")
}

/// Above mean sea level, m, of GGA and GNS. No place is given up for its
/// altitude.
fn altitude(read: &Sentence<'_>) -> Option<f64> {
    scaled(read.field(8), 1.0)
}
