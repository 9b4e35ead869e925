//! Links and the sessions of the convergence layer that run over them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use underpass_cla::{Class, SessionId};

use crate::schedule::LinkPlan;

/// A session as both of its ends see it.
#[derive(Debug)]
pub struct Pair {
    pub link: usize,
    /// `None` if the ends do not know classes.
    pub class: Option<Class>,
    pub ids: [SessionId; 2],
    pub up: [bool; 2],
    /// Whether it has broken; an end that is still up does not know yet.
    pub broken: bool,
    /// By sending end.
    pub flows: [Flow; 2],
}

/// One direction of a session.
#[derive(Debug, Default)]
pub struct Flow {
    /// The time by which the last offered byte has left.
    pub busy_until: Duration,
    pub last_arrival: Duration,
    /// Transfers whose result the sender does not know yet, and their lengths.
    pub unfinished: BTreeMap<u64, u64>,
    /// Datagrams that have arrived, by key.
    pub arrived: BTreeSet<u64>,
    /// Whether a byte was lost when the session broke: no later byte arrives then.
    pub cut: bool,
}

#[derive(Debug)]
pub struct Link {
    pub plan: LinkPlan,
    pub blocked: bool,
    /// Whether an operator has set its rate at both ends.
    pub overridden: bool,
    /// When each end last sent something on a session.
    pub sent: [Option<Duration>; 2],
    /// Messages in flight while the link is blocked.
    pub stalled: Vec<Moving>,
    pub refuse_percent: [u64; 2],
    /// Sessions that are being set up, by class.
    pub dialling: BTreeMap<Option<Class>, usize>,
}

impl Link {
    pub fn new(plan: LinkPlan) -> Link {
        Link {
            plan,
            blocked: false,
            overridden: false,
            sent: [None, None],
            stalled: Vec::new(),
            refuse_percent: [0, 0],
            dialling: BTreeMap::new(),
        }
    }

    /// The classes for which the link keeps sessions.
    pub fn kinds(&self, classes: u8) -> Vec<Option<Class>> {
        match self.plan.classes {
            true => (0..classes).map(|class| Some(Class(class))).collect(),
            false => vec![None],
        }
    }

    /// The number of sessions that it keeps for each class.
    pub fn wanted(&self) -> usize {
        1 + usize::from(self.plan.standby)
    }

    pub fn transmission_time(&self, bytes: u64) -> Duration {
        match self.plan.rate_bps {
            Some(rate) => Duration::from_micros(bytes * 8_000_000 / rate),
            None => Duration::ZERO,
        }
    }
}

/// A message between the ends of a session.
#[derive(Debug)]
pub enum Moving {
    /// A bundle in flight from one end.
    Bundle {
        pair: usize,
        from: usize,
        key: u64,
        raw: bytes::Bytes,
        name: crate::custody::Name,
        destination: u64,
    },
    /// The result of a bundle, in flight to the end that sent it.
    Answer {
        pair: usize,
        to: usize,
        key: u64,
        outcome: underpass_cla::Outcome,
    },
}

impl Moving {
    pub fn pair(&self) -> usize {
        match self {
            Moving::Bundle { pair, .. } | Moving::Answer { pair, .. } => *pair,
        }
    }
}
