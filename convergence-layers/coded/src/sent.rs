//! A block at the sender.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use crate::code::{encode, most_repair};

/// What is to leave of a block.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    /// A symbol of its own, once more.
    Again(u16),
    /// A repair symbol, and whether it was requested.
    Repair {
        number: u16,
        symbols: u16,
        code: Bytes,
        asked: bool,
    },
    /// Tells the receiver that all of these have left.
    Sent {
        symbols: u16,
        /// Symbols that were due until then.
        due: u64,
    },
}

/// A SENT that the receiver may answer.
#[derive(Clone, Copy, Debug)]
struct Said {
    datagrams: u64,
    due: u64,
}

/// A block with a bundle that the receiver has not judged.
#[derive(Debug)]
pub(crate) struct SentBlock {
    /// Bytes that every body is padded to.
    pub(crate) body_bytes: usize,
    pub(crate) bodies: Vec<Bytes>,
    /// The bundles in it that are not judged.
    pub(crate) bundles: BTreeSet<u64>,
    pub(crate) closed: bool,
    /// Whether it has the repair of a tail.
    pub(crate) is_tail: bool,
    next_repair: u16,
    /// Symbols that were due in all.
    due: u64,
    said: VecDeque<Said>,
    has_said: bool,
    /// How often the receiver has asked.
    pub(crate) asked: u16,
}

impl SentBlock {
    pub(crate) fn new(body_bytes: usize) -> SentBlock {
        SentBlock {
            body_bytes,
            bodies: Vec::new(),
            bundles: BTreeSet::new(),
            closed: false,
            is_tail: false,
            next_repair: 0,
            due: 0,
            said: VecDeque::new(),
            has_said: false,
            asked: 0,
        }
    }

    pub(crate) fn symbols(&self) -> u16 {
        u16::try_from(self.bodies.len()).unwrap_or(u16::MAX)
    }

    /// Repair symbols that were made so far.
    pub(crate) fn repair(&self) -> u16 {
        self.next_repair
    }

    /// Repair symbols that it may have in addition.
    pub(crate) fn more_repair(&self) -> u16 {
        most_repair(self.symbols()) - self.next_repair
    }

    /// A symbol of its own is added; its number.
    pub(crate) fn push(&mut self, body: Bytes, bundle: u64) -> u16 {
        let number = self.symbols();
        self.bodies.push(body);
        self.bundles.insert(bundle);
        self.due += 1;
        number
    }

    /// Makes this many fresh repair symbols due, as far as there are any.
    pub(crate) fn make_repair(&mut self, count: u16, asked: bool) -> Vec<Due> {
        let count = count.min(self.more_repair());
        if count == 0 {
            return Vec::new();
        }
        let range = self.next_repair..self.next_repair + count;
        self.next_repair += count;
        self.due += u64::from(count);
        let symbols = self.symbols();
        let codes = encode(&self.bodies, self.body_bytes, range.clone());
        let due = range.zip(codes).map(|(number, code)| Due::Repair {
            number,
            symbols,
            code,
            asked,
        });
        due.collect()
    }

    /// A symbol of its own becomes due again.
    pub(crate) fn make_again(&mut self, number: u16) -> Due {
        self.due += 1;
        Due::Again(number)
    }

    /// Whether the receiver was told nothing of it yet; true only once.
    pub(crate) fn says_first(&mut self) -> bool {
        !std::mem::replace(&mut self.has_said, true)
    }

    /// The message that all that is due has left.
    pub(crate) fn make_sent(&self) -> Due {
        Due::Sent {
            symbols: self.symbols(),
            due: self.due,
        }
    }

    /// Notes that the receiver was told so when this many datagrams had left.
    pub(crate) fn said(&mut self, datagrams: u64, due: u64) {
        self.said.push_back(Said { datagrams, due });
    }

    /// The receiver answers the message sent at `datagrams`. Returns how many symbols have become
    /// due since; `None` if there was no such message, or it was answered already.
    pub(crate) fn answer(&mut self, datagrams: u64) -> Option<u64> {
        let place = self
            .said
            .iter()
            .position(|said| said.datagrams == datagrams)?;
        let said = self.said.drain(..=place).next_back()?;
        Some(self.due - said.due)
    }
}
