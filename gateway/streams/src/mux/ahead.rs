//! Sealing ahead: while nothing can be sent, streams are read on into custody,
//! beyond what the peer gives credit for. What is sealed so is held back until
//! its credit comes.
//!
//! A payload that is sealed ahead has frames of one stream only and no more of
//! its bytes than half a floor, so that credit covers it at last. Until
//! all of a stream is released nothing else of it is sealed.

use bytes::Bytes;
use underpass_cla::Class;

use super::{Counters, Mux};
use crate::stream::{Life, Sending};
use crate::wire::{Frame, Sealer, StreamId};

/// Room for the payload's head, an OPEN, and the heads of frames.
const HEAD_BYTES: usize = 1024;

/// A payload that must not leave before [`Mux::release`] says so.
#[derive(Debug)]
pub struct Ahead {
    /// Its class.
    pub class: Class,
    /// The stream's bytes in it.
    pub bytes: u64,
    /// The offset behind them.
    pub end: u64,
    /// Its parts, one after the other.
    pub payload: Vec<Bytes>,
}

/// What is to be done with a payload that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// It may leave now.
    Released,
    /// There is no credit for it yet.
    Waits,
    /// Nobody wants it any more.
    Void,
}

impl Mux {
    /// Lets each stream have so many bytes here beyond its credit; they are to
    /// be sealed by [`Mux::seal_ahead`]. 0 ends it.
    pub fn set_beyond_credit(&mut self, bytes: u64) {
        self.beyond_credit = bytes;
        self.writers_retry = true;
    }

    /// Streams with something to seal, by id.
    pub fn streams_with_output(&self) -> Vec<StreamId> {
        let streams = self.streams.iter();
        let able = streams.filter(|(_, stream)| {
            stream.has_output() && (stream.life != Life::Early || stream.open.is_some())
        });
        let mut ids: Vec<StreamId> = able.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Seals what a stream has waiting, half a floor of it at most, whether
    /// there is credit or not, into a payload of at most `limit` bytes; `None` if it
    /// has nothing, or there is no room for the heads. Payloads of a stream
    /// are released in the order in which they are sealed.
    pub fn seal_ahead(&mut self, id: StreamId, limit: usize) -> Option<Ahead> {
        // A reader never tells of its last half floor: more might never be
        // covered.
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
            // A name and two addresses are less than the room for heads.
            sealer.frame(&Frame::Open { id, open: *open });
        }
        let queued = stream.send.pieces.len();
        let count = queued.min(most).min(sealer.data_room());
        let fin = stream.send.state == Sending::Finishing && count == queued;
        if count > 0 || fin {
            let (at, pieces) = (stream.send.sent, &mut stream.send.pieces);
            sealer.data(id, at, fin, pieces, count);
        }
        if fin {
            stream.send.state = Sending::Done;
        }
        let (class, bytes) = (stream.class, count as u64);
        stream.send.sent += bytes;
        let end = stream.send.sent;
        stream.send.ahead += bytes;
        stream.send.ahead_payloads += 1;
        stream.deficit = 0;
        self.buffered -= count;
        self.writers_retry = true;
        self.counters.payloads_sent += 1;
        Counters::add(&mut self.counters.sent_bytes, class, bytes);
        self.enqueue(id, false);
        self.settle(id);
        Some(Ahead {
            class,
            bytes,
            end,
            payload: sealer.finish(),
        })
    }

    /// Asks for the oldest payload of a stream that is held back, which has
    /// `bytes` of it.
    pub fn release(&mut self, id: StreamId, bytes: u64) -> HeldBack {
        let Some(stream) = self.streams.get(&id) else {
            return HeldBack::Void;
        };
        if stream.send.ahead_payloads == 0 || stream.send.ahead < bytes {
            return HeldBack::Void;
        }
        if self.allowance(&stream.send) < bytes {
            return HeldBack::Waits;
        }
        let before = self.charge(&stream.send);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send.ahead -= bytes;
            stream.send.ahead_payloads -= 1;
            let after = stream
                .send
                .outstanding()
                .saturating_sub(self.peer_credit.floor);
            self.charged = self.charged - before + after;
        }
        self.writers_retry = true;
        self.enqueue(id, false);
        self.settle(id);
        HeldBack::Released
    }
}
