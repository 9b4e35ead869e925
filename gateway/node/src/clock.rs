//! The time of day, as far as this machine knows it, and as the control
//! service has it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// DTN time begins at 2000-01-01 UTC (RFC 9171 § 4.2.6).
const DTN_EPOCH_MS: u64 = 946_684_800_000;

/// No terminal's clock was right before this; it boots at some earlier time.
pub const PLAUSIBLE_MS: u64 = 1_767_225_600_000;

/// ms since 1970-01-01 UTC, unless the clock is plainly not set.
pub fn utc_ms() -> Option<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let ms = u64::try_from(since.as_millis()).ok()?;
    (ms >= PLAUSIBLE_MS).then_some(ms)
}

/// The same as DTN time, ms since 2000-01-01 UTC.
pub fn dtn_time_ms() -> Option<u64> {
    utc_ms()?.checked_sub(DTN_EPOCH_MS)
}

/// Whether the kernel says that the clock is synchronised, by NTP or PTP
/// (adjtimex(2)).
pub fn synchronised() -> bool {
    // SAFETY: timex is a structure of integers, for which zero is a value.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: with modes = 0 the call only writes into `state`, which lives.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    answer != -1 && answer != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0
}

/// The control service's clock, by which plans and reports count.
#[derive(Debug, Default)]
pub struct ControlClock {
    /// Its time, ms since the Unix epoch, at an instant; unaffected by steps
    /// of this machine's clock.
    known: Mutex<Option<(Instant, u64)>>,
}

impl ControlClock {
    /// The control service's clock showed `control_ms` at `at`.
    #[allow(dead_code)]
    pub fn set(&self, at: Instant, control_ms: u64) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, control_ms));
    }

    /// Its time at an instant, ms since the Unix epoch: by this machine's own
    /// clock as long as nothing else is known; none if that is not set.
    pub fn ms_at(&self, at: Instant) -> Option<u64> {
        if let Some(known) = self.known() {
            return Some(shifted(known, at));
        }
        Some(shifted((Instant::now(), utc_ms()?), at))
    }

    /// Its time now.
    pub fn now_ms(&self) -> Option<u64> {
        self.ms_at(Instant::now())
    }

    /// This machine's clock minus the control service's, ms; none while either
    /// is unknown.
    pub fn offset_ms(&self) -> Option<i64> {
        let control_ms = shifted(self.known()?, Instant::now());
        let own_ms = i64::try_from(utc_ms()?).ok()?;
        own_ms.checked_sub(i64::try_from(control_ms).ok()?)
    }

    fn known(&self) -> Option<(Instant, u64)> {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time at another instant than that at which it is known.
fn shifted((known_at, ms): (Instant, u64), at: Instant) -> u64 {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match at.checked_duration_since(known_at) {
        Some(later) => ms.saturating_add(millis(later)),
        None => ms.saturating_sub(millis(known_at - at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_time_runs_on_from_where_it_was_known() {
        let clock = ControlClock::default();
        assert_eq!(clock.offset_ms(), None);
        let at = Instant::now();
        clock.set(at, 1_795_230_000_000);
        let second = Duration::from_secs(1);
        assert_eq!(clock.ms_at(at + second), Some(1_795_230_001_000));
        assert_eq!(clock.ms_at(at - second), Some(1_795_229_999_000));
    }

    #[test]
    fn offset_is_how_far_the_own_clock_is_ahead() {
        let Some(own_ms) = utc_ms() else { return };
        let clock = ControlClock::default();
        clock.set(Instant::now(), own_ms - 5_000);
        let offset = clock.offset_ms().unwrap();
        assert!((4_990..6_000).contains(&offset), "{offset}");
    }
}
