//! One stream: two directions, each with its own end.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use underpass_cla::Class;

use super::{Assembler, Origin, Pieces};
use crate::wire::{Open, ResetCode};

/// How the application sees a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Life {
    /// Frames of it arrived before its OPEN.
    Early,
    /// Open.
    Open,
    /// The application has closed it; it waits for credit to come back, since its bytes may still
    /// lie unread at the peer.
    Draining,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sending {
    /// Takes bytes.
    Open,
    /// The application finished; the end is not sealed yet.
    Finishing,
    /// The end is sealed, or nobody wants more.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Receiving {
    /// The application has not had everything.
    Open,
    /// The application has had everything, or wants no more.
    Done,
}

#[derive(Debug)]
pub(crate) struct SendSide {
    /// Written, not sealed yet.
    pub pieces: Pieces,
    /// Offset of the next byte to seal.
    pub sent: u64,
    /// The peer's application took all below this, as the peer says.
    pub returned: u64,
    /// All below was sealed when expired bundles were last looked for.
    pub marked: Option<u64>,
    pub ahead: Withheld,
    /// What is needed to begin the stream anew, as long as that may happen.
    pub beginning: Option<Box<Beginning>>,
    pub state: Sending,
}

/// Payloads of a stream that are sealed and withheld: they hold the last of its sealed bytes.
#[derive(Debug, Default)]
pub(crate) struct Withheld {
    /// The stream's bytes in each, the oldest first.
    pub(super) payloads: VecDeque<u64>,
    bytes: u64,
    /// The oldest has the stream's OPEN: nothing of the stream has left.
    pub(super) opens: bool,
}

/// A copy of all that is sealed of a stream of which the peer's run may never hear: if that run
/// ends before, the next one gets the copy.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub open: Open,
    /// The stream's bytes, from the first.
    pub bytes: Vec<u8>,
    /// The direction ends behind them.
    pub fin: bool,
    /// When something first left; `None` while all is withheld.
    pub left: Option<Instant>,
}

impl Beginning {
    pub fn new(open: Open, left: Option<Instant>) -> Beginning {
        Beginning {
            open,
            bytes: Vec::new(),
            fin: false,
            left,
        }
    }

    /// Whether nothing has reached a run of the peer that was over by `over_by`, if that is known.
    pub fn is_unheard(&self, over_by: Option<Instant>) -> bool {
        self.left
            .is_none_or(|left| over_by.is_some_and(|over| left > over))
    }
}

impl Withheld {
    pub fn push(&mut self, bytes: u64) {
        self.payloads.push_back(bytes);
        self.bytes += bytes;
    }

    /// Notes that the next payload is the stream's first, and has its OPEN.
    pub fn begin(&mut self) {
        self.opens = true;
    }

    /// Whether the stream's OPEN is withheld, and so all of it.
    pub fn opens(&self) -> bool {
        self.opens
    }

    /// Takes out the oldest payload. Returns the stream's bytes in it.
    pub fn pop(&mut self) -> Option<u64> {
        let bytes = self.payloads.pop_front()?;
        self.opens = false;
        self.bytes -= bytes;
        Some(bytes)
    }

    /// The stream's bytes in the oldest.
    pub fn oldest(&self) -> Option<u64> {
        self.payloads.front().copied()
    }

    /// The stream's bytes in all of them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    pub fn clear(&mut self) {
        *self = Withheld::default();
    }
}

impl SendSide {
    /// Offset up to which sealed bytes may be on their way.
    pub(crate) fn released(&self) -> u64 {
        self.sent - self.ahead.bytes()
    }

    /// Bytes that may be on their way and, as far as known here, are not
    /// consumed.
    pub(crate) fn outstanding(&self) -> u64 {
        self.released() - self.returned
    }

    /// How many bytes may be written if at most `most` may wait: bytes copied to begin anew would
    /// then wait again, so they count.
    pub(crate) fn room(&self, most: usize) -> usize {
        let beginning = self.beginning.as_ref().map_or(0, |kept| kept.bytes.len());
        most.saturating_sub(self.pieces.len() + beginning)
    }

    /// Notes that something of the stream leaves.
    pub(crate) fn leaves(&mut self, now: Instant) {
        if let Some(beginning) = &mut self.beginning {
            beginning.left.get_or_insert(now);
        }
    }

    /// Whether the stream may begin anew and something of it has left.
    pub(crate) fn begins_and_has_left(&self) -> bool {
        self.beginning
            .as_ref()
            .is_some_and(|beginning| beginning.left.is_some())
    }
}

/// Bytes of a stream's credit that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    /// Received, gaps included, and not consumed.
    pub received: u64,
    /// Those, and what a run that is over was told it may send.
    pub promised: u64,
}

#[derive(Debug)]
pub(crate) struct RecvSide {
    pub assembler: Assembler,
    /// End of the farthest byte received.
    pub highest: u64,
    /// The peer was told that all below this is consumed.
    pub returned: u64,
    /// Where the direction ends, once known.
    pub final_offset: Option<u64>,
    pub state: Receiving,
    /// A reset that waits for the bytes before it.
    pub reset: Option<Box<(ResetCode, String)>>,
    /// For a run that is over: up to where the peer was told that it may send.
    pub limit: Option<u64>,
}

impl RecvSide {
    /// Credit in use.
    pub(crate) fn in_use(&self) -> InUse {
        let taken = self.assembler.taken();
        match self.state {
            Receiving::Open => InUse {
                received: self.highest - taken,
                promised: self.limit.unwrap_or(0).max(self.highest) - taken,
            },
            Receiving::Done => InUse::default(),
        }
    }

    /// Bytes consumed that the peer does not know of.
    pub(crate) fn unreturned(&self) -> u64 {
        match self.state {
            Receiving::Open => self.assembler.taken() - self.returned,
            Receiving::Done => 0,
        }
    }
}

/// Frames about a stream that wait to be sealed. Kept in the stream, so that
/// the bound on streams bounds them too.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// The stream is in the queue of those with such frames.
    pub listed: bool,
    pub opened: bool,
    pub credit: bool,
    /// Bundles with bytes below have ended.
    pub expired: Option<u64>,
    pub stop: Option<ResetCode>,
    /// Code, reason, and whether bytes on their way are given up.
    pub reset: Option<Box<(ResetCode, String, bool)>>,
}

/// An application that may wait to write.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Writer {
    /// `Event::Writable` is wanted.
    pub wanted: bool,
    /// Its place among those that wait for credit or room from others.
    pub place: Option<(bool, u64)>,
}

/// How much a stream may send while it counts as light: an eighth of what all streams send, saved
/// up to 32 KiB. So a stream that sends most of all bytes is not light, at whatever rate, and no
/// clock is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LightBudget {
    bytes: i64,
    /// What all had sent when that was so.
    at: u64,
}

impl LightBudget {
    const PART: u64 = 8;
    const MOST: i64 = 32 << 10;
    /// The greatest debt: a stream that has sent much counts as new again when the others have sent
    /// eight times as much as this.
    const LEAST: i64 = -(64 << 10);

    /// The bytes, when all have `sent` so many.
    fn bytes(&self, sent: u64) -> i64 {
        let earned = sent.saturating_sub(self.at) / Self::PART;
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        self.bytes.saturating_add(earned).min(Self::MOST)
    }

    /// Whether so many bytes are within it.
    pub fn covers(&self, sent: u64, bytes: u64) -> bool {
        i64::try_from(bytes).is_ok_and(|bytes| bytes <= self.bytes(sent))
    }

    pub fn charge(&mut self, sent: u64, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let left = self.bytes(sent).saturating_sub(bytes);
        *self = LightBudget {
            bytes: left.max(Self::LEAST),
            at: sent,
        };
    }
}

impl Default for LightBudget {
    fn default() -> Self {
        LightBudget {
            bytes: Self::MOST,
            at: 0,
        }
    }
}

/// The entry of a stream in a class' queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub class: Class,
    /// Bytes of it that the class' backlog counts.
    pub bytes: u64,
    /// What is left of its flow, as the load of its lane counts it, bytes.
    pub left_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub life: Life,
    /// Class of what is sent from here, or the lane of that class.
    pub class: Class,
    /// The offset at which its present flow is expected to end.
    pub flow_ends: u64,
    pub opened_at: Instant,
    /// The request that is still to be sealed.
    pub open: Option<Box<Open>>,
    pub send: SendSide,
    pub recv: RecvSide,
    pub queued: Option<Queued>,
    /// Names the valid one among entries of this stream in the queues.
    pub ticket: u32,
    /// Its entry is among those that begin or send seldom.
    pub sparse: bool,
    /// Also, what it has queued is little compared with what all have sent.
    pub light: bool,
    /// What it may send and be light.
    pub light_budget: LightBudget,
    /// It counts as new again after so many turns of the busy streams of its class.
    pub busy_until: u64,
    /// Bytes that it may still send as a new stream, before it waits among the busy ones.
    pub fresh: u64,
    /// Bundles with bytes, OPEN or end of it that no custodian has
    /// acknowledged.
    pub unacknowledged: u32,
    /// Its trace wants a report of the first acknowledgement. A process that takes over the stream
    /// has no such trace.
    pub tells_acknowledgement: bool,
    /// Bytes it may still seal in this turn.
    pub deficit: u64,
    /// It has bytes to send and waits for credit: its place among such
    /// streams, and the class.
    pub blocked: Option<(Class, u64)>,
    /// The peer's run was over before its application here had finished.
    pub cut: bool,
    /// Its frames that wait to be sealed.
    pub control: Control,
    /// The application has reset it, behind what it had written.
    pub reset_behind: Option<Box<(ResetCode, String)>>,
    /// It is among the streams with consumption still to be reported.
    pub consumed_listed: bool,
    /// `Event::Readable` was given and not answered by reading all.
    pub readable_told: bool,
    pub writer: Writer,
    /// `Event::Connected` was given, or is not wanted.
    pub connected_told: bool,
}

impl Stream {
    pub(crate) fn new(now: Instant, class: Class, life: Life) -> Self {
        Self {
            life,
            class,
            flow_ends: 0,
            opened_at: now,
            open: None,
            send: SendSide {
                pieces: Pieces::default(),
                sent: 0,
                returned: 0,
                marked: None,
                ahead: Withheld::default(),
                beginning: None,
                state: Sending::Open,
            },
            recv: RecvSide {
                assembler: Assembler::default(),
                highest: 0,
                returned: 0,
                final_offset: None,
                state: Receiving::Open,
                reset: None,
                limit: None,
            },
            queued: None,
            ticket: 0,
            sparse: false,
            light: false,
            light_budget: LightBudget::default(),
            busy_until: 0,
            fresh: 0,
            unacknowledged: 0,
            tells_acknowledgement: false,
            deficit: 0,
            blocked: None,
            cut: false,
            control: Control::default(),
            reset_behind: None,
            consumed_listed: false,
            readable_told: false,
            writer: Writer::default(),
            connected_told: true,
        }
    }

    /// Whether the trace of this request, which is sealed now, wants a report of the stream's first
    /// acknowledgement.
    pub(crate) fn tells_acknowledgement(&mut self, open: &Open) -> bool {
        self.tells_acknowledgement = open.trace.is_some();
        self.tells_acknowledgement
    }

    /// The stream for the next run of a peer that has heard nothing of it, as its application has
    /// left it.
    pub(crate) fn begun_anew(self) -> Self {
        let mut next = Self::new(self.opened_at, self.class, self.life);
        next.flow_ends = self.flow_ends;
        next.open = self.open;
        next.send.state = self.send.state;
        if let Some(beginning) = self.send.beginning {
            next.open = Some(Box::new(beginning.open));
            let bytes = Bytes::from(beginning.bytes);
            next.send.pieces.push(bytes, Origin::default());
            if beginning.fin {
                next.send.state = Sending::Finishing;
            }
        }
        next.send.pieces.append(self.send.pieces);
        next.recv.state = self.recv.state;
        if self.recv.state == Receiving::Done {
            // STOP may have been sealed for the run before.
            let stop = self.control.stop.unwrap_or(ResetCode::Cancelled);
            next.control.stop = Some(stop);
        }
        next.reset_behind = self.reset_behind;
        next.writer.wanted = self.writer.wanted;
        next.connected_told = self.connected_told;
        next
    }

    /// Whether all bytes up to the end of the receiving direction are read.
    pub(crate) fn is_read_out(&self) -> bool {
        self.recv.final_offset == Some(self.recv.assembler.taken())
    }

    /// Whether nothing is left to do in either direction.
    pub(crate) fn is_done(&self) -> bool {
        self.send.state == Sending::Done
            && self.recv.state == Receiving::Done
            && self.open.is_none()
            && self.recv.reset.is_none()
    }

    /// Whether the application has ended both directions.
    pub(crate) fn has_ended(&self) -> bool {
        self.send.state != Sending::Open && self.recv.state == Receiving::Done
    }

    /// Whether it has an OPEN, bytes or an end to seal, credit aside.
    pub(crate) fn has_output(&self) -> bool {
        self.open.is_some()
            || match self.send.state {
                Sending::Open => !self.send.pieces.is_empty(),
                Sending::Finishing => true,
                Sending::Done => false,
            }
    }
}
