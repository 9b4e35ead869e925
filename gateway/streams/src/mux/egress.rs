//! Outgoing payloads, sealed only when they are asked for.

use std::time::Instant;

use bytes::Bytes;
use underpass_cla::{BUNDLE_OVERHEAD_BYTES, Class, SHORT_BUNDLE_BYTES};

use super::lane::class_of;
use super::queue::{Flow, Place};
use super::{Counters, Event, Mux};
use crate::stream::{Receiving, Sending};
use crate::wire::{Frame, ResetCode, Sealer, StreamId};

/// The least payload that holds every kind of frame.
const MIN_PAYLOAD_BYTES: usize = 512;

/// The most waiting frames about streams that are not here. They answer a peer that asks about each
/// stream once.
const MAX_LOOSE: usize = 65_536;

/// A payload that is not empty takes at least so much of another stream, or nothing.
const LEAST_TAIL_BYTES: usize = 256;

/// What is to leave next.
#[derive(Debug, PartialEq, Eq)]
pub enum Sealed {
    /// A payload sealed now.
    Payload {
        /// Its parts, one after the other.
        parts: Vec<Bytes>,
        /// The streams with bytes, OPEN or end in it, each as often as
        /// [`Mux::acknowledged`] has to name it.
        streams: Vec<StreamId>,
    },
    /// The oldest payload of this flow that is withheld.
    Withheld(Flow),
}

impl Mux {
    /// Seals a payload of at most `max_bytes` (512 at least) with what waits in `class`, or names a
    /// withheld one that may leave; `None` if nothing waits. Frames without data come first, then
    /// flows in turn.
    pub(crate) fn poll_payload(
        &mut self,
        now: Instant,
        class: Class,
        max_bytes: usize,
    ) -> Option<Sealed> {
        let limit = max_bytes.max(MIN_PAYLOAD_BYTES);
        let quantum = self.config.quantum_bytes.clamp(1, limit as u64);
        let receiver = self.peer_incarnation.unwrap_or(0);
        let mut sealer = Sealer::new(limit, self.incarnation, receiver);
        let mut streams = Vec::new();
        self.let_one_go_on(class);
        let sparse = self.has_sparse(class);
        let room = class != self.config.control_class || self.seal_control(&mut sealer);
        while room && let Some(flow) = self.next_turn(class) {
            // Flows that begin or send seldom do not wait for the bytes of others.
            let sealed = (limit - sealer.room()) as u64;
            let goes_along = || {
                let fits = limit as u64 <= SHORT_BUNDLE_BYTES;
                self.was_sparse(flow) && (fits || self.stays_short(flow, sealed, quantum))
            };
            if sparse && !streams.is_empty() && !goes_along() {
                self.return_turn(flow);
                break;
            }
            if self.leaves_custody(flow) {
                if sealer.is_empty() {
                    return Some(self.let_leave(now, flow, quantum));
                }
                self.return_turn(flow);
                break;
            }
            let Flow::Stream(id) = flow else {
                break;
            };
            let before = sealer.room();
            let goes_on = self.seal_turn(now, id, quantum, &mut sealer);
            let bytes = (before - sealer.room()) as u64;
            self.sent_bytes += bytes;
            if bytes > 0
                && let Some(stream) = self.streams.get_mut(&id)
            {
                stream.light_budget.charge(self.sent_bytes, bytes);
                stream.unacknowledged += 1;
                self.under_way += 1;
                self.note_addressee(id);
                streams.push(id);
            }
            self.look_at_writer(id);
            self.close_if_done(id);
            if !goes_on {
                break;
            }
        }
        if sealer.is_empty() {
            return None;
        }
        self.counters.payloads_sent += 1;
        let parts = sealer.finish();
        Some(Sealed::Payload { parts, streams })
    }

    /// Notes that something of a stream is sealed.
    pub(super) fn note_addressee(&mut self, id: StreamId) {
        if self.peer_incarnation.is_none() {
            self.unaddressed_below = self.unaddressed_below.max(StreamId(id.0 + 2));
        }
    }

    /// Whether a payload still makes a short bundle with this flow's turn in it. Short flows that
    /// begin or send seldom do not leave in long bundles, since they would wait for lost segments
    /// of these.
    fn stays_short(&self, flow: Flow, sealed_bytes: u64, quantum: u64) -> bool {
        let Flow::Stream(id) = flow else {
            return false;
        };
        let most = SHORT_BUNDLE_BYTES - BUNDLE_OVERHEAD_BYTES;
        let turn = self
            .streams
            .get(&id)
            .map(|stream| Self::turn(stream, quantum));
        let bytes = self.sendable(id).min(turn.unwrap_or(quantum));
        sealed_bytes + bytes <= most
    }

    /// Whether there are frames for the control class.
    pub(super) fn has_control(&self) -> bool {
        self.hello_due
            || !self.loose.is_empty()
            || !self.refused.is_empty()
            || !self.control.is_empty()
    }

    /// Sends a control frame that is not about a stream here.
    pub(crate) fn send_loose(&mut self, frame: Frame) {
        if self.loose.len() < MAX_LOOSE {
            self.loose.push_back(frame);
        }
    }

    /// Seals control frames; false if there are more than fit.
    fn seal_control(&mut self, sealer: &mut Sealer) -> bool {
        if self.hello_due {
            if !sealer.frame(&Frame::Hello(self.hello())) {
                return false;
            }
            self.hello_due = false;
        }
        while let Some(frame) = self.loose.front() {
            if !sealer.frame(frame) {
                return false;
            }
            self.loose.pop_front();
        }
        while let Some(index) = self.refused.first().map(|range| *range.start()) {
            let frame = Frame::Reset {
                id: StreamId(2 * index + (1 - self.side.bit())),
                code: ResetCode::Busy,
                final_offset: 0,
                at_once: true,
                reason: String::new(),
            };
            if !sealer.frame(&frame) {
                return false;
            }
            self.refused.remove(index..=index);
        }
        while let Some(&id) = self.control.front() {
            if !self.seal_stream_control(id, sealer) {
                return false;
            }
            self.control.pop_front();
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.control.listed = false;
            }
            self.close_if_done(id);
        }
        true
    }

    fn seal_stream_control(&mut self, id: StreamId, sealer: &mut Sealer) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else {
            return true;
        };
        if let Some(reset) = &stream.control.reset {
            let (code, reason, at_once) = &**reset;
            let sealed = sealer.frame(&Frame::Reset {
                id,
                code: *code,
                final_offset: stream.send.sent,
                at_once: *at_once,
                reason: reason.clone(),
            });
            if sealed {
                stream.control = Default::default();
            }
            return sealed;
        }
        if stream.control.opened {
            if !sealer.frame(&Frame::Opened { id }) {
                return false;
            }
            stream.control.opened = false;
        }
        if let Some(below) = stream.control.expired {
            if !sealer.frame(&Frame::Expired { id, below }) {
                return false;
            }
            stream.control.expired = None;
        }
        if let Some(code) = stream.control.stop {
            if !sealer.frame(&Frame::Stop { id, code }) {
                return false;
            }
            stream.control.stop = None;
        }
        if stream.control.credit {
            let consumed = match stream.recv.state {
                Receiving::Open => stream.recv.assembler.taken(),
                Receiving::Done => stream.recv.final_offset.unwrap_or(stream.recv.returned),
            };
            if !sealer.frame(&Frame::Credit { id, consumed }) {
                return false;
            }
            stream.control.credit = false;
            stream.recv.returned = consumed;
            self.counters.credits_sent += 1;
        }
        true
    }

    /// Seals one turn of a stream that was taken out of its queue, and puts
    /// it back if it has more; false if the payload has no room for that.
    fn seal_turn(&mut self, now: Instant, id: StreamId, quantum: u64, sealer: &mut Sealer) -> bool {
        if !self.seal_open(now, id, sealer) {
            self.enqueue(id, Place::First);
            return false;
        }
        self.seal_data(id, quantum, sealer)
    }

    /// Seals a stream's OPEN if it waits; false if there is no room for it.
    fn seal_open(&mut self, now: Instant, id: StreamId, sealer: &mut Sealer) -> bool {
        let stream = self.streams.get_mut(&id);
        let Some(stream) = stream.filter(|stream| stream.open.is_some()) else {
            return true;
        };
        let Some(open) = stream.open.take() else {
            return true;
        };
        let frame = Frame::Open { id, open: *open };
        let sealed = sealer.frame(&frame);
        if let Frame::Open { open, .. } = frame {
            match sealed {
                true => {
                    if stream.tells_acknowledgement(&open) {
                        self.events.push_back(Event::OpenSealed(id));
                    }
                    stream.begins(open, Some(now));
                }
                false => stream.open = Some(Box::new(open)),
            }
        }
        sealed
    }

    fn seal_data(&mut self, id: StreamId, quantum: u64, sealer: &mut Sealer) -> bool {
        let sendable = self.sendable(id);
        let charged = self.charged;
        let class = self.streams.get(&id).map(|stream| stream.class);
        let nobody_else = class.is_none_or(|class| self.has_credit_now(class).is_none());
        let Some(stream) = self.streams.get_mut(&id) else {
            return true;
        };
        Self::begin_turn(stream, quantum);
        // If no other stream waits, it gets one frame instead of one per turn.
        let alone = self
            .classes
            .get(usize::from(stream.class.0))
            .is_none_or(|queue| queue.flows == 0)
            && nobody_else;
        if alone {
            stream.deficit = stream.deficit.max(sendable);
        }
        let turn = sendable.min(stream.deficit);
        let count = turn.min(sealer.data_room() as u64) as usize;
        let left = stream.send.pieces.len() - count;
        let last = stream.send.state == Sending::Finishing && left == 0;
        let fin = last && stream.reset_behind.is_none();
        let cut = (count as u64) < turn;
        if (cut && count < LEAST_TAIL_BYTES || fin && sealer.data_room() == 0) && !sealer.is_empty()
        {
            self.enqueue(id, Place::First);
            return false;
        }
        let room = (&mut self.beginning_bytes, &self.config);
        Self::keep_beginning(stream, room, count, fin);
        if count > 0 || fin {
            let floor = self.peer_credit.floor;
            let before = stream.send.outstanding().saturating_sub(floor);
            sealer.data(id, stream.send.sent, fin, &mut stream.send.pieces, count);
            stream.send.sent += count as u64;
            let after = stream.send.outstanding().saturating_sub(floor);
            self.charged = charged - before + after;
            self.buffered -= count;
            self.writers_retry = true;
            let class = class_of(stream.class);
            Counters::add(&mut self.counters.sent_bytes, class, count as u64);
        }
        if fin {
            stream.send.state = Sending::Done;
        }
        Self::charge_turn(stream, count as u64, quantum);
        if !cut {
            self.turn_over(id);
            if last {
                self.reset_behind_last(id);
            }
            return true;
        }
        // A turn that is cut by the payload's end goes on in the next payload.
        self.enqueue(id, Place::First);
        false
    }
}
