//! The round trip without a queue.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The least round trip that was seen. Routes and satellites change, so it may become outdated. But
/// a standing queue also hides it, however long it has not been seen. So it is forgotten only after
/// a drain that did not bring it back.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseRtt {
    /// In order of time; each is less than all after it.
    least: VecDeque<(Instant, Duration)>,
}

/// The most samples that are kept.
const MOST_SAMPLES: usize = 64;

impl BaseRtt {
    pub fn see(&mut self, now: Instant, rtt: Duration) {
        while self.least.back().is_some_and(|(_, seen)| *seen >= rtt) {
            self.least.pop_back();
        }
        self.least.push_back((now, rtt));
        if self.least.len() > MOST_SAMPLES {
            self.least.remove(1);
        }
    }

    /// Forgets what was seen before `since`, if anything was seen after it.
    pub fn forget_before(&mut self, since: Instant) {
        if self.least.back().is_some_and(|(at, _)| *at >= since) {
            self.least.retain(|(at, _)| *at >= since);
        }
    }

    pub fn get(&self) -> Option<Duration> {
        self.least.front().map(|(_, rtt)| *rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_least_counts_until_it_is_forgotten() {
        let start = Instant::now();
        let mut base = BaseRtt::default();
        assert_eq!(base.get(), None);
        base.see(start, 50 * MS);
        base.see(start + 3000 * MS, 80 * MS);
        base.see(start + 9000 * MS, 70 * MS);
        assert_eq!(base.get(), Some(50 * MS));
        base.forget_before(start + 1000 * MS);
        assert_eq!(base.get(), Some(70 * MS));
        base.forget_before(start + 10_000 * MS);
        assert_eq!(base.get(), Some(70 * MS));
        base.see(start + 60_500 * MS, 350 * MS);
        base.forget_before(start + 60_400 * MS);
        assert_eq!(base.get(), Some(350 * MS));
    }

    #[test]
    fn few_samples_are_kept_of_many() {
        let start = Instant::now();
        let mut base = BaseRtt::default();
        for step in 0..100_000_u32 {
            base.see(start + step * MS, (500 + step) * MS);
        }
        assert_eq!(base.least.len(), MOST_SAMPLES);
        assert_eq!(base.get(), Some(500 * MS));
    }
}
