//! When the next packet may go.

use std::time::{Duration, Instant};

/// How much delay of a late timer may be made up for.
const BURST: Duration = Duration::from_millis(10);

/// The rate, and the moment from which the next packet may be sent.
#[derive(Debug)]
pub(crate) struct Pace {
    /// bit/s of IP bytes, whatever is allocated.
    ceiling_bps: Option<u64>,
    rate_bps: Option<u64>,
    next: Instant,
}

impl Pace {
    pub(crate) fn new(ceiling_bps: Option<u64>, now: Instant) -> Pace {
        Pace {
            ceiling_bps,
            rate_bps: ceiling_bps,
            next: now,
        }
    }

    /// Sets another allocated rate, and forgets what was sent at the previous one.
    pub(crate) fn set(&mut self, now: Instant, ip_bps: Option<u64>) {
        let rates = [ip_bps, self.ceiling_bps];
        let rate_bps = rates.into_iter().flatten().min();
        if rate_bps != self.rate_bps {
            self.rate_bps = rate_bps;
            self.next = self.next.min(now);
        }
    }

    pub(crate) fn rate_bps(&self) -> Option<u64> {
        self.rate_bps
    }

    /// When the next packet may be sent; none at a rate of 0.
    pub(crate) fn next(&self) -> Option<Instant> {
        (self.rate_bps != Some(0)).then_some(self.next)
    }

    /// Whether it may go now.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.next().is_some_and(|next| next <= now)
    }

    /// A packet of so many IP bytes goes.
    pub(crate) fn sent(&mut self, now: Instant, ip_bytes: u64) {
        if let Some(rate) = self.rate_bps.filter(|rate| *rate > 0) {
            let from = now.checked_sub(BURST).unwrap_or(now);
            let time = Duration::from_secs_f64(ip_bytes as f64 * 8.0 / rate as f64);
            self.next = self.next.max(from) + time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_the_ceiling_never_exceeded() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(8_000_000), start);
        pace.set(start, Some(80_000_000));
        let (mut now, mut sent) = (start, 0);
        while now - start < Duration::from_secs(1) {
            now += Duration::from_millis(3);
            while pace.is_open(now) {
                pace.sent(now, 1_000);
                sent += 1_000;
            }
        }
        assert!((990_000..=1_015_000).contains(&sent), "{sent}");
        pace.set(now, Some(0));
        assert!(!pace.is_open(now + Duration::from_secs(60)));
        pace.set(now, Some(4_000_000));
        assert!(pace.is_open(now));
    }
}
