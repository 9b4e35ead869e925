//! One stream: two directions, each with its own end.

use std::collections::VecDeque;
use std::time::Instant;

use underpass_cla::Class;

use super::{Assembler, Pieces};
use crate::wire::{Open, ResetCode};

/// How the application sees a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Frames of it arrived before its OPEN.
    Early,
    /// Open.
    Open,
    /// The application has done with it; it waits for credit to come back,
    /// since its bytes may still lie unread at the peer.
    Draining,
}

/// The sending direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Takes bytes.
    Open,
    /// The application finished; the end is not sealed yet.
    Finishing,
    /// The end is sealed, or nobody wants more.
    Done,
}

/// The receiving direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Of the bytes sealed, the last so many are held back for want of credit.
    pub ahead: u64,
    /// In so many payloads.
    pub ahead_payloads: u32,
    pub state: Sending,
}

impl SendSide {
    /// Offset up to which sealed bytes may be on their way.
    pub(crate) fn released(&self) -> u64 {
        self.sent - self.ahead
    }

    /// Bytes that may be on their way and, as far as known here, are not
    /// consumed.
    pub(crate) fn outstanding(&self) -> u64 {
        self.released() - self.returned
    }
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
    /// Of a run that is over: up to where the peer was told that it may send.
    pub limit: Option<u64>,
}

impl RecvSide {
    /// Bytes of credit in use.
    pub(crate) fn outstanding(&self) -> u64 {
        match self.state {
            Receiving::Open => self.highest - self.assembler.taken(),
            Receiving::Done => 0,
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

/// The entry of a stream in a class' queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub class: Class,
    /// Bytes of it that the class' backlog counts.
    pub bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub life: Life,
    /// Class of what is sent from here.
    pub class: Class,
    pub opened_at: Instant,
    /// The request that is still to be sealed.
    pub open: Option<Box<Open>>,
    pub send: SendSide,
    pub recv: RecvSide,
    pub queued: Option<Queued>,
    /// Names the valid one among entries of this stream in the queues.
    pub ticket: u32,
    /// Bytes it may still seal in this turn.
    pub deficit: u64,
    /// It has bytes to send and waits for credit.
    pub blocked: bool,
    /// The peer's run was over before its application here had finished.
    pub cut: bool,
    /// Its frames that wait to be sealed.
    pub control: Control,
    /// It is among the streams with consumption to be told some time.
    pub consumed_listed: bool,
    /// `Event::Readable` was given and not answered by reading all.
    pub readable_told: bool,
    /// `Event::Writable` is wanted.
    pub writable_wanted: bool,
    /// `Event::Connected` was given, or is not wanted.
    pub connected_told: bool,
}

impl Stream {
    pub(crate) fn new(now: Instant, class: Class, life: Life) -> Self {
        Self {
            life,
            class,
            opened_at: now,
            open: None,
            send: SendSide {
                pieces: Pieces::default(),
                sent: 0,
                returned: 0,
                marked: None,
                ahead: 0,
                ahead_payloads: 0,
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
            deficit: 0,
            blocked: false,
            cut: false,
            control: Control::default(),
            consumed_listed: false,
            readable_told: false,
            writable_wanted: false,
            connected_told: true,
        }
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

/// Entries of streams, oldest first; an entry whose ticket is not the
/// stream's is void.
pub(crate) type TicketQueue = VecDeque<(crate::wire::StreamId, u32)>;
