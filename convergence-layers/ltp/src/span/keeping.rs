//! Blocks from the peer that are too long for memory: the client keeps their bytes as
//! they come.

use bytes::Bytes;

use super::{Event, Span};
use crate::segment::{Reason, SessionId};
use crate::store::PIECE_COST_BYTES;

impl Span {
    /// The client has kept this many pieces of a block, of together this many bytes, or could not:
    /// then the block is cancelled for this reason. Must be called for each [`Event::Keep`], also
    /// if its block is over.
    pub fn kept(
        &mut self,
        session: SessionId,
        (pieces, bytes): (usize, usize),
        kept: Result<(), Reason>,
    ) {
        let number = session.number;
        if session.originator != self.config.remote {
            return;
        }
        self.take_back(number, bytes + pieces * PIECE_COST_BYTES);
        let receiving = self.receiving.get(&number);
        let is_kept = receiving.is_some_and(|receiving| receiving.elsewhere);
        if let Err(reason) = kept
            && is_kept
        {
            self.cancel_reception(number, reason);
        }
    }

    /// Takes back memory that the client has of a block, at most `most` bytes.
    pub(super) fn take_back(&mut self, number: u64, most: usize) {
        let Some(left) = self.with_client.get_mut(&number) else {
            return;
        };
        let less = most.min(*left);
        *left -= less;
        if *left == 0 {
            self.with_client.remove(&number);
        }
        self.memory.shrink(less);
    }

    /// Hands pieces of a block to the client, with their memory.
    pub(super) fn hand_on(&mut self, number: u64, pieces: impl IntoIterator<Item = (u64, Bytes)>) {
        let session = self.theirs(number);
        for (offset, bytes) in pieces {
            *self.with_client.entry(number).or_default() += bytes.len() + PIECE_COST_BYTES;
            self.events.push_back(Event::Keep {
                session,
                offset,
                bytes,
            });
        }
    }

    /// From now on the client keeps a block that has become too long.
    pub(super) fn keep_elsewhere_if_long(&mut self, number: u64) {
        let most = self.config.in_memory_bytes;
        let receiving = self.receiving.get_mut(&number);
        let long = receiving.filter(|receiving| receiving.store.cost_bytes() > most);
        if let Some(receiving) = long {
            receiving.elsewhere = true;
            let pages = receiving.store.take_pages();
            self.hand_on(number, pages);
        }
    }
}
