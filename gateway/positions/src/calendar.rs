//! Dates as receivers give them, and those they get wrong.

use time::{Date, Month};

pub(crate) const DAY_MS: u64 = 86_400_000;
/// GPS counts weeks modulo 1024: a receiver that lost count is off by as many.
const ROLLOVER_MS: u64 = 1024 * 7 * DAY_MS;
/// GPS time begins on the 6th of January 1980, and two digits of a year mean
/// the hundred years from here.
const FIRST_YEAR: i32 = 1980;

/// The beginning of a day, ms since 1970; none if there is no such day in the
/// hundred years from 1980.
pub(crate) fn midnight_ms(year: i32, month: u8, day: u8) -> Option<u64> {
    if !(FIRST_YEAR..FIRST_YEAR + 100).contains(&year) {
        return None;
    }
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    u64::try_from(date.midnight().assume_utc().unix_timestamp() * 1000).ok()
}

/// The year that its last two digits mean.
pub(crate) fn full_year(digits: u8) -> i32 {
    let year = FIRST_YEAR / 100 * 100 + i32::from(digits);
    if year < FIRST_YEAR { year + 100 } else { year }
}

/// Moves a time whose week number rolled over forward, until its day ends no earlier than
/// `not_before_ms`.
pub(crate) fn roll_on(time_ms: u64, not_before_ms: u64) -> u64 {
    let missing = not_before_ms.saturating_sub(time_ms.saturating_add(DAY_MS));
    time_ms + missing.div_ceil(ROLLOVER_MS) * ROLLOVER_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_that_are_none_are_told() {
        assert_eq!(midnight_ms(2026, 6, 1), Some(1_780_272_000_000));
        assert_eq!(midnight_ms(2024, 2, 29), Some(1_709_164_800_000));
        for (year, month, day) in [(2026, 2, 29), (2026, 13, 1), (2026, 0, 1), (1979, 12, 31)] {
            assert_eq!(midnight_ms(year, month, day), None);
        }
        assert_eq!(midnight_ms(2080, 1, 1), None);
        assert_eq!([80, 99, 0, 79].map(full_year), [1980, 1999, 2000, 2079]);
    }

    #[test]
    fn lost_weeks_are_given_back_a_thousand_and_twenty_four_at_a_time() {
        let right = midnight_ms(2026, 6, 1).unwrap();
        let since = midnight_ms(2026, 1, 1).unwrap();
        for times in 0..3 {
            assert_eq!(roll_on(right - times * ROLLOVER_MS, since), right);
        }
        // The day itself has not ended.
        assert_eq!(roll_on(since - DAY_MS, since), since - DAY_MS);
    }
}
