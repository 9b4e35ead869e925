//! A link that changes with time.

use super::{Interval, LossProfile, Nanos};

/// The properties of a link from a moment on. Those left out are as in its profile.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceStep {
    /// When it begins, after the epoch.
    pub at: Nanos,
    /// Rate in bit/s, counting IP bytes; 0 is an outage, in which the queue waits.
    pub rate_bps: Option<u64>,
    /// One-way delay after the last bit has left, in ms.
    pub delay_ms: Option<f64>,
    /// Loss of transmitted packets.
    pub loss: Option<LossProfile>,
}

/// The course of both links of a terminal, and when it is blocked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Steps of the link from the hub, each later than the one before.
    pub forward: Vec<TraceStep>,
    /// Steps of the link to the hub, each later than the one before.
    pub ret: Vec<TraceStep>,
    /// Blockages, relative to the epoch.
    pub blockages: Vec<Interval>,
}

/// Where one link is in its trace. The last step lasts.
#[derive(Debug, Default)]
pub(super) struct Course {
    steps: Vec<TraceStep>,
    epoch: Nanos,
    /// The step that comes next.
    next: usize,
}

impl Course {
    pub(super) fn new(steps: Vec<TraceStep>, epoch: Nanos) -> Self {
        Course {
            steps,
            epoch,
            next: 0,
        }
    }

    /// Begins again from a new epoch.
    pub(super) fn restart(&mut self, epoch: Nanos) {
        (self.epoch, self.next) = (epoch, 0);
    }

    /// The step in force.
    pub(super) fn current(&self) -> Option<&TraceStep> {
        self.steps.get(self.next.checked_sub(1)?)
    }

    /// When the next step begins.
    pub(super) fn next_at(&self) -> Option<Nanos> {
        Some(self.epoch.saturating_add(self.steps.get(self.next)?.at))
    }

    /// Goes to the step that is in force at `now`.
    pub(super) fn advance(&mut self, now: Nanos) {
        while self.next_at().is_some_and(|at| at <= now) {
            self.next += 1;
        }
    }
}
