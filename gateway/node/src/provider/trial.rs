//! Decides whether a node still hears its hub, or a hub its terminals, after a remote change: a
//! state machine without clock and I/O.
//!
//! Each path that the change concerns must be heard again, by a sign that cannot date from before
//! the change. Of the terminals of a hub's listener, half suffice, since some of many may go away
//! meanwhile. Only *clear* time counts against the change: not while a blockage is known (plan,
//! modem, contact plan, operator), nor, for up to [`EXCUSED`], during a silence that began before
//! the change.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use underpass_engine::{HopSnapshot, Source};

use super::concern::Concern;

/// A sign of the hub that comes sooner than this after a change may have been sent before it.
pub const SETTLED: Duration = Duration::from_secs(5);

/// How long a silence that began before the change counts as a blockage: a long road tunnel, or a
/// region without coverage. After that, the change may be what prevents the path from coming back.
pub const EXCUSED: Duration = Duration::from_secs(3_600);

/// The time between two checks counts at most this much: while the node itself stood still, it
/// could not hear anybody.
const LONGEST_STEP: Duration = Duration::from_secs(5);

/// How a path is at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// It has a session; the hub was last heard at this time, if ever.
    Up(Option<Instant>),
    /// Nothing comes, and nobody knows why.
    Silent,
    /// It is known to be blocked.
    Blocked,
    /// It is not meant to be up at present: a path on demand.
    Idle,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathContact {
    pub name: String,
    pub contact: Contact,
}

impl PathContact {
    pub fn of(hop: &HopSnapshot) -> PathContact {
        let idle = hop.on_demand.as_ref().is_some_and(|path| !path.up);
        let contact = match hop.link.blocked {
            _ if idle => Contact::Idle,
            Some((Source::Probing, _)) => Contact::Silent,
            Some(_) => Contact::Blocked,
            None if hop.up => Contact::Up(hop.link.heard),
            None => Contact::Silent,
        };
        PathContact {
            name: hop.name.clone(),
            contact,
        }
    }
}

/// What a trial has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It goes on.
    Open,
    /// The hub is heard by all that was changed.
    Confirmed,
    /// It is not, for this reason.
    Lost(String),
}

#[derive(Debug)]
struct Awaited {
    of: Concern,
    /// The paths that were heard, and those that need not be heard.
    heard: BTreeSet<String>,
    /// It was already silent before the change, and has been since.
    silent_before: bool,
    excused: Duration,
    clear: Duration,
}

impl Awaited {
    fn new(of: Concern, before: &[PathContact]) -> Awaited {
        let mut awaited = Awaited {
            of,
            heard: BTreeSet::new(),
            silent_before: false,
            excused: Duration::ZERO,
            clear: Duration::ZERO,
        };
        awaited.silent_before = awaited.seen(before) == Some(Contact::Silent);
        awaited
    }

    fn is_heard(&self) -> bool {
        self.heard.len() >= self.of.wanted()
    }

    /// The state of the path, among those not heard yet, on which contact is most likely to come
    /// first; none if there is none.
    fn seen(&self, paths: &[PathContact]) -> Option<Contact> {
        let of = paths
            .iter()
            .filter(|one| self.of.has(&one.name) && !self.heard.contains(&one.name));
        of.map(|one| one.contact)
            .max_by_key(|contact| match contact {
                Contact::Up(heard) => (3, *heard),
                Contact::Blocked => (2, None),
                Contact::Silent => (1, None),
                Contact::Idle => (0, None),
            })
    }

    /// Notes the paths that are heard. A path that is not meant to be up, or no longer exists, need
    /// not be heard.
    fn take(&mut self, paths: &[PathContact], settled: Instant) {
        let is_any = self.of == Concern::Any;
        for one in paths.iter().filter(|one| self.of.has(&one.name)) {
            let counts = match one.contact {
                Contact::Up(heard) => heard.is_some_and(|at| at >= settled),
                Contact::Idle => !is_any,
                Contact::Blocked | Contact::Silent => false,
            };
            if counts {
                self.heard.insert(one.name.clone());
            }
        }
        let there = paths.iter().filter(|one| self.of.has(&one.name));
        let there: BTreeSet<&str> = there.map(|one| one.name.as_str()).collect();
        let gone: Vec<String> = match &self.of {
            Concern::Any if paths.is_empty() => vec![String::new()],
            Concern::Any => Vec::new(),
            Concern::Path(name) => vec![name.clone()],
            Concern::Listener { paths, .. } => paths.iter().cloned().collect(),
        };
        let gone = gone
            .into_iter()
            .filter(|name| !there.contains(name.as_str()));
        self.heard.extend(gone);
    }

    fn count(&mut self, paths: &[PathContact], passed: Duration) {
        match self.seen(paths) {
            Some(Contact::Up(_)) => self.silent_before = false,
            Some(Contact::Blocked | Contact::Idle) => return,
            Some(Contact::Silent) if self.silent_before && self.excused < EXCUSED => {
                self.excused += passed;
                return;
            }
            Some(Contact::Silent) | None => {}
        }
        self.clear += passed;
    }

    fn reason(&self, limit: Duration) -> String {
        let seconds = limit.as_secs();
        let within = format!("in {seconds} s of clear link time");
        match &self.of {
            Concern::Any => format!("the hub was not heard {within}"),
            Concern::Path(name) => format!("the neighbour was not heard by path {name:?} {within}"),
            Concern::Listener { name, .. } => {
                let (heard, wanted) = (self.heard.len(), self.of.wanted());
                format!(
                    "by listener {name:?}, only {heard} of {wanted} terminals were heard {within}"
                )
            }
        }
    }
}

#[derive(Debug)]
pub struct Trial {
    limit: Duration,
    /// Signs of before count for nothing.
    settled: Instant,
    looked: Instant,
    before: Vec<PathContact>,
    awaited: Vec<Awaited>,
}

impl Trial {
    /// A trial of a change that is in force from `now` on. `before` is the state of the paths
    /// before it, and `limit` the clear time that each has.
    pub fn new(
        now: Instant,
        limit: Duration,
        concerns: Vec<Concern>,
        before: Vec<PathContact>,
    ) -> Trial {
        let awaited = concerns.into_iter().map(|of| Awaited::new(of, &before));
        Trial {
            limit,
            settled: now + SETTLED,
            looked: now,
            awaited: awaited.collect(),
            before,
        }
    }

    /// The state of the paths before the change. A trial that replaces this one begins with it,
    /// since this one's change may have caused a silence.
    pub fn before(&self) -> &[PathContact] {
        &self.before
    }

    pub fn look(&mut self, now: Instant, paths: &[PathContact]) -> Judgement {
        let passed = now.saturating_duration_since(self.looked).min(LONGEST_STEP);
        self.looked = self.looked.max(now);
        for one in &mut self.awaited {
            one.take(paths, self.settled);
            if !one.is_heard() {
                one.count(paths, passed);
            }
        }
        let missed = self.awaited.iter().filter(|one| !one.is_heard());
        let mut lost = missed.filter(|one| one.clear >= self.limit);
        if let Some(one) = lost.next() {
            return Judgement::Lost(one.reason(self.limit));
        }
        match self.awaited.iter().all(Awaited::is_heard) {
            true => Judgement::Confirmed,
            false => Judgement::Open,
        }
    }
}

#[cfg(test)]
mod tests;
