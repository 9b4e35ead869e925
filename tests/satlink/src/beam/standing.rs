//! How long a queue makes packets wait, over time.

use serde::{Deserialize, Serialize};

use super::Nanos;

/// Distance between two samples.
const STEP: Nanos = 10_000_000;

/// Runs of equal samples that are kept; the oldest make room.
const MAX_RUNS: usize = 1 << 18;

/// How long the oldest packet in a queue had waited, at regular intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSeries {
    /// Time of the first sample, ns of the machine's monotonic clock.
    pub begin_ns: Nanos,
    /// Distance between two samples, ns.
    pub step_ns: Nanos,
    /// Runs of equal samples: the wait in µs, 0 for an empty queue, and how many samples have it.
    pub runs: Vec<(u32, u32)>,
}

/// Samples the age of a queue's head.
///
/// The queue's state is constant between two changes, so samples are taken afterwards, for their
/// exact times, independent of when the queue is observed.
#[derive(Debug)]
pub(super) struct Standing {
    begin: Nanos,
    next: Nanos,
    runs: std::collections::VecDeque<(u32, u32)>,
}

impl Standing {
    /// Samples from `now` on.
    pub(super) fn new(now: Nanos) -> Self {
        let begin = now.next_multiple_of(STEP);
        Standing {
            begin,
            next: begin,
            runs: std::collections::VecDeque::new(),
        }
    }

    /// Takes the samples before `until`, up to which the oldest packet is the one that came at
    /// `oldest`; `None` is an empty queue.
    pub(super) fn observe(&mut self, until: Nanos, oldest: Option<Nanos>) {
        if self.next >= until {
            return;
        }
        let Some(oldest) = oldest else {
            let samples = (until - self.next).div_ceil(STEP);
            self.note(0, samples);
            return;
        };
        while self.next < until {
            let waited = self.next.saturating_sub(oldest) / 1000;
            self.note(u32::try_from(waited).unwrap_or(u32::MAX), 1);
        }
    }

    fn note(&mut self, waited_us: u32, samples: u64) {
        self.next += samples * STEP;
        let samples = u32::try_from(samples).unwrap_or(u32::MAX);
        match self.runs.back_mut() {
            Some((value, count)) if *value == waited_us => *count = count.saturating_add(samples),
            _ => self.runs.push_back((waited_us, samples)),
        }
        while self.runs.len() > MAX_RUNS {
            let dropped = self.runs.pop_front().map_or(0, |(_, count)| count);
            self.begin += u64::from(dropped) * STEP;
        }
    }

    pub(super) fn series(&self) -> QueueSeries {
        QueueSeries {
            begin_ns: self.begin,
            step_ns: STEP,
            runs: self.runs.iter().copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn samples_are_the_age_of_the_head_every_ten_milliseconds() {
        let mut standing = Standing::new(3 * MS);
        standing.observe(25 * MS, None);
        standing.observe(47 * MS, Some(25 * MS));
        standing.observe(60 * MS, None);
        let series = standing.series();
        assert_eq!((series.begin_ns, series.step_ns), (10 * MS, 10 * MS));
        // At 10 and 20 ms nothing waits; at 30 and 40 ms what came at 25 ms; at 50 ms nothing.
        assert_eq!(series.runs, [(0, 2), (5_000, 1), (15_000, 1), (0, 1)]);
    }

    #[test]
    fn a_sample_at_a_change_is_of_the_time_behind_it() {
        let mut standing = Standing::new(0);
        standing.observe(10 * MS, None);
        standing.observe(20 * MS, Some(10 * MS));
        assert_eq!(standing.series().runs, [(0, 2)]);
        standing.observe(21 * MS, Some(10 * MS));
        assert_eq!(standing.series().runs, [(0, 2), (10_000, 1)]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut standing = Standing::new(0);
        for sample in 0..MAX_RUNS as u64 + 10 {
            standing.observe(
                (sample + 1) * STEP,
                Some(sample * STEP - (sample % 2) * 5 * MS),
            );
        }
        let series = standing.series();
        assert_eq!(series.runs.len(), MAX_RUNS);
        assert_eq!(series.begin_ns, 10 * STEP);
    }
}
