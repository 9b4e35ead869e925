//! A debt bucket that holds a sender to its rate.

use std::time::{Duration, Instant};

use crate::link::{BUNDLE_TIME, LEAST_BUNDLE_BYTES};

/// The bucket holds at most the line time of one bundle. This credit makes up for late timers and
/// for other bundles that are due at the same time. A transport that paces by itself gets its next
/// bundle before the last one is gone, so it sends no short packet in between. After silence a
/// burst is at most this credit and one bundle.
const CREDIT: Duration = BUNDLE_TIME;

/// Longer waits are split into several of this length.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Fills at `rate_bps`; may be overdrawn by one bundle, which is then paid back. The size of a
/// bundle is known only when it is sealed, and a sealed bundle is not split, so no tokens are
/// needed beforehand.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate_bps: u64,
    /// Bit × 10⁻⁹, so that rate × nanoseconds needs no rounding.
    level: i128,
    /// The least capacity of the bucket, in the same unit.
    burst: i128,
    at: Instant,
}

impl Bucket {
    pub fn new(now: Instant, rate_bps: u64) -> Self {
        Bucket {
            rate_bps,
            level: 0,
            burst: 0,
            at: now,
        }
    }

    pub fn set_rate(&mut self, now: Instant, rate_bps: u64) {
        self.fill(now);
        self.rate_bps = rate_bps;
        self.level = self.level.min(self.ceiling());
    }

    /// Lets it hold `bytes`, if that is more than usual, and fills it with them.
    pub fn set_burst(&mut self, now: Instant, bytes: u64) {
        self.resize_burst(now, bytes);
        if bytes > 0 {
            self.level = self.level.max(self.burst);
        }
    }

    /// Lets it hold `bytes`, if that is more than usual, without adding to what it has.
    pub fn resize_burst(&mut self, now: Instant, bytes: u64) {
        self.fill(now);
        self.burst = units(bytes);
        self.level = self.level.min(self.ceiling());
    }

    pub fn charge(&mut self, now: Instant, bytes: u64) {
        self.fill(now);
        self.level -= units(bytes);
    }

    /// Makes `bytes` the least debt that has to be paid before the next bundle is due.
    pub fn owe(&mut self, now: Instant, bytes: u64) {
        self.fill(now);
        self.level = self.level.min(-units(bytes));
    }

    /// From when the level is not negative; `None` if never at this rate.
    pub fn ready_at(&self) -> Option<Instant> {
        self.reaches_at(0)
    }

    /// From when there is a credit of `bytes`; `None` if never at this rate.
    pub fn has_at(&self, bytes: u64) -> Option<Instant> {
        self.reaches_at(units(bytes))
    }

    /// From when the level is at least `least`; `None` if never at this rate.
    pub fn reaches_at(&self, least: i128) -> Option<Instant> {
        if self.rate_bps == 0 {
            return None;
        }
        let lacking = least - self.level;
        if lacking <= 0 {
            return Some(self.at);
        }
        let nanos = lacking.unsigned_abs().div_ceil(u128::from(self.rate_bps));
        let wait = u64::try_from(nanos).map_or(LONGEST_WAIT, Duration::from_nanos);
        Some(self.at + wait.min(LONGEST_WAIT))
    }

    /// From when, `now` at the earliest, there is a credit of `bytes`.
    pub fn next_at(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        if self.has(now, bytes) {
            return Some(now);
        }
        if self.has_at(bytes)? <= now {
            // The deadline was one step of a very long wait.
            self.fill(now);
        }
        self.has_at(bytes)
    }

    /// Whether there is a credit of `bytes` at `now`.
    pub fn has(&self, now: Instant, bytes: u64) -> bool {
        self.reaches(now, units(bytes))
    }

    /// Whether the level is at least `least` at `now`.
    pub fn reaches(&self, now: Instant, least: i128) -> bool {
        let elapsed = now.saturating_duration_since(self.at);
        self.rate_bps > 0 && self.level + self.earned(elapsed) >= least
    }

    pub fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// The level at the time of the last call; negative in debt.
    pub fn level(&self) -> i128 {
        self.level
    }

    /// Lowers the level, in its unit.
    pub fn lower(&mut self, by: i128) {
        self.level -= by;
    }

    /// The time of the last call.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Adds what the rate has earned until `now`.
    pub fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at);
        self.level = (self.level + self.earned(elapsed)).min(self.ceiling());
        self.at = self.at.max(now);
    }

    fn earned(&self, elapsed: Duration) -> i128 {
        // Over 100 years at 2⁶⁴ bit/s stay below 2¹²⁷.
        i128::from(self.rate_bps) * elapsed.as_nanos() as i128
    }

    /// The most that it holds.
    pub fn ceiling(&self) -> i128 {
        self.bundle().max(self.burst)
    }

    /// The largest bundle that suits the rate.
    pub fn bundle(&self) -> i128 {
        self.earned(CREDIT).max(units(LEAST_BUNDLE_BYTES))
    }
}

/// Sets the rate of a bucket, which exists only while there is a rate.
pub(crate) fn shape(bucket: &mut Option<Bucket>, now: Instant, rate_bps: Option<u64>) {
    match (bucket.as_mut(), rate_bps) {
        (Some(bucket), Some(rate)) => bucket.set_rate(now, rate),
        (None, Some(rate)) => *bucket = Some(Bucket::new(now, rate)),
        (_, None) => *bucket = None,
    }
}

/// Bytes in the unit of the level.
pub(crate) fn units(bytes: u64) -> i128 {
    i128::from(bytes) * 8 * NANOS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debt_is_paid_at_the_rate_to_the_nanosecond() {
        let now = Instant::now();
        let mut bucket = Bucket::new(now, 8_000);
        bucket.charge(now, 1_000);
        let due = now + Duration::from_secs(1);
        assert_eq!(bucket.ready_at(), Some(due));
        assert!(!bucket.has(due - Duration::from_nanos(1), 0));
        assert!(bucket.has(due, 0));
    }

    #[test]
    fn a_debt_is_paid_in_full_and_once() {
        let now = Instant::now();
        let mut bucket = Bucket::new(now, 8_000);
        let later = now + Duration::from_secs(9);
        bucket.owe(later, 1_000);
        bucket.owe(later, 1_000);
        assert_eq!(bucket.ready_at(), Some(later + Duration::from_secs(1)));
    }

    #[test]
    fn idle_time_saves_one_bundle() {
        let now = Instant::now();
        let mut bucket = Bucket::new(now, 8_000_000);
        let later = now + Duration::from_secs(60);
        bucket.charge(later, 60_000 + 1_000);
        assert_eq!(bucket.ready_at(), Some(later + Duration::from_millis(1)));
    }

    #[test]
    fn a_burst_leaves_at_once_and_is_earned_again_at_the_rate() {
        let now = Instant::now();
        let mut bucket = Bucket::new(now, 80_000);
        bucket.set_burst(now, 100_000);
        bucket.charge(now, 100_000);
        assert!(bucket.has(now, 0));
        bucket.charge(now, 10_000);
        let paid = now + Duration::from_secs(1);
        assert_eq!(bucket.ready_at(), Some(paid));
        let again = now + Duration::from_secs(60);
        bucket.charge(again, 100_000);
        assert!(bucket.has(again, 0));
        bucket.charge(again, 1);
        assert!(!bucket.has(again, 0));
        // A larger size alone adds nothing.
        bucket.resize_burst(again, 90_000);
        assert!(!bucket.has(again, 0));
        // Without it, no more credit is saved than usual.
        let later = again + Duration::from_secs(60);
        bucket.set_burst(later, 0);
        bucket.charge(later, LEAST_BUNDLE_BYTES + 1);
        assert!(!bucket.has(later, 0));
    }

    #[test]
    fn rate_change_reprices_the_rest_of_the_debt() {
        let now = Instant::now();
        let mut bucket = Bucket::new(now, 8_000);
        bucket.charge(now, 2_000);
        let half = now + Duration::from_secs(1);
        bucket.set_rate(half, 80_000);
        assert_eq!(bucket.ready_at(), Some(half + Duration::from_millis(100)));
        bucket.set_rate(half, 0);
        assert_eq!(bucket.ready_at(), None);
        assert!(!bucket.has(half + Duration::from_secs(1000), 0));
    }

    #[test]
    fn credit_is_there_to_the_nanosecond_too() {
        let now = Instant::now();
        let bucket = Bucket::new(now, 8_000_000);
        let due = now + Duration::from_millis(2);
        assert_eq!(bucket.has_at(2_000), Some(due));
        assert!(!bucket.has(due - Duration::from_nanos(1), 2_000));
        assert!(bucket.has(due, 2_000));
    }

    #[test]
    fn very_long_debt_gives_a_bounded_deadline() {
        let now = Instant::now();
        let mut bucket = Bucket::new(now, 1);
        bucket.charge(now, u64::MAX);
        assert_eq!(bucket.ready_at(), Some(now + LONGEST_WAIT));
        assert!(!bucket.has(now + LONGEST_WAIT, 0));
    }
}
