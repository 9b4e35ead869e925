//! Sealing ahead: bytes that must not be lost, or that cannot be sent at
//! present, are sealed into custody at once, even beyond the peer's credit. The
//! bundle node withholds them until their stream has a turn and credit.
//!
//! A payload that is sealed ahead has frames of one stream only, and at most half a floor of its
//! bytes, so that credit covers it in the end. No more of the stream is sealed otherwise until all
//! of these have left.

use std::time::Instant;

use bytes::Bytes;
use underpass_cla::Class;
use underpass_work::each;

use super::lane::class_of;
use super::queue::{Flow, Place};
use super::{Config, Counters, Event, Mux, Sealed};
use crate::stream::{Beginning, Life, Sending, Stream};
use crate::wire::{Frame, Open, Sealer, StreamId};

/// Room for the payload's head, an OPEN, and the heads of frames.
const HEAD_BYTES: usize = 1024;

/// The sealed beginning of a stream is copied up to this many bytes, and up to this part of the
/// stream's send buffer; all copies together up to this part of all send buffers.
const BEGINNING_BYTES: usize = 64 << 10;
const BEGINNINGS_PART: usize = 4;

/// A payload that must not leave before its turn: [`Sealed::Withheld`].
#[derive(Debug)]
pub struct Ahead {
    /// Its class.
    pub class: Class,
    /// The offset at which the stream's bytes in it end.
    pub end: u64,
    /// Its parts, one after the other.
    pub payload: Vec<Bytes>,
}

impl Mux {
    /// Lets each stream take so many bytes beyond its credit, to be sealed by [`Mux::seal_ahead`].
    /// 0 ends this.
    pub fn set_beyond_credit(&mut self, bytes: u64) {
        self.beyond_credit = bytes;
        self.writers_retry = true;
    }

    /// Streams with something to seal, by id. Streams whose OPEN waits count only if they were
    /// opened by `opened_by`.
    pub fn streams_with_output(&self, opened_by: Instant) -> Vec<StreamId> {
        let able = |id: &StreamId| {
            let stream = self.streams.get(id);
            stream.is_some_and(|stream| match stream.open {
                Some(_) => stream.opened_at <= opened_by,
                None => stream.life != Life::Early,
            })
        };
        each(self.unsealed.iter().copied()).filter(able).collect()
    }

    /// Notes whether the stream has something to seal.
    pub(super) fn note_output(&mut self, id: StreamId) {
        let has_output = self.streams.get(&id).is_some_and(Stream::has_output);
        match has_output {
            true => self.unsealed.insert(id),
            false => self.unsealed.remove(&id),
        };
    }

    /// Seals what a stream has waiting, half a floor of it at most, whether
    /// there is credit or not, into a payload of at most `limit` bytes; `None` if it
    /// has nothing, or there is no room for the heads. Payloads of a stream
    /// leave in the order in which they are sealed.
    pub fn seal_ahead(&mut self, id: StreamId, limit: usize) -> Option<Ahead> {
        // A reader does not report its last half floor, so credit might never
        // cover more.
        let most = usize::try_from(self.peer_credit.floor / 2).unwrap_or(usize::MAX);
        let receiver = self.peer_incarnation.unwrap_or(0);
        if !self.streams.get(&id)?.has_output() || limit <= HEAD_BYTES {
            return None;
        }
        self.dequeue(id);
        let stream = self.streams.get_mut(&id)?;
        let limit = limit.min(most.min(stream.send.pieces.len()) + HEAD_BYTES);
        let mut sealer = Sealer::new(limit, self.incarnation, receiver);
        if let Some(open) = stream.open.take() {
            if stream.tells_acknowledgement(&open) {
                self.events.push_back(Event::OpenSealed(id));
            }
            // A name, two addresses and a trace fit into the room for heads.
            let frame = Frame::Open { id, open: *open };
            sealer.frame(&frame);
            if let Frame::Open { open, .. } = frame {
                stream.send.ahead.begin();
                stream.begins(open, None);
            }
        }
        let queued = stream.send.pieces.len();
        let count = queued.min(most).min(sealer.data_room());
        let last = stream.send.state == Sending::Finishing && count == queued;
        let fin = last && stream.reset_behind.is_none();
        let room = (&mut self.beginning_bytes, &self.config);
        Self::keep_beginning(stream, room, count, fin);
        if count > 0 || fin {
            let (at, pieces) = (stream.send.sent, &mut stream.send.pieces);
            sealer.data(id, at, fin, pieces, count);
        }
        if fin {
            stream.send.state = Sending::Done;
        }
        let (class, bytes) = (class_of(stream.class), count as u64);
        stream.send.sent += bytes;
        let end = stream.send.sent;
        stream.send.ahead.push(bytes);
        stream.unacknowledged += 1;
        self.under_way += 1;
        self.note_addressee(id);
        self.buffered -= count;
        self.writers_retry = true;
        self.counters.payloads_sent += 1;
        Counters::add(&mut self.counters.sent_bytes, class, bytes);
        self.enqueue(id, Place::New);
        self.look_at_writer(id);
        if last {
            self.reset_behind_last(id);
        }
        self.close_if_done(id);
        Some(Ahead {
            class,
            end,
            payload: sealer.finish(),
        })
    }

    /// Copies the next `count` bytes, and the end, of a stream of which the peer has not heard:
    /// they are sealed for its present run, and its next run may have to get them. If there are too
    /// many, with the bytes copied for all streams, the copy is dropped and the stream is not
    /// copied any more.
    pub(super) fn keep_beginning(
        stream: &mut Stream,
        (copied, config): (&mut usize, &Config),
        count: usize,
        fin: bool,
    ) {
        let send = &mut stream.send;
        let Some(beginning) = &mut send.beginning else {
            return;
        };
        let of_all = config.send_buffer_total_bytes / BEGINNINGS_PART;
        let of_one = BEGINNING_BYTES.min(config.send_buffer_bytes / BEGINNINGS_PART);
        let room = of_all.saturating_sub(*copied);
        if count > room.min(of_one.saturating_sub(beginning.bytes.len())) {
            *copied -= beginning.bytes.len();
            send.beginning = None;
            return;
        }
        send.pieces.copy_front(count, &mut beginning.bytes);
        beginning.fin |= fin;
        *copied += count;
    }

    /// Notes that a stream cannot begin anew any more.
    pub(super) fn forget_beginning(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(&id);
        if let Some(beginning) = stream.and_then(|stream| stream.send.beginning.take()) {
            self.beginning_bytes -= beginning.bytes.len();
        }
    }

    /// Notes that the peer or a custodian has something of a stream: once something of it has left,
    /// it does not begin anew.
    pub(super) fn is_heard(&mut self, id: StreamId) {
        let stream = self.streams.get(&id);
        if stream.is_some_and(|stream| stream.send.begins_and_has_left()) {
            self.forget_beginning(id);
            self.look_at_writer(id);
        }
    }

    /// Whether a withheld payload leaves in a flow's next turn.
    pub(super) fn leaves_custody(&self, flow: Flow) -> bool {
        match flow {
            Flow::Restored { .. } => true,
            Flow::Stream(id) => {
                let stream = self.streams.get(&id);
                stream.is_some_and(|stream| !stream.send.ahead.is_empty())
            }
        }
    }

    /// Lets the oldest withheld payload of a flow leave.
    pub(super) fn let_leave(&mut self, now: Instant, flow: Flow, quantum: u64) -> Sealed {
        match flow {
            Flow::Restored { run, id } => self.restored_turn_over(run, id),
            Flow::Stream(id) => self.let_oldest_leave(now, id, quantum),
        }
        Sealed::Withheld(flow)
    }

    fn let_oldest_leave(&mut self, now: Instant, id: StreamId, quantum: u64) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let floor = self.peer_credit.floor;
        let before = stream.send.outstanding().saturating_sub(floor);
        let bytes = stream.send.ahead.pop().unwrap_or(0);
        stream.send.leaves(now);
        let after = stream.send.outstanding().saturating_sub(floor);
        self.charged = self.charged - before + after;
        Self::begin_turn(stream, quantum);
        Self::charge_turn(stream, bytes, quantum);
        match stream.deficit {
            0 => self.turn_over(id),
            _ => self.enqueue(id, Place::First),
        }
        self.look_at_writer(id);
        self.close_if_done(id);
    }

    /// Lets the next withheld payload leave, where there is no room to seal another. Returns its
    /// flow.
    pub(crate) fn poll_withheld(&mut self, now: Instant, class: Class) -> Option<Flow> {
        self.let_one_go_on(class);
        let flow = self.next_withheld(class)?;
        self.let_leave(now, flow, 1);
        Some(flow)
    }

    pub(super) fn drop_ahead(&mut self, id: StreamId) {
        self.dequeue(id);
        self.forget_beginning(id);
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.send.ahead.is_empty()
        {
            stream.send.ahead.clear();
            self.unwanted.push(id);
        }
        self.enqueue(id, Place::New);
    }

    /// The next stream whose withheld payloads nobody wants.
    pub(crate) fn poll_unwanted(&mut self) -> Option<StreamId> {
        self.unwanted.pop()
    }

    /// The next stream that has ended for its application with bytes left to
    /// seal.
    pub(crate) fn poll_ended(&mut self) -> Option<StreamId> {
        self.ended.pop()
    }

    /// Notes that a bundle with bytes, OPEN or end of these streams has been acknowledged by the
    /// next custodian, or is gone.
    pub fn acknowledged(&mut self, ids: &[StreamId]) {
        for id in ids {
            if let Some(stream) = self.streams.get_mut(id)
                && let Some(left) = stream.unacknowledged.checked_sub(1)
            {
                stream.unacknowledged = left;
                if std::mem::take(&mut stream.tells_acknowledgement) {
                    self.events.push_back(Event::OpenAcknowledged(*id));
                }
                self.under_way -= 1;
                self.is_heard(*id);
                self.let_gathered_go_on(*id);
                self.close_if_done(*id);
            }
        }
    }
}

impl Stream {
    /// Notes that its OPEN is sealed; `left` says when it leaves, unless it is withheld.
    pub(super) fn begins(&mut self, open: Open, left: Option<Instant>) {
        // A peer that guesses an id may have ended the stream.
        if self.send.state != Sending::Done {
            self.send.beginning = Some(Box::new(Beginning::new(open, left)));
        }
    }
}
