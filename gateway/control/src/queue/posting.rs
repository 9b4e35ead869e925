//! What is posted when, and what follows from the answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Action, Queue, newest};
use crate::contact::{BACKOFF, DENIED_PAUSE};
use crate::document::{MAX_BYTES, MAX_REPORTS};

/// An urgent report waits this long for others that come with it.
const GATHER: Duration = Duration::from_millis(10);

/// One of the two ways to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Posted at once.
    Urgent,
    /// Posted once in each interval.
    Routine,
}

/// What became of a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The service has handled each report; the count is of those that it will never accept.
    Answered {
        /// Reports it refused.
        refused: usize,
    },
    /// It could not be reached, or cannot take anything at present.
    Unavailable,
    /// It does not let this node in.
    Denied,
    /// It will not take this post as a whole.
    Rejected,
}

#[derive(Debug)]
pub(super) struct LaneState {
    /// In memory, and not under way.
    pub waiting: BTreeSet<u64>,
    /// Under way.
    pub in_flight: Vec<u64>,
    /// Reports in the next post at most: fewer while one among them spoils
    /// the others' posts.
    pub most: usize,
}

impl Default for LaneState {
    fn default() -> Self {
        LaneState {
            waiting: BTreeSet::new(),
            in_flight: Vec::new(),
            most: MAX_REPORTS,
        }
    }
}

impl LaneState {
    fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && !self.waiting.is_empty()
    }
}

impl Queue {
    /// Takes the outcome of a lane's post. `jitter` in 0..1 spreads the pause after a failure.
    pub fn posted(&mut self, now: Instant, lane: Lane, outcome: &Outcome, jitter: f64) {
        let posted = std::mem::take(&mut self.lane(lane).in_flight);
        let count = posted.len();
        self.reachable = matches!(outcome, Outcome::Answered { .. } | Outcome::Rejected);
        match outcome {
            Outcome::Answered { refused } => {
                let refused = (*refused).min(count);
                self.figures.accepted += (count - refused) as u64;
                self.figures.refused += refused as u64;
                self.finish(&posted);
                let state = self.lane(lane);
                state.most = (state.most * 2).min(MAX_REPORTS);
            }
            // The report that the service cannot accept.
            Outcome::Rejected if count == 1 => {
                self.figures.refused += 1;
                self.finish(&posted);
            }
            Outcome::Rejected => {
                self.lane(lane).most = count / 2;
                self.requeue(now, lane, posted);
            }
            Outcome::Unavailable | Outcome::Denied => self.requeue(now, lane, posted),
        }
        self.paused_until = match outcome {
            Outcome::Answered { .. } | Outcome::Rejected => {
                self.failures = 0;
                None
            }
            Outcome::Unavailable => {
                self.failures = self.failures.saturating_add(1);
                Some(now + BACKOFF.jittered(self.failures, jitter))
            }
            Outcome::Denied => Some(now + DENIED_PAUSE),
        };
        self.bound();
    }

    /// These are done with.
    fn finish(&mut self, posted: &[u64]) {
        let forgotten: Vec<u64> = posted.iter().filter_map(|id| self.done(*id)).collect();
        if !forgotten.is_empty() {
            self.actions.push_back(Action::Forget(forgotten));
        }
    }

    /// These wait again.
    fn requeue(&mut self, now: Instant, lane: Lane, posted: Vec<u64>) {
        if lane == Lane::Urgent {
            self.urgent_since.get_or_insert(now);
        }
        for id in &posted {
            if let Some(queued) = self.in_memory.get_mut(id) {
                queued.in_flight = false;
            }
        }
        self.lane(lane).waiting.extend(posted);
    }

    pub(super) fn post_due(&mut self, now: Instant) {
        if self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        if self.urgent_at().is_some_and(|at| at <= now) {
            self.post(Lane::Urgent);
            self.urgent_since = (!self.urgent.waiting.is_empty()).then_some(now);
        }
        if self.routine.is_idle() && self.routine_at <= now {
            self.post(Lane::Routine);
            self.routine_at = match self.routine.waiting.is_empty() {
                true => now + self.limits.interval,
                false => now,
            };
        }
    }

    /// When something is due to be posted.
    pub(super) fn post_at(&self) -> Option<Instant> {
        let routine = self.routine.is_idle().then_some(self.routine_at);
        let next = self.urgent_at().into_iter().chain(routine).min()?;
        Some(self.paused_until.map_or(next, |until| next.max(until)))
    }

    fn urgent_at(&self) -> Option<Instant> {
        let since = self.urgent_since.filter(|_| self.urgent.is_idle());
        since.map(|since| since + GATHER)
    }

    /// Posts the newest of a lane.
    fn post(&mut self, lane: Lane) {
        let state = match lane {
            Lane::Urgent => &self.urgent,
            Lane::Routine => &self.routine,
        };
        let bytes_of = |id| {
            self.in_memory
                .get(&id)
                .map_or(0, |queued| queued.entry.bytes())
        };
        let ids = newest(&state.waiting, state.most, bytes_of, MAX_BYTES as u64);
        let mut entries = Vec::with_capacity(ids.len());
        for id in &ids {
            if let Some(queued) = self.in_memory.get_mut(id) {
                queued.in_flight = true;
                entries.push(Arc::clone(&queued.entry));
            }
        }
        let state = self.lane(lane);
        for id in &ids {
            state.waiting.remove(id);
        }
        state.in_flight = ids;
        self.actions.push_back(Action::Post(lane, entries));
    }
}
