//! Moves an object to the other node: a window of parts, repeated until they
//! are acknowledged.

use std::collections::BTreeSet;

/// Parts on their way at once, per object.
const WINDOW: u32 = 128;
/// Without an answer from the other side, a message is repeated after this, ms, doubled each time
/// up to the second value.
const FIRST_PAUSE_MS: u64 = 10_000;
const LAST_PAUSE_MS: u64 = 300_000;

/// What is still to be sent of an object.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    parts: u32,
    acknowledged: u32,
    sent: u32,
    /// The other side's state is not known: one part asks for it.
    probing: bool,
    due_ms: u64,
    pause_ms: u64,
}

impl Outgoing {
    /// Nothing of it has been sent.
    pub fn fresh(parts: u32) -> Outgoing {
        Outgoing {
            parts,
            acknowledged: 0,
            sent: 0,
            probing: false,
            due_ms: u64::MAX,
            pause_ms: FIRST_PAUSE_MS,
        }
    }

    /// Some of it may have been sent before a restart.
    pub fn resumed(parts: u32) -> Outgoing {
        Outgoing {
            probing: true,
            ..Outgoing::fresh(parts)
        }
    }

    /// The part to send now, if any.
    pub fn next(&self) -> Option<u32> {
        let window = if self.probing { 1 } else { WINDOW };
        let end = self.acknowledged.saturating_add(window).min(self.parts);
        (self.sent < end).then_some(self.sent)
    }

    /// The next part is on its way.
    pub fn sent(&mut self, now_ms: u64) {
        self.sent += 1;
        self.due_ms = now_ms + self.pause_ms;
    }

    /// Part `index` could not be sent after all.
    pub fn unsent(&mut self, index: u32) {
        self.sent = self.sent.min(index.max(self.acknowledged));
    }

    /// The other side has all parts below `next`.
    pub fn acknowledge(&mut self, now_ms: u64, next: u32) {
        let next = next.min(self.parts);
        if next < self.acknowledged {
            return;
        }
        if next > self.acknowledged {
            self.pause_ms = FIRST_PAUSE_MS;
            self.due_ms = now_ms + self.pause_ms;
        }
        self.acknowledged = next;
        self.sent = self.sent.max(next);
        self.probing = false;
    }

    /// The other side has all of it.
    pub fn is_complete(&self) -> bool {
        self.acknowledged == self.parts
    }

    /// When to repeat, ms.
    pub fn due_ms(&self) -> Option<u64> {
        (!self.is_complete() && self.sent > self.acknowledged).then_some(self.due_ms)
    }

    /// Repeats from the first part that is not acknowledged, if it is time.
    pub fn handle_timeout(&mut self, now_ms: u64) {
        if self.due_ms().is_some_and(|due| due <= now_ms) {
            self.pause_ms = (self.pause_ms * 2).min(LAST_PAUSE_MS);
            self.again();
        }
    }

    /// Asks the other side anew.
    pub fn again(&mut self) {
        self.sent = self.acknowledged;
        self.probing = true;
    }
}

/// Which parts of an object have come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Incoming {
    next: u32,
    beyond: BTreeSet<u32>,
}

impl Incoming {
    /// The parts that have come.
    pub fn of(parts: impl IntoIterator<Item = u32>) -> Incoming {
        let mut incoming = Incoming::default();
        for index in parts {
            incoming.insert(index);
        }
        incoming
    }

    /// Whether part `index` has come.
    pub fn contains(&self, index: u32) -> bool {
        index < self.next || self.beyond.contains(&index)
    }

    /// Part `index` has come.
    pub fn insert(&mut self, index: u32) {
        if self.contains(index) {
            return;
        }
        self.beyond.insert(index);
        while self.beyond.remove(&self.next) {
            self.next += 1;
        }
    }

    /// The lowest part that is missing.
    pub fn next(&self) -> u32 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_bounds_what_is_on_its_way() {
        let mut outgoing = Outgoing::fresh(1000);
        let mut sent = 0;
        while outgoing.next().is_some() {
            outgoing.sent(0);
            sent += 1;
        }
        assert_eq!(sent, WINDOW);
        outgoing.acknowledge(0, 10);
        assert_eq!(outgoing.next(), Some(WINDOW));
    }

    #[test]
    fn silence_is_answered_by_one_part_and_longer_pauses() {
        let mut outgoing = Outgoing::fresh(10);
        while outgoing.next().is_some() {
            outgoing.sent(0);
        }
        outgoing.handle_timeout(FIRST_PAUSE_MS - 1);
        assert_eq!(outgoing.next(), None);
        outgoing.handle_timeout(FIRST_PAUSE_MS);
        assert_eq!(outgoing.next(), Some(0));
        outgoing.sent(FIRST_PAUSE_MS);
        assert_eq!(outgoing.next(), None);
        assert_eq!(outgoing.due_ms(), Some(3 * FIRST_PAUSE_MS));
        // The other side had more than it could acknowledge.
        outgoing.acknowledge(20_000, 9);
        assert_eq!(outgoing.next(), Some(9));
    }

    #[test]
    fn parts_come_in_any_order() {
        let mut incoming = Incoming::of([2, 0]);
        assert_eq!(incoming.next(), 1);
        incoming.insert(1);
        assert_eq!(incoming.next(), 3);
        assert!(incoming.contains(2) && !incoming.contains(3));
    }
}
