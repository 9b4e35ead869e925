//! What fields stand for.

use super::sentence::{Sentence, SentenceError};
use crate::calendar;

const SECOND_MICROS: u64 = 1_000_000;

fn wrong(what: &'static str, text: &str) -> SentenceError {
    SentenceError::Field {
        what,
        text: text.to_owned(),
    }
}

/// A time of day hhmmss.sss, µs since midnight. 23:59:60 is the leap second;
/// UTC as computers count it has the second after it in its place.
pub fn time_of_day(text: &str) -> Result<u64, SentenceError> {
    parse_time(text).ok_or_else(|| wrong("time of day", text))
}

fn parse_time(text: &str) -> Option<u64> {
    let (whole, fraction) = split_fraction(text)?;
    let two = |at: usize| digits(whole.get(at..at + 2)?);
    if whole.len() != 6 {
        return None;
    }
    let (hours, minutes, seconds) = (two(0)?, two(2)?, two(4)?);
    if hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let micros = fraction.bytes().chain(std::iter::repeat(b'0')).take(6);
    let micros = micros.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some(((hours * 60 + minutes) * 60 + seconds) * SECOND_MICROS + micros)
}

/// A place of four fields from `first` on: latitude, N or S, longitude, E or
/// W. Gives longitude and latitude, degrees; none if both are empty.
pub fn place(read: &Sentence<'_>, first: usize) -> Result<Option<(f64, f64)>, SentenceError> {
    let [lat, north, lon, east] = [0, 1, 2, 3].map(|number| read.field(first + number));
    if lat.is_empty() && lon.is_empty() {
        return Ok(None);
    }
    let sign = |text, plus, minus| match text {
        _ if text == plus => Ok(1.0),
        _ if text == minus => Ok(-1.0),
        _ => Err(wrong("hemisphere", text)),
    };
    let (north, east) = (sign(north, "N", "S")?, sign(east, "E", "W")?);
    Ok(Some((degrees(lon)? * east, degrees(lat)? * north)))
}

/// Degrees and minutes, dddmm.mmmm.
fn degrees(text: &str) -> Result<f64, SentenceError> {
    parse_degrees(text).ok_or_else(|| wrong("angle", text))
}

fn parse_degrees(text: &str) -> Option<f64> {
    let (whole, _) = split_fraction(text)?;
    if !(3..=5).contains(&whole.len()) {
        return None;
    }
    let (degrees, minutes) = text.split_at(whole.len() - 2);
    let minutes: f64 = minutes.parse().ok()?;
    (minutes < 60.0).then_some(digits(degrees)? as f64 + minutes / 60.0)
}

/// A number times a factor; none for any other text, which costs only this value. Some receivers
/// leave out the digits before or after the point.
pub fn scaled(text: &str, factor: f64) -> Option<f64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let is_plain = |part: &str| part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(fraction) {
        return None;
    }
    // It fails if there is no digit at all.
    let number: f64 = text.parse().ok()?;
    Some(number * factor)
}

/// A date ddmmyy: its midnight, ms since 1970.
pub fn short_date(text: &str) -> Result<u64, SentenceError> {
    let parse = || {
        let two = |at: usize| small(text.get(at..at + 2)?);
        (text.len() == 6).then_some(())?;
        calendar::midnight_ms(calendar::full_year(two(4)?), two(2)?, two(0)?)
    };
    parse().ok_or_else(|| wrong("date", text))
}

/// A date of three fields from `first` on: day, month, year; none if all are
/// empty.
pub fn long_date(read: &Sentence<'_>, first: usize) -> Result<Option<u64>, SentenceError> {
    let [day, month, year] = [0, 1, 2].map(|number| read.field(first + number));
    if [day, month, year].iter().all(|text| text.is_empty()) {
        return Ok(None);
    }
    let parse = || {
        (year.len() == 4).then_some(())?;
        let year = i32::try_from(digits(year)?).ok()?;
        calendar::midnight_ms(year, small(month)?, small(day)?)
    };
    let midnight = parse().ok_or_else(|| wrong("date", &format!("{day},{month},{year}")))?;
    Ok(Some(midnight))
}

/// At most two digits.
fn small(text: &str) -> Option<u8> {
    let number = digits(text).filter(|_| text.len() <= 2)?;
    u8::try_from(number).ok()
}

/// At most nine digits, and nothing else.
fn digits(text: &str) -> Option<u64> {
    let all = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

/// Digits before the point, and behind it if there is one: 1 to 9.
fn split_fraction(text: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    digits(whole)?;
    match fraction {
        Some(fraction) => digits(fraction).map(|_| (whole, fraction)),
        None => Some((whole, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_exact_to_the_microsecond() {
        assert_eq!(time_of_day("000000"), Ok(0));
        assert_eq!(time_of_day("112228.037"), Ok(40_948_037_000));
        assert_eq!(time_of_day("235960.5"), Ok(86_400_500_000));
        for text in [
            "", "240000", "126000", "120061", "12000", "120000.", "1200-1",
        ] {
            assert!(time_of_day(text).is_err(), "{text}");
        }
    }

    #[test]
    fn angles_have_two_digits_of_minutes() {
        assert_eq!(degrees("4619.5000"), Ok(46.325));
        assert_eq!(degrees("00655.2"), Ok(6.92));
        for text in [
            "", "46", "4660.0", "123456.0", "46 9.0", "4619.", "-4619.0", "NaN",
        ] {
            assert!(degrees(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_plain_decimals() {
        for (text, number) in [("-1.5", -1.5), ("1.", 1.0), (".5", 0.5), ("-.5", -0.5)] {
            assert_eq!(scaled(text, 2.0), Some(2.0 * number), "{text}");
        }
        for text in [
            "",
            "nan",
            "inf",
            "1e5",
            "+1",
            ".",
            "-",
            "-.",
            "1.2.3",
            "1234567890",
            "--1",
        ] {
            assert_eq!(scaled(text, 1.0), None, "{text}");
        }
    }

    #[test]
    fn dates_are_days_of_the_calendar() {
        assert_eq!(short_date("010626"), Ok(1_780_272_000_000));
        for text in ["", "310226", "10626", "0106 26", "aabbcc", "000126"] {
            assert!(short_date(text).is_err(), "{text}");
        }
    }
}
