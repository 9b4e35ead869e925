//! The plans that this node's links follow.
//!
//! At a hub the plan of the beam's forward link gives the capacity that the hops on the beam share,
//! and each terminal's line its weight: with weights in proportion to the planned rates, whose sum
//! is within the capacity, each terminal that has something to send gets its rate at least, and
//! capacity that one leaves unused goes to the others at once. At a terminal the plan of the return
//! link gives a path exactly its rate, since no terminal sees what the others use.
//!
//! A line's blockages are planned blockages of the link (see `link`): they
//! hold sending, unless the peer is heard. All times are control's.

use std::sync::Arc;
use std::time::Instant;

use underpass_plans::{Direction, Plan, Refused, Schedule, State};
use underpass_work::each;

use crate::config::PlanLine;
use crate::engine::{Action, Engine};
use crate::hop::{Hop, HopId};
use crate::link::{PlannedBlockage, Planner};

/// The weight of a hop on the beam that the plan in force does not name, among weights in bit/s: it
/// gets what the others leave, and a little where they leave nothing.
const UNNAMED_WEIGHT: u64 = 8_000;

/// A plan begins or ends to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanChange {
    /// The beam.
    pub beam: String,
    /// The link.
    pub link: Direction,
    /// The plan's version.
    pub version: u64,
    /// Whether it is over, and none has taken its place.
    pub over: bool,
}

/// The plans of one link, and what was reported of them.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub schedule: Schedule,
    /// The plan that began last, and whether it was over.
    told: Option<(u64, bool)>,
}

impl Followed {
    /// Whether a plan is in force, as last reported.
    fn is_in_force(&self) -> bool {
        matches!(self.told, Some((_, false)))
    }

    /// Goes on to the plan in force now. Returns a change that is to be reported.
    fn step(&mut self, now_ms: u64) -> Option<PlanChange> {
        self.schedule.advance(now_ms);
        let plan = self.schedule.current()?;
        let (version, over) = (plan.version(), self.schedule.is_stale(now_ms));
        if self.told.replace((version, over)) == Some((version, over)) {
            return None;
        }
        Some(PlanChange {
            beam: plan.beam().to_owned(),
            link: plan.link(),
            version,
            over,
        })
    }
}

/// The time in which the plans change nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unchanged {
    /// By control's clock, ms: from here on,
    from_ms: Option<u64>,
    /// and before then, or for ever.
    until_ms: Option<u64>,
    /// The same time, by this node's clock.
    pub until: Option<Instant>,
}

impl Unchanged {
    fn covers(&self, now_ms: Option<u64>) -> bool {
        match (self.from_ms, now_ms) {
            (None, None) => true,
            (Some(from_ms), Some(now_ms)) => {
                from_ms <= now_ms && self.until_ms.is_none_or(|until_ms| now_ms < until_ms)
            }
            _ => false,
        }
    }
}

/// What plans give a hop at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopPlan {
    /// The newest plan that has begun; it may be over.
    pub plan: Arc<Plan>,
    /// Whether it holds.
    pub in_force: bool,
    /// The terminal whose line it is.
    pub terminal: u64,
    /// The state by the plan in force; `None` while there is none, or it does
    /// not name the hop.
    pub state: Option<State>,
    /// The rate by the plan in force, bit/s of IP bytes; in a blockage the
    /// guaranteed one.
    pub planned_bps: Option<u64>,
    /// The rate guaranteed by the last plan that names the hop.
    pub guaranteed_bps: Option<u64>,
    /// When the rate by the plan in force changes next, ms of control's time.
    pub until_ms: Option<u64>,
}

/// The plans of one link at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanSnapshot {
    /// The newest plan that has begun, if one has.
    pub current: Option<Arc<Plan>>,
    /// The newest of all, if it has not begun.
    pub next: Option<Arc<Plan>>,
    /// Whether the current one holds.
    pub in_force: bool,
    /// The capacity by the plan in force, bit/s of IP bytes.
    pub capacity_bps: Option<u64>,
    /// When anything changes next, ms of control's time.
    pub next_change_ms: Option<u64>,
    /// The hops that follow them.
    pub hops: Vec<HopId>,
}

impl Engine {
    /// Control's time as far as it is known, ms since 1970-01-01 UTC.
    pub fn utc_ms(&self, now: Instant) -> Option<u64> {
        self.utc.map(|utc| utc.ms_at(now))
    }

    /// Takes a plan of the beam's forward link.
    ///
    /// # Errors
    /// When it is not newer than what is followed, or not for this node's
    /// link and beam.
    pub fn follow_forward(&mut self, now: Instant, plan: Arc<Plan>) -> Result<(), Refused> {
        if plan.link() != Direction::Forward {
            return Err(Refused::Link(plan.link()));
        }
        let now_ms = self.utc_ms(now).unwrap_or(0);
        // There is one capacity to share: that of one beam.
        if let Some(known) = self.beam.schedule.newest()
            && known.beam() != plan.beam()
            && now_ms < known.end_ms()
        {
            return Err(Refused::Beam {
                beam: plan.beam().to_owned(),
                known: known.beam().to_owned(),
            });
        }
        self.beam.schedule.take(plan, now_ms)?;
        // Rates first: what a blocked path held goes by another one at once.
        self.apply_plans(now);
        for id in self.hop_ids() {
            self.plan_blockages_of_line(now, id);
        }
        self.after_change(now);
        Ok(())
    }

    /// Takes a plan of the return link for the hop that sends there.
    ///
    /// # Errors
    /// When it is not newer than what is followed, or not for this hop.
    pub fn follow_return(
        &mut self,
        now: Instant,
        id: HopId,
        plan: Arc<Plan>,
    ) -> Result<(), Refused> {
        let now_ms = self.utc_ms(now).unwrap_or(0);
        let line = self.hops.get(&id).and_then(|hop| hop.config.line);
        let line =
            line.filter(|line| line.link == Direction::Return && plan.link() == Direction::Return);
        let (Some(line), Some(hop)) = (line, self.hops.get_mut(&id)) else {
            return Err(Refused::Link(plan.link()));
        };
        if plan.line(line.terminal).is_none() {
            return Err(Refused::Nobody(line.terminal));
        }
        hop.followed.schedule.take(plan, now_ms)?;
        self.apply_plans(now);
        self.plan_blockages_of_line(now, id);
        self.after_change(now);
        Ok(())
    }

    /// The plans of each link that this node sends on.
    pub fn plans(&self, now: Instant) -> Vec<PlanSnapshot> {
        let now_ms = self.utc_ms(now);
        let of = |link: Direction| {
            let hops = self.hops.iter();
            let hops = hops.filter(move |(_, hop)| hop.follows(link).is_some());
            hops.map(|(id, _)| *id)
        };
        let beam = (&self.beam.schedule, of(Direction::Forward).collect());
        let paths = of(Direction::Return).filter_map(|id| {
            let hop = self.hops.get(&id)?;
            Some((&hop.followed.schedule, vec![id]))
        });
        let known = [beam].into_iter().chain(paths);
        let known = known.filter(|(schedule, _)| schedule.newest().is_some());
        known
            .map(|(schedule, hops)| snapshot(schedule, now_ms, hops))
            .collect()
    }

    /// What plans give a hop, if a plan that has begun names it.
    pub(crate) fn hop_plan(&self, hop: &Hop) -> Option<HopPlan> {
        let line = hop.config.line?;
        let plan = self.schedule_of(hop, line).current()?;
        let until_ms = hop.segment.map(|segment| segment.end_ms);
        Some(HopPlan {
            plan: plan.clone(),
            in_force: self.beam.is_in_force() && line.link == Direction::Forward
                || hop.followed.is_in_force(),
            terminal: line.terminal,
            state: hop.segment.map(|segment| segment.state),
            planned_bps: hop.planned_bps(),
            guaranteed_bps: hop.guaranteed_bps,
            until_ms,
        })
    }

    fn schedule_of<'a>(&'a self, hop: &'a Hop, line: PlanLine) -> &'a Schedule {
        match line.link {
            Direction::Forward => &self.beam.schedule,
            Direction::Return => &hop.followed.schedule,
        }
    }

    pub(crate) fn plan_blockages_of_line(&mut self, now: Instant, id: HopId) {
        let hop = self.hops.get(&id);
        let Some((hop, line)) = hop.and_then(|hop| Some((hop, hop.config.line?))) else {
            return;
        };
        let blockages = self.schedule_of(hop, line).blockages(line.terminal);
        let planned = blockages
            .into_iter()
            .map(|(entry_ms, exit_ms)| PlannedBlockage { entry_ms, exit_ms })
            .collect();
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.link.set_plan(Planner::Control, planned);
            self.judge(now, id);
        }
    }

    /// Puts into force what is due in the plans at `now`.
    pub(crate) fn follow(&mut self, now: Instant) {
        let now_ms = self.utc_ms(now);
        match self.unchanged.covers(now_ms) {
            // The clock may have been set.
            true => self.unchanged.until = self.instant_of(now, self.unchanged.until_ms),
            false => self.apply_plans(now),
        }
    }

    /// Puts into force what the plans say for `now`.
    pub(crate) fn apply_plans(&mut self, now: Instant) {
        let now_ms = self.utc_ms(now);
        if let Some(now_ms) = now_ms {
            let paths = self.hops.values_mut().map(|hop| &mut hop.followed);
            let all = paths.chain([&mut self.beam]);
            let changes = all.filter_map(|followed| followed.step(now_ms));
            // All engines of the node follow the beam's plans; one reports the change.
            let own = self.sharding.own;
            let tells = |change: &PlanChange| own == 0 || change.link == Direction::Return;
            let changes = changes.filter(tells);
            self.actions.extend(changes.map(Action::Plan));
        }
        self.apply_beam_rate(now);
        for id in each(self.hop_ids()) {
            self.apply_line(now, id, now_ms);
        }
        let until_ms = now_ms.and_then(|now_ms| {
            let paths = self.hops.values().map(|hop| &hop.followed.schedule);
            let all = paths.chain([&self.beam.schedule]);
            all.filter_map(|schedule| schedule.next_change(now_ms))
                .min()
        });
        self.unchanged = Unchanged {
            from_ms: now_ms,
            until_ms,
            until: self.instant_of(now, until_ms),
        };
    }

    /// Puts the beam's rate into force: the allowed rate, but no more than the beam was measured to
    /// carry. After the end of a plan the configured rate counts, or the last planned one if none
    /// is configured.
    pub(crate) fn apply_beam_rate(&mut self, now: Instant) {
        let schedule = &self.beam.schedule;
        let in_force = self.utc_ms(now).and_then(|now_ms| {
            let plan = schedule.in_force(now_ms)?;
            Some(plan.capacity_at(now_ms))
        });
        let last = schedule
            .current()
            .map(|plan| plan.capacity_at(plan.end_ms()));
        let planned = in_force.or(self.config.beam_rate_bps).or(last);
        let allowed_bps = self.beam_by_operator.unwrap_or(planned);
        self.beam_allowed_bps = allowed_bps;
        // A beam without an allowed rate is not measured either.
        let rate_bps = allowed_bps.map(|bps| bps.min(self.beam_measured_bps.unwrap_or(bps)));
        if std::mem::replace(&mut self.beam_rate_bps, rate_bps) != rate_bps {
            self.scheduler.set_root_rate(now, rate_bps);
        }
    }

    /// Puts a hop's line into force: its share of the beam, or its rate.
    fn apply_line(&mut self, now: Instant, id: HopId, now_ms: Option<u64>) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        let shared = now_ms.is_some_and(|now_ms| self.beam.schedule.in_force(now_ms).is_some());
        let before = hop.rate_bps();
        let (mut segment, mut guaranteed_bps) = (None, hop.guaranteed_bps);
        if let Some(line) = hop.config.line {
            let schedule = self.schedule_of(hop, line);
            segment = now_ms.and_then(|now_ms| schedule.segment(line.terminal, now_ms));
            let last = schedule.current().and_then(|plan| plan.line(line.terminal));
            guaranteed_bps = last.map(|line| line.guaranteed_bps).or(guaranteed_bps);
        }
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        (hop.segment, hop.guaranteed_bps) = (segment, guaranteed_bps);
        // A hop on the beam that the plan does not name gets what the others leave.
        let weight = match shared && hop.config.on_beam {
            true => hop.planned_bps().unwrap_or(UNNAMED_WEIGHT).max(1),
            false => hop.config.weight,
        };
        let changed = hop.rate_bps() != before;
        if std::mem::replace(&mut hop.weight, weight) != weight {
            self.scheduler.set_weight(id.terminal(), weight);
        }
        if changed {
            self.apply_rate(now, id);
        }
    }

    fn instant_of(&self, now: Instant, ms: Option<u64>) -> Option<Instant> {
        self.utc?.instant_of(now, ms?)
    }
}

fn snapshot(schedule: &Schedule, now_ms: Option<u64>, hops: Vec<HopId>) -> PlanSnapshot {
    let in_force = now_ms.and_then(|now_ms| schedule.in_force(now_ms));
    let next = schedule.newest().filter(|newest| {
        let current = schedule.current();
        current.is_none_or(|current| !Arc::ptr_eq(current, newest))
    });
    PlanSnapshot {
        current: schedule.current().cloned(),
        next: next.cloned(),
        in_force: in_force.is_some(),
        capacity_bps: in_force
            .zip(now_ms)
            .map(|(plan, now_ms)| plan.capacity_at(now_ms)),
        next_change_ms: now_ms.and_then(|now_ms| schedule.next_change(now_ms)),
        hops,
    }
}
