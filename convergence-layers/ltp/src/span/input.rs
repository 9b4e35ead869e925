//! Segments that come in.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{CLAIMS_KEPT, Due, Event, GAPS_WAITING, RUNS_KEPT, Span, Waiting};
use crate::receiving::Receiving;
use crate::segment::{Body, Checkpoint, Data, Reason, Report, Segment, SessionId};
use crate::sending::Heard;

impl Span {
    /// Takes a datagram from the peer. Bytes that are no segment, and segments that this peer may
    /// not send, are counted and otherwise ignored.
    pub fn handle_input(&mut self, now: Instant, mut datagram: &[u8]) {
        let at = self.clock.at(now);
        self.figures.received_bytes += datagram.len() as u64;
        while !datagram.is_empty() {
            match Segment::take(&mut datagram) {
                Ok(segment) => self.handle_segment(at, segment),
                Err(_) => {
                    self.refused.malformed += 1;
                    return;
                }
            }
        }
    }

    fn handle_segment(&mut self, at: Duration, segment: Segment<'_>) {
        let SessionId { originator, number } = segment.session;
        let from_sender = matches!(
            segment.body,
            Body::Data(_)
                | Body::ReportAck(_)
                | Body::CancelBySender(_)
                | Body::CancelAckToReceiver
        );
        let expected = if from_sender {
            self.config.remote
        } else {
            self.config.local
        };
        if originator != expected {
            self.refused.foreign += 1;
            return;
        }
        self.peer_is_heard(at);
        match segment.body {
            Body::Data(data) => self.take_data(at, number, &data),
            Body::Report(report) => self.take_report(at, number, &report),
            Body::ReportAck(serial) => self.take_report_ack(number, serial),
            Body::CancelBySender(reason) => {
                // The peer repeats this if the answer was lost, so it is always answered (6.17).
                self.answer_at_once(segment.session, Body::CancelAckToSender);
                let ended = self.end_receiving(number);
                // The client knows what this side has cancelled.
                if ended.is_some_and(|ended| !ended.is_taken() && ended.cancelling.is_none()) {
                    let session = self.theirs(number);
                    self.events
                        .push_back(Event::ReceptionCancelled { session, reason });
                }
            }
            Body::CancelByReceiver(reason) => {
                self.answer_at_once(segment.session, Body::CancelAckToReceiver);
                let ended = self.end_sending(number);
                if let Some(ended) = ended.filter(|ended| ended.cancelling.is_none()) {
                    self.events.push_back(Event::Cancelled {
                        key: ended.key,
                        reason,
                        by_peer: true,
                    });
                }
            }
            Body::CancelAckToSender => {
                let sending = self.sending.get(&number);
                if sending.is_some_and(|sending| sending.cancelling.is_some()) {
                    self.end_sending(number);
                }
            }
            Body::CancelAckToReceiver => {
                let receiving = self.receiving.get(&number);
                if receiving.is_some_and(|receiving| receiving.cancelling.is_some()) {
                    self.end_receiving(number);
                }
            }
        }
    }

    /// The peer is heard again after a silence: requests with long waits are repeated at once. This
    /// happens once for each silence.
    fn peer_is_heard(&mut self, at: Duration) {
        let silence = at.saturating_sub(self.heard);
        self.heard = at;
        if !self.silent || silence < self.wait(0) {
            return;
        }
        self.silent = false;
        let later: Vec<_> = self
            .dues
            .range(
                (
                    at,
                    Due::Checkpoint {
                        number: 0,
                        serial: 0,
                    },
                )..,
            )
            .copied()
            .collect();
        for (due, what) in later {
            let repeated = match what {
                Due::Checkpoint { number, serial } => {
                    let asked = self
                        .sending
                        .get_mut(&number)
                        .and_then(|s| s.asked.get_mut(&serial));
                    asked
                        .filter(|asked| asked.tries > 0)
                        .map(|asked| &mut asked.due)
                }
                Due::Report { number, serial } => {
                    let issued = self
                        .receiving
                        .get_mut(&number)
                        .and_then(|r| r.issued.get_mut(&serial));
                    issued
                        .filter(|issued| issued.tries > 0)
                        .map(|issued| &mut issued.due)
                }
                _ => None,
            };
            if let Some(place) = repeated {
                *place = Some(at);
                self.dues.remove(&(due, what));
                self.dues.insert((at, what));
            }
        }
    }

    fn take_data(&mut self, at: Duration, number: u64, data: &Data<'_>) {
        let end = data.offset + data.bytes.len() as u64;
        self.forget_closed(at);
        let known = self.receiving.get(&number);
        let reports = self.config.reports;
        if let Some(first) = known.filter(|known| known.is_followed_by(data, reports)) {
            // The client's word on the first block must not answer for this one, whose sender asks
            // again.
            if !first.is_taken() {
                self.refused.closed += 1;
                return;
            }
            // The client has the block, and the peer has restarted: what was reported of it says
            // nothing about the new one.
            self.end_receiving(number);
            // The new one is open, and is closed anew when it ends.
            if self
                .closed_order
                .back()
                .is_some_and(|(_, last)| *last == number)
            {
                self.closed_order.pop_back();
                self.closed.remove(&number);
            }
        } else if known.is_none() && self.is_over(number) {
            self.refused.closed += 1;
            return;
        }
        if !self.receiving.contains_key(&number) && !self.admit(at, number, data, end) {
            return;
        }
        let gaps = match self.runs < RUNS_KEPT {
            true => self.config.gaps,
            false => 0,
        };
        let Some(receiving) = self.receiving.get_mut(&number) else {
            return;
        };
        if receiving.cancelling.is_some() {
            self.refused.closed += 1;
            return;
        }
        let before = receiving.heard + self.config.idle;
        receiving.heard = at;
        self.dues.remove(&(before, Due::Idle { number }));
        self.dues
            .insert((at + self.config.idle, Due::Idle { number }));
        if receiving.wants() {
            let impossible = receiving.contradiction(data);
            let impossible =
                impossible.or((end > self.config.block_bytes).then_some(Reason::System));
            if let Some(reason) = impossible {
                self.refused.impossible += 1;
                self.cancel_reception(number, reason);
                return;
            }
            // Handled as if its bytes had been lost; a checkpoint is answered all the same.
            if receiving.is_full_of_gaps(data, gaps) {
                self.refused.no_room += 1;
            } else if !self.keep(number, data) {
                return;
            }
        }
        if let Some(checkpoint) = data.checkpoint {
            self.report(at, number, checkpoint, end);
        }
    }

    /// Keeps the bytes of a segment; false if there is no room for them.
    fn keep(&mut self, number: u64, data: &Data<'_>) -> bool {
        let Some(receiving) = self.receiving.get(&number) else {
            return false;
        };
        let extra = receiving.extra_bytes(data);
        if !self.make_room(number, extra) {
            return false;
        }
        let Some(receiving) = self.receiving.get_mut(&number) else {
            self.memory.shrink(extra);
            return false;
        };
        let runs = receiving.runs();
        let pieces = receiving.take(data);
        self.runs = self.runs + receiving.runs() - runs;
        self.hand_on(number, pieces);
        self.keep_elsewhere_if_long(number);
        self.offer(number, data.service);
        true
    }

    /// Whether a session that begins with this segment is accepted.
    fn admit(&mut self, at: Duration, number: u64, data: &Data<'_>, end: u64) -> bool {
        let session = self.theirs(number);
        if !self.config.services.contains(&data.service) {
            self.refused.impossible += 1;
            self.answer_at_once(session, Body::CancelByReceiver(Reason::Unreachable));
            return false;
        }
        if end > self.config.block_bytes {
            self.refused.impossible += 1;
            self.answer_at_once(session, Body::CancelByReceiver(Reason::System));
            return false;
        }
        if self.receiving.len() >= self.config.received_sessions {
            self.refused.no_room += 1;
            self.answer_at_once(session, Body::CancelByReceiver(Reason::System));
            return false;
        }
        let first = self.random.u64(1..=super::FIRST_SERIALS);
        self.receiving.insert(number, Receiving::new(first, at));
        self.arrivals.push_back(number);
        true
    }

    /// Takes memory for a block. The youngest incomplete blocks give theirs up, so that the oldest
    /// can complete. While the client is still taking blocks, whose memory will be freed, none is
    /// given up; a segment without room then counts as lost.
    fn make_room(&mut self, number: u64, extra: usize) -> bool {
        while !self.memory.grow(extra) {
            self.refused.no_room += 1;
            if !self.with_client.is_empty() {
                return false;
            }
            let holds = |other: &&u64| {
                let receiving = self.receiving.get(other);
                **other == number
                    || receiving.is_some_and(|receiving| receiving.store.cost_bytes() > 0)
            };
            let youngest = self.arrivals.iter().rev().find(holds).copied();
            let Some(youngest) = youngest else {
                return false;
            };
            self.cancel_reception(youngest, Reason::System);
            if youngest == number {
                return false;
            }
        }
        true
    }

    /// Offers a block to the client if it is whole.
    fn offer(&mut self, number: u64, service: u64) {
        let session = self.theirs(number);
        let Some(receiving) = self.receiving.get_mut(&number) else {
            return;
        };
        let Some(length) = receiving.offers() else {
            return;
        };
        let red_bytes = receiving.red_bytes();
        if receiving.elsewhere {
            self.events.push_back(Event::ReceivedElsewhere {
                session,
                service,
                bytes: length,
                red_bytes,
            });
            return;
        }
        let cost_bytes = receiving.store.cost_bytes();
        let block = Bytes::from(receiving.store.take(length));
        self.memory.shrink(cost_bytes - block.len());
        *self.with_client.entry(number).or_default() += block.len();
        self.events.push_back(Event::Received {
            session,
            service,
            block,
            red_bytes,
        });
    }

    /// Answers a checkpoint by reports (6.11).
    pub(super) fn report(&mut self, _at: Duration, number: u64, checkpoint: Checkpoint, end: u64) {
        let Some(receiving) = self.receiving.get_mut(&number) else {
            return;
        };
        let (claims, full) = (receiving.claims, self.claims >= CLAIMS_KEPT);
        let serials = receiving.answer(checkpoint, end, full, &self.config);
        self.claims += receiving.claims - claims;
        let Some(serials) = serials else {
            self.refused.no_room += 1;
            self.cancel_reception(number, Reason::Retransmissions);
            return;
        };
        for serial in serials {
            self.queue_report(number, serial);
        }
    }

    /// Queues a report, and removes its timer.
    pub(super) fn queue_report(&mut self, number: u64, serial: u64) {
        let receiving = self.receiving.get_mut(&number);
        let Some(issued) = receiving.and_then(|receiving| receiving.issued.get_mut(&serial)) else {
            return;
        };
        if let Some(due) = issued.due.take() {
            self.dues.remove(&(due, Due::Report { number, serial }));
        }
        if !issued.queued {
            issued.queued = true;
            self.queue(Waiting::Report { number, serial });
        }
    }

    fn take_report(&mut self, at: Duration, number: u64, report: &Report) {
        // Answered even if the session is over: the peer repeats it until then (6.13).
        self.answer_at_once(self.own(number), Body::ReportAck(report.serial));
        let Some(sending) = self.sending.get_mut(&number) else {
            self.refused.closed += 1;
            return;
        };
        if sending.cancelling.is_some() {
            self.refused.closed += 1;
            return;
        }
        let (before, waited) = (sending.acknowledged(), sending.again_count());
        let gaps = self
            .config
            .gaps
            .min(GAPS_WAITING.saturating_sub(self.gaps_waiting));
        // At least one, so that a block whose beginning has arrived makes progress.
        let claimed = sending.runs();
        let left = RUNS_KEPT.saturating_sub(self.claimed_runs);
        let runs = self.config.gaps.min(claimed + left).max(1);
        let bounds = (self.config.reports, self.config.cycles);
        let heard = sending.hear(report, (gaps, runs), bounds);
        self.claimed_runs = self.claimed_runs + sending.runs() - claimed;
        self.gaps_waiting = self.gaps_waiting + sending.again_count() - waited;
        let serial = report.checkpoint;
        // An impossible report answers no checkpoint. One that came before has answered its own: if
        // it answered others, too, a peer that repeats it would be asked without end.
        if !matches!(heard, Heard::Impossible | Heard::Known)
            && let Some(asked) = sending.asked.remove(&serial)
            && let Some(due) = asked.due
        {
            self.dues.remove(&(due, Due::Checkpoint { number, serial }));
            if asked.tries == 0 {
                self.rtt.sample(at.saturating_sub(asked.sent));
            }
        }
        let (key, bytes) = (sending.key, sending.acknowledged());
        let through = sending.is_through();
        self.figures.delivered_bytes += bytes - before;
        match heard {
            Heard::Impossible => self.refused.impossible += 1,
            Heard::TooMuch => {
                self.refused.no_room += 1;
                self.cancel_sending(number, Reason::Cycles);
                return;
            }
            Heard::Known => {}
            Heard::Missing => {
                if !sending.listed {
                    sending.listed = true;
                    self.again.push_back(number);
                }
            }
            Heard::More => {}
        }
        if through {
            self.end_sending(number);
            self.events.push_back(Event::Sent { key });
        } else if bytes > before {
            self.events.push_back(Event::Progress { key, bytes });
        }
        self.await_other_reports(at, number);
    }

    /// The peer has answered, possibly not for all of the block. Its other reports get more time
    /// than the peer needs to repeat one.
    fn await_other_reports(&mut self, at: Duration, number: u64) {
        let due = at + self.wait(1);
        let Some(sending) = self.sending.get_mut(&number) else {
            return;
        };
        let stalled = sending.is_stalled().then_some(due);
        let before = std::mem::replace(&mut sending.stalled, stalled);
        if let Some(before) = before {
            self.dues.remove(&(before, Due::Stalled { number }));
        }
        if let Some(due) = stalled {
            self.dues.insert((due, Due::Stalled { number }));
        }
    }

    fn take_report_ack(&mut self, number: u64, serial: u64) {
        let Some(receiving) = self.receiving.get_mut(&number) else {
            self.refused.closed += 1;
            return;
        };
        if let Some(due) = receiving.acknowledge(serial) {
            self.dues.remove(&(due, Due::Report { number, serial }));
        }
        self.close_if_through(number);
    }
}
