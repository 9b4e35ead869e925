//! Finds that more is sent than the link carries, and drains the queue that this leaves.

use std::time::{Duration, Instant};

use super::{Drain, Estimator, FILLED, MOST_FRAMES};
use crate::Reason;
use crate::history::SENT_BITS;
use crate::view::{TOO_MUCH, View, is_short};

/// More is sent than the link carries if the round trip grows by this part of
/// the time, and the queue is above a bound.
const GROWS: f64 = 0.04;
/// A queue that has stood for a round trip, and at least so long, shows the same: the excess is too
/// small for its growth to be seen.
const LEAST_STANDING: Duration = Duration::from_millis(200);
/// The rate sent a round trip ago is looked up in so many steps from the shortest round trip to the
/// longest, since the present one is not known well.
const ECHO_STEPS: u32 = 16;
/// If so many drains in a row leave more than half of a queue at all times, none of it is ours.
const UNMOVED: u32 = 2;
/// Beside a queue on the way back it takes more of them, since reports come late.
const UNMOVED_BESIDE: u32 = 3;
/// After a fall by more than this part on a short way, a probe looks at once for the capacity of
/// before: pages of others take as much and are soon over.
const FALLEN: f64 = 0.25;
/// While a queue drains, arrivals raise the estimate if they exceed it this many times.
const RAISED_BY: f64 = 1.5;
/// After a drain that may have been of others' queue, the estimate comes back. If another such drain
/// follows within `CALM`, and another, the queue is taken for our own after `PATIENCE`.
const PATIENCE: Duration = Duration::from_secs(5);
const CALM: Duration = Duration::from_secs(3);
/// The part of the learned loss that is kept each time the estimate was too high.
const LOSS_KEPT: f64 = 0.9;

impl Estimator {
    /// Whether more is sent than the link carries.
    pub(super) fn find_excess(&mut self, now: Instant, view: &View) {
        // A steep probe leaves a queue of its own, and its answer says more.
        if !view.backlogged || self.probing.is_steep() {
            return;
        }
        let grows = self.history.rtt_grows(now, now - view.window, GROWS);
        if grows && view.latest > view.base + view.noticed && view.falls_short() {
            self.lower(now, view, view.carried);
            return;
        }
        let standing = view.base.max(LEAST_STANDING);
        let stands = now.checked_sub(standing).is_some_and(|since| {
            let least = self.history.least_rtt(since);
            least.is_some_and(|rtt| rtt > view.base + view.noticed)
        });
        if stands && view.told.is_some() {
            self.lower(now, view, view.carried);
        } else if stands && let Some((arrivals, since)) = self.history.arrivals(now, standing) {
            // What arrived while little was sent says nothing about the link.
            let latest = view.base + view.queue;
            let first = latest + now.saturating_duration_since(since);
            let standing = View {
                sent: self.sent(now, first, latest),
                window_full: self.window_full(now, first, latest, view.allowed_bps),
                carried: arrivals / (1.0 - self.loss) + view.other,
                ..*view
            };
            if self.filled(now, first, latest, view.allowed_bps) && standing.falls_short() {
                self.lower(now, view, standing.carried);
            }
        }
    }

    pub(super) fn lower(&mut self, now: Instant, view: &View, carried: f64) {
        let before = self.capacity.unwrap_or(f64::INFINITY);
        if self.drain.is_none() {
            self.before = before;
            self.fallen_from = Some(before);
            let doubtful = !view.window_full && self.is_little(view.sent) && self.has_patience(now);
            self.doubtful = doubtful.then_some((self.capacity, self.reason));
        }
        // Arrivals are scaled up by the learned loss. If that is over, fewer arrive than it seems.
        self.loss *= LOSS_KEPT;
        self.estimate(before.min(carried), Reason::Limit);
        self.begin_drain(now, view.latest);
        self.probing.step_back(now, view.base);
    }

    /// Whether so little is sent, bit/s, because a plan allows no more, that others fill the link more
    /// likely than that it carries only this.
    fn is_little(&self, sent: f64) -> bool {
        let ceiling = self.limits.ceiling_bps.map(|bps| bps as f64);
        let known = self.capacity.or(ceiling);
        known.is_some_and(|bps| sent < FILLED * bps)
    }

    /// Whether others may still be the cause, if a drain begins at `now`.
    fn has_patience(&mut self, now: Instant) -> bool {
        let goes_on = self.restored.is_some_and(|at| now < at + CALM);
        let began = self.doubted_since.filter(|_| goes_on).unwrap_or(now);
        self.doubted_since = Some(began);
        now < began + PATIENCE
    }

    /// Takes back a fall of the estimate that may have shown others' queue alone; whether it did.
    pub(super) fn restore_if_doubtful(&mut self) -> bool {
        let Some(before) = self.doubtful.take() else {
            return false;
        };
        (self.capacity, self.reason) = before;
        self.fallen_from = None;
        true
    }

    pub(super) fn begin_drain(&mut self, now: Instant, rtt: Duration) {
        self.drain = Some(Drain {
            rtt,
            began: now,
            settling: None,
        });
    }

    pub(super) fn go_on_draining(&mut self, now: Instant, view: &View, drain: Drain) {
        let queued = view.queue > view.noticed / 2;
        // If nothing was sent for a whole window, nothing arrives a round trip later.
        let pause = drain.settling.map(|since| since + drain.rtt + view.window);
        let paused = !view.heard && view.steady && pause.is_some_and(|until| now < until);
        if !queued && !paused && drain.settling.is_some() {
            self.end_drain(now, view);
            if self.others.take().is_some() {
                self.probing.double(now);
            }
            return;
        }
        let before = self.capacity.unwrap_or(view.carried);
        let too_high = view.carried < before * (1.0 - TOO_MUCH)
            && self.history.rtt_grows(now, now - view.window, GROWS);
        // While a queue stands, what arrives is what the link carries. But after a drain that has
        // not moved it, less may also arrive because less capacity was asked for.
        let asked_less = self.unmoved > 0 && self.may_wait(drain.rtt);
        if queued && view.backlogged && drain.settling.is_none() && view.told.is_none() {
            if !asked_less || !self.follows(now, view, drain) {
                self.estimate(view.carried, Reason::Limit);
            }
        } else if view.told.is_none() && view.steady && view.carried > RAISED_BY * before {
            // The queue drains faster than the link was thought to carry, as it does once capacity
            // has been granted on demand.
            self.estimate(view.carried, Reason::Limit);
        } else if queued && view.backlogged && too_high && !self.echoes(now, view, drain) {
            self.lower(now, view, view.carried);
            return;
        }
        let Some(since) = drain.settling else {
            return;
        };
        let told_later = view
            .told
            .map_or(Duration::ZERO, |told| told.each + view.way_back);
        let answered = since + drain.rtt + told_later;
        if now < answered + 2 * view.window {
            return;
        }
        let had = drain.rtt.saturating_sub(view.base);
        let (from, most) = match view.told {
            None => (answered, UNMOVED),
            // A report that is late may miss the moment without a queue.
            Some(_) => (since, UNMOVED_BESIDE),
        };
        let least = self.history.least_rtt(from);
        let left = least.map_or(had, |rtt| rtt.saturating_sub(view.base));
        if left > had / 2 && (view.told.is_none() || self.is_of_others(had)) {
            // The drain has changed nothing. If the next ones do not either, the queue is
            // another's, or the way has become longer.
            self.unmoved += 1;
            if self.unmoved >= most {
                self.give_up_base(now, since + drain.rtt, view);
                self.end_drain(now, view);
                // While the way became longer, less arrived than the link carries.
                if let Some(capacity) = self.capacity.filter(|one| *one < self.before) {
                    self.probing.look_for(now, self.before / capacity - 1.0);
                }
            } else if view.told.is_none() {
                self.begin_drain(now, view.latest);
            } else {
                self.lower(now, view, view.carried);
            }
        } else if !view.steady || view.backlogged && view.falls_short() {
            self.unmoved = 0;
            self.lower(now, view, view.carried);
        } else {
            // Too little is sent at present to show what the link carries.
            self.end_drain(now, view);
        }
    }

    /// Whether less arrives because less was sent while a queue was drained. If a queue of ours
    /// stood, its packets would arrive meanwhile.
    fn echoes(&self, now: Instant, view: &View, drain: Drain) -> bool {
        drain.settling.is_some() && self.follows(now, view, drain)
    }

    /// Whether the rate of arrivals follows what was sent a round trip ago: it is no lower than the
    /// lowest rate sent then, for any round trip that is possible now.
    fn follows(&self, now: Instant, view: &View, drain: Drain) -> bool {
        if view.told.is_some() || !view.steady {
            return false;
        }
        let since = now - view.window;
        let mut least = view.base + view.queue;
        let mut longest = self.history.longest_rtt(since).unwrap_or(drain.rtt);
        if self.may_wait(drain.rtt) {
            // Data that waits for access is granted a base round trip after the request, and
            // arrives at most the longest round trip after it was sent.
            least = self.base.get().unwrap_or(least);
            longest = longest.max(drain.rtt);
        }
        // Round trips are smoothed, so the range is half a window wider at both ends.
        let first = least.saturating_sub(view.window / 2);
        let step = (longest + view.window / 2).saturating_sub(first) / ECHO_STEPS;
        let mut sent = f64::INFINITY;
        for ago in (0..=ECHO_STEPS).map(|number| first + number * step) {
            if let (Some(from), Some(to)) = (since.checked_sub(ago), now.checked_sub(ago)) {
                sent = sent.min(self.history.rate(SENT_BITS, from, to));
            }
        }
        view.carried >= sent * (1.0 - TOO_MUCH)
    }

    /// Whether a round trip of `rtt` may include a wait for access.
    pub(super) fn may_wait(&self, rtt: Duration) -> bool {
        self.base.get().is_some_and(|base| {
            let wait = rtt.saturating_sub(base);
            wait >= base / 2 && wait <= base + MOST_FRAMES
        })
    }

    /// Notes that the delay above the base round trip is no queue of ours, since all packets have
    /// it at any rate. If the peer reports it, it is others' queue. Otherwise, up to a bound, it is
    /// the wait for access; a longer one is part of a new base.
    fn give_up_base(&mut self, now: Instant, since: Instant, view: &View) {
        let least = self.history.least_rtt(now - view.window);
        let waits = self
            .base
            .get()
            .zip(least)
            .map(|(base, rtt)| (base, rtt.saturating_sub(base)));
        let reported = waits.is_some_and(|(_, wait)| self.is_of_others(wait));
        self.others = reported.then(|| self.beside_others(now));
        if let Some(capacity) = self.capacity {
            self.estimate(capacity, self.reason);
        }
        match waits {
            Some((_, wait)) if self.others.is_some() => self.access = wait,
            Some((base, wait)) if wait <= base + MOST_FRAMES => self.access = wait,
            _ => {
                self.base.forget_before(since);
                self.access = Duration::ZERO;
            }
        }
    }

    fn end_drain(&mut self, now: Instant, view: &View) {
        self.unmoved = 0;
        self.drain = None;
        self.drain_bits = 0.0;
        if self.restore_if_doubtful() {
            self.restored = Some(now);
        }
        match self.fallen_from.take().zip(self.capacity) {
            Some((from, capacity)) if is_short(view.base) && capacity < from * (1.0 - FALLEN) => {
                self.probing.look_for(now, from / capacity - 1.0);
            }
            _ => self.probing.pause(now, view.base),
        }
    }
}
