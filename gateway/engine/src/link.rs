//! Whether a hop's link is there: what the plan, the modem, the operator and
//! the node's own probing say, and which of them counts.
//!
//! - An operator's word and the modem's hold, whatever is heard.
//! - In a planned blockage nothing is sent, unless the peer is heard after its
//!   entry: heard beats planned.
//! - Where probing is possible, silence of a round trip and half a second is a blockage, which the
//!   first sign of the peer ends. Where both ends let the link rest, beacons are rare, and it takes
//!   [`REST_SILENCE`] more.
//! - A peer that is heard may say that it hears nothing: then what is sent here is lost. It gets as
//!   long to hear something after it was first heard, since it also says so right after a blockage.
//!   If it acknowledges something that was sent after it said so, it hears.
//! - When the operator, the modem or the plan gives the link free, sending
//!   starts at once, and silence counts from then.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A link is blocked by probing once nothing was heard for a round trip and
/// this.
pub const SILENCE: Duration = Duration::from_millis(500);

/// On a link that both ends let rest, silence has to last this much longer: beacons are 8 s apart,
/// and one may be lost.
pub const REST_SILENCE: Duration = Duration::from_secs(20);

/// How often the peer gives a sign on such a link.
pub const REST_INTERVAL: Duration = Duration::from_secs(8);

/// What was sent before a planned entry may be heard for a round trip after it (the plan's times
/// are those of sending), and for as long as queues delay it.
const QUEUES: Duration = Duration::from_millis(200);

/// Kernels report when a session heard its peer only to some milliseconds: asked again, they may
/// name a slightly later time for the same sign. A new sign comes later by more than this, since
/// silence was longer.
pub(crate) const SAME_SIGN: Duration = Duration::from_millis(50);

/// A deaf peer says so every 0.15 s: a peer that has not for so long is not deaf any more.
const DEAF: Duration = Duration::from_secs(1);

/// When its time to hear something is over, a peer counts as deaf only if it said so less than this
/// before, or says so again. An older word may be outdated: the peer may have heard something
/// since, and it sends few beacons beside data.
const STILL_DEAF: Duration = Duration::from_millis(200);

/// Planned blockages kept of a hop.
pub const MAX_PLANNED: usize = 1024;

/// A clock that is set back by no more than this, ms, is only being adjusted: a planned blockage
/// that is over does not begin again.
const ADJUSTED_MS: u64 = 1_000;

/// Who says that a link is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// An operator, by the local API.
    Operator,
    /// The modem has no lock, or may not transmit.
    Modem,
    /// The contact plan has no contact with the neighbour at present.
    Contact,
    /// The plan.
    Plan,
    /// The peer is silent.
    Probing,
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 5] = [
        Source::Operator,
        Source::Modem,
        Source::Contact,
        Source::Plan,
        Source::Probing,
    ];

    /// Its name in API, log and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Source::Operator => "operator",
            Source::Modem => "modem",
            Source::Contact => "contact",
            Source::Plan => "plan",
            Source::Probing => "probing",
        }
    }

    /// Whether people have arranged the blockage beforehand.
    pub fn is_arranged(self) -> bool {
        matches!(self, Source::Operator | Source::Contact | Source::Plan)
    }
}

/// A blockage that is known beforehand; ms since 1970-01-01 UTC, as times of
/// sending at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PlannedBlockage {
    /// It begins.
    pub entry_ms: u64,
    /// It is over.
    pub exit_ms: u64,
}

/// Who has planned a blockage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planner {
    /// An operator, by the local API.
    Operator,
    /// The plan that the link follows.
    Control,
}

/// How the peer was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// By a beacon: from now on its silence means a blockage.
    Beacon,
    /// By a beacon that says that the peer hears nothing of this node.
    Deaf,
    /// By a beacon by which the peer lets the link rest.
    Resting,
    /// By bytes or acknowledgements on a session.
    Session,
}

/// A change in a link's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// Nothing is sent.
    Blocked(Source),
    /// Another one says so now.
    Source(Source),
    /// Sending goes on, after so long.
    Free(Duration),
    /// The peer is heard in a planned blockage; sending goes on.
    PlanContradicted(PlannedBlockage),
}

/// The time of day: UTC in ms since 1970 at an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Utc {
    pub at: Instant,
    pub ms: u64,
}

impl Utc {
    /// The time of day at `now`, ms.
    pub fn ms_at(&self, now: Instant) -> u64 {
        let millis = |nanos: u128| u64::try_from(nanos / 1_000_000).unwrap_or(u64::MAX);
        match now.checked_duration_since(self.at) {
            Some(since) => self.ms.saturating_add(millis(since.as_nanos())),
            // A part of a millisecond earlier belongs to the millisecond before.
            None => self
                .ms
                .saturating_sub(millis((self.at - now).as_nanos() + 999_999)),
        }
    }

    /// The instant at which a time of day begins, `now` at the earliest.
    pub fn instant_of(&self, now: Instant, ms: u64) -> Option<Instant> {
        let at = match ms.checked_sub(self.ms) {
            Some(after) => self.at.checked_add(Duration::from_millis(after))?,
            None => self
                .at
                .checked_sub(Duration::from_millis(self.ms - ms))
                .unwrap_or(now),
        };
        Some(at.max(now))
    }
}

/// Answers to what is in flight are due, and their absence means a blockage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// Since then something has been in flight.
    pub since: Instant,
    /// Answers come within this, or not at all.
    pub within: Duration,
    /// Another hop can carry what is in flight. If none can, a peer that hears nothing would hear
    /// nothing on another session either, so it does not help to know that sooner.
    pub elsewhere: bool,
}

/// A peer that says that it hears nothing.
#[derive(Clone, Copy, Debug)]
struct Deaf {
    /// Since when, without a pause.
    since: Instant,
    /// When it has said so last.
    last: Instant,
    /// Its time to hear something is over: it counts as deaf until it says otherwise, even if no
    /// answers are expected any more.
    found: bool,
}

/// One hop's link.
#[derive(Debug)]
pub(crate) struct LinkState {
    rtt: Duration,
    operator: bool,
    modem: bool,
    without_contact: bool,
    /// The blockages of both planners, sorted and disjoint.
    plan: Vec<PlannedBlockage>,
    by_operator: Vec<PlannedBlockage>,
    by_control: Vec<PlannedBlockage>,
    /// The end of the last one that was taken out of `plan` since it was over, ms; 0 for none.
    over_ms: u64,
    /// The planned blockage whose contradiction was reported.
    contradicted: Option<PlannedBlockage>,
    /// Beacons were heard: silence means something.
    probed: bool,
    /// The last sign of the peer.
    heard: Option<Instant>,
    /// It has said that it hears nothing.
    deaf: Option<Deaf>,
    /// Silence counts from here at the earliest.
    released: Instant,
    /// Whether this end lets the link rest, and whether the peer does by its last beacon.
    may_rest: bool,
    peer_rests: bool,
    /// When this end last woke a link that rested.
    woken: Instant,
    /// If set, silence means a blockage sooner.
    expected: Option<Expectation>,
    /// The sign after which the peer was found silent: it counts as silent until the next sign,
    /// even if no answers are expected any more.
    found_silent: Option<Instant>,
    /// Who says that it is blocked, and since when it is.
    state: Option<(Source, Instant)>,
}

impl LinkState {
    pub fn new(now: Instant, rtt: Duration) -> LinkState {
        LinkState {
            rtt,
            operator: false,
            modem: false,
            without_contact: false,
            plan: Vec::new(),
            by_operator: Vec::new(),
            by_control: Vec::new(),
            over_ms: 0,
            contradicted: None,
            probed: false,
            heard: None,
            deaf: None,
            released: now,
            may_rest: false,
            peer_rests: false,
            woken: now,
            expected: None,
            found_silent: None,
            state: None,
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let LinkState {
            rtt: _,
            operator: _,
            modem: _,
            without_contact: _,
            plan,
            by_operator,
            by_control,
            over_ms: _,
            contradicted: _,
            probed: _,
            heard: _,
            deaf: _,
            released: _,
            may_rest: _,
            peer_rests: _,
            woken: _,
            expected: _,
            found_silent: _,
            state: _,
        } = self;
        let planned = plan.len() + by_operator.len() + by_control.len();
        tell("planned blockages", planned);
    }

    /// Sets the round trip, by which silence is judged.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    /// Sets whether answers are due whose absence matters.
    pub fn expect(&mut self, expected: Option<Expectation>) {
        self.expected = expected;
    }

    /// Notes that answers, if any are expected, are due to what is in flight since `at`.
    pub fn expect_since(&mut self, at: Instant) {
        if let Some(expected) = &mut self.expected {
            expected.since = at;
        }
    }

    /// When the next planned blockage begins, if one is to come.
    pub fn next_entry(&self, now: Instant, utc: Option<Utc>) -> Option<Instant> {
        let utc = utc?;
        let now_ms = utc.ms_at(now);
        let mut planned = self.plan.iter();
        let next = planned.find(|next| next.entry_ms > now_ms)?;
        utc.instant_of(now, next.entry_ms)
    }

    /// Who says that the link is blocked, and since when it is.
    pub fn blocked(&self) -> Option<(Source, Instant)> {
        self.state
    }

    pub fn set_operator(&mut self, blocked: bool) {
        self.operator = blocked;
    }

    pub fn set_modem(&mut self, blocked: bool) {
        self.modem = blocked;
    }

    /// Sets whether the contact plan has no contact at present. Returns whether that is new.
    pub fn set_without_contact(&mut self, without: bool) -> bool {
        std::mem::replace(&mut self.without_contact, without) != without
    }

    /// Replaces what one planner has planned. Overlapping blockages become one, and the earliest
    /// [`MAX_PLANNED`] are kept.
    pub fn set_plan(&mut self, by: Planner, planned: Vec<PlannedBlockage>) {
        match by {
            Planner::Operator => self.by_operator = planned,
            Planner::Control => self.by_control = planned,
        }
        self.join_plans();
    }

    /// Makes one plan of both planners' blockages.
    fn join_plans(&mut self) {
        let both = self.by_operator.iter().chain(&self.by_control).copied();
        let real = both.filter(|blockage| blockage.entry_ms < blockage.exit_ms);
        let mut planned: Vec<PlannedBlockage> = real.collect();
        planned.sort_unstable();
        self.plan.clear();
        for next in planned {
            match self.plan.last_mut() {
                Some(last) if next.entry_ms <= last.exit_ms => {
                    last.exit_ms = last.exit_ms.max(next.exit_ms);
                }
                _ => self.plan.push(next),
            }
        }
        self.plan.truncate(MAX_PLANNED);
        self.over_ms = 0;
    }

    /// The planned blockages that are not over, and whether the one in force
    /// is contradicted.
    pub fn plan(&self) -> (&[PlannedBlockage], bool) {
        let first = self.plan.first();
        let contradicted = first.is_some() && self.contradicted.as_ref() == first;
        (&self.plan, contradicted)
    }

    /// Notes that the peer was heard.
    pub fn heard(&mut self, at: Instant, sign: Sign) {
        self.heard = self.heard.max(Some(at));
        self.probed |= sign != Sign::Session;
        if sign != Sign::Session {
            self.peer_rests = sign == Sign::Resting;
        }
        match sign {
            Sign::Beacon | Sign::Resting => self.deaf = None,
            Sign::Deaf => {
                let going_on = self.deaf.filter(|deaf| at <= deaf.last + DEAF);
                let (since, found) = going_on.map_or((at, false), |deaf| (deaf.since, deaf.found));
                let last = at;
                self.deaf = Some(Deaf { since, last, found });
            }
            Sign::Session => {}
        }
    }

    /// Notes that the peer has acknowledged something that was sent at `sent`. If it had said
    /// before that it hears nothing, it has heard something since. If the link was found blocked
    /// for that reason already, the peer's next beacon decides.
    pub fn answered(&mut self, sent: Instant) {
        self.deaf = self.deaf.filter(|deaf| deaf.found || sent <= deaf.since);
    }

    /// Notes that the first session after none is up: whether this peer sends beacons must be seen
    /// anew.
    pub fn renew(&mut self, now: Instant) {
        self.probed = false;
        self.heard(now, Sign::Session);
    }

    /// Lets the link rest at this end, or wakes it. Returns whether that is new. After waking,
    /// missing answers are noticed as soon as on any other link.
    pub fn let_rest(&mut self, now: Instant, may: bool) -> bool {
        if !may && self.rests() {
            self.woken = now;
            if self.state.is_none() {
                self.released = self.released.max(now);
            }
        }
        std::mem::replace(&mut self.may_rest, may) != may
    }

    /// Whether both ends let the link rest.
    pub fn rests(&self) -> bool {
        self.may_rest && self.peer_rests
    }

    /// When the peer was last heard, if it ever was.
    pub fn last_heard(&self) -> Option<Instant> {
        self.heard
    }

    /// When a blockage that is known by the peer's silence began: when the peer was last heard, if
    /// ever. A link that rested may have been free for longer: the blockage then counts from the
    /// first sign that the peer owed, or from when this end woke the link. That is at most 8 s too
    /// late.
    pub fn silent_since(&self) -> Option<Instant> {
        let heard = self.heard?;
        let owed = heard + REST_INTERVAL;
        Some(match self.rests() {
            true => owed,
            false => self.woken.clamp(heard, owed),
        })
    }

    /// Whether the peer says at present that it hears nothing.
    pub fn is_deaf(&self, now: Instant) -> bool {
        self.deaf.is_some_and(|deaf| now < deaf.last + DEAF)
    }

    /// Whether silence means a blockage.
    pub fn is_probed(&self) -> bool {
        self.probed
    }

    /// Judges anew. Returns the change of the state, if any, and a plan that was found wrong, if
    /// any.
    pub fn update(
        &mut self,
        now: Instant,
        utc: Option<Utc>,
    ) -> (Option<LinkChange>, Option<LinkChange>) {
        let (planned, contradicted) = self.judge_plan(now, utc);
        let told = match self.operator {
            true => Some(Source::Operator),
            false if self.modem => Some(Source::Modem),
            false if self.without_contact => Some(Source::Contact),
            false => planned.then_some(Source::Plan),
        };
        let was_told = self
            .state
            .is_some_and(|(source, _)| source != Source::Probing);
        if was_told && told.is_none() {
            self.released = now;
        }
        self.deaf = self.deaf.filter(|deaf| now < deaf.last + DEAF);
        let (silent, unheard) = (self.is_silent(now), self.is_unheard(now));
        if let Some(deaf) = &mut self.deaf {
            deaf.found |= unheard;
        }
        self.found_silent = match silent {
            true => self.found_silent.or(Some(self.counted())),
            false => None,
        };
        let source = told.or(silent.then_some(Source::Probing));
        let change = match (self.state, source) {
            (None, Some(source)) => Some(LinkChange::Blocked(source)),
            (Some((before, _)), Some(source)) if before != source => {
                Some(LinkChange::Source(source))
            }
            (Some((_, since)), None) => Some(LinkChange::Free(now - since)),
            _ => None,
        };
        let since = self.state.map_or(now, |(_, since)| since);
        self.state = source.map(|source| (source, since));
        (change, contradicted)
    }

    /// Whether the peer was silent for so long that this means a blockage, or hears nothing.
    pub fn is_silent(&self, now: Instant) -> bool {
        let counted = self.counted();
        let still = self
            .found_silent
            .is_some_and(|sign| counted < sign + SAME_SIGN);
        self.probed && still || self.silent_at().is_some_and(|at| at <= now) || self.is_unheard(now)
    }

    /// Whether the peer is heard but does not hear.
    fn is_unheard(&self, now: Instant) -> bool {
        let deaf = self.deaf.filter(|deaf| now < deaf.last + DEAF);
        deaf.is_some_and(|deaf| {
            let at = self.unheard_at(&deaf);
            deaf.found || at <= now && at <= deaf.last + STILL_DEAF
        })
    }

    /// When a deaf peer's time to hear something is over.
    fn unheard_at(&self, deaf: &Deaf) -> Instant {
        let since = deaf.since.max(self.released);
        let patient = since + self.rtt + SILENCE;
        let sooner = self.expected.filter(|expected| expected.elsewhere);
        let due = sooner.map(|e| since.max(e.since) + e.within);
        due.map_or(patient, |due| due.min(patient))
    }

    /// From when on silence counts.
    pub fn counted(&self) -> Instant {
        self.heard.map_or(self.released, |at| at.max(self.released))
    }

    /// When silence becomes a blockage, if nothing is heard until then.
    fn silent_at(&self) -> Option<Instant> {
        let counted = self.counted();
        let rest = match self.rests() {
            true => REST_SILENCE,
            false => Duration::ZERO,
        };
        let patient = counted + self.rtt + SILENCE + rest;
        let due = self.expected.map(|e| counted.max(e.since) + e.within);
        self.probed
            .then(|| due.map_or(patient, |due| due.min(patient)))
    }

    /// Whether the plan holds the link now, and whether it was just found
    /// wrong.
    fn judge_plan(&mut self, now: Instant, utc: Option<Utc>) -> (bool, Option<LinkChange>) {
        let Some(utc) = utc else {
            return (false, None);
        };
        let now_ms = utc.ms_at(now);
        if now_ms.saturating_add(ADJUSTED_MS) < self.over_ms {
            // The clock was ahead by then and was set back.
            self.join_plans();
        }
        let over = self.plan.partition_point(|next| next.exit_ms <= now_ms);
        if let Some(last) = self.plan.drain(..over).next_back() {
            self.over_ms = last.exit_ms;
        }
        let current = self.plan.first().filter(|next| next.entry_ms <= now_ms);
        let Some(current) = current.copied() else {
            return (false, None);
        };
        let late = u64::try_from((self.rtt + QUEUES).as_millis()).unwrap_or(u64::MAX);
        let heard_ms = self.heard.map(|at| utc.ms_at(at));
        if heard_ms.is_none_or(|heard| heard <= current.entry_ms.saturating_add(late)) {
            return (true, None);
        }
        // A later plan has the same blockage with times of its own.
        let same = |told: PlannedBlockage| {
            told.entry_ms < current.exit_ms && current.entry_ms < told.exit_ms
        };
        let told = self.contradicted.replace(current).is_some_and(same);
        let change = LinkChange::PlanContradicted(current);
        (false, (!told).then_some(change))
    }

    /// When [`LinkState::update`] may find a change without any new input.
    pub fn next_timeout(&self, now: Instant, utc: Option<Utc>) -> Option<Instant> {
        let deaf = self.deaf.iter();
        let deaf = deaf.flat_map(|deaf| [self.unheard_at(deaf), deaf.last + DEAF]);
        let silent = self.silent_at().into_iter().chain(deaf);
        let silent = silent.filter(|at| *at > now);
        let planned = utc.and_then(|utc| {
            let now_ms = utc.ms_at(now);
            let next = self.plan.first()?;
            let next = match next.entry_ms > now_ms {
                true => next.entry_ms,
                false => next.exit_ms,
            };
            utc.instant_of(now, next)
        });
        silent.chain(planned).min()
    }
}

#[cfg(test)]
mod tests;
