//! What is done when an answer does not come.

use std::time::Instant;

use super::{Due, Event, Span, Waiting};
use crate::cancelling::Cancelling;
use crate::segment::Reason;

impl Span {
    /// Does what is due by now. Retransmissions wait for [`Span::poll_transmit`] like other
    /// segments, and so do their timers: however many are due at once, they leave at the rate of
    /// the link, each segment once.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.clock.is_blocked() {
            return;
        }
        let at = self.clock.at(now);
        while let Some((due, what)) = self.dues.first().copied() {
            if due > at {
                break;
            }
            self.dues.pop_first();
            match what {
                Due::Checkpoint { number, serial } => self.checkpoint_is_due(number, serial),
                Due::Report { number, serial } => self.report_is_due(number, serial),
                Due::CancelSent { number } => self.cancel_is_due(number, true),
                Due::CancelReceived { number } => self.cancel_is_due(number, false),
                Due::Idle { number } => self.reception_is_idle(number),
                Due::Stalled { number } => self.sending_is_stalled(number),
            }
        }
    }

    fn checkpoint_is_due(&mut self, number: u64, serial: u64) {
        self.silent = true;
        let tries = self.config.tries;
        let Some(sending) = self.sending.get_mut(&number) else {
            return;
        };
        let waited = sending.again_count();
        sending.ask_again(serial);
        self.gaps_waiting += sending.again_count() - waited;
        let tried = sending.asked.get(&serial).map_or(0, |asked| asked.tries);
        if tried > tries {
            self.cancel_sending(number, Reason::Retransmissions);
        } else if !sending.listed {
            sending.listed = true;
            self.again.push_back(number);
        }
    }

    fn sending_is_stalled(&mut self, number: u64) {
        let Some(sending) = self.sending.get_mut(&number) else {
            return;
        };
        sending.stalled = None;
        if !sending.is_stalled() {
            return;
        }
        let waited = sending.again_count();
        sending.ask_for_missing();
        self.gaps_waiting += sending.again_count() - waited;
        if !sending.listed {
            sending.listed = true;
            self.again.push_back(number);
        }
    }

    fn report_is_due(&mut self, number: u64, serial: u64) {
        self.silent = true;
        let Some(receiving) = self.receiving.get_mut(&number) else {
            return;
        };
        let taken = receiving.is_taken();
        let Some(issued) = receiving.issued.get_mut(&serial) else {
            return;
        };
        issued.due = None;
        issued.tries += 1;
        if issued.tries <= self.config.tries {
            self.queue_report(number, serial);
        } else if taken {
            // The client has the block; the peer asks if it needs a report.
            self.end_receiving(number);
        } else {
            self.cancel_reception(number, Reason::Retransmissions);
        }
    }

    /// The cancelling of a block that this side sends (`sent`) or receives.
    pub(super) fn cancelling(&mut self, number: u64, sent: bool) -> Option<&mut Cancelling> {
        if sent {
            self.sending.get_mut(&number)?.cancelling.as_mut()
        } else {
            self.receiving.get_mut(&number)?.cancelling.as_mut()
        }
    }

    fn cancel_is_due(&mut self, number: u64, sent: bool) {
        let most = self.config.tries;
        let Some(cancelling) = self.cancelling(number, sent) else {
            return;
        };
        cancelling.due = None;
        cancelling.tries += 1;
        let is_over = cancelling.tries > most;
        if is_over && sent {
            self.end_sending(number);
        } else if is_over {
            self.end_receiving(number);
        } else if sent {
            self.queue(Waiting::CancelSent { number });
        } else {
            self.queue(Waiting::CancelReceived { number });
        }
    }

    fn reception_is_idle(&mut self, number: u64) {
        let Some(ended) = self.end_receiving(number) else {
            return;
        };
        if !ended.is_taken() && ended.cancelling.is_none() {
            let session = self.theirs(number);
            let reason = Reason::System;
            self.events
                .push_back(Event::ReceptionCancelled { session, reason });
        }
    }
}
