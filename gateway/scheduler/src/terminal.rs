//! One child of the root: a terminal at the hub, a path at a terminal.

use std::time::Instant;

use underpass_cla::Class;

use crate::beam::Weights;
use crate::classes::Classes;
use crate::fair::FairQueue;
use crate::recent::Recent;
use crate::shaper::Shaper;

/// Names a child of the root for as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TerminalId(pub u64);

/// What may be granted: one class of one terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Leaf {
    /// The terminal (at a terminal: the path).
    pub terminal: TerminalId,
    /// The class.
    pub class: Class,
}

/// Where a terminal stands in the queues of its root, by what it is to send next. Lower levels may
/// send no sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has nothing ready, or may not send at all.
    Out,
    /// It may send from the given time on.
    Waiting(Instant),
    /// It may send.
    Eligible,
}

#[derive(Debug)]
pub(crate) struct Terminal {
    pub id: TerminalId,
    pub weight: u64,
    pub rate_bps: Option<u64>,
    pub subtracted_bps: u64,
    pub shaper: Option<Shaper>,
    pub blocked: bool,
    /// It has a link of its own, and does not use the root.
    pub beside: bool,
    pub standing: Standing,
    /// It was far ahead of its share, and has not had its turn since.
    pub is_ahead: bool,
    /// One queue for each priority, highest first.
    levels: Vec<FairQueue>,
    /// The levels that have a ready class, as bits.
    ready_levels: u64,
    /// By level: the classes that are ready, as bits.
    ready: Vec<u64>,
    /// By level: the classes that have something sparse, as bits.
    sparse: Vec<u64>,
    /// By level of debt.
    recent: Recent,
}

/// The number of levels of debt for so many of priority: each has one for sparse bundles, and a
/// lower one for the rest.
pub(crate) fn debt_levels(levels: usize) -> usize {
    2 * levels
}

/// The level of debt to which bundles of a priority level are charged.
pub(crate) fn debt_level(level: usize, sparse: bool) -> usize {
    2 * level + usize::from(!sparse)
}

impl Terminal {
    pub fn new(id: TerminalId, weight: u64, classes: &Classes) -> Self {
        let mut levels: Vec<FairQueue> = Vec::new();
        for (level, member, weight) in classes.members() {
            if level == levels.len() {
                levels.push(FairQueue::default());
            }
            levels[level].register(member, weight.into());
        }
        Terminal {
            ready: vec![0; levels.len()],
            sparse: vec![0; levels.len()],
            recent: Recent::new(debt_levels(levels.len())),
            id,
            weight,
            rate_bps: None,
            subtracted_bps: 0,
            shaper: None,
            blocked: false,
            beside: false,
            standing: Standing::Out,
            is_ahead: false,
            levels,
            ready_levels: 0,
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Terminal {
            id: _,
            weight: _,
            rate_bps: _,
            subtracted_bps: _,
            shaper: _,
            blocked: _,
            beside: _,
            standing: _,
            is_ahead: _,
            levels,
            ready_levels: _,
            ready: _,
            sparse: _,
            recent: _,
        } = self;
        levels.iter().for_each(|level| level.footprint(tell));
    }

    /// Sets the weights; the classes must be the same, in the same order.
    pub fn set_class_weights(&mut self, classes: &Classes) {
        for (level, member, weight) in classes.members() {
            self.levels[level].set_weight(member, weight.into());
        }
    }

    pub fn set_ready(&mut self, (level, member): (usize, usize), ready: bool) {
        self.levels[level].set_queued(member, ready);
        set_bit(&mut self.ready[level], member, ready);
        let any = self.ready[level] != 0;
        set_bit(&mut self.ready_levels, level, any);
    }

    /// Notes whether a class has something sparse.
    pub fn set_sparse(&mut self, (level, member): (usize, usize), sparse: bool) {
        set_bit(&mut self.sparse[level], member, sparse);
    }

    /// Whether a class has something sparse.
    pub fn is_sparse(&self, (level, member): (usize, usize)) -> bool {
        self.sparse[level] & 1 << member != 0
    }

    pub fn is_ready(&self) -> bool {
        self.ready_levels != 0
    }

    /// Whether signalling, always the first level, is ready.
    pub fn signalling_is_ready(&self) -> bool {
        self.ready_levels & 1 != 0
    }

    /// Whether it has something to send and may send it, at present or after its debt.
    pub fn is_active(&self) -> bool {
        self.is_ready() && !self.blocked
    }

    /// Whether it also has more to send than signalling, always the first level, and what is
    /// sparse. Both leave before all else, and are soon gone.
    fn loads(&self) -> bool {
        let mut levels = self.ready.iter().zip(&self.sparse).skip(1);
        self.is_active() && levels.any(|(ready, sparse)| ready & !sparse != 0)
    }

    /// What it has in the sums of the root's weights at present.
    pub fn weights(&self) -> Weights {
        let counted = |counts: bool| match counts && !self.beside {
            true => self.weight,
            false => 0,
        };
        Weights {
            active: counted(self.is_active()),
            loading: counted(self.loads()),
        }
    }

    /// The level and member to be served next: the one whose turn it is among its equals; but if
    /// these carry a debt, the first that has something sparse.
    pub fn first(&self) -> Option<(usize, usize)> {
        if self.ready_levels == 0 {
            return None;
        }
        let level = self.ready_levels.trailing_zeros() as usize;
        let queue = &self.levels[level];
        let debt = debt_level(level, false);
        let shaper = self.shaper.as_ref();
        let owes = shaper.is_some_and(|shaper| shaper.carries(debt));
        let ahead = owes.then(|| queue.first_of(|member| self.is_sparse((level, member))));
        let member = ahead.flatten().or_else(|| queue.first())?;
        Some((level, member))
    }

    /// The level of debt to which a class's next bundle is charged.
    fn debt_of(&self, (level, member): (usize, usize)) -> usize {
        debt_level(level, self.is_sparse((level, member)))
    }

    /// The level of debt that has to make up for an excess.
    pub fn debtor(&self) -> usize {
        self.recent.debtor()
    }

    /// Where it stands, whether or not it has waited long enough ([`Terminal::standing_at`]).
    pub fn present_standing(&self) -> Standing {
        let Some(next) = self.first().filter(|_| !self.blocked) else {
            return Standing::Out;
        };
        match &self.shaper {
            None => Standing::Eligible,
            Some(shaper) => shaper
                .ready_at(self.debt_of(next))
                .map_or(Standing::Out, Standing::Waiting),
        }
    }

    /// Where it stands when it has waited until `now`.
    pub fn standing_at(&mut self, now: Instant) -> Standing {
        if let Some(level) = self.first().map(|next| self.debt_of(next))
            && let Some(shaper) = &mut self.shaper
            && !shaper.is_ready(now, level)
        {
            // The deadline was one step of a very long wait.
            shaper.fill(now);
            return self.present_standing();
        }
        Standing::Eligible
    }

    pub fn charge(&mut self, now: Instant, (level, member): (usize, usize), bytes: u64) {
        self.levels[level].charge(member, bytes);
        let level = self.debt_of((level, member));
        self.recent.sent(level, bytes, self.rate_bps);
        if let Some(shaper) = &mut self.shaper {
            shaper.charge(now, level, bytes);
        }
    }
}

fn set_bit(bits: &mut u64, place: usize, set: bool) {
    match set {
        true => *bits |= 1 << place,
        false => *bits &= !(1 << place),
    }
}
