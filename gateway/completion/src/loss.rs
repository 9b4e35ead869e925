//! The part of its packets that a path loses.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The part is computed anew so often.
const STEP: Duration = Duration::from_millis(100);
/// How long packets count; longer while there are few, up to the second value.
const COUNTS: Duration = Duration::from_secs(10);
const COUNTS_AT_MOST: Duration = Duration::from_secs(60);
const FEW_PACKETS: u64 = 500;

/// Losses of a path over the last seconds. All losses within a round trip are one recovery, and
/// count as one event. So a queue that overflows once counts once, however many packets it drops
/// (section on PTLR of the paper).
#[derive(Clone, Debug, Default)]
pub struct LossWindow {
    /// The oldest first; the last one is being filled.
    steps: VecDeque<Step>,
    packets: u64,
    events: u64,
    recovers_until: Option<Instant>,
    loss: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    begins: Instant,
    packets: u64,
    events: u64,
}

impl LossWindow {
    /// Notes that so many packets were sent since the last call, whether any was
    /// sent again, and the smoothed round trip.
    pub fn sent(&mut self, now: Instant, packets: u64, repeats: bool, rtt: Duration) {
        let full = |step: &Step| now >= step.begins + STEP;
        if self.steps.back().is_none_or(full) {
            self.judge(now);
            self.steps.push_back(Step {
                begins: now,
                packets: 0,
                events: 0,
            });
        }
        let begins = repeats && self.recovers_until.is_none_or(|until| now >= until);
        if begins {
            self.recovers_until = Some(now + rtt);
        }
        if let Some(step) = self.steps.back_mut() {
            step.packets += packets;
            step.events += u64::from(begins);
            self.packets += packets;
            self.events += u64::from(begins);
        }
    }

    /// The part of the packets that begin a recovery, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    fn judge(&mut self, now: Instant) {
        while let Some(oldest) = self.steps.front().copied() {
            let age = now.saturating_duration_since(oldest.begins);
            let enough = self.packets - oldest.packets >= FEW_PACKETS;
            if age <= COUNTS || age <= COUNTS_AT_MOST && !enough {
                break;
            }
            self.steps.pop_front();
            self.packets -= oldest.packets;
            self.events -= oldest.events;
        }
        self.loss = match self.packets {
            0 => 0.0,
            packets => (self.events as f64 / packets as f64).min(1.0),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    /// Sends 10 packets every 10 ms for `s` seconds; those of `repeats` are repeated.
    fn send(window: &mut LossWindow, from: Instant, s: u64, repeats: impl Fn(u64) -> bool) {
        for tick in 0..s * 100 {
            let now = from + Duration::from_millis(tick * 10);
            window.sent(now, 10, repeats(tick), RTT);
        }
    }

    #[test]
    fn what_is_lost_within_a_round_trip_is_one_event() {
        let mut window = LossWindow::default();
        // 40 losses in 0.4 s, of 5,000 packets in 5 s.
        send(&mut window, Instant::now(), 5, |tick| {
            (100..140).contains(&tick)
        });
        let expected = 1.0 / 5_000.0;
        assert!(
            (window.loss() - expected).abs() < 0.1 * expected,
            "{}",
            window.loss()
        );
    }

    #[test]
    fn losses_apart_count_each() {
        let mut window = LossWindow::default();
        send(&mut window, Instant::now(), 10, |tick| tick % 100 == 50);
        let expected = 10.0 / 10_000.0;
        assert!(
            (window.loss() - expected).abs() < 0.1 * expected,
            "{}",
            window.loss()
        );
    }

    #[test]
    fn a_loss_is_forgotten_and_memory_is_bounded() {
        let mut window = LossWindow::default();
        let begin = Instant::now();
        send(&mut window, begin, 2, |tick| tick == 5);
        assert!(window.loss() > 0.0);
        send(&mut window, begin + Duration::from_secs(2), 12, |_| false);
        assert_eq!(window.loss(), 0.0);
        assert!(window.steps.len() <= 102, "{}", window.steps.len());
    }

    #[test]
    fn of_an_idle_path_the_last_figure_holds_for_a_minute() {
        let mut window = LossWindow::default();
        let begin = Instant::now();
        for tick in 0..10 {
            let now = begin + Duration::from_millis(tick * 10);
            window.sent(now, 10, tick == 5, RTT);
        }
        let later = |s| begin + Duration::from_secs(s);
        for s in [2, 20, 50] {
            window.sent(later(s), 1, false, RTT);
        }
        assert!(window.loss() > 0.0);
        for s in [65, 130] {
            window.sent(later(s), 1, false, RTT);
        }
        assert_eq!(window.loss(), 0.0);
    }
}
