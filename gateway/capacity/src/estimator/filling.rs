//! Whether what is sent fills the link, so that what arrives shows what it carries.

use std::time::{Duration, Instant};

use super::Estimator;
use super::starting::MOST_FLIGHT_BITS;
use crate::Reason;

/// Data that waits counts as a backlog only if this part of what was allowed was sent. Otherwise it
/// waits for something else, and shows nothing about the link.
pub(super) const FILLED: f64 = 0.6;

/// An estimate that nothing has tried for so long is old: the link may carry again what it did
/// before.
const OLD: Duration = Duration::from_secs(10);

impl Estimator {
    /// Notes whether something waits to be sent. With the first of it, an old estimate far below what
    /// the link has carried is tried anew: it may come from a moment in which others filled the link,
    /// and at a few kbit/s it would take half a minute to rise.
    pub(super) fn see_backlog(&mut self, now: Instant, backlogged: bool) {
        let begins = backlogged && self.backlogged.is_none();
        self.backlogged = backlogged.then(|| self.backlogged.unwrap_or(now));
        let old = self.tried.is_some_and(|at| now >= at + OLD);
        if begins
            && old
            && self.drain.is_none()
            && let Some((most, capacity)) = self.most_found().zip(self.capacity)
        {
            self.probing.look_far(now, most / capacity - 1.0);
        }
    }

    /// Notes that the present estimate is of now, if the link is filled or drains.
    pub(super) fn see_tried(&mut self, now: Instant, filled: bool) {
        if filled || self.drain.is_some() {
            self.tried = Some(now);
        }
        if matches!(self.reason, Reason::Probe | Reason::Limit) {
            let most = self.most_found().into_iter().chain(self.capacity);
            self.most_found = most.reduce(f64::max);
        }
    }

    fn most_found(&self) -> Option<f64> {
        let ceiling = self.limits.ceiling_bps.map(|bps| bps as f64);
        self.most_found.or(ceiling)
    }

    /// Whether there was a backlog from `from` to `to` before now, and the sender used the rate
    /// that was allowed, or all of a transport's window.
    pub(super) fn filled(
        &self,
        now: Instant,
        from: Duration,
        to: Duration,
        allowed_bps: Option<u64>,
    ) -> bool {
        let sent = self.sent(now, from, to);
        let full = self.window_full(now, from, to, allowed_bps);
        let (Some(from), Some(to)) = (now.checked_sub(from), now.checked_sub(to)) else {
            return false;
        };
        (full || allowed_bps.is_none_or(|bps| sent >= FILLED * bps as f64))
            && self.history.reaches(from)
            && self.history.backlogged(from, to)
    }

    /// Whether a transport's window limited what was sent from `from` to `to` before now.
    pub(super) fn window_full(
        &self,
        now: Instant,
        from: Duration,
        to: Duration,
        allowed_bps: Option<u64>,
    ) -> bool {
        let (Some(from), Some(to)) = (now.checked_sub(from), now.checked_sub(to)) else {
            return false;
        };
        self.window_was_full(from, to, allowed_bps)
    }

    /// Whether a transport's window limited what was sent between two times, although it would have
    /// let a round trip be filled, or is larger than a first flight. The small window of a new
    /// session shows nothing of the link, however long the queue of others makes its round trip.
    pub(super) fn window_was_full(
        &self,
        from: Instant,
        to: Instant,
        allowed_bps: Option<u64>,
    ) -> bool {
        let base = self.base.get().unwrap_or_default().as_secs_f64();
        let needed = |bps: u64| (FILLED * bps as f64 * base).min(MOST_FLIGHT_BITS);
        let fills = |bps: u64| self.history.in_flight(from, to) >= needed(bps);
        self.history.window_full(from, to) && allowed_bps.is_none_or(fills)
    }

    /// The rate that was sent from `from` to `to` before now, bit/s.
    pub(super) fn sent(&self, now: Instant, from: Duration, to: Duration) -> f64 {
        let (Some(from), Some(to)) = (now.checked_sub(from), now.checked_sub(to)) else {
            return 0.0;
        };
        self.history.sent(from, to)
    }
}
