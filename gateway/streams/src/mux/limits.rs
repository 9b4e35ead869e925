//! Credit for a run of the peer that is over.
//!
//! What that run had sealed ahead is still in its node's custody and exceeds
//! the windows. The node's present run asks about each such stream and is told
//! up to which offset its bytes may leave; more, as they are consumed.

use std::time::Instant;

use underpass_cla::Class;

use super::Mux;
use super::credit::PART_TOLD;
use crate::stream::{Receiving, Stream};
use crate::wire::StreamId;

/// Up to which offset bytes of a stream may leave; `None` if nobody wants any.
pub(crate) type Limit = Option<u64>;

impl Mux {
    /// Answers for a stream, and from then on tells by
    /// [`Mux::take_limits`] whenever more may leave.
    pub(crate) fn limit(&mut self, now: Instant, class: Class, id: StreamId) -> Limit {
        if !self.admit(now, class, id) {
            return None;
        }
        let limit = self.possible_limit(id)?;
        self.streams.get_mut(&id)?.recv.limit = Some(limit);
        Some(limit)
    }

    /// What is to be told of streams that were asked about.
    pub(crate) fn take_limits(&mut self) -> Vec<(StreamId, Limit)> {
        std::mem::take(&mut self.limits)
    }

    /// The application has taken bytes of a stream of a run that is over.
    pub(super) fn raise_limit(&mut self, id: StreamId) {
        let Some(recv) = self.streams.get(&id).map(|stream| &stream.recv) else {
            return;
        };
        let (Some(told), taken) = (recv.limit, recv.assembler.taken()) else {
            return;
        };
        // A payload sealed ahead has half a floor at most: with so much left
        // untold, the next one is never kept waiting for nothing.
        let least = self.floor() / 2;
        let step = (self.granted.stream_window_bytes / PART_TOLD).max(least);
        let short = told < taken + least;
        if !short && told + step > taken + self.granted.stream_window_bytes.max(self.floor()) {
            return;
        }
        let possible = self.possible_limit(id).unwrap_or(told);
        if possible >= told + step || short && possible > told {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.recv.limit = Some(possible);
            }
            self.limits.push((id, Some(possible)));
        }
    }

    /// A direction has ended here: nobody wants what is held back of it.
    pub(super) fn drop_limit(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(&id);
        if stream.is_some_and(|stream| stream.recv.limit.take().is_some()) {
            self.limits.push((id, None));
        }
    }

    /// The rule by which a sender seals, with what was promised in place of
    /// what was sealed. `None` where the receiving direction has ended.
    fn possible_limit(&self, id: StreamId) -> Limit {
        let stream = self.streams.get(&id)?;
        if stream.recv.state == Receiving::Done {
            return None;
        }
        let floor = self.floor();
        let charge = |stream: &Stream| promised(stream).saturating_sub(floor);
        let charged: u64 = self.streams.values().map(charge).sum();
        let outstanding = promised(stream);
        let free = self.granted.peer_window_bytes;
        let share = free.saturating_sub(charged + charge(stream)) / 2;
        let within_floor = floor.saturating_sub(outstanding);
        let window = self.granted.stream_window_bytes.max(floor);
        let more = window
            .saturating_sub(outstanding)
            .min(within_floor.saturating_add(share));
        Some(stream.recv.assembler.taken() + outstanding + more)
    }
}

/// Bytes of a stream that have been received or may come, and are not consumed.
fn promised(stream: &Stream) -> u64 {
    let recv = &stream.recv;
    match recv.state {
        Receiving::Open => recv.limit.unwrap_or(0).max(recv.highest) - recv.assembler.taken(),
        Receiving::Done => 0,
    }
}
