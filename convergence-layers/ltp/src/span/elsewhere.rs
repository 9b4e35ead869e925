//! Blocks with pieces that are elsewhere: the client supplies their bytes when they are to be sent,
//! and again if they are retransmitted much later.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use super::{Event, Span};
use crate::block::WINDOW_BYTES;
use crate::segment::{Reason, SessionId};
use crate::sending::Sending;

/// Most supplied windows that are kept, over all blocks: 16 MiB. That is far more than the next
/// bytes of one block and of one that is being retransmitted.
const WINDOWS_KEPT: usize = (16 << 20) / WINDOW_BYTES as usize;

impl Span {
    /// Brings the bytes of an [`Event::Wanted`]: all of its range, which begins at
    /// `offset` in the block.
    pub fn supply(&mut self, session: SessionId, offset: u64, bytes: Bytes) {
        let number = session.number;
        if session.originator != self.config.local || !self.wanted.remove(&(number, offset)) {
            return;
        }
        let Some(sending) = self.sending.get_mut(&number) else {
            return;
        };
        sending.block.supply(offset, bytes);
        self.supplied.push_back((number, offset));
        if self.supplied.len() > WINDOWS_KEPT
            && let Some((number, offset)) = self.supplied.pop_front()
            && let Some(sending) = self.sending.get_mut(&number)
        {
            sending.block.forget(offset);
        }
    }

    /// Windows of blocks that were supplied and are kept.
    pub fn supplied_windows(&self) -> usize {
        self.supplied.len()
    }

    /// Whether the next bytes of a block are still elsewhere; if so, requests them from the client.
    /// A block that would need too much reading is cancelled.
    pub(super) fn lacks(
        &mut self,
        number: u64,
        next: impl Fn(&Sending) -> Option<Range<u64>>,
    ) -> bool {
        let Some(sending) = self.sending.get_mut(&number) else {
            return false;
        };
        let Some(range) = next(sending).and_then(|range| sending.block.lacks(&range)) else {
            return false;
        };
        if self.wanted.contains(&(number, range.start)) {
            return true;
        }
        if !sending.may_read(range.end - range.start, self.config.cycles) {
            self.cancel_sending(number, Reason::Cycles);
            return false;
        }
        let key = sending.key;
        self.wanted.insert((number, range.start));
        let session = self.own(number);
        self.events.push_back(Event::Wanted {
            session,
            key,
            range,
        });
        true
    }

    /// Whether the first of these sessions has bytes to send, or still has to request them from the
    /// client.
    pub(super) fn may_go_on(
        &self,
        sessions: &VecDeque<u64>,
        next: fn(&Sending) -> Option<Range<u64>>,
    ) -> bool {
        let Some(number) = sessions.front() else {
            return false;
        };
        let sending = self.sending.get(number);
        let lacks = sending.and_then(|sending| sending.block.lacks(&next(sending)?));
        lacks.is_none_or(|window| !self.wanted.contains(&(*number, window.start)))
    }

    /// A block is under way no more.
    pub(super) fn forget_supplied(&mut self, number: u64) {
        self.wanted.retain(|(of, _)| *of != number);
        self.supplied.retain(|(of, _)| *of != number);
    }
}
