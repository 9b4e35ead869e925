//! The queues of terminals that are granted bundles in one order.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::fair::{FairQueue, Ranked};
use crate::terminal::Standing;

/// Either of all terminals that share the root, or of all beside it.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Terminals that may send, by their shares.
    pub eligible: FairQueue,
    /// Eligible terminals with signalling ready, by their shares of signalling.
    pub signalling: FairQueue,
    /// Eligible terminals whose next class has something sparse and that are not far ahead of their
    /// shares, by their shares of sparse bundles.
    pub sparse: FairQueue,
    /// Terminals whose first ready level is delayed by a debt, by when that ends.
    pub waiting: BTreeSet<Ranked<Instant>>,
}

impl Queues {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Queues {
            eligible,
            signalling,
            sparse,
            waiting,
        } = self;
        eligible.footprint(tell);
        signalling.footprint(tell);
        sparse.footprint(tell);
        tell("scheduled terminals in debt", waiting.len());
    }

    pub fn register(&mut self, number: usize, weight: u64) {
        self.eligible.register(number, weight);
        self.signalling.register(number, weight);
        self.sparse.register(number, weight);
    }

    pub fn set_weight(&mut self, number: usize, weight: u64) {
        self.eligible.set_weight(number, weight);
        self.signalling.set_weight(number, weight);
        self.sparse.set_weight(number, weight);
    }

    /// The terminal that is next, and whether it goes before its turn.
    pub fn first(&self) -> Option<(usize, bool)> {
        let early = self.signalling.first().or_else(|| self.sparse.first());
        let early = early.map(|number| (number, true));
        early.or_else(|| Some((self.eligible.first()?, false)))
    }

    /// When the first of those in debt may send.
    pub fn next_at(&self) -> Option<Instant> {
        self.waiting.first().map(|first| first.rank)
    }

    /// Changes where a terminal stands among those in debt.
    pub fn wait(&mut self, number: usize, before: Standing, standing: Standing) {
        if before == standing {
            return;
        }
        if let Standing::Waiting(rank) = before {
            self.waiting.remove(&Ranked { rank, flow: number });
        }
        if let Standing::Waiting(rank) = standing {
            self.waiting.insert(Ranked { rank, flow: number });
        }
    }

    /// One that is in debt no longer.
    pub fn due(&self, now: Instant) -> Option<usize> {
        let first = self.waiting.first()?;
        (first.rank <= now).then_some(first.flow)
    }
}
