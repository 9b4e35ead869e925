//! Classes that move between paths as one: the readings of their paths, when these are judged, and
//! the orders of an operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use thiserror::Error;
use underpass_cla::Class;
use underpass_work::{FastMap, each};

use crate::engine::{Action, Engine};
use crate::hop::{Hop, HopId};
use crate::migration::{Move, MoveReason, PathReading, Tunnel};
use crate::policy::PathUse;

/// How often paths are judged while something is sent; and while nothing is sent, but a class is
/// away from its preferred path.
const JUDGED_EACH: Duration = Duration::from_millis(250);
const JUDGED_IDLE: Duration = Duration::from_secs(1);
/// A rate below this is none, bit/s.
const NOTHING_BPS: u64 = 1_000;
/// A path with less load than this part (1/n) of its estimate does not show what it can carry.
const SHOWS_NOTHING: u64 = 2;
/// The smoothed rate takes in 1/n of each new measurement.
const SMOOTHED: u64 = 4;

/// Why a class is not moved.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MigrateError {
    /// Another policy.
    #[error("the policy of the class is not \"migrate\"")]
    Policy,
    /// There is nothing to move between.
    #[error("the class may not go by this path, or there is no other to this neighbour")]
    Path,
    /// The path is blocked, has no session, or its budget is spent.
    #[error(
        "the path cannot carry the class now: it is blocked, has no session, or its budget is spent"
    )]
    CannotCarry,
}

/// A class has moved to another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The neighbour's ipn node number.
    pub neighbour: u64,
    /// The class.
    pub class: Class,
    /// The path of before.
    pub from: HopId,
    /// The path from now on.
    pub to: HopId,
    /// Why.
    pub reason: MoveReason,
}

/// Which path a class that moves goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct TunnelSnapshot {
    /// The neighbour's ipn node number.
    pub neighbour: u64,
    /// The class.
    pub class: Class,
    /// Its path's or terminal's name.
    pub path: String,
    /// Since when, and why if it has moved.
    pub since: Instant,
    /// As above.
    pub reason: Option<MoveReason>,
    /// Whether an operator keeps it somewhere.
    pub held: bool,
    /// What it sends, bit/s.
    pub sends_bps: u64,
    /// The path's round trip as measured, with its queue; `None` while it is not known.
    pub rtt: Option<Duration>,
    /// Part of the packets that the path loses by itself, as measured.
    pub loss: f64,
    /// Its bytes that wait for the neighbour, and its streams that have something to seal.
    pub backlog_bytes: u64,
    /// As above.
    pub backlogged_streams: usize,
    /// Moves since the start.
    pub moves: BTreeMap<MoveReason, u64>,
}

/// How fast a count of bytes grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    at: Instant,
    bytes: u64,
    bps: u64,
}

impl Pace {
    pub fn new(now: Instant, bytes: u64) -> Pace {
        Pace {
            at: now,
            bytes,
            bps: 0,
        }
    }

    /// What it is now, bit/s.
    pub fn bps(&self) -> u64 {
        self.bps
    }

    /// Takes the count as it is now.
    pub fn count(&mut self, now: Instant, bytes: u64) {
        let time = now.saturating_duration_since(self.at);
        if time < JUDGED_EACH / 2 {
            return;
        }
        let bits = u128::from(bytes.saturating_sub(self.bytes)) * 8;
        let bps = u64::try_from(bits * 1_000_000 / time.as_micros()).unwrap_or(u64::MAX);
        self.bps = self.bps - self.bps / SMOOTHED + bps / SMOOTHED;
        (self.at, self.bytes) = (now, bytes);
    }
}

/// The classes that move between the hops to one neighbour.
#[derive(Debug, Default)]
struct Steered {
    tunnels: BTreeMap<Class, Tunnel>,
    of_classes: BTreeMap<Class, Pace>,
    of_hops: BTreeMap<HopId, Pace>,
    at: Option<Instant>,
}

/// By neighbour, and when each is judged.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    known: FastMap<u64, Steered>,
    times: BTreeSet<(Instant, u64)>,
}

impl Steering {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Steering { known, times } = self;
        tell("neighbours with classes that move", known.len());
        let entries = known.values().map(|steered| {
            let Steered {
                tunnels,
                of_classes,
                of_hops,
                at: _,
            } = steered;
            tunnels.len() + of_classes.len() + of_hops.len()
        });
        tell("classes that move", entries.sum());
        tell("neighbours to be judged", times.len());
    }

    /// When [`Engine::steer_due`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }

    /// The hop of a class that moves.
    pub fn path_of(&self, neighbour: u64, class: Class) -> Option<HopId> {
        self.known.get(&neighbour)?.tunnels.get(&class)?.path()
    }

    fn judge_at(&mut self, neighbour: u64, at: Option<Instant>) {
        let steered = self.known.entry(neighbour).or_default();
        let before = std::mem::replace(&mut steered.at, at);
        before.map(|at| self.times.remove(&(at, neighbour)));
        at.map(|at| self.times.insert((at, neighbour)));
    }

    fn forget(&mut self, neighbour: u64) {
        if let Some(Steered { at: Some(at), .. }) = self.known.remove(&neighbour) {
            self.times.remove(&(at, neighbour));
        }
    }
}

impl Engine {
    /// Moves a class to a path. With `hold` it stays there until that path cannot carry it;
    /// otherwise the rule decides from then on.
    ///
    /// # Errors
    /// When the class does not move, or not by this path now.
    pub fn migrate(
        &mut self,
        now: Instant,
        class: Class,
        to: HopId,
        hold: bool,
    ) -> Result<(), MigrateError> {
        let neighbour = self.neighbour_of(to).ok_or(MigrateError::Path)?;
        if self.policy(class).uses != PathUse::Migrate {
            return Err(MigrateError::Policy);
        }
        self.steer(now, neighbour);
        let paths = self.read_paths(now, neighbour, class);
        let path = paths.iter().find(|path| path.id == to);
        let path = path.filter(|_| paths.len() > 1).ok_or(MigrateError::Path)?;
        if !path.able {
            return Err(MigrateError::CannotCarry);
        }
        let steered = self.steering.known.entry(neighbour).or_default();
        let tunnel = steered.tunnels.entry(class).or_default();
        if let Some(step) = tunnel.order(now, to, hold) {
            self.has_moved(neighbour, class, step);
        }
        self.steer(now, neighbour);
        self.after_change(now);
        Ok(())
    }

    /// Keeps a class on a path where an operator kept it before this run. It goes there as soon as
    /// the path can carry it.
    ///
    /// # Errors
    /// When the class does not move, or not by this path.
    pub fn keep_class(
        &mut self,
        now: Instant,
        class: Class,
        on: HopId,
    ) -> Result<(), MigrateError> {
        let neighbour = self.neighbour_of(on).ok_or(MigrateError::Path)?;
        if self.policy(class).uses != PathUse::Migrate {
            return Err(MigrateError::Policy);
        }
        let paths = self.read_paths(now, neighbour, class);
        if paths.len() < 2 || !paths.iter().any(|path| path.id == on) {
            return Err(MigrateError::Path);
        }
        let steered = self.steering.known.entry(neighbour).or_default();
        steered.tunnels.entry(class).or_default().expect(on);
        self.steer(now, neighbour);
        self.after_change(now);
        Ok(())
    }

    /// Takes back that an operator keeps a class to a neighbour on a path: the rule decides again.
    pub fn release_class(&mut self, now: Instant, class: Class, neighbour: u64) {
        let steered = self.steering.known.get_mut(&neighbour);
        if let Some(tunnel) = steered.and_then(|of| of.tunnels.get_mut(&class)) {
            tunnel.release();
            self.steer(now, neighbour);
            self.after_change(now);
        }
    }

    /// The hop on which an operator keeps a class to a neighbour.
    pub fn kept_on(&self, class: Class, neighbour: u64) -> Option<HopId> {
        self.steering
            .known
            .get(&neighbour)?
            .tunnels
            .get(&class)?
            .held
    }

    /// Which path each class that moves goes by.
    pub fn tunnels(&self) -> Vec<TunnelSnapshot> {
        let mut neighbours: Vec<_> = self.steering.known.iter().collect();
        neighbours.sort_by_key(|(neighbour, _)| **neighbour);
        let tunnels = neighbours.into_iter().flat_map(|(neighbour, steered)| {
            steered.tunnels.iter().filter_map(|(class, tunnel)| {
                let (path, since, reason) = tunnel.on?;
                let measured = self.hops.get(&path).map(|hop| hop.measured);
                let measured = measured.unwrap_or_default();
                Some(TunnelSnapshot {
                    neighbour: *neighbour,
                    class: *class,
                    path: self.hop_name(path).unwrap_or_default().to_owned(),
                    since,
                    reason,
                    held: tunnel.held.is_some(),
                    sends_bps: steered.of_classes.get(class).map_or(0, |pace| pace.bps),
                    rtt: measured.base_rtt.map(|base| base + measured.queue),
                    loss: measured.loss,
                    backlog_bytes: self.waiting_of(*neighbour, *class),
                    backlogged_streams: self.backlogged_streams(*neighbour, *class),
                    moves: tunnel.moves.clone(),
                })
            })
        });
        tunnels.collect()
    }

    /// Something was sent to a neighbour: its paths are judged soon.
    pub(crate) fn steer_soon(&mut self, now: Instant, neighbour: u64) {
        if let Some(steered) = self.steering.known.get(&neighbour)
            && steered.at.is_none_or(|at| at > now + JUDGED_EACH)
        {
            self.steering.judge_at(neighbour, Some(now + JUDGED_EACH));
        }
    }

    /// Judges the paths whose time has come.
    pub(crate) fn steer_due(&mut self, now: Instant) {
        while let Some(&(at, neighbour)) = self.steering.times.first() {
            if at > now {
                return;
            }
            self.steer(now, neighbour);
        }
    }

    /// Judges the paths to all neighbours, by another configuration.
    pub(crate) fn steer_all(&mut self, now: Instant) {
        let known = self.steering.known.keys().copied();
        let all: BTreeSet<u64> = known.chain(self.ways.neighbours()).collect();
        for neighbour in all {
            self.steer(now, neighbour);
        }
    }

    /// The classes that move, those of the lowest priority first.
    fn moving_classes(&self) -> Vec<Class> {
        let classes = self.config.scheduler.classes.iter();
        let moving = classes.filter(|of| self.policy(of.class).uses == PathUse::Migrate);
        let mut moving: Vec<_> = moving.map(|of| (of.priority, of.class)).collect();
        moving.sort_by(|one, other| other.cmp(one));
        moving.into_iter().map(|(_, class)| class).collect()
    }

    /// Judges the paths to a neighbour now.
    pub(crate) fn steer(&mut self, now: Instant, neighbour: u64) {
        let classes = self.moving_classes();
        if classes.is_empty() || self.ways.hops_to(neighbour).len() < 2 {
            return self.steering.forget(neighbour);
        }
        self.count_sent(now, neighbour, &classes);
        let mut left: BTreeSet<HopId> = BTreeSet::new();
        let mut active = false;
        for class in classes {
            let paths = self.read_paths(now, neighbour, class);
            let rule = self.policy(class).migration;
            let steered = self.steering.known.entry(neighbour).or_default();
            let demand = steered.of_classes.get(&class).map_or(0, |pace| pace.bps);
            let tunnel = steered.tunnels.entry(class).or_default();
            // One class leaves a path at a time, so that the others see what this is worth.
            if tunnel.path().is_some_and(|path| left.contains(&path)) {
                tunnel.relieve(now);
            }
            let step = tunnel.step(now, &rule, &paths, demand);
            active |= demand > NOTHING_BPS;
            let away = tunnel.is_away(&paths);
            if let Some(step) = step {
                left.insert(step.from);
                self.has_moved(neighbour, class, step);
            }
            if away {
                let at = self.steering.known.get(&neighbour).and_then(|of| of.at);
                if at.is_none_or(|at| at <= now) {
                    self.steering.judge_at(neighbour, Some(now + JUDGED_IDLE));
                }
            }
        }
        let due = self.steering.known.get(&neighbour).and_then(|of| of.at);
        if active {
            self.steering.judge_at(neighbour, Some(now + JUDGED_EACH));
        } else if due.is_some_and(|at| at <= now) {
            self.steering.judge_at(neighbour, None);
        }
    }

    /// Takes how much hops and classes have sent.
    fn count_sent(&mut self, now: Instant, neighbour: u64, classes: &[Class]) {
        let ids = self.ways.shared_hops_to(neighbour);
        let hops: Vec<&Hop> = ids.iter().filter_map(|id| self.hops.get(id)).collect();
        let steered = self.steering.known.entry(neighbour).or_default();
        steered.tunnels.retain(|class, _| classes.contains(class));
        steered
            .of_classes
            .retain(|class, _| classes.contains(class));
        steered.of_hops.retain(|id, _| ids.contains(id));
        for hop in &hops {
            let pace = steered.of_hops.entry(hop.config.id);
            let pace = pace.or_insert_with(|| Pace::new(now, hop.given_bytes));
            pace.count(now, hop.given_bytes);
        }
        for class in classes {
            let of_class = |hop: &&Hop| hop.traffic.get(usize::from(class.0)).copied();
            let sent = each(hops.iter()).filter_map(of_class);
            let bytes = sent.map(|traffic| traffic.sent_bytes).sum();
            let pace = steered.of_classes.entry(*class);
            let pace = pace.or_insert_with(|| Pace::new(now, bytes));
            pace.count(now, bytes);
        }
    }

    /// The paths that a class may use, the preferred one first.
    fn read_paths(&self, now: Instant, neighbour: u64, class: Class) -> Vec<PathReading> {
        let steered = self.steering.known.get(&neighbour);
        let hops = each(self.ways.hops_to(neighbour).iter());
        let known = hops.filter_map(|id| self.hops.get(id));
        // A hop whose budget is spent is listed, and cannot carry the class until that is renewed.
        let placed = known.filter_map(|hop| Some((self.place_by_policy(hop, class)?, hop)));
        let mut placed: Vec<_> = placed.collect();
        placed.sort_by_key(|(place, _)| *place);
        let able: BTreeMap<HopId, bool> = self.able_hops(now, neighbour, class);
        let stays = able.values().any(|leaving| !leaving);
        let read = placed.into_iter().map(|(_, hop)| {
            let id = hop.config.id;
            let rate_bps = self.within_share(id, hop.usable_bps());
            let backlog = self.backlog_by(neighbour, class, id);
            let waits = rate_bps.map_or(0.0, |rate| backlog as f64 * 8.0 / rate.max(1) as f64);
            let waits = Duration::from_secs_f64(waits.min(3_600.0));
            let base = hop.round_trip();
            let pace = steered.and_then(|steered| steered.of_hops.get(&id));
            let load_bps = pace.map_or(0, |pace| pace.bps);
            let best_bps = rate_bps.map(|rate| match load_bps < rate / SHOWS_NOTHING {
                true => {
                    let best = self.within_share(id, Some(hop.best_bps()));
                    rate.max(best.unwrap_or(0))
                }
                false => rate,
            });
            PathReading {
                id,
                able: able.get(&id).is_some_and(|leaving| !leaving || !stays),
                load_bps,
                rate_bps,
                best_bps,
                base,
                delay: base + hop.measured.queue + waits,
                waits,
                loss: hop.measured.present_loss(now),
            }
        });
        read.collect()
    }

    fn has_moved(&mut self, neighbour: u64, class: Class, step: Move) {
        let Move { from, to, reason } = step;
        self.actions.push_back(Action::Migrated(Migration {
            neighbour,
            class,
            from,
            to,
            reason,
        }));
        for id in self.ways.shared_hops_to(neighbour).iter() {
            self.leaf_changed(*id, class);
        }
    }
}
