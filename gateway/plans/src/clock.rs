//! Control's time, as a node knows it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many readings of control's clock are remembered. The highest counts,
/// since each can only have arrived late. Each new one replaces the oldest, so
/// that a control clock that was set back is followed.
const SIGNS: usize = 8;

const NANOS_PER_MS: i128 = 1_000_000;

/// What a node knows of control's clock, relative to its own monotonic one, so that a step of its
/// time of day changes nothing.
#[derive(Clone, Debug)]
pub struct ControlTime {
    origin: Instant,
    /// Control's time at the origin, ns since 1970-01-01 UTC, by each sign.
    signs: VecDeque<i128>,
}

impl ControlTime {
    /// A clock that is not known yet; `origin` is any time near to now.
    pub fn new(origin: Instant) -> ControlTime {
        ControlTime {
            origin,
            signs: VecDeque::new(),
        }
    }

    /// According to a message that arrived at `at`, control's time is at least `control_ms`, and
    /// more if the message was delayed.
    pub fn heard(&mut self, at: Instant, control_ms: u64) {
        while self.signs.len() >= SIGNS {
            self.signs.pop_front();
        }
        self.signs.push_back(self.at_origin(at, control_ms));
    }

    /// Control's time is known to be `control_ms` at `at`.
    pub fn set(&mut self, at: Instant, control_ms: u64) {
        self.signs.clear();
        self.heard(at, control_ms);
    }

    /// Control's time at `now`, ms since 1970-01-01 UTC; none while it is not
    /// known.
    pub fn now_ms(&self, now: Instant) -> Option<u64> {
        let at_origin = self.signs.iter().max()?;
        let now_ns = at_origin + self.since_origin(now);
        u64::try_from(now_ns.div_euclid(NANOS_PER_MS)).ok()
    }

    fn at_origin(&self, at: Instant, control_ms: u64) -> i128 {
        i128::from(control_ms) * NANOS_PER_MS - self.since_origin(at)
    }

    /// From the origin to `at`, ns.
    fn since_origin(&self, at: Instant) -> i128 {
        let nanos = |time: Duration| time.as_nanos() as i128;
        match at.checked_duration_since(self.origin) {
            Some(after) => nanos(after),
            None => -nanos(self.origin - at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_800_000_000_000;

    #[test]
    fn message_that_was_held_up_does_not_set_the_clock_back() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut clock = ControlTime::new(start);
        assert_eq!(clock.now_ms(start), None);
        clock.heard(at(0), NOON - 700);
        clock.heard(at(1_000), NOON + 1_000);
        clock.heard(at(2_000), NOON + 1_500);
        assert_eq!(clock.now_ms(at(3_000)), Some(NOON + 3_000));
    }

    #[test]
    fn clock_that_was_set_back_is_followed_in_the_end() {
        let start = Instant::now();
        let mut clock = ControlTime::new(start);
        clock.heard(start, NOON + 60_000);
        for _ in 0..SIGNS {
            clock.heard(start, NOON);
        }
        assert_eq!(clock.now_ms(start), Some(NOON));
        clock.set(start, NOON - 5_000);
        assert_eq!(clock.now_ms(start), Some(NOON - 5_000));
    }

    #[test]
    fn times_before_the_origin_or_beyond_reason_do_no_harm() {
        let start = Instant::now() + Duration::from_secs(10);
        let mut clock = ControlTime::new(start);
        clock.heard(start - Duration::from_secs(5), 1_000);
        assert_eq!(clock.now_ms(start), Some(6_000));
        assert_eq!(clock.now_ms(start - Duration::from_secs(8)), None);
        clock.set(start, u64::MAX);
        assert_eq!(clock.now_ms(start), Some(u64::MAX));
        assert_eq!(clock.now_ms(start + Duration::from_secs(1)), None);
    }
}
