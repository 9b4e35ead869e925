//! The application's calls on streams.

use std::time::Instant;

use bytes::Bytes;
use underpass_cla::Class;
use underpass_work::count;

use super::lane::class_of;
use super::queue::Place;
use super::{Event, Mux, OpenError, StreamError, StreamInfo, StreamState, WriteError};
use crate::stream::{Life, Origin, Receiving, SendSide, Sending, Stream};
use crate::wire::{MAX_HOST_BYTES, Open, ResetCode, StreamId, Target, VARINT_MAX};

/// Written bytes that each stream may have whatever the others have. With many streams it is less,
/// down to `LEAST_CAPACITY_BYTES`, so that all together have at most `RESERVED_TOTAL_BYTES`.
const RESERVED_BUFFER_BYTES: usize = 16 * 1024;
const RESERVED_TOTAL_BYTES: usize = 64 << 20;

/// Less room than this is reported as none: a reader should not fetch a few
/// bytes at a time.
const LEAST_CAPACITY_BYTES: usize = 4096;

impl Mux {
    /// Opens a stream; its OPEN leaves with the first bytes, if they are
    /// there by the time it is sealed.
    pub(crate) fn open(&mut self, now: Instant, open: Open) -> Result<StreamId, OpenError> {
        if let Target::Name { host, .. } = &open.target
            && !(1..=MAX_HOST_BYTES).contains(&host.len())
        {
            return Err(OpenError::HostLength(host.len()));
        }
        if self.streams.len() >= self.config.max_streams {
            return Err(OpenError::TooManyStreams);
        }
        let id = self.next_id;
        if id.0 > VARINT_MAX - 2 {
            return Err(OpenError::NoIds);
        }
        self.next_id = StreamId(id.0 + 2);
        let mut stream = Stream::new(now, open.class, Life::Open);
        stream.connected_told = !open.report_connected;
        stream.open = Some(Box::new(open));
        self.insert_stream(id, stream);
        self.counters.opened += 1;
        self.enqueue(id, Place::New);
        Ok(id)
    }

    /// Tells an opener that asked for it that the target is connected.
    pub fn connected(&mut self, id: StreamId) -> Result<(), StreamError> {
        let peers = self.is_peers(id);
        let stream = self.open_stream(id)?;
        if peers && !std::mem::replace(&mut stream.connected_told, true) {
            stream.control.opened = true;
            self.list_control(id);
        }
        Ok(())
    }

    /// Changes the class of a stream, for the bytes not sealed yet and all that follow.
    pub fn set_class(&mut self, id: StreamId, class: Class) -> Result<(), StreamError> {
        let stream = self.open_stream(id)?;
        if stream.class != class {
            stream.class = class;
            self.dequeue(id);
            self.enqueue(id, Place::New);
        }
        Ok(())
    }

    /// Bytes that may be written now. It is bounded by the send buffers and
    /// by the credit, so that no more is read from a client than the peer is
    /// willing to take. At 0, [`Event::Writable`] follows when it has risen.
    pub fn send_capacity(&mut self, id: StreamId) -> usize {
        let capacity = self.capacity(id);
        if capacity == 0 {
            self.want_to_write(id);
        }
        capacity
    }

    pub(crate) fn capacity(&self, id: StreamId) -> usize {
        let Some(stream) = self.streams.get(&id) else {
            return 0;
        };
        if stream.life != Life::Open || stream.send.state != Sending::Open {
            return 0;
        }
        let (limit, total) = self.send_buffers();
        let queued = stream.send.pieces.len();
        let own = self.own_room(&stream.send);
        let shared = total.saturating_sub(self.buffered);
        let reserved = self.reserved_bytes().saturating_sub(queued);
        let credit = (self.allowance(&stream.send) + self.beyond_credit)
            .saturating_sub(queued as u64 + stream.send.ahead.bytes());
        let credit = usize::try_from(credit).unwrap_or(usize::MAX);
        let capacity = own.min(shared.max(reserved)).min(credit);
        if capacity < least_capacity(limit) {
            return 0;
        }
        capacity
    }

    /// Written bytes that may wait at present: of one stream, and of all.
    fn send_buffers(&self) -> (usize, usize) {
        let (config, (stream, total)) = (&self.config, self.present_buffers);
        let stream = stream.min(config.send_buffer_bytes);
        (stream, total.min(config.send_buffer_total_bytes))
    }

    fn reserved_bytes(&self) -> usize {
        let share = RESERVED_TOTAL_BYTES / self.streams.len().max(1);
        share.clamp(LEAST_CAPACITY_BYTES, RESERVED_BUFFER_BYTES)
    }

    /// Limits the written data that waits, bytes, for one stream and for all together, to what
    /// suits the present rate. Data beyond that stays. No stream is visited: each is looked at
    /// again when bytes of it are sealed.
    pub fn set_present_buffers(&mut self, stream_bytes: usize, total_bytes: usize) {
        self.present_buffers = (stream_bytes, total_bytes);
    }

    /// Takes bytes to send, all or none. Bytes up to the last [`Mux::send_capacity`] are always
    /// taken, even if others have used the room since.
    pub fn write(&mut self, id: StreamId, data: Bytes) -> Result<(), WriteError> {
        let limit = self.config.send_buffer_bytes;
        let stream = self.open_stream(id).map_err(|_| WriteError::Unknown)?;
        if stream.send.state != Sending::Open {
            return Err(WriteError::Finished);
        }
        let queued = stream.send.pieces.len();
        if data.len() > stream.send.room(limit)
            || stream.send.sent + (queued + data.len()) as u64 > VARINT_MAX
        {
            return Err(WriteError::Full);
        }
        let length = data.len();
        stream.send.pieces.push(data, Origin::default());
        let queued = stream.queued.as_mut().map(|queued| {
            queued.bytes += length as u64;
            (queued.class, queued.left_bytes, queued.bytes)
        });
        self.buffered += length;
        match queued {
            Some((class, left_bytes, bytes)) => {
                self.classes[usize::from(class.0)].bytes += length as u64;
                if left_bytes < bytes {
                    self.flow_grew(id, bytes);
                }
                self.look_at_weight(id);
                self.note_output(id);
            }
            None => self.enqueue(id, Place::New),
        }
        self.look_at_writer(id);
        Ok(())
    }

    /// Ends the sending direction after what was written.
    pub fn finish(&mut self, id: StreamId) -> Result<(), StreamError> {
        let stream = self.open_stream(id)?;
        if stream.send.state == Sending::Open {
            stream.send.state = Sending::Finishing;
            self.enqueue(id, Place::New);
            self.note_end(id);
        }
        Ok(())
    }

    /// Notes a stream that its application has ended with bytes left to seal.
    pub(super) fn note_end(&mut self, id: StreamId) {
        let stream = self.streams.get(&id);
        let ended = |stream: &Stream| stream.has_ended() && stream.has_output();
        if !self.former && stream.is_some_and(ended) {
            self.ended.push(id);
        }
    }

    /// Ends both directions at once. Bytes not sealed are dropped; the peer delivers the sealed
    /// ones, then its application sees `code`. `reason` is for people and cut at 256 bytes.
    pub fn reset(
        &mut self,
        id: StreamId,
        code: ResetCode,
        reason: &str,
    ) -> Result<(), StreamError> {
        self.open_stream(id)?;
        self.abort(id, code, reason, false);
        Ok(())
    }

    /// Ends both directions at once for the application here. The peer delivers
    /// all that was written, then its application sees `code`.
    pub fn reset_behind(
        &mut self,
        id: StreamId,
        code: ResetCode,
        reason: &str,
    ) -> Result<(), StreamError> {
        let stream = self.open_stream(id)?;
        if stream.send.pieces.is_empty() || stream.send.state != Sending::Open {
            return self.reset(id, code, reason);
        }
        stream.reset_behind = Some(Box::new((code, reason.to_owned())));
        stream.send.state = Sending::Finishing;
        self.stop(id, code)?;
        self.note_end(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.life = Life::Draining;
        }
        Ok(())
    }

    /// Resets the streams that began at `before` or earlier and that their applications have not
    /// ended. Returns them. No other stream is visited.
    pub(crate) fn reset_older(
        &mut self,
        before: Instant,
        code: ResetCode,
        reason: &str,
    ) -> Vec<StreamId> {
        let mut reset = Vec::new();
        while let Some((at, id)) = self.by_age.first().copied()
            && at <= before
        {
            count();
            self.by_age.pop_first();
            let waits = self
                .streams
                .get(&id)
                .is_some_and(|stream| !stream.has_ended());
            if waits && self.reset(id, code, reason).is_ok() {
                reset.push(id);
            }
        }
        reset
    }

    /// When the oldest stream that [`Mux::reset_older`] has not reset yet began.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.by_age.first().map(|(at, _)| *at)
    }

    /// Streams, as long as anything is known of them.
    pub(crate) fn count(&self) -> usize {
        self.streams.len()
    }

    /// Tells the peer that no more bytes are wanted; unread ones are dropped. The sending direction
    /// goes on.
    pub fn stop(&mut self, id: StreamId, code: ResetCode) -> Result<(), StreamError> {
        let stream = self.open_stream(id)?;
        if stream.recv.state == Receiving::Done {
            return Ok(());
        }
        if stream.recv.final_offset.is_none() {
            stream.control.stop = Some(code);
            self.receiving_done(id, None);
            self.list_control(id);
        } else {
            let end = stream.recv.final_offset;
            self.receiving_done(id, end);
        }
        self.reset_if_read_out(id);
        self.note_end(id);
        self.close_if_done(id);
        Ok(())
    }

    /// Takes received bytes in order, at most `limit`; `None` if there are
    /// none now. Taking them gives credit back.
    pub fn read(&mut self, id: StreamId, limit: usize) -> Option<Bytes> {
        let stream = self.streams.get_mut(&id)?;
        if stream.life != Life::Open {
            return None;
        }
        let before = stream.recv.in_use();
        let untold = stream.recv.unreturned();
        let Some(data) = stream.recv.assembler.take(limit) else {
            stream.readable_told = false;
            return None;
        };
        let after = stream.recv.in_use();
        self.recount(before, after);
        self.consumed(id, untold);
        self.finish_if_read_out(id);
        Some(data)
    }

    /// Ends the receiving direction once the application has had all of it.
    pub(super) fn finish_if_read_out(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.life != Life::Open || stream.recv.state == Receiving::Done {
            return;
        }
        if !stream.is_read_out() {
            return;
        }
        let end = stream.recv.final_offset;
        if stream.recv.reset.is_none() {
            self.events.push_back(Event::PeerFinished(id));
        }
        self.receiving_done(id, end);
        self.reset_if_read_out(id);
        self.end_if_cut(id);
        self.note_end(id);
        self.close_if_done(id);
    }

    /// Carries out a reset that waited for the bytes before it.
    pub(super) fn reset_if_read_out(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.recv.state != Receiving::Done {
            return;
        }
        if let Some(reset) = stream.recv.reset.take() {
            let (code, reason) = *reset;
            stream.life = Life::Draining;
            self.events.push_back(Event::Reset { id, code, reason });
        }
    }

    /// The streams, in no order.
    pub fn streams(&self) -> impl Iterator<Item = StreamInfo> + '_ {
        self.streams.iter().map(|(id, stream)| stream.info(*id))
    }

    /// One stream, as long as anything is known of it.
    pub fn stream(&self, id: StreamId) -> Option<StreamInfo> {
        self.streams.get(&id).map(|stream| stream.info(id))
    }

    pub(super) fn open_stream(&mut self, id: StreamId) -> Result<&mut Stream, StreamError> {
        self.streams
            .get_mut(&id)
            .filter(|stream| stream.life == Life::Open)
            .ok_or(StreamError::Unknown)
    }
}

/// Less room than this is reported as none.
fn least_capacity(send_buffer_bytes: usize) -> usize {
    LEAST_CAPACITY_BYTES.min(send_buffer_bytes / 2)
}

impl Mux {
    /// Whether a stream waits for room or credit that other streams use, rather than for its own
    /// bytes to be sealed or their copy to be dropped. If so, the value says whether it waits for
    /// the buffer that all share.
    pub(super) fn waits_for_others(&self, send: &SendSide) -> Option<bool> {
        let (limit, _) = self.send_buffers();
        let least = least_capacity(limit);
        let reserved = self.reserved_bytes().saturating_sub(send.pieces.len());
        (self.own_room(send) >= least).then_some(reserved < least)
    }

    /// Bytes for which a stream's own buffer has room at present.
    fn own_room(&self, send: &SendSide) -> usize {
        let (limit, _) = self.send_buffers();
        let present = limit.saturating_sub(send.pieces.len());
        present.min(send.room(self.config.send_buffer_bytes))
    }
}

impl Stream {
    fn info(&self, id: StreamId) -> StreamInfo {
        let sending = self.send.state == Sending::Open;
        let receiving = self.recv.state == Receiving::Open;
        StreamInfo {
            id,
            class: class_of(self.class),
            queue: self.class,
            state: match (self.life, sending, receiving) {
                (Life::Early, ..) => StreamState::Early,
                (Life::Draining, ..) => StreamState::Draining,
                (Life::Open, false, false) => StreamState::Draining,
                (Life::Open, false, true) => StreamState::HalfClosedLocal,
                (Life::Open, true, false) => StreamState::HalfClosedRemote,
                (Life::Open, true, true) => StreamState::Open,
            },
            opened_at: self.opened_at,
            sent_bytes: self.send.sent,
            read_bytes: self.recv.assembler.taken(),
            send_buffered_bytes: self.send.pieces.len() as u64,
            unread_bytes: self.recv.in_use().received,
        }
    }
}
