//! Which levels have sent most lately.

use std::time::Duration;

use crate::link::{LEAST_BUNDLE_BYTES, MOST_BUNDLE_BYTES, bytes_in};

/// Roughly how far it looks back, at the terminal's own rate.
const MEMORY: Duration = Duration::from_millis(500);

/// The bytes that each level has sent lately.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    by_level: Vec<u64>,
    sum: u64,
}

impl Recent {
    pub fn new(levels: usize) -> Self {
        Recent {
            by_level: vec![0; levels],
            sum: 0,
        }
    }

    /// Counts what a level has sent, at this rate.
    pub fn sent(&mut self, level: usize, bytes: u64, rate_bps: Option<u64>) {
        let memory = rate_bps.map_or(MOST_BUNDLE_BYTES, |bps| bytes_in(bps, MEMORY));
        let most = memory.clamp(LEAST_BUNDLE_BYTES, MOST_BUNDLE_BYTES);
        self.by_level[level] = self.by_level[level].saturating_add(bytes.min(most));
        self.sum = self.by_level.iter().sum();
        if self.sum > most {
            self.by_level.iter_mut().for_each(|bytes| *bytes /= 2);
            self.sum = self.by_level.iter().sum();
        }
    }

    /// The first level that, with those above it, has sent at least half; the first of all if
    /// nothing was sent.
    pub fn debtor(&self) -> usize {
        let mut above = 0;
        let reaches_half = |bytes: &u64| {
            above += bytes;
            above >= self.sum.div_ceil(2)
        };
        self.by_level.iter().position(reaches_half).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_sent_half_is_found_from_the_first_level_on() {
        let mut recent = Recent::new(3);
        assert_eq!(recent.debtor(), 0);
        recent.sent(2, 1_000, None);
        assert_eq!(recent.debtor(), 2);
        recent.sent(1, 600, None);
        assert_eq!(recent.debtor(), 2);
        recent.sent(0, 500, None);
        assert_eq!(recent.debtor(), 1);
        recent.sent(0, 5_000, None);
        assert_eq!(recent.debtor(), 0);
    }

    #[test]
    fn what_was_sent_long_ago_counts_no_more() {
        let mut recent = Recent::new(2);
        for _ in 0..1_000 {
            recent.sent(0, 1 << 20, Some(8_000_000));
        }
        // Its memory holds 500 kB at this rate.
        for _ in 0..12 {
            recent.sent(1, 100_000, Some(8_000_000));
        }
        assert_eq!(recent.debtor(), 1);
    }
}
