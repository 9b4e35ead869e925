//! Segments that go out.

use std::time::{Duration, Instant};

use super::{Due, Event, Span, Waiting};
use crate::cancelling::Cancelling;
use crate::segment::{Body, Segment};
use crate::sending::{Sending, Written};

impl Span {
    /// Appends the next segment, if any may be sent: short ones first, then retransmissions, then
    /// new data. Its timer starts now, so it must be sent now.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.clock.is_blocked() {
            return false;
        }
        let (at, before) = (self.clock.at(now), out.len());
        let written =
            self.write_waiting(at, out) || self.write_again(at, out) || self.write_fresh(at, out);
        if written {
            self.figures.sent_segments += 1;
            self.figures.sent_bytes += (out.len() - before) as u64;
        }
        written
    }

    fn write_waiting(&mut self, at: Duration, out: &mut Vec<u8>) -> bool {
        while let Some(waiting) = self.waiting.pop_front() {
            let written = match waiting {
                Waiting::Answer(session, body) => {
                    self.answers -= 1;
                    Segment { session, body }.put(out);
                    true
                }
                Waiting::Report { number, serial } => self.write_report(at, number, serial, out),
                Waiting::CancelSent { number } => self.write_cancel(at, number, true, out),
                Waiting::CancelReceived { number } => self.write_cancel(at, number, false, out),
            };
            if written {
                return true;
            }
        }
        false
    }

    fn write_report(&mut self, at: Duration, number: u64, serial: u64, out: &mut Vec<u8>) -> bool {
        let session = self.theirs(number);
        let Some(receiving) = self.receiving.get_mut(&number) else {
            return false;
        };
        let awaits = receiving.awaits(serial);
        let Some(issued) = receiving.issued.get_mut(&serial) else {
            return false;
        };
        issued.queued = false;
        if !awaits {
            return false;
        }
        let body = Body::Report(issued.report.clone());
        let tries = issued.tries;
        Segment { session, body }.put(out);
        let due = at + self.wait(tries);
        self.dues.insert((due, Due::Report { number, serial }));
        if let Some(receiving) = self.receiving.get_mut(&number)
            && let Some(issued) = receiving.issued.get_mut(&serial)
        {
            issued.due = Some(due);
        }
        true
    }

    /// Cancels a block that this side sends (`sent`) or receives.
    fn write_cancel(&mut self, at: Duration, number: u64, sent: bool, out: &mut Vec<u8>) -> bool {
        let Some(Cancelling { reason, tries, .. }) = self.cancelling(number, sent).copied() else {
            return false;
        };
        let (session, body, again) = if sent {
            let body = Body::CancelBySender(reason);
            (self.own(number), body, Due::CancelSent { number })
        } else {
            let body = Body::CancelByReceiver(reason);
            (self.theirs(number), body, Due::CancelReceived { number })
        };
        Segment { session, body }.put(out);
        let due = at + self.wait(tries);
        self.dues.insert((due, again));
        if let Some(cancelling) = self.cancelling(number, sent) {
            cancelling.due = Some(due);
        }
        true
    }

    fn write_again(&mut self, at: Duration, out: &mut Vec<u8>) -> bool {
        while let Some(number) = self.again.front().copied() {
            if self.lacks(number, Sending::next_again) {
                return false;
            }
            let session = self.own(number);
            if let Some(sending) = self.sending.get_mut(&number) {
                let waited = sending.again_count();
                let written = sending.write_again(session, out);
                self.gaps_waiting = self.gaps_waiting + sending.again_count() - waited;
                if let Some(written) = written {
                    self.wrote(at, number, written);
                    return true;
                }
                sending.listed = false;
            }
            self.again.pop_front();
        }
        false
    }

    fn write_fresh(&mut self, at: Duration, out: &mut Vec<u8>) -> bool {
        while let Some(number) = self.fresh.front().copied() {
            let lacks = self.lacks(number, |sending| Some(sending.next_fresh()));
            // The bytes after these are requested while these are sent.
            self.lacks(number, |sending| Some(sending.soon_fresh()));
            if lacks {
                return false;
            }
            let session = self.own(number);
            let written = self.sending.get_mut(&number).and_then(|sending| {
                let written = sending.write_fresh(session, out)?;
                Some((
                    written,
                    sending.fresh_bytes() == 0,
                    sending.is_through(),
                    sending.key,
                ))
            });
            let Some((written, all, through, key)) = written else {
                self.fresh.pop_front();
                continue;
            };
            self.fresh_bytes -= written.bytes;
            self.wrote(at, number, written);
            if all {
                self.fresh.pop_front();
            }
            if through {
                // All green: its arrival is never reported.
                self.end_sending(number);
                self.events.push_back(Event::Sent { key });
            }
            return true;
        }
        false
    }

    fn wrote(&mut self, at: Duration, number: u64, written: Written) {
        self.figures.sent_data_segments += 1;
        self.figures.resent_bytes += written.again_bytes;
        let Some(serial) = written.checkpoint else {
            return;
        };
        let asked = self
            .sending
            .get(&number)
            .and_then(|sending| sending.asked.get(&serial));
        let Some(tries) = asked.map(|asked| asked.tries) else {
            return;
        };
        let due = at + self.wait(tries);
        self.dues.insert((due, Due::Checkpoint { number, serial }));
        if let Some(sending) = self.sending.get_mut(&number)
            && let Some(asked) = sending.asked.get_mut(&serial)
        {
            asked.due = Some(due);
            if asked.tries == 0 {
                asked.sent = at;
            }
        }
    }
}
