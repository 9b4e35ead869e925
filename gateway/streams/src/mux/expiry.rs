//! Payloads of this node that custody gave up.

use super::Mux;
use super::indices::has_room;
use super::ingress::MAX_LOOSE_FRAMES;
use crate::stream::{Life, Receiving};
use crate::wire::{Frame, ResetCode, StreamId};

const REASON: &str = "a bundle of the stream expired on its way";

impl Mux {
    /// Takes back a payload that was sealed here and will not be delivered. Streams with bytes or
    /// their OPEN in it are reset both ways; its other frames about streams and the node are sent
    /// again.
    pub(crate) fn handle_expired(&mut self, frames: Vec<Frame>) {
        for frame in frames {
            match frame {
                Frame::Hello(_) => self.hello_due = true,
                Frame::Open { id, .. } => self.lost(id, 0),
                Frame::Data {
                    id, offset, data, ..
                } => self.lost(id, offset + data.len() as u64),
                // EXPIRED is sent again when the next lifetime has passed.
                Frame::Settled | Frame::Expired { .. } | Frame::Unknown { .. } => {}
                // They are idempotent and cumulative.
                control => self.loose.push_back(control),
            }
        }
    }

    /// To be called each time that a bundle's lifetime has passed. Tells the peer what was sealed
    /// before the last call: those bundles have expired wherever they were, and a relay that
    /// deletes one tells nobody.
    pub(crate) fn look_for_expired(&mut self) {
        for id in self.sorted_ids() {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            let old = stream.send.marked.replace(stream.send.sent);
            let open = stream.life == Life::Open && stream.open.is_none();
            if let Some(below) = old.filter(|_| open) {
                stream.control.expired = Some(below);
                self.list_control(id);
            }
        }
    }

    /// Notes that the peer's bytes below `below` have arrived by now or never will.
    pub(super) fn on_expired(&mut self, id: StreamId, below: u64) {
        let Some(stream) = self.streams.get(&id) else {
            return self.on_expired_unknown(id);
        };
        let recv = &stream.recv;
        let lost = recv.state == Receiving::Open && recv.assembler.ready_end() < below;
        if lost || stream.life == Life::Early {
            self.counters.expired += 1;
            self.end_both(id, ResetCode::Expired, REASON);
        }
    }

    /// Not even the stream's OPEN has arrived.
    fn on_expired_unknown(&mut self, id: StreamId) {
        let index = id.0 / 2;
        let room = has_room(&self.closed, index) && self.loose.len() < MAX_LOOSE_FRAMES;
        if !self.is_peers(id) || self.closed.contains(&index) || self.former || !room {
            return;
        }
        self.closed.insert(index..=index);
        self.loose.push_back(expired(id, 0));
    }

    /// Resets a stream whose bytes below `end` are lost.
    fn lost(&mut self, id: StreamId, end: u64) {
        let void = !self.is_peers(id) && id < self.first_valid;
        match self.streams.get_mut(&id) {
            Some(stream) if stream.control.reset.is_some() => {
                // The reset must not wait for bytes that never come.
                if let Some(reset) = &mut stream.control.reset {
                    reset.2 = true;
                }
            }
            Some(_) => {
                self.counters.expired += 1;
                self.end_both(id, ResetCode::Expired, REASON);
            }
            None if void => {}
            None => {
                self.counters.expired += 1;
                self.loose.push_back(expired(id, end));
            }
        }
    }
}

fn expired(id: StreamId, final_offset: u64) -> Frame {
    Frame::Reset {
        id,
        code: ResetCode::Expired,
        final_offset,
        at_once: true,
        reason: REASON.to_owned(),
    }
}
