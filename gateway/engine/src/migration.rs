//! Which path a class with the policy `migrate` goes by, and when it moves: all of it goes by one
//! path at a time.
//!
//! It moves by an operator's order, at once when its path cannot carry any more, and by rule when
//! for some seconds its path is full and the delay is many times its base (Bujari et al., A Virtual
//! PEP for Web Optimization over a Satellite-Terrestrial Backhaul), packets are lost, or the path
//! carries much less than it did. It moves only to a path with room for what it sends. It moves
//! back only after the better path has had room for some time, which grows each time that it had to
//! leave soon after its return. A path without traffic shows no improvement, so a return is a
//! trial, which ends soon if it was in vain.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::hop::HopId;

/// How often the time before a return is doubled at most.
const MOST_DOUBLINGS: u32 = 4;
/// For so many times `after` once another class has left the path, delay is tolerated so many times
/// as long: the backlog has to leave, and the capacity is measured anew.
const RELIEVED_FOR: u32 = 6;
const RELIEVED_PATIENCE: u32 = 3;
/// A class that has to leave so soon after its return came back too early.
const SOON: Duration = Duration::from_secs(60);
/// If only a path's best rate spoke for a return, the path has this plus so many round trips to
/// show that it carries that much: by then its estimate has risen.
const TRIED: Duration = Duration::from_secs(2);
const TRIED_ROUND_TRIPS: u32 = 4;
/// A path's best rate fades by this part (1/n) in each step.
const BEST_FADES: u64 = 400;

/// When a class moves by rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MigrationRule {
    /// How long a path is in trouble before the class leaves it. `None`: it moves only by an
    /// operator's order and when its path cannot carry.
    pub after: Option<Duration>,
    /// A path is full when this part of its rate is in use, or when what waits for it takes at
    /// least `delay_factor` times its base round trip to leave.
    pub full_part: f64,
    /// A path is in trouble when it is full and the delay is so many times the base; the class' own
    /// backlog counts as delay.
    pub delay_factor: f64,
    /// It is in trouble, too, when it loses this part of the packets.
    pub loss: f64,
    /// It is in trouble, too, when it is full at this part of its earlier rate.
    pub rate_part: f64,
    /// How long a better path has had room before the class goes back.
    pub back_after: Duration,
    /// The room of a path is this part of its rate, less what it carries.
    pub room_part: f64,
}

impl MigrationRule {
    /// The paper's five seconds and five times the base.
    pub const DEFAULT: MigrationRule = MigrationRule {
        after: Some(Duration::from_secs(5)),
        full_part: 0.9,
        delay_factor: 5.0,
        loss: 0.1,
        rate_part: 0.3,
        back_after: Duration::from_secs(10),
        room_part: 0.8,
    };
}

impl Default for MigrationRule {
    fn default() -> Self {
        MigrationRule::DEFAULT
    }
}

/// Why a class has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveReason {
    /// An operator has ordered it.
    Operator,
    /// Its path cannot carry: blocked, about to be, or without a session.
    Down,
    /// Its path was full and the delay many times its base.
    Delay,
    /// Its path lost packets.
    Loss,
    /// Its path was full at a part of its rate.
    Rate,
    /// A better path has room again.
    Back,
}

impl MoveReason {
    /// All of them.
    pub const ALL: [MoveReason; 6] = [
        MoveReason::Operator,
        MoveReason::Down,
        MoveReason::Delay,
        MoveReason::Loss,
        MoveReason::Rate,
        MoveReason::Back,
    ];

    /// Its name in API, log and metrics.
    pub fn name(self) -> &'static str {
        match self {
            MoveReason::Operator => "operator",
            MoveReason::Down => "down",
            MoveReason::Delay => "delay",
            MoveReason::Loss => "loss",
            MoveReason::Rate => "rate",
            MoveReason::Back => "back",
        }
    }
}

/// A path at one moment, as one class sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathReading {
    pub id: HopId,
    /// It can carry the class now.
    pub able: bool,
    /// What it carries, and what it may carry (`None` is unknown), bit/s.
    pub load_bps: u64,
    pub rate_bps: Option<u64>,
    /// If it carries so little that an improvement would not show: what it carried at its best.
    /// Otherwise the same as `rate_bps`.
    pub best_bps: Option<u64>,
    /// The round trip without queues, and with queues and the class' backlog.
    pub base: Duration,
    pub delay: Duration,
    /// How long that backlog needs to leave.
    pub waits: Duration,
    /// Part of the packets that it loses.
    pub loss: f64,
}

impl PathReading {
    /// Whether the path is full. If queues of others are drained from it again and again, it
    /// carries less than its rate though there is more to send: then the backlog shows that it is
    /// full.
    fn is_full(&self, rule: &MigrationRule) -> bool {
        let full = |rate: u64| self.load_bps as f64 >= rate as f64 * rule.full_part;
        let waits = self.waits >= self.base.mul_f64(rule.delay_factor);
        waits || self.rate_bps.is_some_and(full)
    }

    fn has_room(&self, rule: &MigrationRule, demand_bps: u64) -> bool {
        let wanted = self.load_bps.saturating_add(demand_bps);
        let fits = |rate: u64| wanted as f64 <= rate as f64 * rule.room_part;
        self.able && self.loss < rule.loss && self.rate_bps.is_none_or(fits)
    }

    /// The same, if it carries what it did at its best.
    fn may_have_room(&self, rule: &MigrationRule, demand_bps: u64) -> bool {
        let at_best = PathReading {
            rate_bps: self.best_bps,
            ..*self
        };
        at_best.has_room(rule, demand_bps)
    }

    fn trouble(&self, rule: &MigrationRule, best_bps: u64) -> Option<MoveReason> {
        if self.loss >= rule.loss {
            return Some(MoveReason::Loss);
        }
        if !self.is_full(rule) {
            return None;
        }
        let rate = self.rate_bps.unwrap_or(u64::MAX);
        if self.delay >= self.base.mul_f64(rule.delay_factor) {
            return Some(MoveReason::Delay);
        }
        ((rate as f64) <= best_bps as f64 * rule.rate_part).then_some(MoveReason::Rate)
    }
}

/// A class has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub from: HopId,
    pub to: HopId,
    pub reason: MoveReason,
}

/// The streams of one class to one neighbour, which move as one.
#[derive(Debug, Default)]
pub(crate) struct Tunnel {
    /// Its path, since when, and why if it has moved.
    pub on: Option<(HopId, Instant, Option<MoveReason>)>,
    /// Where an operator keeps it.
    pub held: Option<HopId>,
    /// It was kept there before this run, and has not been there yet.
    expected: bool,
    /// Moves since the start.
    pub moves: BTreeMap<MoveReason, u64>,
    /// Since when its path has been in trouble.
    bad_since: Option<Instant>,
    /// When another class has left its path.
    relieved: Option<Instant>,
    /// The better path that has room, and since when.
    good_since: Option<(HopId, Instant)>,
    /// What its path carried at its best.
    best_bps: u64,
    /// When it came back last, and how often in a row it had to leave soon.
    came_back: Option<Instant>,
    doublings: u32,
    /// It came back to a path that has no room by its present estimate.
    tries: bool,
}

impl Tunnel {
    /// Its path.
    pub fn path(&self) -> Option<HopId> {
        self.on.map(|(id, ..)| id)
    }

    /// Whether it is away from its preferred path, so that it is judged even while nothing is sent.
    pub fn is_away(&self, paths: &[PathReading]) -> bool {
        let preferred = self.held.or(paths.first().map(|path| path.id));
        self.path().is_some() && self.path() != preferred
    }

    /// Notes that another class has moved away from its path: earlier trouble does not count.
    pub fn relieve(&mut self, now: Instant) {
        (self.bad_since, self.relieved) = (None, Some(now));
    }

    /// How long trouble is tolerated.
    fn patience(
        &self,
        now: Instant,
        after: Duration,
        reason: MoveReason,
        base: Duration,
    ) -> Duration {
        if self.tries && self.came_back.is_some_and(|at| now < at + SOON) {
            return after.min(TRIED + base * TRIED_ROUND_TRIPS);
        }
        let lately = |at| now < at + after * RELIEVED_FOR;
        match reason == MoveReason::Delay && self.relieved.is_some_and(lately) {
            true => after * RELIEVED_PATIENCE,
            false => after,
        }
    }

    /// Moves it to a path that can carry it, by an operator's order; with `hold` it stays there.
    pub fn order(&mut self, now: Instant, to: HopId, hold: bool) -> Option<Move> {
        self.held = hold.then_some(to);
        self.expected = false;
        self.doublings = 0;
        self.go(now, to, MoveReason::Operator)
    }

    /// Notes that an operator kept it on a path before this run: it goes there as soon as the path
    /// can carry it.
    pub fn expect(&mut self, on: HopId) {
        if self.held != Some(on) {
            (self.held, self.expected) = (Some(on), self.path() != Some(on));
        }
    }

    /// Ends that an operator keeps it on a path; it stays where it is until the rule says
    /// otherwise.
    pub fn release(&mut self) {
        (self.held, self.expected) = (None, false);
    }

    /// Judges its paths, the preferred one first; `demand_bps` is what it sends.
    pub fn step(
        &mut self,
        now: Instant,
        rule: &MigrationRule,
        paths: &[PathReading],
        demand_bps: u64,
    ) -> Option<Move> {
        self.held = self
            .held
            .filter(|held| paths.iter().any(|path| path.id == *held));
        let current = paths.iter().find(|path| Some(path.id) == self.path());
        let Some(current) = current.filter(|path| path.able) else {
            let held = paths
                .iter()
                .find(|path| path.able && Some(path.id) == self.held);
            let first = held.or_else(|| paths.iter().find(|path| path.able))?;
            return self.go(now, first.id, MoveReason::Down);
        };
        self.best_bps -= self.best_bps / BEST_FADES;
        self.best_bps = self.best_bps.max(current.rate_bps.unwrap_or(0));
        if let Some(held) = self.held {
            let held = paths.iter().find(|path| path.id == held);
            let back = held.filter(|path| path.able && path.id != current.id);
            return match back.filter(|_| self.expected) {
                Some(path) => self.go(now, path.id, MoveReason::Operator),
                None => self.go_back(now, rule, back),
            };
        }
        if let Some(after) = rule.after {
            let trouble = current.trouble(rule, self.best_bps);
            let since = trouble.map(|_| self.bad_since.unwrap_or(now));
            self.bad_since = since;
            if let Some((reason, since)) = trouble.zip(since)
                && now >= since + self.patience(now, after, reason, current.base)
            {
                let others = paths.iter().filter(|path| path.id != current.id);
                let mut roomy = others.filter(|path| path.has_room(rule, demand_bps));
                return self.go(now, roomy.next()?.id, reason);
            }
        }
        let better = paths.iter().take_while(|path| path.id != current.id);
        let mut better = better.filter(|path| match rule.after {
            Some(_) => path.may_have_room(rule, demand_bps),
            None => path.able,
        });
        let better = better.next();
        let step = self.go_back(now, rule, better);
        let has_room = |path: &PathReading| path.has_room(rule, demand_bps);
        self.tries |= step.is_some() && !better.is_some_and(has_room);
        step
    }

    /// Goes back to a better path that has been good for long enough.
    fn go_back(
        &mut self,
        now: Instant,
        rule: &MigrationRule,
        better: Option<&PathReading>,
    ) -> Option<Move> {
        let id = better.map(|path| path.id);
        let known = self.good_since.filter(|(good, _)| Some(*good) == id);
        self.good_since = id.map(|id| known.unwrap_or((id, now)));
        let (id, since) = self.good_since?;
        let wait = rule.back_after * (1 << self.doublings);
        (now >= since + wait).then(|| self.go(now, id, MoveReason::Back))?
    }

    fn go(&mut self, now: Instant, to: HopId, reason: MoveReason) -> Option<Move> {
        let from = self.path();
        if from == Some(to) {
            return None;
        }
        (self.bad_since, self.good_since, self.best_bps) = (None, None, 0);
        (self.relieved, self.tries) = (None, false);
        self.expected &= self.held != Some(to);
        let Some(from) = from else {
            self.on = Some((to, now, None));
            return None;
        };
        match reason {
            MoveReason::Back => self.came_back = Some(now),
            MoveReason::Operator => self.came_back = None,
            _ => self.leaves(now),
        }
        self.on = Some((to, now, Some(reason)));
        *self.moves.entry(reason).or_default() += 1;
        Some(Move { from, to, reason })
    }

    /// Notes that it leaves the path that it had come back to: if soon, it came back too early.
    fn leaves(&mut self, now: Instant) {
        if let Some(back) = self.came_back.take() {
            let soon = now.saturating_duration_since(back) < SOON;
            self.doublings = if soon {
                (self.doublings + 1).min(MOST_DOUBLINGS)
            } else {
                0
            };
        }
    }
}

#[cfg(test)]
mod tests;
