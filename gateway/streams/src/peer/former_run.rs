//! The streams of former runs of the peer.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Epoch, Peer};
use crate::mux::{Event, Mux};
use crate::wire::StreamId;

/// The most former runs that are remembered; one more ends the oldest at once. Each is bounded by
/// its windows and count of streams.
const MAX_FORMER_RUNS: usize = 8;

/// The streams of a former run of the peer.
pub(super) struct FormerRun {
    pub epoch: Epoch,
    pub mux: Mux,
    /// When it is settled at the latest.
    pub until: Instant,
}

impl FormerRun {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let FormerRun {
            epoch: _,
            mux,
            until: _,
        } = self;
        mux.footprint(tell);
    }
}

impl Peer {
    /// Notes that the peer is heard in a later run: the present streams become those of a former
    /// run, except those that the peer has not heard of. `over_by` says by when the run before the
    /// later one was over, if that is known.
    pub(super) fn succeed(
        &mut self,
        now: Instant,
        former: u64,
        (incarnation, over_by): (u64, Option<Instant>),
    ) {
        // There may have been other runs in between, at the same time.
        let over_by = over_by.filter(|_| former.checked_add(1) == Some(incarnation));
        let (epoch, mux) = self.begin_epoch(self.incarnation(), over_by);
        self.remember(now, former, epoch, mux);
        let restarted = Event::PeerRestarted { incarnation };
        self.events.push_back((self.epoch, restarted));
    }

    /// Begins the streams between other runs of the two nodes. Returns the streams before, and
    /// their epoch. `over_by` is as in [`Mux::succeed`].
    fn begin_epoch(&mut self, incarnation: u64, over_by: Option<Instant>) -> (Epoch, Mux) {
        let next = self.current.succeed(incarnation, over_by);
        let former = std::mem::replace(&mut self.current, next);
        let epoch = std::mem::replace(&mut self.epoch, self.next_epoch);
        self.next_epoch.0 += 1;
        self.opened.insert(self.current.next_id(), self.epoch);
        // There are no streams with earlier ids any more.
        let former_runs = self.former_runs.values().map(|former| &former.mux);
        let runs = former_runs.chain([&former, &self.current]);
        let least = runs.map(Mux::first_valid).min().unwrap_or(StreamId(0));
        let second = |opened: &BTreeMap<StreamId, Epoch>| opened.keys().nth(1).copied();
        while second(&self.opened).is_some_and(|second| second <= least) {
            self.opened.pop_first();
        }
        (epoch, former)
    }

    /// The streams of a former run whose payloads count; created if the run was never heard of.
    pub(super) fn former_run(&mut self, now: Instant, incarnation: u64) -> Option<&mut Mux> {
        if !self.former_runs.contains_key(&incarnation) {
            let mux = self.current.predecessor(incarnation);
            let epoch = self.next_epoch;
            self.next_epoch.0 += 1;
            self.remember(now, incarnation, epoch, mux);
            // A peer that has lost count of its runs learns of it.
            self.current.renew_hello();
        }
        Some(&mut self.former_runs.get_mut(&incarnation)?.mux)
    }

    fn remember(&mut self, now: Instant, incarnation: u64, epoch: Epoch, mux: Mux) {
        let until = now + self.config.bundle_lifetime;
        self.former_runs
            .insert(incarnation, FormerRun { epoch, mux, until });
        while self.former_runs.len() > MAX_FORMER_RUNS
            && let Some((oldest, mut former)) = self.former_runs.pop_first()
        {
            former.mux.end_all("too many restarts of the peer node");
            self.send_limits(oldest, former.mux.take_limits());
            self.forget_run(former.epoch, former.mux);
            self.settled_below = self.settled_below.max(oldest + 1);
        }
    }

    /// Notes that nothing more comes from the peer's runs below `incarnation`.
    pub(super) fn settle_below(&mut self, incarnation: u64) {
        if incarnation <= self.settled_below {
            return;
        }
        let settled = self.settled_below..incarnation;
        self.settled_below = incarnation;
        for (_, former) in self.former_runs.range_mut(settled) {
            former.mux.conclude();
        }
    }

    /// A former run is remembered while it may still receive, so that a
    /// repeated payload opens no stream again; and then until the applications
    /// have read everything.
    pub(super) fn forget_empty_runs(&mut self) {
        let over = |(incarnation, former): (&u64, &FormerRun)| {
            (*incarnation < self.settled_below && former.mux.is_empty()).then_some(*incarnation)
        };
        let over: Vec<u64> = self.former_runs.iter().filter_map(over).collect();
        for incarnation in over {
            if let Some(former) = self.former_runs.remove(&incarnation) {
                self.forget_run(former.epoch, former.mux);
            }
        }
    }

    /// Adds up what a run has counted, and queues its last events.
    fn forget_run(&mut self, run: Epoch, mut mux: Mux) {
        self.past.absorb(mux.counters());
        while let Some(id) = mux.poll_unwanted() {
            self.unwanted.push((self.name(run, id), id));
        }
        while let Some(event) = mux.poll_event() {
            let event = self.named(run, event);
            self.events.push_back(event);
        }
    }

    /// Takes another incarnation, since the peer has heard a later run of this node: no stream of
    /// either side that the peer may have heard of goes on.
    pub(super) fn raise(&mut self, incarnation: u64) {
        let peer = self.peer_incarnation();
        let (epoch, former) = self.begin_epoch(incarnation, None);
        if let Some(peer) = peer {
            self.current.meet(peer);
        }
        let former_runs = std::mem::take(&mut self.former_runs).into_values();
        let former_runs: Vec<(Epoch, Mux)> = former_runs.map(|e| (e.epoch, e.mux)).collect();
        for (epoch, mut mux) in former_runs.into_iter().chain([(epoch, former)]) {
            mux.end_all("the peer knows a later incarnation of this node");
            self.forget_run(epoch, mux);
        }
        let raised = Event::IncarnationRaised { incarnation };
        self.events.push_back((self.epoch, raised));
        self.settled_due = true;
    }

    /// When [`Peer::handle_timeout`] must be called at the latest.
    pub fn next_timeout(&self) -> Option<Instant> {
        let open = self.former_runs.range(self.settled_below..);
        let look = self.look_at.filter(|_| !self.current.is_empty());
        open.map(|(_, former)| former.until).chain(look).min()
    }

    /// Settles former runs whose time is over, since their bundles in custody have expired. Tells
    /// the peer what else may have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        let open = self.former_runs.range(self.settled_below..);
        let due = open.filter(|(_, former)| former.until <= now);
        if let Some(last) = due.map(|(incarnation, _)| *incarnation).max() {
            self.settle_below(last + 1);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.current.look_for_expired();
            self.look_at = None;
            self.watch_expiry(now);
        }
    }

    /// Has streams looked at when bundles with what they have sealed by now have expired. Bundles
    /// do not age while they travel between nodes; an eighth of their lifetime is added for that.
    pub(super) fn watch_expiry(&mut self, now: Instant) {
        if self.look_at.is_none() && !self.current.is_empty() {
            let lifetime = self.config.bundle_lifetime;
            self.look_at = Some(now + lifetime + lifetime / 8);
        }
    }
}
