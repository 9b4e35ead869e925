//! Credit for a run of the peer that is over.
//!
//! Bytes that the run had sealed ahead are still in its node's custody and exceed the windows. The
//! node's present run asks about each such stream, and is told up to which offset its bytes may
//! leave. It is told a higher offset as bytes are consumed.

use std::time::Instant;

use underpass_cla::Class;

use super::Mux;
use super::credit::PART_TOLD;
use crate::stream::Receiving;
use crate::wire::StreamId;

/// Up to which offset bytes of a stream may leave; `None` if nobody wants any.
pub(crate) type Limit = Option<u64>;

impl Mux {
    /// Answers for a stream. From then on, [`Mux::take_limits`] reports whenever more may leave.
    pub(crate) fn limit(&mut self, now: Instant, class: Class, id: StreamId) -> Limit {
        if !self.admit(now, class, id, usize::MAX) {
            return None;
        }
        let limit = self.possible_limit(id)?;
        self.promise(id, Some(limit));
        Some(limit)
    }

    /// The answers to send about streams that were asked about.
    pub(crate) fn take_limits(&mut self) -> Vec<(StreamId, Limit)> {
        std::mem::take(&mut self.limits)
    }

    /// Notes that the application has read bytes of a stream of a run that is over.
    pub(super) fn raise_limit(&mut self, id: StreamId) {
        let Some(recv) = self.streams.get(&id).map(|stream| &stream.recv) else {
            return;
        };
        let (Some(told), taken) = (recv.limit, recv.assembler.taken()) else {
            return;
        };
        // A payload sealed ahead has at most half a floor. If less than that is left unreported,
        // the next payload never waits for it.
        let least = self.floor() / 2;
        let step = (self.granted.stream_window_bytes / PART_TOLD).max(least);
        let short = told < taken + least;
        if !short && told + step > taken + self.granted.stream_window_bytes.max(self.floor()) {
            return;
        }
        let possible = self.possible_limit(id).unwrap_or(told);
        if possible >= told + step || short && possible > told {
            self.promise(id, Some(possible));
            self.limits.push((id, Some(possible)));
        }
    }

    /// Notes that a direction has ended here: nobody wants its withheld bytes.
    pub(super) fn drop_limit(&mut self, id: StreamId) {
        let stream = self.streams.get(&id);
        if stream.is_some_and(|stream| stream.recv.limit.is_some()) {
            self.promise(id, None);
            self.limits.push((id, None));
        }
    }

    fn promise(&mut self, id: StreamId, limit: Option<u64>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            let before = stream.recv.in_use();
            stream.recv.limit = limit;
            let after = stream.recv.in_use();
            self.recount(before, after);
        }
    }

    /// The limit by the rule by which a sender seals, with promised bytes in place of sealed ones.
    /// `None` if the receiving direction has ended.
    fn possible_limit(&self, id: StreamId) -> Limit {
        let stream = self.streams.get(&id)?;
        if stream.recv.state == Receiving::Done {
            return None;
        }
        let floor = self.floor();
        let outstanding = stream.recv.in_use().promised;
        let charge = outstanding.saturating_sub(floor);
        let free = self.granted.peer_window_bytes;
        let share = free.saturating_sub(self.promised_excess + charge) / 2;
        let within_floor = floor.saturating_sub(outstanding);
        let window = self.granted.stream_window_bytes.max(floor);
        let more = window
            .saturating_sub(outstanding)
            .min(within_floor.saturating_add(share));
        Some(stream.recv.assembler.taken() + outstanding + more)
    }
}
