//! A stream as one process hands it over to the next.

use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use underpass_cla::Class;
use underpass_handover::{HandoverError, Moment, ensure};

use super::assembler::Run;
use super::{Assembler, Beginning, Life, Origin, Pieces, Receiving, Sending, Stream, Withheld};
use crate::mux::class_of;
use crate::wire::{Frame, Open, ResetCode, StreamId, VARINT_MAX, frames_of, packed};

/// A reset with its reason.
type Reset = (u64, String);

/// All of a stream that cannot be computed from the rest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StreamState {
    pub id: u64,
    life: Life,
    class: u8,
    opened_at: Moment,
    /// A payload with an OPEN.
    open: Option<Bytes>,
    connected_told: bool,

    sending: Sending,
    written: Vec<Bytes>,
    sent: u64,
    returned: u64,
    marked: Option<u64>,
    /// Bytes of the payloads that are sealed and withheld.
    ahead: Vec<u64>,
    /// The first of them has its OPEN.
    #[serde(default)]
    ahead_opens: bool,
    /// A payload with that, the bytes that are withheld, and whether the direction
    /// ends behind them.
    #[serde(default)]
    beginning: Option<(Bytes, Bytes, bool)>,
    unacknowledged: u32,
    cut: bool,
    reset_behind: Option<Reset>,
    writer_waits: bool,

    receiving: Receiving,
    taken: u64,
    ready: Vec<Bytes>,
    runs: Vec<Run>,
    highest: u64,
    told: u64,
    final_offset: Option<u64>,
    reset: Option<Reset>,
    limit: Option<u64>,
    readable_told: bool,

    listed: bool,
    opened: bool,
    credit: bool,
    expired: Option<u64>,
    stop: Option<u64>,
    /// And whether bytes on their way are given up.
    control_reset: Option<(u64, String, bool)>,
}

fn reset_of(reset: (ResetCode, String)) -> Reset {
    (reset.0.number(), reset.1)
}

fn boxed((code, reason): Reset) -> Box<(ResetCode, String)> {
    Box::new((ResetCode::from_number(code), reason))
}

impl Stream {
    pub(crate) fn hand_over(self, id: StreamId, now: Instant) -> StreamState {
        let open = self
            .open
            .map(|open| packed(&[Frame::Open { id, open: *open }]));
        let (send, recv, control) = (self.send, self.recv, self.control);
        // The next process does not know when something has left.
        let withheld = send.beginning.filter(|beginning| beginning.left.is_none());
        let beginning = withheld.map(|beginning| {
            let open = beginning.open;
            let open = packed(&[Frame::Open { id, open }]);
            (open, Bytes::from(beginning.bytes), beginning.fin)
        });
        let (taken, ready, runs) = recv.assembler.into_parts();
        StreamState {
            id: id.0,
            life: self.life,
            class: class_of(self.class).0,
            opened_at: Moment::of(self.opened_at, now),
            open,
            connected_told: self.connected_told,
            sending: send.state,
            written: send.pieces.into_pieces(),
            sent: send.sent,
            returned: send.returned,
            marked: send.marked,
            ahead_opens: send.ahead.opens(),
            beginning,
            ahead: send.ahead.into_payloads(),
            unacknowledged: self.unacknowledged,
            cut: self.cut,
            reset_behind: self.reset_behind.map(|reset| reset_of(*reset)),
            writer_waits: self.writer.wanted,
            receiving: recv.state,
            taken,
            ready,
            runs,
            highest: recv.highest,
            told: recv.returned,
            final_offset: recv.final_offset,
            reset: recv.reset.map(|reset| reset_of(*reset)),
            limit: recv.limit,
            readable_told: self.readable_told,
            listed: control.listed,
            opened: control.opened,
            credit: control.credit,
            expired: control.expired,
            stop: control.stop.map(ResetCode::number),
            control_reset: control.reset.map(|reset| {
                let (code, reason, at_once) = *reset;
                (code.number(), reason, at_once)
            }),
        }
    }
}

impl StreamState {
    /// The stream, in no queue yet, and whether it belongs in the queue of those with control
    /// frames.
    pub(crate) fn take_over(self, now: Instant) -> Result<(Stream, bool), HandoverError> {
        let class = Class(self.class);
        let mut stream = Stream::new(self.opened_at.instant(now), class, self.life);
        stream.open = self.open.map(|open| opened(self.id, &open)).transpose()?;
        stream.connected_told = self.connected_told;

        let send = &mut stream.send;
        send.state = self.sending;
        for piece in self.written {
            send.pieces.push(piece, Origin::default());
        }
        send.sent = self.sent;
        send.returned = self.returned;
        send.marked = self.marked;
        let ahead = sum(self.ahead.iter().copied());
        let released = ahead.and_then(|ahead| self.sent.checked_sub(ahead));
        let sent = self.sent <= VARINT_MAX && released.is_some_and(|end| self.returned <= end);
        ensure(sent, "more of a stream came back than was sent")?;
        let opens = self.ahead_opens;
        ensure(
            !opens || !self.ahead.is_empty(),
            "an OPEN is withheld that is nowhere",
        )?;
        send.ahead.opens = opens;
        for bytes in self.ahead {
            send.ahead.push(bytes);
        }
        if let Some((open, bytes, fin)) = self.beginning {
            let all = send.ahead.bytes() == bytes.len() as u64 && send.released() == 0;
            ensure(
                opens && all && (!fin || send.state == Sending::Done),
                "a stream does not begin with what is withheld of it",
            )?;
            send.beginning = Some(Box::new(Beginning {
                open: *opened(self.id, &open)?,
                bytes: bytes.into(),
                fin,
                left: None,
            }));
        }
        let rest = send.state == Sending::Done && !send.pieces.is_empty();
        ensure(!rest, "a stream that has ended has bytes to send")?;
        stream.unacknowledged = self.unacknowledged;
        stream.cut = self.cut;
        stream.reset_behind = self.reset_behind.map(boxed);
        stream.writer.wanted = self.writer_waits;

        let recv = &mut stream.recv;
        recv.state = self.receiving;
        let (assembler, end) = Assembler::of_parts(self.taken, self.ready, self.runs)?;
        recv.assembler = assembler;
        recv.highest = self.highest;
        recv.returned = self.told;
        recv.final_offset = self.final_offset;
        recv.reset = self.reset.map(boxed);
        recv.limit = self.limit;
        let open = recv.state == Receiving::Open;
        let received = end <= self.highest && self.highest <= VARINT_MAX;
        let told = self.told <= recv.assembler.taken();
        let limit = self.limit.is_none_or(|limit| limit <= VARINT_MAX);
        ensure(
            limit && (!open || received && told),
            "bytes of a stream lie beyond its end",
        )?;
        let kept = recv.assembler.is_readable() || recv.assembler.runs() > 0;
        ensure(open || !kept, "a stream that is read out has bytes to read")?;
        stream.readable_told = self.readable_told;

        let control = &mut stream.control;
        control.opened = self.opened;
        control.credit = self.credit;
        control.expired = self.expired;
        control.stop = self.stop.map(ResetCode::from_number);
        control.reset = self.control_reset.map(|(code, reason, at_once)| {
            Box::new((ResetCode::from_number(code), reason, at_once))
        });
        Ok((stream, self.listed))
    }
}

/// The sum, if it is an offset.
pub(crate) fn sum(numbers: impl IntoIterator<Item = u64>) -> Option<u64> {
    let sum = numbers
        .into_iter()
        .try_fold(0u64, |sum, number| sum.checked_add(number));
    sum.filter(|sum| *sum <= VARINT_MAX)
}

fn opened(id: u64, payload: &Bytes) -> Result<Box<Open>, HandoverError> {
    let frames: [Frame; 1] = frames_of(payload)?
        .try_into()
        .map_err(|_| HandoverError::Inconsistent("a stream has several requests to open"))?;
    match frames {
        [Frame::Open { id: of, open }] if of.0 == id => Ok(Box::new(open)),
        _ => Err(HandoverError::Inconsistent("a request opens no stream")),
    }
}

impl Pieces {
    /// The bytes, in order.
    pub(super) fn into_pieces(mut self) -> Vec<Bytes> {
        std::iter::from_fn(|| self.pop(usize::MAX)).collect()
    }
}

impl Withheld {
    fn into_payloads(self) -> Vec<u64> {
        self.payloads.into()
    }
}
