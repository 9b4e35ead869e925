//! What serialises packets at a rate.

use super::Nanos;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Sends one packet after the other at a given rate, exactly: the fraction of a nanosecond of a
/// packet's time is carried over to the next one.
#[derive(Debug, Default)]
pub(super) struct Transmitter {
    free_at: Nanos,
    /// Time owed from earlier packets, in bit-nanoseconds at `rate_bps`.
    remainder: u128,
    rate_bps: u64,
}

impl Transmitter {
    /// When the packet being sent, if any, ends.
    pub(super) fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// Sends nothing before `at`.
    pub(super) fn idle_until(&mut self, at: Nanos) {
        if at > self.free_at {
            (self.free_at, self.remainder) = (at, 0);
        }
    }

    /// Sends `bytes` from `start` on and returns when the last bit leaves.
    /// A rate of `None` takes no time.
    pub(super) fn send(&mut self, start: Nanos, bytes: usize, rate_bps: Option<u64>) -> Nanos {
        let Some(rate_bps) = rate_bps else {
            self.free_at = start;
            self.remainder = 0;
            return start;
        };
        if start > self.free_at || rate_bps != self.rate_bps {
            self.remainder = 0;
            self.rate_bps = rate_bps;
        }
        let work = bytes as u128 * 8 * NANOS_PER_SECOND + self.remainder;
        let rate = u128::from(rate_bps.max(1));
        self.remainder = work % rate;
        let span = u64::try_from(work / rate).unwrap_or(u64::MAX);
        self.free_at = start.saturating_add(span);
        self.free_at
    }
}

/// How long a number of bits takes, the last nanosecond begun included.
pub(super) fn span(bits: u64, rate_bps: u64) -> Nanos {
    let time = (u128::from(bits) * NANOS_PER_SECOND).div_ceil(u128::from(rate_bps.max(1)));
    u64::try_from(time).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_run_has_the_exact_rate() {
        let mut transmitter = Transmitter::default();
        let rate = 140_000_000;
        let mut end = 0;
        for _ in 0..140_000 {
            end = transmitter.send(end, 1500, Some(rate));
        }
        // 140,000 packets of 12,000 bit take exactly 12 s.
        assert_eq!(end, 12_000_000_000);
    }

    #[test]
    fn idle_time_earns_no_credit() {
        let mut transmitter = Transmitter::default();
        transmitter.send(0, 1000, Some(8_000_000));
        let end = transmitter.send(5_000_000_000, 1000, Some(8_000_000));
        assert_eq!(end, 5_001_000_000);
    }

    #[test]
    fn unlimited_rate_takes_no_time() {
        let mut transmitter = Transmitter::default();
        assert_eq!(transmitter.send(7, 1500, None), 7);
        assert_eq!(transmitter.free_at(), 7);
    }
}
