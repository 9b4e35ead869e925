//! The change from one run of the peer to the next.

use std::time::Instant;

use underpass_work::each;

use super::Mux;
use super::queue::Place;
use crate::stream::{Life, Receiving, Sending, Stream};
use crate::wire::{ResetCode, StreamId};

const REASON: &str = "the peer node restarted";

impl Mux {
    /// Ends this run as [`Mux::retire`] does, and begins the next. Streams of which the peer cannot
    /// have heard continue in the next run. These include streams that began to leave after the
    /// peer's run was over, if it is known by when (`over_by`). The ids of this node count on, so
    /// that no id ever names two streams.
    pub(crate) fn succeed(&mut self, incarnation: u64, over_by: Option<Instant>) -> Mux {
        let mut next = Mux::new(self.config, self.side, incarnation);
        next.next_id = self.next_id;
        next.first_valid = self.next_id;
        next.unaddressed_below = self.unaddressed_below;
        next.hello_sequence = self.hello_sequence + 1;
        next.announcement = self.announcement;
        next.granted = self.granted;
        let mut unheard = self.sorted_ids();
        unheard.retain(|id| *id >= self.unaddressed_below && self.is_unheard(*id, over_by));
        for id in unheard {
            let Some(stream) = self.streams.remove(&id) else {
                continue;
            };
            self.by_age.remove(&(stream.opened_at, id));
            if let Some(beginning) = &stream.send.beginning {
                self.beginning_bytes -= beginning.bytes.len();
                self.under_way -= u64::from(stream.unacknowledged);
            }
            if !stream.send.ahead.is_empty() {
                // The withheld payloads name the run that is over.
                self.unwanted.push(id);
            }
            next.first_valid = next.first_valid.min(id);
            next.carry_on(id, stream.begun_anew());
        }
        self.retire();
        next
    }

    /// Whether the peer cannot have heard of a stream: nothing of it was sealed, or all sealed
    /// bytes are copied and are either withheld or left when the peer's run was over. The peer,
    /// which may guess ids, must not have sent anything on it either.
    fn is_unheard(&self, id: StreamId, over_by: Option<Instant>) -> bool {
        self.streams.get(&id).is_some_and(|stream| {
            let recv = &stream.recv;
            let begins = match &stream.send.beginning {
                Some(beginning) => beginning.is_unheard(over_by),
                None => stream.open.is_some(),
            };
            begins && recv.highest == 0 && recv.final_offset.is_none()
        })
    }

    /// Takes over a stream that was opened for the run before.
    fn carry_on(&mut self, id: StreamId, stream: Stream) {
        self.buffered += stream.send.pieces.len();
        let stops = stream.control.stop.is_some();
        self.insert_stream(id, stream);
        if stops {
            self.list_control(id);
        }
        self.enqueue(id, Place::New);
        self.look_at_writer(id);
        self.note_end(id);
    }

    /// The streams of an earlier run of the peer that was never heard of.
    pub(crate) fn predecessor(&self, peer_incarnation: u64) -> Mux {
        let mut former = Mux::new(self.config, self.side, self.incarnation);
        former.peer_incarnation = Some(peer_incarnation);
        former.next_id = self.next_id;
        former.first_valid = self.next_id;
        former.granted = self.granted;
        former.former = true;
        former
    }

    /// Notes that the peer's run is over. Nothing is sent any more, and streams of which the peer
    /// has not heard end; what it had sealed may still arrive.
    fn retire(&mut self) {
        self.former = true;
        self.classes.clear();
        self.restored.clear();
        self.ended.clear();
        self.blocked.clear();
        self.unsealed.clear();
        self.control.clear();
        self.loose.clear();
        self.refused.clear();
        self.untold_streams.clear();
        self.writers.clear();
        (self.charged, self.untold, self.buffered) = (0, 0, 0);
        for id in self.sorted_ids() {
            self.retire_stream(id);
        }
    }

    fn retire_stream(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let unheard = stream.open.take().is_some() || stream.send.ahead.opens();
        stream.cut = stream.send.state != Sending::Done;
        stream.send.pieces = Default::default();
        self.under_way -= u64::from(std::mem::take(&mut stream.unacknowledged));
        stream.send.returned = stream.send.sent;
        stream.send.state = Sending::Done;
        stream.reset_behind = None;
        stream.queued = None;
        stream.blocked = None;
        stream.control = Default::default();
        stream.consumed_listed = false;
        stream.writer = Default::default();
        let ended = unheard || stream.recv.state == Receiving::Done;
        self.drop_ahead(id);
        if ended {
            self.end(id, ResetCode::Restarted, REASON.to_owned());
        }
    }

    /// Notes that all that the peer's run had sealed has arrived: streams that have not ended in
    /// order are reset once the application has read the contiguous bytes.
    pub(crate) fn conclude(&mut self) {
        for id in self.sorted_ids() {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            if stream.life != Life::Open {
                self.end(id, ResetCode::Restarted, REASON.to_owned());
                continue;
            }
            let before = stream.recv.in_use();
            let runs = stream.recv.assembler.runs();
            let end = stream.recv.assembler.cut_at_gap();
            if stream.recv.final_offset != Some(end) {
                stream.recv.final_offset = Some(end);
                let reset = (ResetCode::Restarted, REASON.to_owned());
                stream.recv.reset.get_or_insert_with(|| Box::new(reset));
            }
            stream.recv.highest = end;
            let after = stream.recv.in_use();
            self.runs -= runs;
            self.recount(before, after);
            self.finish_if_read_out(id);
        }
    }

    /// Resets all streams at once, here only.
    pub(crate) fn end_all(&mut self, reason: &str) {
        self.retire();
        for id in self.sorted_ids() {
            self.end(id, ResetCode::Restarted, reason.to_owned());
        }
    }

    /// Ends a stream of a run that is over, if the peer has finished it: nobody is left to receive
    /// the rest of what the application wrote.
    pub(super) fn end_if_cut(&mut self, id: StreamId) {
        let cut = |stream: &Stream| stream.cut && stream.life == Life::Open;
        if self.streams.get(&id).is_some_and(cut) {
            self.end(id, ResetCode::Restarted, REASON.to_owned());
        }
    }

    /// Whether no stream is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub(super) fn sorted_ids(&self) -> Vec<StreamId> {
        let mut ids: Vec<StreamId> = each(self.streams.keys()).copied().collect();
        ids.sort_unstable();
        ids
    }
}
