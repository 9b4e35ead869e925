//! Credit, both ways.
//!
//! A stream may have `stream window` bytes that are sealed and not consumed.
//! What it has beyond its floor is its *charge*; the sum of the charges is at
//! most the peer window, and a stream may charge at most half of what the
//! others leave, so that one stalled reader cannot take all.

use underpass_work::each;

use super::Mux;
use crate::stream::{InUse, Life, Receiving, SendSide};
use crate::wire::{FLOOR_BYTES, Hello, StreamId, VARINT_MAX};

/// Consumption is reported when it reaches this part of a window. A sender must be able to have a
/// round trip's bytes under way besides what was consumed and not reported. A sixteenth of the peer
/// window, which is 8 x rate x RTT by default, is half of a round trip's bytes.
pub(super) const PART_TOLD: u64 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct PeerCredit {
    pub sequence: Option<u64>,
    pub stream_window: u64,
    pub peer_window: u64,
    pub floor: u64,
}

impl Default for PeerCredit {
    /// Before the peer's HELLO the floor applies.
    fn default() -> Self {
        Self {
            sequence: None,
            stream_window: FLOOR_BYTES,
            peer_window: 0,
            floor: FLOOR_BYTES,
        }
    }
}

impl PeerCredit {
    /// Takes a later HELLO. The floor stays that of the run's first HELLO,
    /// since another one would change all charges.
    pub(super) fn renew(&mut self, hello: &Hello) {
        let floor = match self.sequence {
            None => hello.floor_bytes,
            Some(_) => self.floor,
        };
        *self = Self {
            sequence: Some(hello.sequence),
            stream_window: hello.stream_window_bytes.max(floor),
            peer_window: hello.peer_window_bytes,
            floor,
        };
    }
}

impl Mux {
    /// Bytes beyond those sealed that the stream has credit for.
    pub(super) fn allowance(&self, send: &SendSide) -> u64 {
        let credit = &self.peer_credit;
        let outstanding = send.outstanding();
        let charge = outstanding.saturating_sub(credit.floor);
        let within_floor = credit.floor.saturating_sub(outstanding);
        // n more bytes of charge are half of what the others leave if
        // charge + n <= (window - (charged - charge)) / 2 at the end, which
        // is 2n <= window - charged - charge.
        let share = credit.peer_window.saturating_sub(self.charged + charge) / 2;
        let within_stream = credit.stream_window.saturating_sub(outstanding);
        within_stream
            .min(within_floor.saturating_add(share))
            .min(VARINT_MAX - send.sent)
    }

    pub(super) fn charge(&self, send: &SendSide) -> u64 {
        send.outstanding().saturating_sub(self.peer_credit.floor)
    }

    /// Counts the charges anew: the floor is known now.
    pub(super) fn recharge(&mut self) {
        self.charged = each(self.streams.values())
            .map(|stream| self.charge(&stream.send))
            .sum();
    }

    /// Notes that the peer consumed all below `consumed`.
    pub(super) fn credit_returned(&mut self, id: StreamId, consumed: u64) {
        let floor = self.peer_credit.floor;
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if consumed <= stream.send.returned {
            return;
        }
        self.charged -= stream.send.outstanding().saturating_sub(floor);
        if consumed > stream.send.released() {
            self.drop_ahead(id);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.send.returned = consumed;
        self.charged += stream.send.outstanding().saturating_sub(floor);
        if stream.life == Life::Draining {
            self.close_if_done(id);
        }
        self.look_again(id);
        self.credit_changed = true;
    }

    /// Whether receiving up to `end` on a stream that has received up to `highest` and consumed up
    /// to `taken` is within the credit given. A run that is over was given credit once, and more by
    /// the limits reported since.
    pub(super) fn within_credit(&self, highest: u64, taken: u64, end: u64) -> bool {
        let floor = self.floor();
        let before = (highest - taken).saturating_sub(floor);
        let after = (end - taken).saturating_sub(floor);
        let runs = if self.former { 2 } else { 1 };
        end - taken <= self.granted.stream_window_bytes.max(floor)
            && self.excess - before + after <= runs * self.granted.peer_window_bytes
    }

    /// The floor of the peer's streams.
    pub(super) fn floor(&self) -> u64 {
        self.config.floor_bytes
    }

    /// Replaces a stream's part in the sums of credit in use.
    pub(super) fn recount(&mut self, before: InUse, after: InUse) {
        let floor = self.floor();
        let beyond = |bytes: u64| bytes.saturating_sub(floor);
        self.excess = self.excess - beyond(before.received) + beyond(after.received);
        self.promised_excess =
            self.promised_excess - beyond(before.promised) + beyond(after.promised);
    }

    /// Decides whether to report now to the peer what the application has just taken. `before` is
    /// what was unreported before that.
    ///
    /// Less than half a floor need not be reported: without it the stream still has half a floor of
    /// credit. Of the streams with more, each reports at its part of the stream window, and all
    /// report when together they reach that part of the peer window. So neither window can keep a
    /// sender waiting.
    pub(super) fn consumed(&mut self, id: StreamId, before: u64) {
        if self.former {
            return self.raise_limit(id);
        }
        let least = self.floor() / 2;
        let windows = self.config.windows;
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let untold = stream.recv.unreturned();
        if stream.control.credit || untold < least {
            return;
        }
        self.untold += if before < least {
            untold
        } else {
            untold - before
        };
        let told_alone = untold >= (windows.stream_window_bytes / PART_TOLD).max(least);
        if !std::mem::replace(&mut stream.consumed_listed, true) {
            if self.untold_streams.len() > 2 * self.streams.len() + 64 {
                let streams = &self.streams;
                self.untold_streams.retain(|id| streams.contains_key(id));
            }
            self.untold_streams.push(id);
        }
        if told_alone {
            self.tell(id);
        }
        if self.untold >= windows.peer_window_bytes / PART_TOLD {
            for id in each(std::mem::take(&mut self.untold_streams)) {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.consumed_listed = false;
                    self.tell(id);
                }
            }
        }
    }

    /// Lets the next control payload carry the stream's CREDIT.
    fn tell(&mut self, id: StreamId) {
        let least = self.floor() / 2;
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let untold = stream.recv.unreturned();
        if untold < least || stream.control.credit || stream.recv.state == Receiving::Done {
            return;
        }
        self.untold -= untold;
        stream.control.credit = true;
        self.list_control(id);
    }

    /// Ends the receiving direction. `end` is where the peer's bytes end. The peer computes the
    /// same charge, and if it has one left, it is told that nothing is unconsumed any more. `None`
    /// if a RESET or STOP tells it so.
    pub(super) fn receiving_done(&mut self, id: StreamId, end: Option<u64>) {
        let floor = self.floor();
        let least = floor / 2;
        self.drop_limit(id);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let untold = stream.recv.unreturned();
        if !self.former && !stream.control.credit && untold >= least {
            self.untold -= untold;
        }
        let before = stream.recv.in_use();
        let charged =
            !self.former && end.is_some_and(|end| end.saturating_sub(stream.recv.returned) > floor);
        stream.recv.state = Receiving::Done;
        self.runs -= stream.recv.assembler.runs();
        stream.recv.assembler = Default::default();
        stream.recv.final_offset = end;
        stream.control.credit = charged;
        if charged {
            self.list_control(id);
        }
        self.recount(before, InUse::default());
    }
}
