//! The engine's links: takes what is reported about them, and acts on it.

use std::time::{Duration, Instant};

use underpass_streams::{Event, ResetCode};
use underpass_work::each;

use crate::engine::{Action, Engine};
use crate::hop::HopId;
use crate::link::{LinkChange, LinkState, PlannedBlockage, Planner, Sign, Source, Utc};

/// A metered hop's link rests when nothing has moved on it for so long.
const REST_AFTER: Duration = Duration::from_secs(10);

/// The reason given to the peer of a stream that was held too long.
const HELD_TOO_LONG: &str = "the link was blocked for longer than connections are held";

impl Engine {
    /// Sets the time of day, by which plans are followed: ms since 1970-01-01 UTC, or `None` if it
    /// is not known.
    pub fn set_utc(&mut self, now: Instant, ms: Option<u64>) {
        self.utc = ms.map(|ms| Utc { at: now, ms });
        self.follow(now);
        for id in each(self.hop_ids()) {
            self.judge(now, id);
        }
        self.after_change(now);
    }

    /// Notes that the peer of a hop was heard at `at`, now or shortly before.
    pub fn heard(&mut self, now: Instant, id: HopId, at: Instant, sign: Sign) {
        if let Some(hop) = self.hops.get_mut(&id) {
            // A released path has no beacons: this one is late.
            let beacon = sign != Sign::Session;
            if beacon && hop.presence.is_some() && !hop.is_up() {
                return;
            }
            let first = beacon && !hop.link.is_probed();
            let rested = hop.link.rests();
            hop.link.heard(at, sign);
            hop.doubt.heard(at, sign);
            let woken = rested && !hop.link.rests();
            if woken {
                hop.woken_by_peer = Some(at);
            }
            // While the link is free nothing changes: its deadline is too early now, which is
            // corrected when it passes. A deaf peer brings a deadline of its own, and a peer that
            // wakes the link an earlier one.
            let waited_for = hop.link.blocked().is_some() || hop.doubt.is_on();
            if first || woken || sign == Sign::Deaf || waited_for {
                self.judge(now, id);
                self.after_change(now);
            }
        }
    }

    /// Lets the link of a metered hop rest if nothing has moved on it for a while: its beacons are
    /// paid for. Links of other hops never rest, since it must always be known whether they can
    /// carry.
    pub fn let_rest(&mut self, now: Instant, id: HopId) {
        self.miss_what_woke(now, id);
        let idle = !self.is_in_flight(id);
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let free = !hop.blocked && !hop.doubt.is_on();
        let may = hop.meter.is_some() && idle && free && now >= hop.moved + REST_AFTER;
        if may && hop.link.let_rest(now, true) {
            let rests = true;
            self.actions.push_back(Action::Rest { hop: id, rests });
        }
    }

    /// Wakes a hop's link, since something moves on it or is about to.
    pub(crate) fn wake(&mut self, now: Instant, id: HopId) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        hop.moved = now;
        if hop.link.let_rest(now, false) {
            let rests = false;
            self.actions.push_back(Action::Rest { hop: id, rests });
            // Silence is to be judged sooner. A deadline that has passed already is still to be
            // judged.
            let due = hop.link_at;
            self.watch(now, id, due);
        }
    }

    /// When the peer of a hop was last heard.
    pub fn last_heard(&self, id: HopId) -> Option<Instant> {
        self.hops.get(&id)?.link.last_heard()
    }

    /// When a hop's blockage that is known by its peer's silence began; `None` if the peer was
    /// never heard.
    pub fn silent_since(&self, id: HopId) -> Option<Instant> {
        self.hops.get(&id)?.link.silent_since()
    }

    /// Blocks or releases a hop's link by an operator's word.
    pub fn block(&mut self, now: Instant, id: HopId, blocked: bool) {
        self.on_link(now, id, |link| link.set_operator(blocked));
    }

    /// The modem says that nothing can be sent, or that it can.
    pub fn block_by_modem(&mut self, now: Instant, id: HopId, blocked: bool) {
        self.on_link(now, id, |link| link.set_modem(blocked));
    }

    /// Replaces the blockages that operators have planned for a hop; those of plans count as well.
    pub fn plan_blockages(&mut self, now: Instant, id: HopId, planned: Vec<PlannedBlockage>) {
        self.on_link(now, id, |link| link.set_plan(Planner::Operator, planned));
    }

    fn on_link(&mut self, now: Instant, id: HopId, call: impl FnOnce(&mut LinkState)) {
        if let Some(hop) = self.hops.get_mut(&id) {
            call(&mut hop.link);
            self.judge(now, id);
            self.after_change(now);
        }
    }

    /// The links that would be taken for blocked or in doubt at `now` because they are silent. What
    /// their sessions have heard by then should be reported first.
    pub fn links_due(&self, now: Instant) -> Vec<HopId> {
        let due = self.link_times.iter().take_while(|(at, _)| *at <= now);
        let silent = |id: &HopId| {
            let hop = self.hops.get(id);
            hop.is_some_and(|hop| hop.link.is_silent(now) || hop.doubt.is_due(now))
        };
        due.map(|(_, id)| *id).filter(silent).collect()
    }

    /// Judges the links whose time has come.
    pub(crate) fn watch_links(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.link_times.first() {
            if at > now {
                return;
            }
            self.judge(now, id);
        }
    }

    /// Judges a link anew, and does what follows.
    pub(crate) fn judge(&mut self, now: Instant, id: HopId) {
        let utc = self.utc;
        self.set_expectation(id);
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let (change, contradicted) = hop.link.update(now, utc);
        for change in contradicted.into_iter().chain(change) {
            self.actions.push_back(Action::Link { hop: id, change });
        }
        if let Some(LinkChange::Blocked(Source::Plan) | LinkChange::Source(Source::Plan)) = change {
            // Whether the peer is heard all the same should show soon.
            self.wake(now, id);
        }
        match change {
            Some(LinkChange::Blocked(_)) => self.set_blocked(now, id, true),
            Some(LinkChange::Free(lasted)) => {
                self.set_blocked(now, id, false);
                self.ask_behind_blockage(now, id, lasted);
            }
            _ => {}
        }
        self.judge_doubt(now, id);
        let held = self.give_up_streams(now, id);
        self.watch(now, id, held);
    }

    /// Notes when a link is to be judged next; `held` is when it will have held a connection too
    /// long.
    pub(crate) fn watch(&mut self, now: Instant, id: HopId, held: Option<Instant>) {
        let utc = self.utc;
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let judged = hop.link.next_timeout(now, utc);
        let doubted = hop.doubt.next_timeout(now);
        let next = judged.into_iter().chain(held).chain(doubted).min();
        if let Some(before) = std::mem::replace(&mut hop.link_at, next) {
            self.link_times.remove(&(before, id));
        }
        if let Some(at) = next {
            self.link_times.insert((at, id));
        }
    }

    /// Resets the streams that a blocked link has held too long. Returns when the next one would
    /// be.
    fn give_up_streams(&mut self, now: Instant, id: HopId) -> Option<Instant> {
        let neighbour = self.hops.get(&id)?.config.neighbour;
        let hops = self.hops_to(neighbour);
        let blocked = hops
            .iter()
            .map(|id| Some(self.hops.get(id)?.link.blocked()?.1));
        // Another way to the neighbour keeps its streams alive.
        let since = blocked.collect::<Option<Vec<_>>>()?.into_iter().max()?;
        let hold = self.config.hold;
        if now < since + hold {
            return Some(since + hold);
        }
        let before = now.checked_sub(hold)?;
        let code = ResetCode::TimedOut;
        let mut oldest: Option<Instant> = None;
        for peer in self.peers_behind(neighbour) {
            let reset = self.change_streams(peer, |streams| {
                let reset = streams.reset_older(before, code, HELD_TOO_LONG);
                oldest = oldest.into_iter().chain(streams.oldest_stream()).min();
                reset
            });
            for (epoch, id) in reset.unwrap_or_default() {
                let reason = HELD_TOO_LONG.to_owned();
                let event = Event::Reset { id, code, reason };
                self.actions
                    .push_back(Action::Stream { peer, epoch, event });
            }
        }
        // Streams opened from now on are looked at in time.
        Some(oldest.unwrap_or(now) + hold)
    }
}

/// A link at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSnapshot {
    /// Who says that the link is blocked, and since when it is.
    pub blocked: Option<(Source, Instant)>,
    /// When the peer was last heard.
    pub heard: Option<Instant>,
    /// Whether its silence would mean a blockage.
    pub probed: bool,
    /// Planned blockages that are not over.
    pub planned: Vec<PlannedBlockage>,
    /// Whether the peer is heard in the planned blockage in force.
    pub plan_contradicted: bool,
}

impl LinkState {
    pub(crate) fn snapshot(&self) -> LinkSnapshot {
        let (planned, plan_contradicted) = self.plan();
        LinkSnapshot {
            blocked: self.blocked(),
            heard: self.last_heard(),
            probed: self.is_probed(),
            planned: planned.to_vec(),
            plan_contradicted,
        }
    }
}
