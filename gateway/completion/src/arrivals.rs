//! The rate that new flows bring to a path.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many flows are remembered, and for how long.
const REMEMBERED: usize = 64;
const COUNT_FOR: Duration = Duration::from_secs(10);

/// The flows that began on a path lately.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// When each began, and its size, bytes; the oldest first.
    flows: VecDeque<(Instant, u64)>,
}

impl Arrivals {
    /// Notes that a flow of so many bytes begins.
    pub fn began(&mut self, now: Instant, size_bytes: u64) {
        if self.flows.len() == REMEMBERED {
            self.flows.pop_front();
        }
        self.flows.push_back((now, size_bytes));
    }

    /// The rate that new flows bring, bit/s, counting at most `size_bytes` of each: only so much of
    /// it takes turns with a flow of that size.
    pub fn bps(&self, now: Instant, size_bytes: u64) -> u64 {
        let age = |began: Instant| now.saturating_duration_since(began);
        let time = match self.flows.front() {
            Some((oldest, _)) if self.flows.len() == REMEMBERED => age(*oldest).min(COUNT_FOR),
            _ => COUNT_FOR,
        };
        let counted = self.flows.iter().filter(|(began, _)| age(*began) <= time);
        let bits: u128 = counted
            .map(|(_, size)| u128::from(*size.min(&size_bytes)) * 8)
            .sum();
        // If many began at once, it is unknown when the next ones do.
        let micros = time.as_micros().max(1_000);
        u64::try_from(bits * 1_000_000 / micros).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn of_each_flow_no_more_counts_than_the_size_of_the_one_that_waits() {
        let (mut arrivals, begin) = (Arrivals::default(), Instant::now());
        for size in [1_000, 10_000, u64::MAX] {
            arrivals.began(begin, size);
        }
        let now = begin + 100 * MS;
        // The rate is over 10 s.
        assert_eq!(arrivals.bps(now, 0), 0);
        assert_eq!(arrivals.bps(now, 1_000), 3 * 800);
        assert_eq!(arrivals.bps(now, 20_000), 800 + 8_000 + 16_000);
        assert!(arrivals.bps(now, u64::MAX) > 1 << 60);
    }

    #[test]
    fn many_flows_count_by_how_often_they_begin_and_memory_is_bounded() {
        let (mut arrivals, begin) = (Arrivals::default(), Instant::now());
        for flow in 0..1_000_u32 {
            arrivals.began(begin + flow * MS, 1_000);
        }
        // One flow each millisecond.
        let bps = arrivals.bps(begin + 1_000 * MS, 5_000);
        assert!((7_900_000..8_200_000).contains(&bps), "{bps}");
        assert_eq!(arrivals.flows.len(), REMEMBERED);
    }

    #[test]
    fn what_began_long_ago_is_forgotten() {
        let (mut arrivals, begin) = (Arrivals::default(), Instant::now());
        for _ in 0..REMEMBERED {
            arrivals.began(begin, 10_000);
        }
        assert!(arrivals.bps(begin + 9_000 * MS, 10_000) > 500_000);
        assert_eq!(arrivals.bps(begin + 10_001 * MS, 10_000), 0);
    }
}
