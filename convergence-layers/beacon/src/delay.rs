//! How much longer than the least a peer's beacons take.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::timing::INTERVAL;
use crate::wire::Sequence;

/// How fast the least delay may rise, as a fraction of the elapsed time: the clocks of two nodes
/// drift apart, by at most 100 ppm each if they are not synchronised.
const DRIFT: f64 = 200e-6;

/// How long the lateness of a beacon counts: the next one may be lost, and a queue may be longer
/// between two readings than at either of them.
const COUNTS: Duration = Duration::from_millis(400);

/// After this long without a beacon, nothing is known.
pub(crate) const KNOWN: Duration = Duration::from_secs(1);

/// Most beacons that are remembered: they are 150 ms apart, so older ones do not count.
const MOST: usize = 8;

/// The path may become longer by up to `LONGEST_STEP` when a satellite takes over from another.
/// This many beacons show it, if more than half of them come within `STEADY` of the earliest. A
/// queue of that length instead comes and goes; or it is always full, and then the sender detects
/// that.
const STEP_BEACONS: usize = 5;
const STEADY: Duration = Duration::from_millis(2);
const LONGEST_STEP: Duration = Duration::from_millis(50);

/// The delays of one peer's beacons. Its clock and this node's are unrelated: only differences
/// count.
#[derive(Debug)]
pub(crate) struct Delays {
    begun: Instant,
    /// The peer's run; the beacons' numbers are milliseconds of it.
    incarnation: Option<u64>,
    /// The least delay at the last update, ms by two unrelated clocks.
    least: f64,
    least_at: Instant,
    /// The lateness of the last beacons, with the times of their arrival.
    late: VecDeque<(Instant, Duration)>,
}

impl Delays {
    pub fn new(now: Instant) -> Delays {
        Delays {
            begun: now,
            incarnation: None,
            least: 0.0,
            least_at: now,
            late: VecDeque::new(),
        }
    }

    /// The beacon with this number came.
    pub fn see(&mut self, now: Instant, sequence: Sequence) {
        let here = now.saturating_duration_since(self.begun).as_secs_f64() * 1e3;
        let delay = here - f64::from(sequence.counter);
        if self.incarnation != Some(sequence.incarnation) {
            self.incarnation = Some(sequence.incarnation);
            self.least = delay;
            self.late.clear();
        }
        let since = now.saturating_duration_since(self.least_at);
        let risen = self.least + since.as_secs_f64() * 1e3 * DRIFT;
        self.least = risen.min(delay);
        self.least_at = now;
        let late = Duration::from_secs_f64((delay - self.least).max(0.0) / 1e3);
        self.late.push_back((now, late));
        if self.late.len() > MOST {
            self.late.pop_front();
        }
        if let Some(step) = self.step() {
            self.least += step.as_secs_f64() * 1e3;
            for (_, late) in &mut self.late {
                *late = late.saturating_sub(step);
            }
        }
    }

    /// By how much the way has become longer.
    fn step(&self) -> Option<Duration> {
        let first = self.late.len().checked_sub(STEP_BEACONS)?;
        let mut late: Vec<Duration> = self.late.range(first..).map(|(_, late)| *late).collect();
        late.sort_unstable();
        let (earliest, median) = (late[0], late[STEP_BEACONS / 2]);
        let steady = median <= earliest + STEADY;
        (steady && earliest > STEADY && earliest <= LONGEST_STEP).then_some(earliest)
    }

    /// The lateness of the peer's last beacon; `None` while none comes.
    pub fn last(&self, now: Instant) -> Option<Duration> {
        let (_, late) = self.late.back().filter(|(at, _)| now < *at + KNOWN)?;
        Some(*late)
    }

    /// The time between its last two.
    pub fn pause(&self) -> Duration {
        let mut latest = self.late.iter().rev().map(|(at, _)| *at);
        match (latest.next(), latest.next()) {
            (Some(last), Some(before)) => last.saturating_duration_since(before).max(INTERVAL),
            _ => INTERVAL,
        }
    }

    /// The largest recent lateness of the peer's beacons; `None` while none comes.
    pub fn late(&self, now: Instant) -> Option<Duration> {
        let (last, late) = self.late.back().filter(|(at, _)| now < *at + KNOWN)?;
        let recent = self.late.iter().filter(|(at, _)| *last < *at + COUNTS);
        Some(recent.map(|(_, late)| *late).max().unwrap_or(*late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn sequence(incarnation: u64, counter: u32) -> Sequence {
        Sequence {
            incarnation,
            counter,
        }
    }

    /// The largest error for a peer whose clock gains `ppm` on this node's, with a queue now and
    /// then.
    fn longest_error_ms(ppm: f64, minutes: u32) -> f64 {
        let start = Instant::now();
        let mut delays = Delays::new(start);
        let mut longest = 0.0_f64;
        for beacon in 0..minutes * 400 {
            let sent = beacon * 150;
            // Each minute a queue of 80 ms stands for 20 s.
            let queue = if sent % 60_000 < 20_000 { 80.0 } else { 0.0 };
            let arrives = f64::from(sent) * (1.0 - ppm * 1e-6) + 300.0 + queue;
            let now = start + Duration::from_secs_f64(arrives / 1e3);
            delays.see(now, sequence(1, 7_000_000 + sent));
            let late = delays.late(now).unwrap().as_secs_f64() * 1e3;
            let settled = sent > 60_000 && sent % 10_000 > 400;
            if settled {
                longest = longest.max((late - queue).abs());
            }
        }
        longest
    }

    #[test]
    fn a_queue_is_told_from_clocks_that_run_apart() {
        for ppm in [-100.0, -20.0, 0.0, 20.0, 100.0] {
            let longest = longest_error_ms(ppm, 120);
            assert!(longest < 10.0, "{ppm}: {longest}");
        }
    }

    /// The final result, ms, for beacons with this lateness, 150 ms apart.
    fn told_ms(late_ms: impl IntoIterator<Item = u32>) -> f64 {
        let start = Instant::now();
        let mut delays = Delays::new(start);
        let mut told = None;
        for (beacon, late) in (0..).zip(late_ms) {
            let now = start + (beacon * 150 + late) * MS;
            delays.see(now, sequence(1, beacon * 150));
            told = delays.late(now);
        }
        told.unwrap().as_secs_f64() * 1e3
    }

    #[test]
    fn a_longer_way_is_no_queue_for_longer_than_five_beacons() {
        let steps = [[0; 5], [12; 5], [40; 5]].concat();
        assert!(told_ms(steps[..9].iter().copied()) > 11.0);
        assert!(told_ms(steps[..10].iter().copied()) < 1.0);
        assert!(told_ms(steps[..14].iter().copied()) > 27.0);
        // Also if some beacons are later at times.
        let beside = [40, 40, 61, 40, 55];
        assert!(told_ms(steps[..10].iter().copied().chain(beside)) < 22.0);
        assert!(told_ms(steps.into_iter().chain([10])) < 1.0);
        // No satellite is this much further away than the previous one.
        assert!(told_ms([0; 5].into_iter().chain([60; 40])) > 57.0);
    }

    #[test]
    fn a_queue_that_comes_and_goes_is_no_longer_way() {
        for apart in [5, 9] {
            let queue = (0..200).map(|beacon| 5 + apart * (beacon % 4));
            assert!(told_ms([0; 5].into_iter().chain(queue)) > f64::from(2 * apart));
        }
    }

    #[test]
    fn what_was_late_counts_until_two_beacons_later() {
        let start = Instant::now();
        let mut delays = Delays::new(start);
        let times = [(0, 0), (150, 0), (300, 60), (450, 5), (600, 5), (800, 5)];
        let told = [0, 0, 60, 60, 60, 5];
        for ((sent, late), told) in times.into_iter().zip(told) {
            let now = start + (sent + late) * MS;
            delays.see(now, sequence(1, sent));
            let known = delays.late(now).unwrap();
            assert!(known.abs_diff(told * MS) < MS, "{sent}: {known:?}");
        }
        assert_eq!(delays.late(start + 2000 * MS), None);
    }

    #[test]
    fn a_peer_that_restarts_or_lies_has_no_queue_for_long() {
        let start = Instant::now();
        let mut delays = Delays::new(start);
        delays.see(start + 1000 * MS, sequence(1, 90_000));
        delays.see(start + 1150 * MS, sequence(2, 0));
        assert_eq!(delays.late(start + 1150 * MS), Some(Duration::ZERO));
        for counter in [u32::MAX, 0, u32::MAX] {
            delays.see(start + 1300 * MS, sequence(2, counter));
            assert!(delays.late(start + 1300 * MS).is_some());
        }
        assert_eq!(delays.late.len(), 4);
    }
}
