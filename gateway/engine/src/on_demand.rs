//! A path that is up only while it is needed: when it is brought up, and when it
//! is released again.
//!
//! Each node judges for its own direction of sending whether the path is needed: for bytes that may
//! go by no other path, because the other paths can carry nothing, or for a backlog that these
//! cannot carry within a configured time. The node that dials the path brings it up; the node at
//! its other end asks for that while it needs the path.
//!
//! Hysteresis keeps it from flapping. To bring it up, a backlog has to last; to release it, it must
//! not have been needed for some time, and what is sent has to leave the others some room. It stays
//! up for a minimum time, and down for a minimum time before a backlog brings it up again. A path
//! that gets no session stays down for longer each time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often it is judged while something moves.
pub(crate) const JUDGED_EACH: Duration = Duration::from_millis(250);
/// A path that is up and idle is judged so often.
const JUDGED_IDLE: Duration = Duration::from_secs(1);
/// A backlog is what the other paths need at least this time for, so that they do not run dry
/// before the next look at it.
const BACKLOG: Duration = Duration::from_millis(50);
/// A neighbour that needs the path says so again after this.
const ASKED_EACH: Duration = Duration::from_secs(5);
/// Its word counts for so long: two of three messages may come late.
pub(crate) const ASKED_FOR: Duration = Duration::from_secs(15);
/// It says that it no longer needs the path when it has not needed it for so long.
const WITHDRAWN_AFTER: Duration = Duration::from_secs(1);
/// How often the pause after a failure is doubled at most.
const MOST_DOUBLINGS: u32 = 6;

/// What is configured of a path that is up on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// The name of the path at the node that dials it.
    pub path: String,
    /// Whether that is this node. Otherwise this node asks for the path.
    pub dials: bool,
    /// Whether the neighbour may ask for it.
    pub neighbour_asks: bool,
    /// The path is needed if the others cannot carry the backlog within this time.
    pub within: Duration,
    /// The path is needed if the others could carry nothing for so long.
    pub others_down: Duration,
    /// The path is released when it has not been needed for so long.
    pub idle: Duration,
    /// The minimum time that it stays up.
    pub least_up: Duration,
    /// The minimum time that it stays down before a backlog brings it up again.
    pub least_down: Duration,
    /// If it has no session within this time it is released.
    pub connect: Duration,
}

/// Why a path is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// An operator wants it.
    Operator,
    /// Something waits that may go by no other path.
    Pinned,
    /// The other paths can carry nothing.
    OthersDown,
    /// The other paths cannot carry in time what waits.
    Backlog,
    /// The neighbour needs it.
    Neighbour,
}

impl Need {
    /// All of them.
    pub const ALL: [Need; 5] = [
        Need::Operator,
        Need::Pinned,
        Need::OthersDown,
        Need::Backlog,
        Need::Neighbour,
    ];

    /// Its name in API, log and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Need::Operator => "operator",
            Need::Pinned => "pinned",
            Need::OthersDown => "others-down",
            Need::Backlog => "backlog",
            Need::Neighbour => "neighbour",
        }
    }
}

/// Why a path is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// An operator has said so.
    Operator,
    /// It was not needed any more.
    Idle,
    /// It had no session in time.
    NoSession,
    /// It could not be brought up.
    Failed,
}

impl Released {
    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Released::Operator => "operator",
            Released::Idle => "idle",
            Released::NoSession => "no-session",
            Released::Failed => "failed",
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// Bring it up, and dial.
    BringUp(Need),
    /// End its sessions, and release it.
    Release(Released),
}

/// A path that is up on demand, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemandSnapshot {
    /// Whether this node dials it.
    pub dials: bool,
    /// Whether it is brought up; at the node that does not dial it, whether it
    /// has a session.
    pub up: bool,
    /// Since when.
    pub since: Instant,
    /// Why it is needed, if it is.
    pub need: Option<Need>,
    /// Whether an operator wants it up or released, if either.
    pub held: Option<bool>,
    /// How long it was up since the start, before that.
    pub up_time: Duration,
    /// How often it was brought up since the start, by reason.
    pub brought_up: BTreeMap<Need, u64>,
}

/// What is known of a path when it is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Something waits, or has just moved, that may go by no other path.
    pub pinned: bool,
    /// The other paths can carry nothing, though there is something to send or a stream is open.
    pub others_down: bool,
    /// How long the others need for what waits.
    pub others_need: Duration,
    /// More is sent than the others have room for.
    pub beyond_others: bool,
    /// Anything moves.
    pub active: bool,
    /// A session is up.
    pub connected: bool,
    /// It could carry nothing, by plan, contacts or operator.
    pub barred: bool,
}

/// Whether a path is up, and the history that decides on changes.
#[derive(Debug)]
pub(crate) struct Presence {
    config: OnDemand,
    up: bool,
    since: Instant,
    /// When it was last needed, and why it is now.
    needed: Instant,
    need: Option<Need>,
    held: Option<bool>,
    /// Time with a backlog, less time without one.
    pressed: Duration,
    looked: Option<Instant>,
    others_down_since: Option<Instant>,
    /// When the neighbour last said that it needs the path, and when that it no longer does.
    asked_for: Option<Instant>,
    withdrawn: Option<Instant>,
    /// When this node has last asked for it, unless it has withdrawn that.
    asked: Option<Instant>,
    /// When it had a session last, since it is up.
    connected: Instant,
    /// Until when it stays down for any need, and until when for a backlog.
    closed_until: Option<Instant>,
    quiet_until: Option<Instant>,
    failures: u32,
    up_time: Duration,
    brought_up: BTreeMap<Need, u64>,
    /// Bytes moved up to the last look: those given to it that could go by no other path, and those
    /// received from it.
    pub moved_bytes: [u64; 2],
}

impl Presence {
    /// It begins released.
    pub fn new(now: Instant, config: OnDemand) -> Presence {
        Presence {
            config,
            up: false,
            since: now,
            needed: now,
            need: None,
            held: None,
            pressed: Duration::ZERO,
            looked: None,
            others_down_since: None,
            asked_for: None,
            withdrawn: None,
            asked: None,
            connected: now,
            closed_until: None,
            quiet_until: None,
            failures: 0,
            up_time: Duration::ZERO,
            brought_up: BTreeMap::new(),
            moved_bytes: [0, 0],
        }
    }

    pub fn reconfigure(&mut self, config: OnDemand) {
        self.config = config;
    }

    pub fn config(&self) -> &OnDemand {
        &self.config
    }

    /// Whether this node dials the path and has released it.
    pub fn is_released(&self) -> bool {
        self.config.dials && !self.up
    }

    /// Whether the neighbour says when it needs the path.
    pub fn neighbour_tells(&self) -> bool {
        self.asked_for.is_some()
    }

    /// The neighbour has said at `at` that it needs it, or no longer does.
    pub fn take_word(&mut self, at: Instant, needs: bool) {
        let last = match needs {
            true => &mut self.asked_for,
            false => &mut self.withdrawn,
        };
        *last = (*last).max(Some(at));
    }

    /// Whether the neighbour needs it, by what it has said last.
    fn is_asked_for(&self, now: Instant) -> bool {
        let last = self.asked_for.filter(|at| self.withdrawn < Some(*at));
        last.is_some_and(|at| now < at + ASKED_FOR)
    }

    /// Notes that an operator wants it up or released; `None` leaves that to need. An operator's
    /// wish for it to be up is tried at once, whatever has failed before.
    pub fn hold(&mut self, held: Option<bool>) {
        self.held = held;
        if held == Some(true) {
            (self.closed_until, self.failures) = (None, 0);
        }
    }

    /// Notes that bytes were announced for which, with all that waits, the other paths need so
    /// long. This counts as a backlog at once; it need not last first. Returns whether it is too
    /// long.
    pub fn expect(&mut self, others_need: Duration) -> bool {
        let long = others_need >= self.config.within;
        if long {
            self.pressed = self.within();
        }
        long
    }

    /// Notes that the process before has brought it up, and that it is still up.
    pub fn go_on(&mut self, now: Instant) {
        if self.is_released() {
            (self.up, self.since, self.needed, self.connected) = (true, now, now, now);
        }
    }

    /// It could not be brought up.
    pub fn fail(&mut self, now: Instant) -> Option<PathChange> {
        self.up.then(|| self.close(now, Released::Failed))
    }

    /// Judges it. Returns what is to be done, at the node that dials it.
    pub fn step(&mut self, now: Instant, reading: &Reading) -> Option<PathChange> {
        self.weigh(now, reading);
        if !self.config.dials {
            return None;
        }
        if !self.up {
            let need = self.need?;
            let closed = self.closed_until.is_some_and(|at| now < at);
            let quiet = self.quiet_until.is_some_and(|at| now < at);
            let lasting = !matches!(need, Need::Backlog | Need::Neighbour);
            if closed || quiet && !lasting {
                return None;
            }
            (self.up, self.since, self.connected) = (true, now, now);
            *self.brought_up.entry(need).or_default() += 1;
            return Some(PathChange::BringUp(need));
        }
        if reading.connected {
            (self.connected, self.failures) = (now, 0);
        }
        if self.held == Some(false) {
            return Some(self.close(now, Released::Operator));
        }
        let lost = now >= self.connected + self.config.connect;
        if lost && self.need != Some(Need::Operator) {
            return Some(self.close(now, Released::NoSession));
        }
        let idle = now >= self.needed + self.config.idle;
        let over = now >= self.since + self.config.least_up;
        (idle && over).then(|| self.close(now, Released::Idle))
    }

    /// What this node is to tell the node that dials the path, if anything: that it needs the path,
    /// or no longer does.
    pub fn word(&mut self, now: Instant) -> Option<bool> {
        if self.config.dials {
            return None;
        }
        let due = self.asked.is_none_or(|at| now >= at + ASKED_EACH);
        if self.need.is_some() && due {
            self.asked = Some(now);
            return Some(true);
        }
        let over = self.need.is_none() && now >= self.needed + WITHDRAWN_AFTER;
        (over && self.asked.take().is_some()).then_some(false)
    }

    /// When it is to be judged again.
    pub fn next(&self, now: Instant, reading: &Reading) -> Option<Instant> {
        let waits = self.need.is_some() && self.is_released();
        let pauses = [self.closed_until, self.quiet_until].into_iter().flatten();
        let pauses = pauses.filter(|at| waits && *at > now);
        let down = self
            .others_down_since
            .map(|at| at + self.config.others_down);
        let down = down.filter(|at| *at > now);
        let looks = if reading.active || !self.pressed.is_zero() || waits {
            Some(now + JUDGED_EACH)
        } else if self.up || reading.connected || self.need.is_some() || self.asked.is_some() {
            Some(now + JUDGED_IDLE)
        } else {
            None
        };
        pauses.chain(down).chain(looks).min()
    }

    /// When it may be judged next, after something has changed.
    pub fn soonest(&self, now: Instant) -> Instant {
        self.looked.map_or(now, |at| now.max(at + JUDGED_EACH))
    }

    pub fn snapshot(&self, connected: bool) -> OnDemandSnapshot {
        OnDemandSnapshot {
            dials: self.config.dials,
            up: self.up || !self.config.dials && connected,
            since: self.since,
            need: self.need,
            held: self.held,
            up_time: self.up_time,
            brought_up: self.brought_up.clone(),
        }
    }

    /// Finds out whether it is needed.
    fn weigh(&mut self, now: Instant, reading: &Reading) {
        let since = self.looked.replace(now);
        let passed = since.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        // About a longer time nothing is known.
        let passed = passed.min(JUDGED_EACH * 2);
        let is_there = self.up || reading.connected;
        let backlog = reading.others_need >= BACKLOG;
        // An announced backlog counts though nothing of it waits yet.
        let was_pressed = self.pressed >= self.within();
        self.pressed = match backlog {
            _ if is_there => Duration::ZERO,
            true => (self.pressed + passed).min(self.within()),
            false => self.pressed.saturating_sub(passed),
        };
        self.others_down_since = match reading.others_down {
            true => self.others_down_since.or(Some(now)),
            false => None,
        };
        let others_down = self.others_down_since;
        let others_down = others_down.is_some_and(|at| now >= at + self.config.others_down);
        let beyond = match is_there {
            true => reading.beyond_others || backlog,
            false => was_pressed || self.pressed >= self.within(),
        };
        let asked = self.is_asked_for(now);
        self.need = match self.held {
            Some(true) => Some(Need::Operator),
            Some(false) => None,
            None if reading.barred => None,
            None if reading.pinned => Some(Need::Pinned),
            None if others_down => Some(Need::OthersDown),
            None if beyond => Some(Need::Backlog),
            None if asked && self.config.neighbour_asks => Some(Need::Neighbour),
            None => None,
        };
        if self.need.is_some() {
            self.needed = now;
        }
    }

    /// How long a backlog has to last; without any, nothing is needed.
    fn within(&self) -> Duration {
        self.config.within.max(Duration::from_millis(1))
    }

    fn close(&mut self, now: Instant, why: Released) -> PathChange {
        self.up_time += now.saturating_duration_since(self.since);
        (self.up, self.since, self.pressed) = (false, now, Duration::ZERO);
        let pause = self.config.least_down;
        match why {
            Released::Operator | Released::Idle => self.quiet_until = Some(now + pause),
            Released::NoSession | Released::Failed => {
                self.closed_until = Some(now + pause * (1 << self.failures));
                self.failures = (self.failures + 1).min(MOST_DOUBLINGS);
            }
        }
        PathChange::Release(why)
    }
}

#[cfg(test)]
mod tests;
