//! What a probe has shown.

use std::time::{Duration, Instant};

use super::Estimator;
use crate::Reason;
use crate::history::{DELIVERED_BITS, REPEATED_BITS, SENT_BITS};
use crate::probe::{MOST_GAIN, Probe};
use crate::view::View;

/// The part of what a probe sends above the estimate that must arrive.
const FOUND: f64 = 0.6;
/// The part of the allowed rate that is sent at least: the link scheduler leaves some of it unused,
/// and so does a sender that stops now and then.
const UTILISATION: f64 = 0.95;
/// What is missing of a probe can be counted if at least so many bunches of arrivals fit into it.
const BUNCHES_PER_PROBE: u32 = 2;
/// Over less than this, beacons do not show how fast the queue on the way back grows.
const LEAST_SPAN: Duration = Duration::from_millis(300);
/// A probe that sent less than this part of its excess says nothing.
const SENT: f64 = 0.5;
/// A probe of less than this, up to the ceiling, is less than what arrivals vary by: only the queue
/// that it leaves counts. If the link carries less than the ceiling after all, a standing queue
/// shows it later.
const TOO_LITTLE_TO_COUNT: f64 = 0.03;
/// The part that is believed of the rate at which a steep probe was seen to arrive.
const KEPT_OF_STEEP: f64 = 0.9;

impl Estimator {
    pub(super) fn answer(&mut self, now: Instant, view: &View, probe: Probe) {
        let sent = self.history.sent(probe.began, probe.ends);
        if sent < probe.capacity * UTILISATION * (1.0 + SENT * probe.gain) {
            self.probing.inconclusive(now);
            return;
        }
        let wanted = probe.capacity + FOUND * (sent - probe.capacity);
        let told = view.told.filter(|_| probe.told);
        let queue = told.map_or(view.queue, |told| self.history.mean_told(now, told));
        let risen = queue.saturating_sub(probe.queue);
        // If the probe has left no queue, present losses are the link's own.
        let loss = match risen < view.noticed / 4 {
            true => self.loss.max(self.recent_loss(now).unwrap_or_default()),
            false => self.loss,
        };
        let length = probe.ends - probe.began;
        // It need not have waited for access.
        let first = probe.began + self.base.get().unwrap_or(view.base) + length;
        let best = self.best_arrivals(first, probe.answered, length) / (1.0 - loss) + view.other;
        let arrived = match (view.steady, told) {
            (true, _) => best.max(self.counted_arrivals(now, probe, view, sent, loss)),
            // What has not arrived in time stands in the queue. Beacons report that only at some
            // moments, and with noise, so no more is believed than arrivals allow.
            (false, Some(_)) => {
                let queued = sent / (1.0 + risen.div_duration_f64(length));
                let most = best * self.stretched_by(first, probe.answered);
                (queued - self.overflown(now, probe, view)).min(most)
            }
            (false, None) => best,
        };
        let held_up = !view.steady && told.is_none() && arrived < probe.capacity;
        if held_up && risen < view.noticed / 2 {
            // Acknowledgements are delayed, and nothing shows a queue in this direction.
            self.probing.pause(now, view.base);
            return;
        }
        // With a queue on the way back a probe shows less, so the estimate doubles at most.
        let most = match view.steady {
            true => f64::INFINITY,
            false => probe.capacity * (1.0 + MOST_GAIN),
        };
        let ceiling = self.limits.ceiling_bps.map(|bps| bps as f64);
        let ceiling = ceiling.filter(|_| probe.gain < TOO_LITTLE_TO_COUNT);
        if (arrived >= wanted || ceiling.is_some()) && risen < view.noticed / 2 {
            let capacity = self.capacity.unwrap_or(0.0);
            let found = ceiling.unwrap_or(arrived.min(sent).min(most));
            self.estimate(capacity.max(found), Reason::Probe);
            self.probing.found(now);
        } else {
            self.reason = Reason::Limit;
            if probe.gain > MOST_GAIN && view.steady {
                // So short and steep a probe shows roughly what arrives.
                let capacity = self.capacity.unwrap_or(0.0);
                self.estimate(
                    capacity.max(KEPT_OF_STEEP * arrived.min(sent)),
                    Reason::Probe,
                );
            }
            if probe.far {
                self.most_found = self.capacity;
            }
            let more = arrived / probe.capacity - 1.0;
            self.probing.found_less(now, view.base, more);
            if view.latest > view.base + probe.queue + view.noticed / 4 {
                self.before = probe.capacity;
                self.fallen_from = None;
                self.begin_drain(now, view.latest);
            }
        }
    }

    /// What was lost since a probe began, beyond the link's own loss, because a queue had no room
    /// for it; bit/s over the length of the probe.
    fn overflown(&self, now: Instant, probe: Probe, view: &View) -> f64 {
        let since = probe.began + view.base;
        let span = now.saturating_duration_since(since);
        let repeated = self.history.rate(REPEATED_BITS, since, now);
        let expected = self.loss * self.history.rate(SENT_BITS, since, now);
        let length = probe.ends - probe.began;
        (repeated - expected).max(0.0) * span.div_duration_f64(length)
    }

    /// How fast a probe arrived, bit/s, by what is missing of all that was sent since it began.
    /// Zero where bunches of arrivals are too far apart for that.
    fn counted_arrivals(
        &self,
        now: Instant,
        probe: Probe,
        view: &View,
        sent: f64,
        loss: f64,
    ) -> f64 {
        let length = probe.ends - probe.began;
        let way = view.base + probe.queue;
        let Some(from) = self.history.reading_at(probe.began + way) else {
            return 0.0;
        };
        let gap = self.history.longest_gap(from, Some(view.base));
        if gap > length / BUNCHES_PER_PROBE {
            return 0.0;
        }
        let shift = |at: Instant| at.checked_sub(way).unwrap_or(at);
        let was_sent = self.history.total_at(SENT_BITS, shift(now))
            - self.history.total_at(SENT_BITS, shift(from));
        let has_come = self.history.total_at(DELIVERED_BITS, now)
            - self.history.total_at(DELIVERED_BITS, from);
        let missing = was_sent - has_come / (1.0 - loss);
        sent - missing / length.as_secs_f64()
    }

    /// By which factor acknowledgements are slowed, if the queue on the way back has grown.
    fn stretched_by(&self, from: Instant, to: Instant) -> f64 {
        let grown = self.history.way_back_grown(from);
        1.0 + grown.div_duration_f64((to - from).max(LEAST_SPAN))
    }

    /// The fastest arrivals over `length`, bit/s, in a period that ends between `first` and `last`.
    fn best_arrivals(&self, first: Instant, last: Instant, length: Duration) -> f64 {
        let mut best = 0.0_f64;
        let mut end = first;
        while end <= last {
            if let Some((arrivals, _)) = self.history.arrivals(end, length) {
                best = best.max(arrivals);
            }
            end += Duration::from_millis(10);
        }
        best
    }
}
