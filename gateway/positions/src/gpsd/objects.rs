//! The objects of gpsd that are read, as it sends them.

use serde::Deserialize;

use crate::calendar::{midnight_ms, roll_on};
use crate::fix::{ESTIMATED_M, Fix, FixError};

/// One line of gpsd.
#[derive(Debug, Deserialize)]
#[serde(tag = "class")]
pub enum Object {
    /// Its greeting.
    #[serde(rename = "VERSION")]
    Version {
        /// Of the protocol.
        proto_major: u64,
    },
    /// Time, position, velocity.
    #[serde(rename = "TPV")]
    Tpv(Box<Tpv>),
    /// A receiver that came or went.
    #[serde(rename = "DEVICE")]
    Device {
        /// Where it is.
        path: Option<String>,
        /// When it came, as a time; 0 for one that went.
        #[serde(default)]
        activated: serde_json::Value,
    },
    /// All receivers.
    #[serde(rename = "DEVICES")]
    Devices {
        /// The receivers.
        devices: Vec<Device>,
    },
    /// gpsd did not understand.
    #[serde(rename = "ERROR")]
    Error {
        /// What.
        message: String,
    },
    /// Satellites, attitude, raw data, …
    #[serde(other)]
    Other,
}

/// A receiver.
#[derive(Debug, Deserialize)]
pub struct Device {
    /// Where it is.
    pub path: Option<String>,
}

/// Time, position, velocity; what the receiver does not know is absent.
#[derive(Debug, Default, Deserialize)]
pub struct Tpv {
    /// Which receiver.
    pub device: Option<String>,
    /// 0 or 1 without a fix, 2 or 3 in as many dimensions.
    #[serde(default)]
    mode: u64,
    /// What the fix comes from.
    #[serde(default)]
    status: u64,
    time: Option<String>,
    lat: Option<f64>,
    lon: Option<f64>,
    /// Above mean sea level, m.
    #[serde(rename = "altMSL")]
    alt_msl: Option<f64>,
    /// Over ground, m/s.
    speed: Option<f64>,
    /// From true north, degrees.
    track: Option<f64>,
    /// Estimated horizontal error, m.
    eph: Option<f64>,
    /// Estimated errors east and north, m.
    epx: Option<f64>,
    epy: Option<f64>,
}

/// Dead reckoning, alone and helped by satellites.
const ESTIMATED: [u64; 2] = [5, 6];
const SIMULATED: u64 = 8;

/// Why a position makes no sense.
#[derive(Debug)]
pub enum TpvError {
    /// The time is none.
    Time,
    /// The place, speed, … is none.
    Fix,
}

impl From<FixError> for TpvError {
    fn from(_: FixError) -> TpvError {
        TpvError::Fix
    }
}

impl Tpv {
    /// The fix, if the receiver has one.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn fix(&self, not_before_ms: u64) -> Result<Option<Fix>, TpvError> {
        if self.mode < 2 || self.status == SIMULATED {
            return Ok(None);
        }
        let (Some(latitude), Some(longitude)) = (self.lat, self.lon) else {
            return Ok(None);
        };
        let time = self
            .time
            .as_deref()
            .map(|text| time_ms(text).ok_or(TpvError::Time));
        // A course that is none costs a fix nothing else.
        let is_course = |degrees: &f64| (0.0..=360.0).contains(degrees);
        let fix = Fix {
            time_ms: time.transpose()?.map(|at| roll_on(at, not_before_ms)),
            longitude,
            latitude,
            altitude_m: self.alt_msl,
            speed_mps: self.speed,
            heading_deg: self.track.filter(is_course),
            accuracy_m: self.accuracy_m(),
        };
        Ok(Some(fix.checked()?))
    }

    fn accuracy_m(&self) -> Option<f64> {
        let both = self.epx.zip(self.epy);
        let per_axis = both.map(|(east, north)| ((east * east + north * north) / 2.0).sqrt());
        let estimated = ESTIMATED.contains(&self.status).then_some(ESTIMATED_M);
        self.eph.or(per_axis).or(estimated)
    }
}

/// A time as gpsd writes it, 2026-06-01T12:00:00.000Z, as ms since 1970. The
/// leap second is the second after it.
fn time_ms(text: &str) -> Option<u64> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [year, month, day] = numbers(date, '-')?;
    let [hours, minutes, seconds] = numbers(clock, ':')?;
    if hours > 23 || minutes > 59 || seconds > 60 || !is_number(fraction) {
        return None;
    }
    let day = midnight_ms(
        i32::try_from(year).ok()?,
        u8::try_from(month).ok()?,
        u8::try_from(day).ok()?,
    );
    let millis = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    let millis = millis.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some(day? + ((hours * 60 + minutes) * 60 + seconds) * 1000 + millis)
}

fn numbers(text: &str, between: char) -> Option<[u64; 3]> {
    let mut parts = text.split(between);
    let mut next = || parts.next().filter(|part| is_number(part))?.parse().ok();
    let three = [next()?, next()?, next()?];
    parts.next().is_none().then_some(three)
}

fn is_number(text: &str) -> bool {
    (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_gpsd_writes_them() {
        assert_eq!(time_ms("2026-06-01T12:00:00.000Z"), Some(1_780_315_200_000));
        assert_eq!(time_ms("2026-06-01T12:00:00.25Z"), Some(1_780_315_200_250));
        assert_eq!(time_ms("2016-12-31T23:59:60Z"), Some(1_483_228_800_000));
        for text in [
            "",
            "2026-06-01",
            "2026-06-01T12:00:00.000",
            "2026-06-31T12:00:00Z",
            "2026-06-01T24:00:00Z",
            "2026-06-01T12:00Z",
            "2026-06-01T12:00:00.Z",
            "2026-06-01T12:00:00:00Z",
            "2026-06-01T+2:00:00Z",
        ] {
            assert_eq!(time_ms(text), None, "{text}");
        }
    }
}
