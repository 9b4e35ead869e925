//! Paces the writes of sockets that the kernel does not pace: MPTCP sockets refuse
//! `SO_MAX_PACING_RATE`.

use std::time::{Duration, Instant};

/// As much as the rate gives in this time may be written at once, and no more accumulates while
/// nothing is written. Timers are late by some milliseconds on a busy machine.
const BURST: Duration = Duration::from_millis(10);
/// At least two full segments.
const LEAST_BURST_BYTES: f64 = 3_000.0;
/// The least amount of one write, except for the last bytes: each write costs a TLS record and a
/// system call.
const LEAST_WRITE_BYTES: f64 = 1_400.0;

/// A token bucket of bytes.
#[derive(Debug)]
pub(super) struct Pace {
    /// bytes/s; `None` while nothing is limited.
    rate: Option<f64>,
    /// Bytes that may be written at `at`.
    tokens: f64,
    at: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace {
            rate: None,
            tokens: 0.0,
            at: now,
        }
    }

    /// Sets the rate, bytes/s. At 0 nothing is written; `None` lifts it.
    pub(super) fn set_rate(&mut self, now: Instant, bytes_per_second: Option<u64>) {
        self.fill(now);
        self.rate = bytes_per_second.map(|rate| rate as f64);
        self.tokens = self.tokens.min(self.burst_bytes());
    }

    /// Bytes of `waiting` that may be written now. If that is too little to be worthwhile, none
    /// until [`Self::poll_timeout`].
    pub(super) fn room(&mut self, now: Instant, waiting: usize) -> usize {
        if self.rate.is_none() {
            return usize::MAX;
        }
        self.fill(now);
        if self.tokens < least_write(waiting) {
            return 0;
        }
        self.tokens as usize
    }

    /// Bytes were written.
    pub(super) fn spend(&mut self, bytes: usize) {
        if self.rate.is_some() {
            self.tokens -= bytes as f64;
        }
    }

    /// When `waiting` bytes, or the first of them, may be written, if they may not be now.
    pub(super) fn poll_timeout(&self, waiting: usize) -> Option<Instant> {
        let rate = self.rate.filter(|rate| *rate > 0.0)?;
        let missing = least_write(waiting) - self.tokens;
        (waiting > 0 && missing > 0.0).then(|| {
            // Rounded up, so that at the deadline there is room.
            let wait = Duration::from_secs_f64((missing / rate).min(3_600.0));
            self.at + wait + Duration::from_micros(1)
        })
    }

    fn burst_bytes(&self) -> f64 {
        let rate = self.rate.unwrap_or(0.0);
        (rate * BURST.as_secs_f64()).max(LEAST_BURST_BYTES)
    }

    fn fill(&mut self, now: Instant) {
        let rate = self.rate.unwrap_or(0.0);
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * rate;
        self.tokens = (self.tokens + gained).min(self.burst_bytes());
        self.at = self.at.max(now);
    }
}

fn least_write(waiting: usize) -> f64 {
    (waiting as f64).min(LEAST_WRITE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes written in `time` from an endless queue, and the number of writes.
    fn written(pace: &mut Pace, start: Instant, time: Duration) -> (usize, usize) {
        let (mut now, mut bytes, mut writes) = (start, 0, 0);
        while now < start + time {
            let room = pace.room(now, 1 << 20);
            if room > 0 {
                pace.spend(room);
                bytes += room;
                writes += 1;
            }
            let Some(next) = pace.poll_timeout(1 << 20) else {
                break;
            };
            assert!(next > now, "time goes on");
            // A timer fires late.
            now = next + Duration::from_millis(1);
        }
        (bytes, writes)
    }

    #[test]
    fn the_rate_is_kept_to_with_late_timers() {
        let start = Instant::now();
        for rate in [10_000, 250_000, 5_000_000, 125_000_000] {
            let mut pace = Pace::new(start);
            pace.set_rate(start, Some(rate));
            let (bytes, writes) = written(&mut pace, start, Duration::from_secs(10));
            let part = bytes as f64 / (10.0 * rate as f64);
            assert!((0.97..1.01).contains(&part), "{rate}: {part}");
            assert!(writes <= 10_000, "{writes}");
        }
    }

    #[test]
    fn idle_time_saves_no_more_than_a_burst() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.set_rate(start, Some(1_000_000));
        assert_eq!(pace.room(start + Duration::from_secs(60), 1 << 20), 10_000);
    }

    #[test]
    fn a_rate_of_zero_writes_nothing_and_none_lifts_it() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!(pace.room(start, 9), usize::MAX);
        pace.set_rate(start, Some(0));
        assert_eq!(pace.room(start + Duration::from_secs(9), 9), 0);
        assert_eq!(pace.poll_timeout(9), None);
        pace.set_rate(start, None);
        assert_eq!(pace.room(start, 9), usize::MAX);
        assert_eq!(pace.poll_timeout(9), None);
    }

    #[test]
    fn the_last_bytes_wait_for_no_more_than_themselves() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.set_rate(start, Some(1_000));
        let at = pace.poll_timeout(10).expect("it waits");
        assert!(at - start < Duration::from_millis(11));
        assert!(pace.room(at, 10) >= 10);
    }
}
