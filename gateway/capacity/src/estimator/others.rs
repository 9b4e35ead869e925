//! Others fill the queue of this direction.

use std::time::{Duration, Instant};

use super::{Estimator, MOST_FRAMES};

/// After a drain that has not moved others' queue, the next one looks for it so much later, and
/// each time twice as late, up to a bound.
const LOOKS_AFTER: Duration = Duration::from_secs(4);
const LOOKS_AFTER_MOST: Duration = Duration::from_secs(60);
/// While others fill the queue, the estimate keeps this part of what it was before.
const KEPT_BESIDE: f64 = 0.25;
/// Their queue is at least this part (1/n) of the base round trip: a shorter one may be of a sender's
/// own bursts, and of its acknowledgements for the other direction.
const OTHERS_PART: u32 = 4;

/// Drains have not moved a queue that the peer reports: others fill it. It counts as part of the
/// round trip, and a drain looks now and then whether they have ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others {
    /// When the next drain is due, and the pause before it.
    next_at: Instant,
    pause: Duration,
    /// The least estimate meanwhile, bit/s: sending less would not shorten their queue.
    pub(super) least_bps: f64,
}

impl Estimator {
    /// Whether a queue of this length, which drains do not move, is others': the peer reports it,
    /// too, and its beacons are too small to wait for access.
    pub(super) fn is_of_others(&self, queue: Duration) -> bool {
        let long = self
            .base
            .get()
            .is_some_and(|base| queue >= base / OTHERS_PART);
        long && self.reported.is_some_and(|told| told.late > queue / 2)
    }

    /// Notes that others fill the queue. A drain that looked whether they had ended has shown nothing
    /// about the link.
    pub(super) fn beside_others(&mut self, now: Instant) -> Others {
        if self.others.is_some() {
            self.capacity = Some(self.before).filter(|bps| bps.is_finite());
        }
        let ceiling = self.limits.ceiling_bps.map(|bps| bps as f64);
        let kept = self.before.min(ceiling.unwrap_or(f64::INFINITY)) * KEPT_BESIDE;
        let found = Some(kept).filter(|bps| bps.is_finite()).unwrap_or_default();
        let (pause, least_bps) = match self.others {
            Some(others) => ((2 * others.pause).min(LOOKS_AFTER_MOST), others.least_bps),
            None => (LOOKS_AFTER, found),
        };
        Others {
            next_at: now + pause,
            pause,
            least_bps,
        }
    }

    /// Drains again when it is time to see whether others still fill the queue. Without others, bounds
    /// the wait for access.
    pub(super) fn look_for_others(&mut self, now: Instant, base: Duration) {
        if self.others.is_none() {
            self.access = self.access.min(base + MOST_FRAMES);
        }
        if self.drain.is_some() || self.probing.sending(now).is_some() {
            return;
        }
        if self.access.is_zero() && self.others.take().is_some() {
            // They have ended, and what they took is free.
            self.probing.double(now);
        }
        if self.others.is_some_and(|others| now >= others.next_at) {
            let latest = base + self.access;
            self.access = Duration::ZERO;
            self.before = self.capacity.unwrap_or(f64::INFINITY);
            self.begin_drain(now, latest);
            self.probing.step_back(now, base);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Reason};

    #[test]
    fn an_estimate_that_begins_anew_keeps_nothing_of_the_one_before() {
        let mut estimator = Estimator::new(Limits::default());
        estimator.before = 40e6;
        estimator.others = Some(estimator.beside_others(Instant::now()));
        estimator.estimate(1e6, Reason::Limit);
        assert_eq!(estimator.capacity_bps(), Some(10_000_000));
        estimator.begin_anew();
        estimator.estimate(1e6, Reason::Limit);
        assert_eq!(estimator.capacity_bps(), Some(1_000_000));
    }
}
