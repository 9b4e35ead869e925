//! Short segments that wait to be sent.

use std::collections::HashSet;

use super::{ANSWERS, Span, Waiting};

impl Span {
    /// Short segments that wait to be sent, before all data.
    pub fn waiting_segments(&self) -> usize {
        self.waiting.len()
    }

    /// Queues a short segment. Those of sessions that are over are removed once they may be half of
    /// the queue: otherwise a peer that begins sessions and cancels them would fill the memory
    /// while nothing can be sent.
    pub(super) fn queue(&mut self, waiting: Waiting) {
        if self.waiting.len() >= self.next_clearing {
            self.clear_waiting();
            self.next_clearing = ANSWERS.max(2 * self.waiting.len());
        }
        self.waiting.push_back(waiting);
    }

    /// Removes segments of sessions that are over. The peer may have used a number again since, so
    /// each segment is kept once only.
    fn clear_waiting(&mut self) {
        let (sending, receiving) = (&self.sending, &self.receiving);
        let mut kept = HashSet::new();
        self.waiting.retain(|waiting| match waiting {
            Waiting::Report { number, serial } => {
                let of = receiving.get(number);
                let issued = of.and_then(|of| of.issued.get(serial));
                let waits = issued.is_some_and(|issued| issued.queued);
                waits && kept.insert((*number, Some(*serial)))
            }
            Waiting::CancelReceived { number } => {
                let of = receiving.get(number);
                let cancelled = of.is_some_and(|of| of.cancelling.is_some());
                cancelled && kept.insert((*number, None))
            }
            Waiting::CancelSent { number } => {
                let of = sending.get(number);
                of.is_some_and(|of| of.cancelling.is_some())
            }
            Waiting::Answer(..) => true,
        });
    }
}
