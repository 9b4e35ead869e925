//! By which of its paths a class goes whose policy is `migrate`, and when it
//! moves: all of it by one path at a time.
//!
//! It moves by an operator's word, at once when its path cannot carry any more,
//! and by rule: its path is full for some seconds while the delay is many times
//! its base (Bujari et al., A Virtual PEP for Web Optimization over a
//! Satellite-Terrestrial Backhaul), packets are lost, or the path carries much
//! less than it did. It moves only to a path with room for what it sends, and
//! back only after that has been so for some time; for longer each time that it
//! had to leave soon after it was back. Of a path that carries nothing nobody learns
//! that it carries more again: to go back there is to try it, and that is soon over if
//! it was in vain.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::hop::HopId;

/// The time to go back is doubled so often at most.
const MOST_DOUBLINGS: u32 = 4;
/// For so many times `after` behind another class' leaving, delay is given so many times
/// as long: what has waited has to leave, and what the path carries is found anew.
const RELIEVED_FOR: u32 = 6;
const RELIEVED_PATIENCE: u32 = 3;
/// One that has to leave so soon after its return was back too early.
const SOON: Duration = Duration::from_secs(60);
/// A path of which only its better days spoke for a return is given no more than this and
/// so many round trips to show that it carries that much: by then its estimate has risen.
const TRIED: Duration = Duration::from_secs(2);
const TRIED_ROUND_TRIPS: u32 = 4;
/// What a path carried at its best is forgotten by this part (1/n) a step.
const BEST_FADES: u64 = 400;

/// When a class moves by rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MigrationRule {
    /// A path is in trouble for so long before the class leaves it; none: it
    /// moves only by an operator's word and when its path cannot carry.
    pub after: Option<Duration>,
    /// A path is full when this part of its rate is in use, or when more waits for it
    /// than leaves in `delay_factor` times its base.
    pub full_part: f64,
    /// Trouble is to be full while the delay is so many times the base; the
    /// class' own backlog counts as delay.
    pub delay_factor: f64,
    /// It is to lose this part of the packets.
    pub loss: f64,
    /// It is to be full at this part of the rate of before.
    pub rate_part: f64,
    /// A better path is to have had room for so long before the class goes back.
    pub back_after: Duration,
    /// Room is this part of a path's rate, less what it carries.
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
    /// An operator has said so.
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
    /// Bit/s that it carries, and may carry; none is unknown.
    pub load_bps: u64,
    pub rate_bps: Option<u64>,
    /// What it may carry if it is as it was at its best, where it carries so little that
    /// nothing would show that; else the same.
    pub best_bps: Option<u64>,
    /// The round trip without queues, and with these and the class' backlog.
    pub base: Duration,
    pub delay: Duration,
    /// How long that backlog needs to leave.
    pub waits: Duration,
    /// Part of the packets that it loses.
    pub loss: f64,
}

impl PathReading {
    /// A path from which queues of others are drained again and again carries less than
    /// its rate, and more would be sent all the same: what waits shows that.
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

    /// The same, if it is as it was at its best.
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
    /// It came back to a path that had no room by its estimate.
    tries: bool,
}

impl Tunnel {
    /// Its path.
    pub fn path(&self) -> Option<HopId> {
        self.on.map(|(id, ..)| id)
    }

    /// Whether it may have to be looked at though nothing is sent.
    pub fn is_away(&self, paths: &[PathReading]) -> bool {
        let preferred = self.held.or(paths.first().map(|path| path.id));
        self.path().is_some() && self.path() != preferred
    }

    /// Something else has moved away from its path: the past does not count.
    pub fn relieve(&mut self, now: Instant) {
        (self.bad_since, self.relieved) = (None, Some(now));
    }

    /// How long trouble is given.
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

    /// An operator has it go by a path, which can carry it; and stay there.
    pub fn order(&mut self, now: Instant, to: HopId, hold: bool) -> Option<Move> {
        self.held = hold.then_some(to);
        self.expected = false;
        self.doublings = 0;
        self.go(now, to, MoveReason::Operator)
    }

    /// An operator has kept it on a path before this run: it goes there as soon
    /// as that can carry it.
    pub fn expect(&mut self, on: HopId) {
        if self.held != Some(on) {
            (self.held, self.expected) = (Some(on), self.path() != Some(on));
        }
    }

    /// No operator keeps it anywhere; it stays where it is until the rule says
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

    /// Goes to a better path that has been good for long.
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

    /// It leaves the path that it has come back to: if soon, it was too early.
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
