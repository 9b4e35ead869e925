//! The time of day: of this machine, as far as it knows it, and of the control service.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use underpass_plans::ControlTime;

/// DTN time begins at 2000-01-01 UTC (RFC 9171 § 4.2.6).
const DTN_EPOCH_MS: u64 = 946_684_800_000;

/// A clock before this time is not set: a terminal boots with some earlier time.
pub const PLAUSIBLE_MS: u64 = 1_767_225_600_000;

/// ms since 1970-01-01 UTC; none if the clock is evidently not set.
pub fn utc_ms() -> Option<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let ms = u64::try_from(since.as_millis()).ok()?;
    (ms >= PLAUSIBLE_MS).then_some(ms)
}

/// The same as DTN time, ms since 2000-01-01 UTC.
pub fn dtn_time_ms() -> Option<u64> {
    utc_ms()?.checked_sub(DTN_EPOCH_MS)
}

/// How long the kernel's answer counts: each shard asks at each reading of the figures.
const ANSWER_COUNTS_FOR: Duration = Duration::from_secs(1);

/// The kernel's last answer, and when it gave it.
struct Answered(Option<(Instant, bool)>);

impl Answered {
    /// The answer that counts at `now`; asks for one if there is none.
    fn at(&mut self, now: Instant, ask: impl FnOnce() -> bool) -> bool {
        let counts = |at: Instant| now.saturating_duration_since(at) < ANSWER_COUNTS_FOR;
        match self.0 {
            Some((at, answer)) if counts(at) => answer,
            _ => self.0.insert((now, ask())).1,
        }
    }
}

/// Whether the kernel says that the clock is synchronised, by NTP or PTP; it may have said so up to
/// a second ago.
pub fn synchronised() -> bool {
    static ANSWERED: Mutex<Answered> = Mutex::new(Answered(None));
    ANSWERED.lock().unwrap().at(Instant::now(), ask_kernel)
}

/// The same at present (adjtimex(2)).
fn ask_kernel() -> bool {
    // SAFETY: timex is a structure of integers, for which zero is a value.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: with modes = 0 the call only writes into `state`, which lives.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    answer != -1 && answer != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0
}

/// The machine's time since it has booted, sleep included, ms.
pub fn since_boot_ms() -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call only writes into `time`, which lives.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let millis = u64::try_from(time.tv_nsec / 1_000_000).ok()?;
    (answer == 0).then_some(seconds * 1000 + millis)
}

/// Reading two clocks one after the other takes less than this, and no machine sleeps for less.
const LEAST_SLEEP: Duration = Duration::from_millis(500);

/// Detects whether the machine has slept since this was made: instants do not count that time.
#[derive(Debug)]
pub struct SleepWatch {
    since_boot_ms: Option<u64>,
    since: Instant,
}

impl SleepWatch {
    /// Watches from now on.
    pub fn begin() -> SleepWatch {
        // In this order a pause between the two reads can look like sleep, but cannot hide any.
        SleepWatch {
            since_boot_ms: since_boot_ms(),
            since: Instant::now(),
        }
    }

    /// Whether it has slept, as far as the kernel shows.
    pub fn has_slept(&self) -> bool {
        let counted = self.since.elapsed();
        self.is_longer(since_boot_ms(), counted)
    }

    fn is_longer(&self, since_boot_ms: Option<u64>, counted: Duration) -> bool {
        let both = since_boot_ms.zip(self.since_boot_ms);
        let passed = both.and_then(|(now, then)| now.checked_sub(then));
        passed.is_none_or(|ms| Duration::from_millis(ms) > counted + LEAST_SLEEP)
    }
}

/// The control service's clock, which plans and reports use. It is kept relative to this machine's
/// monotonic clock, so a step of the time of day does not change it.
#[derive(Debug)]
pub struct ControlClock(Mutex<ControlTime>);

impl Default for ControlClock {
    fn default() -> ControlClock {
        ControlClock(Mutex::new(ControlTime::new(Instant::now())))
    }
}

impl ControlClock {
    /// The control service's clock showed `control_ms` at `at`.
    pub fn set(&self, at: Instant, control_ms: u64) {
        self.lock().set(at, control_ms);
    }

    /// According to a message that came at `at`, the control service's clock showed `control_ms`
    /// then, or more if the message was delayed.
    pub fn heard(&self, at: Instant, control_ms: u64) {
        self.lock().heard(at, control_ms);
    }

    /// Its time at an instant, ms since the Unix epoch. As long as it is unknown, this machine's
    /// own clock is used; none if that is not set.
    pub fn ms_at(&self, at: Instant) -> Option<u64> {
        let known = self.lock().now_ms(at);
        known.or_else(|| own_ms_at(at))
    }

    /// DTN time at an instant, ms, if it is known to be right: that of this machine if its clock is
    /// synchronised, else the control service's. A message alone moves no synchronised clock.
    pub fn known_dtn_time_ms(&self, at: Instant) -> Option<u64> {
        let own = synchronised().then(|| own_ms_at(at)).flatten();
        let ms = own.or_else(|| self.lock().now_ms(at))?;
        ms.checked_sub(DTN_EPOCH_MS)
    }

    pub fn now_ms(&self) -> Option<u64> {
        self.ms_at(Instant::now())
    }

    /// This machine's clock minus the control service's, ms; none while either
    /// is unknown.
    pub fn offset_ms(&self) -> Option<i64> {
        let control_ms = self.lock().now_ms(Instant::now())?;
        let own_ms = i64::try_from(utc_ms()?).ok()?;
        own_ms.checked_sub(i64::try_from(control_ms).ok()?)
    }

    fn lock(&self) -> MutexGuard<'_, ControlTime> {
        self.0.lock().unwrap()
    }
}

/// The time of this machine's clock at an instant, ms since the Unix epoch; none if it is not set.
fn own_ms_at(at: Instant) -> Option<u64> {
    let mut own = ControlTime::new(at);
    own.set(Instant::now(), utc_ms()?);
    own.now_ms(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_instants_do_not_count_is_sleep() {
        let watch = SleepWatch {
            since_boot_ms: Some(10_000),
            since: Instant::now(),
        };
        let hour = Duration::from_secs(3600);
        assert!(!watch.is_longer(Some(3_610_000), hour));
        assert!(!watch.is_longer(Some(3_610_500), hour));
        assert!(watch.is_longer(Some(3_610_501), hour));
        assert!(watch.is_longer(None, hour), "nobody knows");
        assert!(watch.is_longer(Some(9_999), hour), "of another boot");
        assert!(!SleepWatch::begin().has_slept());
    }

    #[test]
    fn the_kernel_is_asked_once_a_second() {
        let mut answered = Answered(None);
        let begun = Instant::now();
        assert!(answered.at(begun, || true));
        let later = begun + ANSWER_COUNTS_FOR - Duration::from_millis(1);
        assert!(answered.at(later, || unreachable!("the answer counts")));
        assert!(!answered.at(begun + ANSWER_COUNTS_FOR, || false));
    }

    #[test]
    fn control_time_runs_on_from_where_it_was_known() {
        let clock = ControlClock::default();
        assert_eq!(clock.offset_ms(), None);
        let at = Instant::now();
        clock.set(at, 1_795_230_000_000);
        let second = Duration::from_secs(1);
        assert_eq!(clock.ms_at(at + second), Some(1_795_230_001_000));
        assert_eq!(clock.ms_at(at - second), Some(1_795_229_999_000));
        // 946,684,800 s passed from 1970 to 2000. A synchronised clock of this machine goes first.
        let own_ms = own_ms_at(at).filter(|_| synchronised());
        let dtn_ms = own_ms.map_or(848_545_200_000, |ms| ms - DTN_EPOCH_MS);
        let known_ms = clock.known_dtn_time_ms(at).unwrap();
        assert!(known_ms.abs_diff(dtn_ms) < 1_000, "{known_ms} {dtn_ms}");
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
