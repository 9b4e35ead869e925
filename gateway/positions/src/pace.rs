//! Which fixes are reported.

use std::time::{Duration, Instant};

/// Lets one fix pass per interval in the long run. A receiver's seconds are
/// not even, so one may come half an interval early; the next one then waits.
#[derive(Debug)]
pub struct Pace {
    interval: Duration,
    due: Option<Instant>,
}

impl Pace {
    /// At most one per `interval`.
    pub fn new(interval: Duration) -> Pace {
        Pace {
            interval,
            due: None,
        }
    }

    /// Whether the fix of this moment is to be reported.
    pub fn passes(&mut self, now: Instant) -> bool {
        let due = self.due.unwrap_or(now);
        let passes = now + self.interval / 2 >= due;
        if passes {
            self.due = Some(due.max(now) + self.interval);
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn passed(gaps_ms: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let (mut pace, start) = (Pace::new(SECOND), Instant::now());
        let mut at = 0;
        let mut passed = vec![];
        for gap in gaps_ms {
            at += gap;
            if pace.passes(start + Duration::from_millis(at)) {
                passed.push(at);
            }
        }
        passed
    }

    #[test]
    fn an_uneven_receiver_of_one_hertz_loses_none() {
        let gaps = [1_000, 980, 1_030, 960, 1_000, 1_020, 990];
        assert_eq!(passed(gaps).len(), gaps.len());
    }

    #[test]
    fn ten_hertz_are_thinned_to_one() {
        let passed = passed(std::iter::repeat_n(100, 100));
        assert!((10..=11).contains(&passed.len()), "{passed:?}");
    }

    proptest! {
        #[test]
        fn never_more_than_one_an_interval_but_the_one_that_is_early(
            gaps in prop::collection::vec(0u64..3_000, 1..200),
        ) {
            let passed = passed(gaps);
            for (first, at) in passed.iter().enumerate() {
                let within = passed[first..].iter().filter(|other| **other < at + 10_000).count();
                prop_assert!(within <= 11, "{} within ten seconds", within);
            }
        }
    }
}
