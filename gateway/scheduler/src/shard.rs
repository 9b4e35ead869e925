//! One scheduler's place on its beam.

use std::sync::Arc;
use std::time::Instant;

use crate::beam::{Answer, Beam, Quantum, Request, View, Weights};
use crate::fair::{FairQueue, Pace};

/// A shard's part of the beam, so that most questions need no lock. Without a rate none does.
#[derive(Debug)]
pub(crate) struct Shard {
    beam: Arc<Beam>,
    member: usize,
    standing: Standing,
    view: View,
    /// Sums of the weights of its terminals.
    weights: Weights,
    /// Sum of what is subtracted from the terminals' rates, bit/s.
    subtracted_bps: u128,
}

/// Where a shard stands.
#[derive(Clone, Copy, Debug)]
enum Standing {
    /// It has nothing to send.
    Out,
    /// It has something to send, and has to ask.
    Open,
    /// It asks again at that time; `None`: when the rate has changed.
    Waiting {
        until: Option<Instant>,
        urgent: bool,
    },
    /// It may send a quantum, of which it has sent so many bytes.
    Sending { quantum: Quantum, sent: u64 },
}

/// Whether the beam lets something be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Now,
    At(Instant),
    Never,
}

impl Shard {
    pub fn on(beam: Arc<Beam>) -> Self {
        let (member, view) = beam.join();
        Shard {
            beam,
            member,
            standing: Standing::Out,
            view,
            weights: Weights::default(),
            subtracted_bps: 0,
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        self.beam.footprint(tell);
    }

    pub fn beam(&self) -> &Beam {
        &self.beam
    }

    /// Changes what a terminal has in the sums from `before` to `after`.
    pub fn weigh(&mut self, before: Weights, after: Weights) {
        if before != after {
            self.weights.active = self.weights.active - before.active + after.active;
            self.weights.loading = self.weights.loading - before.loading + after.loading;
            self.beam.weigh(before, after);
        }
    }

    pub fn set_rate(&mut self, now: Instant, rate_bps: Option<u64>) {
        self.beam.set_rate(now, rate_bps);
        self.settle(now, 0);
    }

    /// Counts what is subtracted from the rates of a terminal and the beam.
    pub fn subtract(&mut self, now: Instant, before: u64, after: u64) {
        if before != after {
            self.subtracted_bps = self.subtracted_bps - u128::from(before) + u128::from(after);
            self.view = self.beam.subtract(now, before, after);
            if let Standing::Waiting { .. } = self.standing {
                self.standing = Standing::Open;
            }
        }
    }

    /// Asks, if it has to, whether the first of `queue`, or what is urgent, may go.
    pub fn ask(&mut self, now: Instant, urgent: bool, queue: &mut FairQueue) -> Turn {
        let usable_bps = self.beam.usable_bps();
        let Some(start) = queue.start().filter(|_| usable_bps.is_some()) else {
            self.run_free(queue);
            return Turn::Now;
        };
        match self.standing {
            Standing::Sending { quantum, .. } if quantum.is_for(urgent, start) => {
                return Turn::Now;
            }
            Standing::Waiting {
                until,
                urgent: asked,
            } if asked == urgent
                && self.view.usable_bps == usable_bps
                && until.is_none_or(|until| now < until) =>
            {
                return until.map_or(Turn::Never, Turn::At);
            }
            _ => {}
        }
        let request = Request {
            sent: self.unsettled(),
            urgent,
            start,
            virtual_now: queue.virtual_now(),
            weight: queue.weight(),
        };
        let (answer, pace) = self.beam.ask(self.member, now, request);
        queue.follow(pace);
        self.view.usable_bps = usable_bps;
        match answer {
            Answer::Send(quantum) => {
                self.standing = Standing::Sending { quantum, sent: 0 };
                Turn::Now
            }
            Answer::Wait(until) => {
                self.standing = Standing::Waiting { until, urgent };
                until.map_or(Turn::Never, Turn::At)
            }
        }
    }

    /// Gives back what is left of a quantum, since nothing of `queue` may go. Returns from when the
    /// beam's level is not negative.
    pub fn leave(&mut self, now: Instant, queue: &mut FairQueue) -> Turn {
        let usable_bps = self.beam.usable_bps();
        if usable_bps.is_none() {
            self.run_free(queue);
            return Turn::Now;
        }
        let is_known = self.view.usable_bps == usable_bps;
        if !is_known || !matches!(self.standing, Standing::Out) {
            let sent = self.unsettled();
            let virtual_now = queue.virtual_now();
            let (view, horizon) = self.beam.leave(self.member, now, sent, virtual_now);
            self.view = view;
            self.standing = Standing::Out;
            queue.follow(Pace {
                now: 0,
                floor: 0,
                horizon,
            });
        }
        match self.view.ready_at {
            None => Turn::Never,
            Some(at) if at <= now => Turn::Now,
            Some(at) => Turn::At(at),
        }
    }

    /// There is no rate: forgets what is known of an earlier one.
    fn run_free(&mut self, queue: &mut FairQueue) {
        self.standing = Standing::Out;
        self.view.usable_bps = None;
        queue.run_free();
    }

    /// Counts what has left, granted or not.
    pub fn sent(&mut self, now: Instant, bytes: u64) {
        if self.beam.usable_bps().is_none() {
            return;
        }
        match &mut self.standing {
            Standing::Sending { quantum, sent } if *sent + bytes < quantum.bytes => *sent += bytes,
            _ => self.settle(now, bytes),
        }
    }

    /// Charges these bytes and those before them, and ends a quantum.
    fn settle(&mut self, now: Instant, bytes: u64) {
        let sent = self.unsettled() + bytes;
        self.view = self.beam.settle(self.member, now, sent);
        if !matches!(self.standing, Standing::Out) {
            self.standing = Standing::Open;
        }
    }

    fn unsettled(&self) -> u64 {
        match self.standing {
            Standing::Sending { sent, .. } => sent,
            _ => 0,
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.beam.weigh(self.weights, Weights::default());
        let sent = self.unsettled();
        self.beam.remove(self.member, sent, self.subtracted_bps);
    }
}

impl Quantum {
    fn is_for(&self, urgent: bool, start: u128) -> bool {
        let in_turn = start <= self.limit;
        !self.single && (urgent || in_turn && !self.urgent)
    }
}
