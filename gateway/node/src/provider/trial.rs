//! Whether a node still hears its hub after a change that came from afar: a state
//! machine without clock and I/O.
//!
//! Each path that the change concerns must be heard again, by a sign that cannot be
//! of before the change. The time that counts against it is *clear* time only: not
//! while a blockage is known (plan, modem, contact plan, operator), nor, for up to
//! [`EXCUSED`], while a silence lasts that began before the change.

use std::time::{Duration, Instant};

use underpass_engine::{HopSnapshot, Source};

/// A sign of the hub that comes sooner after a change may have been sent before it.
pub const SETTLED: Duration = Duration::from_secs(5);

/// For how long a silence counts as a blockage that began before the change: a long
/// road tunnel, or a region without coverage. Beyond, the change may be what keeps
/// the path from coming back.
pub const EXCUSED: Duration = Duration::from_secs(3_600);

/// What passes between two looks counts for so much at most: while the node itself
/// stood still, it could hear nobody.
const LONGEST_STEP: Duration = Duration::from_secs(5);

/// How a path is at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// It has a session; the hub was last heard then, if ever.
    Up(Option<Instant>),
    /// Nothing comes, and nobody knows why.
    Silent,
    /// It is known to be blocked.
    Blocked,
    /// It is not to be up at present: paths on demand.
    Idle,
}

/// A path at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathContact {
    /// Its name.
    pub name: String,
    /// How it is.
    pub contact: Contact,
}

impl PathContact {
    /// Of a hop of this node.
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

/// What has to be heard.
#[derive(Debug)]
struct Awaited {
    /// The path; none is any of the node's.
    path: Option<String>,
    /// It was silent already before the change, and has been since.
    silent_before: bool,
    excused: Duration,
    clear: Duration,
    heard: bool,
}

/// One change on trial.
#[derive(Debug)]
pub struct Trial {
    limit: Duration,
    /// Signs of before count for nothing.
    settled: Instant,
    looked: Instant,
    /// How the paths were before it.
    before: Vec<PathContact>,
    awaited: Vec<Awaited>,
}

impl Trial {
    /// Of a change that is in force from `now` on and concerns the paths of these
    /// names; with none, the hub may be heard by any path. `before` tells how the
    /// paths were before it, and `limit` how much clear time each has.
    pub fn new(
        now: Instant,
        limit: Duration,
        changed: &[String],
        before: Vec<PathContact>,
    ) -> Trial {
        let awaited = |path: Option<&String>| Awaited {
            path: path.cloned(),
            silent_before: seen(path.map(String::as_str), &before) == Some(Contact::Silent),
            excused: Duration::ZERO,
            clear: Duration::ZERO,
            heard: false,
        };
        let mut all: Vec<Awaited> = changed.iter().map(|path| awaited(Some(path))).collect();
        if all.is_empty() {
            all.push(awaited(None));
        }
        Trial {
            limit,
            settled: now + SETTLED,
            looked: now,
            before,
            awaited: all,
        }
    }

    /// How the paths were before: what a trial that takes this one's place begins with,
    /// since a silence in this one may be of its change.
    pub fn before(&self) -> &[PathContact] {
        &self.before
    }

    /// Looks at the paths at `now`.
    pub fn look(&mut self, now: Instant, paths: &[PathContact]) -> Judgement {
        let passed = now.saturating_duration_since(self.looked).min(LONGEST_STEP);
        self.looked = self.looked.max(now);
        for one in &mut self.awaited {
            match seen(one.path.as_deref(), paths) {
                Some(Contact::Up(heard)) => {
                    one.heard |= heard.is_some_and(|at| at >= self.settled);
                    one.silent_before = false;
                }
                Some(Contact::Blocked) => continue,
                Some(Contact::Silent) if one.silent_before && one.excused < EXCUSED => {
                    one.excused += passed;
                    continue;
                }
                Some(Contact::Silent) => {}
                Some(Contact::Idle) if one.path.is_none() => continue,
                // One that is not to be up, or is there no more, tells nothing.
                Some(Contact::Idle) | None => one.heard = true,
            }
            one.clear += passed;
        }
        let lost = self
            .awaited
            .iter()
            .find(|one| !one.heard && one.clear >= self.limit);
        if let Some(one) = lost {
            let seconds = self.limit.as_secs();
            let by = one.path.as_ref().map(|path| format!(" by path {path:?}"));
            let by = by.unwrap_or_default();
            return Judgement::Lost(format!(
                "the hub was not heard{by} in {seconds} s of clear link time"
            ));
        }
        match self.awaited.iter().all(|one| one.heard) {
            true => Judgement::Confirmed,
            false => Judgement::Open,
        }
    }
}

/// How a path is, or of all paths the one by which contact may come soonest; none if
/// it is not there.
fn seen(path: Option<&str>, paths: &[PathContact]) -> Option<Contact> {
    let of = paths
        .iter()
        .filter(|one| path.is_none_or(|name| one.name == name));
    of.map(|one| one.contact)
        .max_by_key(|contact| match contact {
            Contact::Up(heard) => (3, *heard),
            Contact::Blocked => (2, None),
            Contact::Silent => (1, None),
            Contact::Idle => (0, None),
        })
}

#[cfg(test)]
mod tests;
