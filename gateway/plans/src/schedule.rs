//! The plans of one link, in the order in which they are in force.

use std::sync::Arc;

use thiserror::Error;

use crate::document::{Direction, Segment};
use crate::plan::Plan;

/// A plan that a link follows from now on, for control to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The beam.
    pub beam: String,
    /// The link.
    pub link: Direction,
    /// The plan's version.
    pub version: u64,
    /// When it was taken over, ms of control's time.
    pub applied_ms: u64,
    /// The terminal that follows it; none at a hub.
    pub terminal: Option<u64>,
}

/// Why a plan is not followed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refused {
    #[error("version {version} is not newer than {known}, which is there")]
    Old { version: u64, known: u64 },
    #[error("it is for beam {beam:?}; this link is in beam {known:?}")]
    Beam { beam: String, known: String },
    #[error("it is for the {} link, which this node does not send on", .0.name())]
    Link(Direction),
    #[error("it has no line for terminal {0}")]
    Nobody(u64),
}

/// What one link follows: a plan, and possibly a newer one that replaces it at a later time. Times
/// are control's, ms since 1970-01-01 UTC.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    current: Option<Arc<Plan>>,
    /// Newer than the current one; it has not begun.
    next: Option<Arc<Plan>>,
}

impl Schedule {
    /// Takes a plan, which is in force from its start on, or at once if that has passed.
    ///
    /// # Errors
    /// When the present plan is at least as new. A present plan that is over and was made earlier
    /// never counts as new, whatever its version, since control may have begun to count versions
    /// again. Versions of different beams cannot be compared; there the plan made later is newer.
    pub fn take(&mut self, plan: Arc<Plan>, now_ms: u64) -> Result<(), Refused> {
        self.advance(now_ms);
        if let Some(known) = self.newest() {
            let later = plan.issued_ms() > known.issued_ms();
            let over = known.end_ms() <= now_ms;
            let newer = match plan.beam() == known.beam() {
                true => plan.version() > known.version() || later && over,
                false => later || over,
            };
            if !newer {
                return Err(Refused::Old {
                    version: plan.version(),
                    known: known.version(),
                });
            }
        }
        self.next = Some(plan);
        self.advance(now_ms);
        Ok(())
    }

    /// Moves on to the next plan if it has begun. Returns whether it has. A superseded plan does
    /// not come back, even if the clock is set back.
    pub fn advance(&mut self, now_ms: u64) -> bool {
        let begun = |plan: &mut Arc<Plan>| plan.start_ms() <= now_ms;
        match self.next.take_if(begun) {
            Some(plan) => {
                self.current = Some(plan);
                true
            }
            None => false,
        }
    }

    /// The newest plan, whether it has begun or not.
    pub fn newest(&self) -> Option<&Arc<Plan>> {
        self.next.as_ref().or(self.current.as_ref())
    }

    /// The plan that has begun last; it may be over.
    pub fn current(&self) -> Option<&Arc<Plan>> {
        self.current.as_ref()
    }

    /// The plan that holds now.
    pub fn in_force(&self, now_ms: u64) -> Option<&Arc<Plan>> {
        let holds = |plan: &&Arc<Plan>| plan.start_ms() <= now_ms && now_ms < plan.end_ms();
        self.current.as_ref().filter(holds)
    }

    /// Whether there was a plan and it is over.
    pub fn is_stale(&self, now_ms: u64) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|plan| plan.end_ms() <= now_ms)
    }

    /// What a terminal has now by the plan in force.
    pub fn segment(&self, terminal: u64, now_ms: u64) -> Option<Segment> {
        let line = self.in_force(now_ms)?.line(terminal)?;
        line.at(now_ms).copied()
    }

    /// The blockages of a terminal that are known, as (entry, exit), in order.
    pub fn blockages(&self, terminal: u64) -> Vec<(u64, u64)> {
        let of = |plan: &Option<Arc<Plan>>| {
            let line = plan.as_ref().and_then(|plan| plan.line(terminal));
            line.map_or_else(Vec::new, |line| line.blockages())
        };
        let until_ms = self.next.as_ref().map_or(u64::MAX, |next| next.start_ms());
        let mut blockages = of(&self.current);
        blockages.retain(|(entry, _)| *entry < until_ms);
        if let Some((_, exit)) = blockages.last_mut() {
            *exit = (*exit).min(until_ms);
        }
        blockages.extend(of(&self.next));
        blockages
    }

    /// When the next thing changes after `now_ms`.
    pub fn next_change(&self, now_ms: u64) -> Option<u64> {
        let current = self.current.as_ref();
        let own = current.and_then(|plan| plan.next_change(now_ms));
        let next = self.next.as_ref().map(|plan| plan.start_ms());
        own.into_iter().chain(next).min()
    }
}
