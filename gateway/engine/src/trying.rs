//! When flows try again a path whose estimate has fallen.
//!
//! Flows that are to be complete first (*minfct*) then go by other paths, and nothing shows that
//! the path carries more again. So if nothing has waited for its rate for long, it counts for a
//! short time as if it carried what it did before. A flow that is only a little later if it does
//! not may go there. Meanwhile the path also takes a part of what waits for others, as far as it
//! delivers that sooner than they would: where all flows are large, nothing else tries it. This
//! load makes the estimate follow what the path carries. If the estimate has not risen, the next
//! trial comes later.

use std::time::{Duration, Instant};

use underpass_cla::Class;

use crate::completing::ComparedPath;
use crate::engine::Engine;
use crate::hop::HopId;

/// The shortest and the longest time between trials of a path.
const RESTS: Duration = Duration::from_secs(5);
const LONGEST_REST: Duration = Duration::from_secs(320);
/// A trial lasts so long plus so many round trips.
const LASTS: Duration = Duration::from_secs(2);
const ROUND_TRIPS: u32 = 4;
/// A path that has had something to send for so long has been tested by its own load.
const TESTED: Duration = Duration::from_secs(1);
/// A flow tries a path only if it is at most so much later should the low estimate prove right.
const MOST_LATER: Duration = Duration::from_secs(1);

/// The state of a path's trials.
#[derive(Debug)]
pub(crate) struct Trial {
    /// The most that it was found to carry, bit/s.
    most_bps: u64,
    /// What it was found to carry last, bit/s.
    last_bps: u64,
    /// When its estimate was last tested, as far as that is known.
    tested: Instant,
    /// Since when there was something to send each time that was checked.
    loaded: Option<Instant>,
    /// How long it rests before the next trial.
    rests: Duration,
    /// When a trial began, and the estimate then, bit/s.
    began: Option<(Instant, u64)>,
}

impl Trial {
    pub fn new(now: Instant) -> Trial {
        Trial {
            most_bps: 0,
            last_bps: 0,
            tested: now,
            loaded: None,
            rests: RESTS,
            began: None,
        }
    }

    /// The most that the path was found to carry, bit/s.
    pub fn most_bps(&self) -> u64 {
        self.most_bps
    }

    /// Takes what the path is found to carry, bit/s.
    pub fn found(&mut self, now: Instant, bps: u64) {
        self.most_bps = self.most_bps.max(bps);
        if bps < std::mem::replace(&mut self.last_bps, bps) {
            // Only traffic can have shown a lower rate, so the path was tested.
            self.tested = now;
        }
        if is_more(self.most_bps, bps) {
            return;
        }
        self.rests = RESTS;
        self.began = None;
    }

    /// Whether a path may be tried that carried `before_bps` and whose estimate is now `bps`, both
    /// bit/s. `loaded`: it has something to send.
    fn is_due(
        &mut self,
        now: Instant,
        bps: u64,
        before_bps: u64,
        rtt: Duration,
        loaded: bool,
    ) -> bool {
        self.loaded = match loaded {
            true => self.loaded.or(Some(now)),
            false => None,
        };
        if let Some((began, estimate)) = self.began {
            if now < began + LASTS + rtt * ROUND_TRIPS {
                return is_more(before_bps, bps);
            }
            self.began = None;
            self.tested = now;
            self.rests = match is_more(bps, estimate) {
                true => RESTS,
                false => (2 * self.rests).min(LONGEST_REST),
            };
        }
        if self.loaded.is_some_and(|since| now >= since + TESTED) {
            self.tested = now;
        }
        !loaded && is_more(before_bps, bps) && now >= self.tested + self.rests
    }

    /// A flow tries the path.
    fn begin(&mut self, now: Instant, bps: u64) {
        self.began = self.began.or(Some((now, bps)));
    }
}

impl Engine {
    /// Lets a path that is due for a trial count as if it carried again what it did before, if the
    /// flow is only a little later should it not.
    pub(crate) fn try_again(
        &mut self,
        now: Instant,
        class: Class,
        size_bytes: u64,
        compared: &mut [ComparedPath],
    ) {
        let estimate = self.policy(class).estimate;
        let Some(first) = compared.iter().filter_map(ComparedPath::costs).min() else {
            return;
        };
        // A flow tries at most one path.
        let mut tried: Option<(Duration, usize, ComparedPath, u64)> = None;
        for (place, one) in compared.iter().enumerate() {
            let share_bps = self.scheduler.share_bps(one.hop.terminal());
            let Some(hop) = self.hops.get_mut(&one.hop) else {
                continue;
            };
            // A small share of the beam is no estimate that has fallen.
            let (Some(bps), Some(costs)) = (hop.usable_bps(), one.costs()) else {
                continue;
            };
            let loaded = one.others.flows > 0 || !hop.ready.is_empty();
            let (best_bps, rtt) = (hop.best_bps(), hop.round_trip());
            let due = hop.trial.is_due(now, bps, best_bps, rtt, loaded);
            if !due || costs <= first || costs > first.saturating_add(MOST_LATER) {
                continue;
            }
            let mut again = one.clone();
            again.path.capacity_bps = share_bps.into_iter().chain([best_bps]).min();
            again.completes = Some(estimate.of(&again.path, &one.others, size_bytes));
            again.others_wait = estimate.others_wait(&again.path, &one.others, size_bytes);
            let Some(costs) = again.costs().filter(|costs| *costs < first) else {
                continue;
            };
            if tried.as_ref().is_none_or(|(least, ..)| costs < *least) {
                tried = Some((costs, place, again, bps));
            }
        }
        let Some((_, place, again, bps)) = tried else {
            return;
        };
        if let Some(hop) = self.hops.get_mut(&again.hop) {
            hop.trial.begin(now, bps);
        }
        compared[place] = again;
    }

    /// Whether a path is being tried or may be, so that it may take a part of what waits for
    /// others. `waits`: something waits for the path itself, too.
    pub(crate) fn may_help(&mut self, now: Instant, id: HopId, waits: bool) -> bool {
        let Some(hop) = self.hops.get_mut(&id) else {
            return false;
        };
        let Some(bps) = hop.usable_bps() else {
            return false;
        };
        let (best_bps, rtt) = (hop.best_bps(), hop.round_trip());
        // Between two bundles nothing is ready, though more waits.
        let loaded = waits || !hop.ready.is_empty();
        hop.trial.is_due(now, bps, best_bps, rtt, loaded)
    }

    /// Begins a trial: a path is about to take a part of what waits for others.
    pub(crate) fn begin_to_help(&mut self, now: Instant, id: HopId) {
        if let Some(hop) = self.hops.get_mut(&id)
            && let Some(bps) = hop.usable_bps()
        {
            hop.trial.begin(now, bps);
        }
    }
}

/// Whether a rate is more than a quarter above another.
fn is_more(bps: u64, than_bps: u64) -> bool {
    bps > than_bps.saturating_add(than_bps / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RTT: Duration = Duration::from_millis(50);
    const MUCH: u64 = 10_000_000;
    const LITTLE: u64 = 300_000;

    fn fallen(now: Instant) -> Trial {
        let mut trial = Trial::new(now - 60 * SECOND);
        trial.found(now, MUCH);
        trial.found(now, LITTLE);
        trial
    }

    fn is_due(trial: &mut Trial, now: Instant, bps: u64) -> bool {
        let before_bps = trial.most_bps();
        trial.is_due(now, bps, before_bps, RTT, false)
    }

    #[test]
    fn a_trial_is_short_and_the_next_one_later_each_time_in_vain() {
        let mut now = Instant::now() + 60 * SECOND;
        let mut trial = fallen(now);
        for rests in [5_u32, 10, 20, 40, 80, 160, 320, 320] {
            now += rests * SECOND;
            assert!(!is_due(&mut trial, now - SECOND / 10, LITTLE));
            assert!(is_due(&mut trial, now, LITTLE));
            trial.begin(now, LITTLE);
            assert!(is_due(&mut trial, now + 2 * SECOND, LITTLE));
            now += 2 * SECOND + 4 * RTT;
            assert!(!is_due(&mut trial, now, LITTLE));
        }
        // The rate has risen, so it is tried again soon.
        now += 320 * SECOND;
        assert!(is_due(&mut trial, now, LITTLE));
        trial.begin(now, LITTLE);
        now += 3 * SECOND;
        assert!(!is_due(&mut trial, now, 2 * LITTLE));
        assert!(is_due(&mut trial, now + 5 * SECOND, 2 * LITTLE));
    }

    #[test]
    fn what_carries_as_much_as_ever_is_not_tried() {
        let now = Instant::now() + 60 * SECOND;
        let mut trial = fallen(now);
        let later = now + 60 * SECOND;
        assert!(!trial.is_due(later, LITTLE, LITTLE, RTT, false));
        trial.begin(later, LITTLE);
        trial.found(later, MUCH);
        assert!(!is_due(&mut trial, later, MUCH));
    }

    #[test]
    fn a_path_in_use_is_not_tried_but_one_that_little_trickles_by_is() {
        let now = Instant::now() + 60 * SECOND;
        for (loads, expected) in [([true, true], false), ([true, false], true)] {
            let mut trial = fallen(now);
            for half in 0..12_u32 {
                for (quarter, loaded) in loads.into_iter().enumerate() {
                    let at = now + SECOND / 4 * (2 * half + quarter as u32);
                    let _ = trial.is_due(at, LITTLE, MUCH, RTT, loaded);
                }
            }
            let later = now + 6 * SECOND;
            assert_eq!(is_due(&mut trial, later, LITTLE), expected, "{loads:?}");
        }
    }
}
