//! Payloads of this node that custody gave up.

use super::Mux;
use crate::wire::{Frame, ResetCode, StreamId};

const REASON: &str = "a bundle of the stream expired on its way";

impl Mux {
    /// Takes back a payload that was sealed here and will not be delivered.
    /// Streams that had bytes or their OPEN in it are reset both ways; what
    /// it said about streams and node is said again.
    pub(crate) fn handle_expired(&mut self, frames: Vec<Frame>) {
        for frame in frames {
            match frame {
                Frame::Hello(_) => self.hello_due = true,
                Frame::Open { id, .. } => self.lost(id, 0),
                Frame::Data {
                    id, offset, data, ..
                } => self.lost(id, offset + data.len() as u64),
                Frame::Settled | Frame::Unknown { .. } => {}
                // They are idempotent and cumulative.
                control => self.loose.push_back(control),
            }
        }
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
                self.loose.push_back(Frame::Reset {
                    id,
                    code: ResetCode::Expired,
                    final_offset: end,
                    at_once: true,
                    reason: REASON.to_owned(),
                });
            }
        }
    }
}
