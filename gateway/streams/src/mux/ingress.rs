//! Incoming payloads, in any order and any number of times.

use std::time::Instant;

use bytes::Bytes;
use underpass_cla::Class;
use underpass_work::each;

use super::indices::has_room;
use super::{Counters, Event, Mux, PayloadError};
use crate::stream::{Life, Origin, Receiving, Sending, Stream};
use crate::wire::{Frame, Frames, Hello, Open, ResetCode, StreamId};

/// The most runs of bytes beyond a gap that are kept of all streams.
const MAX_RUNS: usize = 65_536;

/// The most streams at one time of which bytes or a STOP have come before their OPEN. OPEN leaves
/// with the first bytes, so an honest peer needs few.
const MAX_EARLY: usize = 4096;

/// CREDIT frames kept about streams that are not here.
pub(super) const MAX_LOOSE_FRAMES: usize = 4096;

impl Mux {
    /// Takes in the frames of a well-formed payload. Received bytes are slices of it. `addressed`
    /// says whether its sender knew this run.
    pub(crate) fn handle_frames(
        &mut self,
        now: Instant,
        class: Class,
        payload: &Bytes,
        addressed: bool,
    ) -> Result<(), PayloadError> {
        self.counters.payloads_received += 1;
        let origin = Origin {
            serial: self.counters.payloads_received,
            pinned: payload.len(),
        };
        for frame in Frames::new(payload)? {
            self.handle_frame(now, class, frame?, origin, addressed);
        }
        if std::mem::take(&mut self.credit_changed) {
            self.credit_came();
        }
        Ok(())
    }

    fn handle_frame(
        &mut self,
        now: Instant,
        class: Class,
        frame: Frame,
        origin: Origin,
        addressed: bool,
    ) {
        let id = match &frame {
            Frame::Hello(hello) => return self.on_hello(hello, addressed),
            // They are about earlier runs.
            Frame::Settled | Frame::Held { .. } | Frame::Limit { .. } => return,
            Frame::Unknown { .. } => {
                self.counters.frames_unknown += 1;
                return;
            }
            Frame::Open { id, .. }
            | Frame::Opened { id }
            | Frame::Credit { id, .. }
            | Frame::Reset { id, .. }
            | Frame::Stop { id, .. }
            | Frame::Expired { id, .. }
            | Frame::Data { id, .. } => *id,
        };
        // A peer that does not know this incarnation cannot mean its streams.
        if !addressed && !self.is_peers(id) {
            return;
        }
        if !self.is_peers(id) {
            self.is_heard(id);
        }
        match frame {
            Frame::Open { open, .. } => self.on_open(now, id, open),
            Frame::Opened { .. } => self.on_connected(id),
            Frame::Credit { consumed, .. } => self.on_credit(id, consumed),
            Frame::Reset {
                code,
                final_offset,
                at_once,
                reason,
                ..
            } => self.on_reset(id, code, final_offset, at_once, reason),
            Frame::Stop { code, .. } => self.on_stop(now, class, id, code),
            Frame::Expired { below, .. } => self.on_expired(id, below),
            Frame::Data {
                offset, fin, data, ..
            } => {
                if self.admit(now, class, id, MAX_EARLY) {
                    self.on_data(class, id, offset, fin, data, origin);
                }
            }
            Frame::Hello(_)
            | Frame::Settled
            | Frame::Held { .. }
            | Frame::Limit { .. }
            | Frame::Unknown { .. } => {}
        }
    }

    fn on_hello(&mut self, hello: &Hello, addressed: bool) {
        if self.peer_credit.sequence >= Some(hello.sequence) {
            return;
        }
        let first = self.peer_credit.sequence.is_none();
        self.peer_credit.renew(hello);
        self.credit_changed = true;
        if !self.former && self.peer_announcement != Some(hello.announcement) {
            self.peer_announcement = Some(hello.announcement);
            self.events
                .push_back(Event::AnnouncementChanged(hello.announcement));
        }
        // The value is the same in all that the peer sends to this run.
        let valid = first || addressed && !self.peer_first_valid_is_final;
        self.peer_first_valid_is_final |= addressed;
        if valid && hello.first_valid > self.peer_first_valid {
            self.peer_first_valid = hello.first_valid;
            if let Some(last) = (hello.first_valid.0 / 2).checked_sub(1) {
                self.closed.insert(0..=last);
            }
            self.drop_void_streams();
        }
        if !first {
            return;
        }
        self.recharge();
        // Charges below the peer's floor are gone.
        let draining: Vec<StreamId> = each(&self.streams)
            .filter(|(_, stream)| stream.life == Life::Draining)
            .map(|(id, _)| *id)
            .collect();
        for id in draining {
            self.close_if_done(id);
        }
    }

    /// Ends the peer's streams that it says are void.
    fn drop_void_streams(&mut self) {
        let void: Vec<StreamId> = each(self.streams.keys())
            .filter(|id| self.is_peers(**id) && **id < self.peer_first_valid)
            .copied()
            .collect();
        for id in void {
            let reason = "the peer opened it for an earlier run of this node".to_owned();
            self.end(id, ResetCode::Restarted, reason);
        }
    }

    /// Whether a frame about the stream may touch it; makes room for a stream
    /// of the peer that was not heard of before, if fewer than `most_early` are
    /// without their OPEN.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        class: Class,
        id: StreamId,
        most_early: usize,
    ) -> bool {
        if self.streams.contains_key(&id) {
            return true;
        }
        let index = id.0 / 2;
        if !self.is_peers(id) || self.closed.contains(&index) {
            return false;
        }
        let scattered = !has_room(&self.closed, index);
        let full = self.streams.len() >= self.config.max_streams || self.early >= most_early;
        if full || scattered {
            self.counters.refused += 1;
            if !scattered {
                self.closed.insert(index..=index);
            }
            if has_room(&self.refused, index) && !self.former {
                self.refused.insert(index..=index);
            }
            return false;
        }
        let mut stream = Stream::new(now, class, Life::Early);
        if self.former {
            stream.send.state = Sending::Done;
            stream.cut = true;
        }
        self.insert_stream(id, stream);
        true
    }

    fn on_open(&mut self, now: Instant, id: StreamId, open: Open) {
        if !self.is_peers(id) || !self.admit(now, open.class, id, usize::MAX) {
            return;
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.life != Life::Early {
            return;
        }
        // Names are shown to people and written to logs.
        if !open.target.is_dialable() {
            return self.violated(id, ResetCode::Protocol, "OPEN names no host");
        }
        stream.life = Life::Open;
        self.early -= 1;
        self.by_age.insert((stream.opened_at, id));
        stream.class = open.class;
        stream.connected_told = !open.report_connected;
        let stopped = stream.send.state == Sending::Done && !stream.cut;
        let readable = stream.recv.assembler.is_readable();
        stream.readable_told = readable;
        self.counters.accepted += 1;
        self.events.push_back(Event::Opened { id, open });
        if stopped {
            let code = ResetCode::Cancelled;
            self.events.push_back(Event::Stopped { id, code });
        }
        if readable {
            self.events.push_back(Event::Readable(id));
        }
        self.finish_if_read_out(id);
    }

    fn on_connected(&mut self, id: StreamId) {
        if !self.is_peers(id)
            && let Some(stream) = self.streams.get_mut(&id)
            && stream.life == Life::Open
            && !std::mem::replace(&mut stream.connected_told, true)
        {
            self.events.push_back(Event::Connected(id));
        }
    }

    fn on_credit(&mut self, id: StreamId, consumed: u64) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        // The peer knows the end of a stream that was reset, even if withheld
        // bytes before it have not left.
        let known = match stream.life {
            Life::Draining => stream.send.sent,
            Life::Early | Life::Open => stream.send.released(),
        };
        match consumed <= known {
            true => self.credit_returned(id, consumed),
            false => self.violated(id, ResetCode::Protocol, "credit for bytes never sent"),
        }
    }

    fn on_stop(&mut self, now: Instant, class: Class, id: StreamId, code: ResetCode) {
        if !self.admit(now, class, id, MAX_EARLY) {
            return;
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let told = stream.life == Life::Open && stream.send.state != Sending::Done;
        let sent = stream.send.sent;
        self.sending_done(id);
        if told {
            self.events.push_back(Event::Stopped { id, code });
        }
        self.credit_returned(id, sent);
        self.close_if_done(id);
    }

    fn on_reset(&mut self, id: StreamId, code: ResetCode, end: u64, at_once: bool, reason: String) {
        let Some(stream) = self.streams.get_mut(&id) else {
            self.on_reset_of_unknown(id, end);
            return;
        };
        let recv = &mut stream.recv;
        let fits = recv.final_offset.is_none_or(|known| known == end) && end >= recv.highest;
        let missing = recv.state == Receiving::Open && end > recv.assembler.taken();
        let sealed = stream.open.is_none();
        let later = stream.life == Life::Open && sealed && missing && fits && !at_once;
        if later {
            if recv.reset.is_none() {
                recv.final_offset = Some(end);
                recv.reset = Some(Box::new((code, reason)));
                self.counters.resets_received += 1;
            }
            let told = stream.send.state != Sending::Done;
            let sent = stream.send.sent;
            self.sending_done(id);
            if told {
                // The application may be blocked in writing and may not have read yet.
                self.events.push_back(Event::Stopped { id, code });
            }
            self.credit_returned(id, sent);
            return;
        }
        if stream.life != Life::Draining {
            self.counters.resets_received += 1;
        }
        if recv.state == Receiving::Open {
            self.receiving_done(id, Some(end));
        }
        self.end(id, code, reason);
    }

    /// A RESET that overtook its stream's OPEN: the stream never begins.
    fn on_reset_of_unknown(&mut self, id: StreamId, end: u64) {
        let index = id.0 / 2;
        if !self.is_peers(id) || self.closed.contains(&index) {
            return;
        }
        if has_room(&self.closed, index) {
            self.closed.insert(index..=index);
        }
        if !self.former && end > self.floor() && self.loose.len() < MAX_LOOSE_FRAMES {
            self.loose.push_back(Frame::Credit { id, consumed: end });
        }
    }

    fn on_data(
        &mut self,
        class: Class,
        id: StreamId,
        offset: u64,
        fin: bool,
        data: Bytes,
        origin: Origin,
    ) {
        self.on_connected(id);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.recv.state == Receiving::Done {
            return;
        }
        let end = offset + data.len() as u64;
        let (highest, taken) = (stream.recv.highest, stream.recv.assembler.taken());
        let beyond = stream.recv.final_offset.is_some_and(|last| end > last);
        let elsewhere =
            fin && (end < highest || stream.recv.final_offset.is_some_and(|last| end != last));
        if beyond || elsewhere {
            return self.violated(id, ResetCode::Protocol, "the end of the stream moved");
        }
        if end > highest && !self.within_credit(highest, taken, end) {
            return self.violated(id, ResetCode::FlowControl, "more bytes than credit");
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let before = stream.recv.in_use();
        let runs = stream.recv.assembler.runs();
        let Ok(new) = stream.recv.assembler.insert(offset, data, origin) else {
            return self.violated(id, ResetCode::FlowControl, "too many gaps");
        };
        stream.recv.highest = highest.max(end);
        if fin {
            stream.recv.final_offset = Some(end);
        }
        let after = stream.recv.in_use();
        self.runs = self.runs - runs + stream.recv.assembler.runs();
        let readable = stream.life == Life::Open && stream.recv.assembler.is_readable();
        if readable && !std::mem::replace(&mut stream.readable_told, true) {
            self.events.push_back(Event::Readable(id));
        }
        self.recount(before, after);
        if self.runs > MAX_RUNS {
            return self.violated(id, ResetCode::FlowControl, "too many gaps in all streams");
        }
        Counters::add(&mut self.counters.received_bytes, class, new);
        self.finish_if_read_out(id);
    }

    fn violated(&mut self, id: StreamId, code: ResetCode, reason: &str) {
        self.counters.violations += 1;
        self.end_both(id, code, reason);
    }

    /// Resets the stream for both applications, at once.
    pub(super) fn end_both(&mut self, id: StreamId, code: ResetCode, reason: &str) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let open = stream.life == Life::Open;
        self.abort(id, code, reason, true);
        if open {
            let reason = reason.to_owned();
            self.events.push_back(Event::Reset { id, code, reason });
        }
    }

    /// Ends a stream that the peer has ended. A CREDIT or STOP that waits is
    /// still sealed: the peer's charge goes with it.
    pub(super) fn end(&mut self, id: StreamId, code: ResetCode, reason: String) {
        self.never_open(id);
        self.sending_done(id);
        self.receiving_done_if_open(id);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let sent = stream.send.sent;
        stream.recv.reset = None;
        stream.control.opened = false;
        if stream.life == Life::Open {
            self.events.push_back(Event::Reset { id, code, reason });
        }
        self.early -= usize::from(stream.life == Life::Early);
        stream.life = Life::Draining;
        self.credit_returned(id, sent);
        self.close_if_done(id);
    }

    fn receiving_done_if_open(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(&id)
            && stream.recv.state == Receiving::Open
        {
            self.receiving_done(id, None);
        }
    }
}
