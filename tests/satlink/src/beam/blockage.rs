//! When a terminal has no line of sight.

use super::Nanos;
use super::profile::MAX_DELAY_MS;

/// How long past intervals matter: a packet that left in one may still be in flight. Twice the
/// longest delay leaves room for the longest jitter.
const HISTORY: Nanos = 2 * MAX_DELAY_MS * 1_000_000;

/// A blockage from `start` for `duration`; it covers `start` but not its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// When it begins.
    pub start: Nanos,
    /// How long it lasts.
    pub duration: Nanos,
}

#[derive(Debug)]
struct Blocked {
    start: Nanos,
    end: Nanos,
    scheduled: bool,
}

/// Past, present and planned blockages of one terminal.
///
/// What has passed is never rewritten: a return packet is judged by the time
/// at which it departed, long after that time.
#[derive(Debug, Default)]
pub(super) struct Blockage {
    schedule: Vec<Interval>,
    intervals: Vec<Blocked>,
}

impl Blockage {
    /// Whether the terminal is blocked at `at`.
    pub(super) fn covers(&self, at: Nanos) -> bool {
        self.intervals
            .iter()
            .any(|one| one.start <= at && at < one.end)
    }

    /// Blocks from `now` on.
    pub(super) fn block(&mut self, now: Nanos, duration: Option<Nanos>) {
        self.forget(now);
        self.intervals.push(Blocked {
            start: now,
            end: duration.map_or(Nanos::MAX, |span| now.saturating_add(span)),
            scheduled: false,
        });
    }

    /// Ends the blockage that covers `now`; later scheduled ones stay.
    pub(super) fn unblock(&mut self, now: Nanos) {
        for one in &mut self.intervals {
            if one.start <= now {
                one.end = one.end.min(now);
            }
        }
        self.forget(now);
    }

    /// Replaces the schedule by one relative to `epoch`.
    pub(super) fn lay(&mut self, schedule: Vec<Interval>, epoch: Nanos, now: Nanos) {
        self.schedule = schedule;
        for one in self.intervals.iter_mut().filter(|one| one.scheduled) {
            one.end = one.end.min(now);
        }
        for planned in &self.schedule {
            let start = epoch.saturating_add(planned.start);
            self.intervals.push(Blocked {
                start: start.max(now),
                end: start.saturating_add(planned.duration),
                scheduled: true,
            });
        }
        self.forget(now);
    }

    /// Begins the schedule again from a new epoch.
    pub(super) fn relay(&mut self, epoch: Nanos) {
        let schedule = std::mem::take(&mut self.schedule);
        self.lay(schedule, epoch, epoch);
    }

    fn forget(&mut self, now: Nanos) {
        self.intervals
            .retain(|one| one.start < one.end && one.end.saturating_add(HISTORY) > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    fn interval(start_s: u64, duration_s: u64) -> Interval {
        Interval {
            start: start_s * S,
            duration: duration_s * S,
        }
    }

    #[test]
    fn block_for_a_time_ends_by_itself() {
        let mut blockage = Blockage::default();
        blockage.block(10 * S, Some(5 * S));
        assert!(!blockage.covers(10 * S - 1));
        assert!(blockage.covers(10 * S));
        assert!(blockage.covers(15 * S - 1));
        assert!(!blockage.covers(15 * S));
    }

    #[test]
    fn unblock_keeps_the_past_and_the_schedule() {
        let mut blockage = Blockage::default();
        blockage.lay(vec![interval(100, 10)], 0, 0);
        blockage.block(10 * S, None);
        blockage.unblock(20 * S);
        assert!(blockage.covers(19 * S));
        assert!(!blockage.covers(20 * S));
        assert!(blockage.covers(105 * S));
    }

    #[test]
    fn new_schedule_replaces_the_old_but_not_a_command() {
        let mut blockage = Blockage::default();
        blockage.lay(vec![interval(5, 10), interval(50, 10)], 0, 0);
        blockage.block(7 * S, Some(2 * S));
        blockage.lay(vec![interval(30, 5)], 0, 8 * S);
        assert!(blockage.covers(8 * S), "the command holds");
        assert!(!blockage.covers(10 * S));
        assert!(blockage.covers(32 * S));
        assert!(!blockage.covers(52 * S));
        assert!(blockage.covers(6 * S), "what has passed stays");
    }

    #[test]
    fn schedule_begins_again_at_a_new_epoch() {
        let mut blockage = Blockage::default();
        blockage.lay(vec![interval(5, 10)], 0, 0);
        blockage.relay(100 * S);
        assert!(!blockage.covers(104 * S));
        assert!(blockage.covers(105 * S));
    }

    #[test]
    fn past_intervals_are_forgotten() {
        let mut blockage = Blockage::default();
        for second in 0..10_000 {
            blockage.block(second * S, Some(1));
        }
        assert!(blockage.intervals.len() < 200);
    }
}
