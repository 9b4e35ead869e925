//! Transfers that we send (RFC 9174, 5.2).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use underpass_cla::{Outcome, Refusal, Resume, Transfer};
use underpass_payloads::PayloadFile;

use super::{Event, Resumption};
use crate::wire::{RefuseReason, XferAck, emit_segment_header, segment_flag};

/// Bytes of a payload on disk that are read at once, and that wait in memory to be sent.
const READ_BYTES: u64 = 256 << 10;
const READ_AHEAD_BYTES: u64 = 1 << 20;

/// A part of a payload on disk that is to be read.
#[derive(Clone, Debug)]
pub struct Wanted {
    transfer: u64,
    /// The payload.
    pub file: Arc<PayloadFile>,
    /// Where the part begins.
    pub offset: u64,
    /// Its length.
    pub bytes: usize,
}

/// The peer named an unknown transfer, or acknowledged bytes that were not sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unexpected;

/// Transfers are sent one after the other, never interleaved, and without
/// waiting for acknowledgements.
#[derive(Debug)]
pub(super) struct Outgoing {
    segment_bytes: u64,
    transfer_mru_bytes: u64,
    /// Whether the peer keeps parts of broken transfers.
    resumes: bool,
    /// Offered, not begun.
    waiting: VecDeque<Transfer>,
    /// The transfer whose bytes go out now.
    sending: Option<Sending>,
    /// Begun and not ended, by their ids: ended transfers take no memory, even if the peer has not
    /// answered earlier ones.
    begun: BTreeMap<u64, Begun>,
    next_id: u64,
}

#[derive(Debug)]
struct Sending {
    id: u64,
    /// Said in the first segment.
    resumption: Option<Resumption>,
    /// What is sent before the payload on disk, if there is one.
    first: VecDeque<Bytes>,
    reading: Option<Reading>,
    chunks: VecDeque<Bytes>,
    /// Bytes of this transfer: those after the offset.
    length: u64,
    /// Bytes in segments whose head is out.
    framed: u64,
    /// Bytes of the current segment that were not given out.
    segment_left: u64,
}

/// A payload on disk on its way.
#[derive(Debug)]
struct Reading {
    file: Arc<PayloadFile>,
    /// Bytes of it that were read.
    read: u64,
    /// Of these, what was not sent yet.
    here: VecDeque<Bytes>,
    here_bytes: u64,
}

#[derive(Debug)]
struct Begun {
    key: u64,
    /// Bytes of the bundle before this transfer.
    offset: u64,
    /// Bytes of this transfer, and those of them that are acknowledged.
    length: u64,
    acknowledged: u64,
    /// The transfer to send if the peer lacks the bytes before the offset.
    whole: Option<Transfer>,
}

impl Begun {
    fn acknowledged_of_bundle(&self) -> u64 {
        self.offset + self.acknowledged
    }
}

impl Outgoing {
    pub(super) fn new(segment_bytes: u64, transfer_mru_bytes: u64, resumes: bool) -> Self {
        Self {
            segment_bytes,
            transfer_mru_bytes,
            resumes,
            waiting: VecDeque::new(),
            sending: None,
            begun: BTreeMap::new(),
            next_id: 0,
        }
    }

    pub(super) fn offer(&mut self, transfer: Transfer, events: &mut VecDeque<Event>) {
        if transfer.len() > self.transfer_mru_bytes {
            events.push_back(Event::Finished {
                key: transfer.key,
                outcome: Outcome::Refused(Refusal::NotAcceptable),
            });
            return;
        }
        self.waiting.push_back(transfer);
    }

    /// Whether every byte of every transfer has been given out.
    pub(super) fn all_sent(&self) -> bool {
        self.sending.is_none() && self.waiting.is_empty()
    }

    /// Whether no transfer is left that was begun.
    pub(super) fn none_begun(&self) -> bool {
        self.begun.is_empty() && self.sending.is_none()
    }

    /// Whether the output stands between two messages.
    pub(super) fn at_boundary(&self) -> bool {
        self.sending.as_ref().is_none_or(|s| s.segment_left == 0)
    }

    /// The next piece of output. Heads are written into `head`.
    pub(super) fn poll(&mut self, head: &mut BytesMut) -> Option<Bytes> {
        loop {
            let Some(sending) = &mut self.sending else {
                let transfer = self.waiting.pop_front()?;
                self.begin(transfer, head);
                return Some(head.split().freeze());
            };
            if sending.segment_left > 0 {
                return sending.take_data();
            }
            if sending.framed < sending.length {
                sending.frame_segment(self.segment_bytes, head);
                return Some(head.split().freeze());
            }
            self.sending = None;
        }
    }

    fn begin(&mut self, mut transfer: Transfer, head: &mut BytesMut) {
        let whole = transfer.len();
        let resume = transfer.resume.filter(|resume| resume.offset < whole);
        let offset = resume.map_or(0, |resume| resume.offset);
        let offset = if self.resumes { offset } else { 0 };
        let length = whole - offset;
        let resumption = self.resumes.then(|| Resumption {
            key: resume.map_or(transfer.key, |resume| resume.key),
            offset,
        });
        let whole = (offset > 0).then(|| transfer.clone());
        let mut left_out = offset;
        let mut first = VecDeque::new();
        let mut reading = None;
        if let Some(file) = transfer.file.take() {
            let mut before: Vec<Bytes> = transfer
                .chunks
                .drain(..1.min(transfer.chunks.len()))
                .collect();
            left_out = skip(&mut before, left_out);
            first.extend(before);
            let read = left_out.min(file.len());
            left_out -= read;
            reading = Some(Reading {
                file,
                read,
                here: VecDeque::new(),
                here_bytes: 0,
            });
        }
        skip(&mut transfer.chunks, left_out);
        let id = self.next_id;
        self.next_id += 1;
        let mut sending = Sending {
            id,
            resumption,
            first,
            reading,
            chunks: transfer.chunks.into(),
            length,
            framed: 0,
            segment_left: 0,
        };
        sending.frame_segment(self.segment_bytes, head);
        self.sending = Some(sending);
        let begun = Begun {
            key: transfer.key,
            offset,
            length,
            acknowledged: 0,
            whole,
        };
        self.begun.insert(id, begun);
    }

    /// The part of a payload on disk that is to be read next.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        let sending = self.sending.as_ref()?;
        let reading = sending.reading.as_ref()?;
        let bytes = READ_BYTES.min(reading.file.len() - reading.read);
        let wanted = bytes > 0 && reading.here_bytes < READ_AHEAD_BYTES;
        wanted.then(|| Wanted {
            transfer: sending.id,
            file: reading.file.clone(),
            offset: reading.read,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        })
    }

    /// Takes what was read, unless its transfer has ended.
    pub(super) fn supply(&mut self, wanted: &Wanted, bytes: Bytes) {
        let sending = self.sending.as_mut();
        let sending = sending.filter(|sending| sending.id == wanted.transfer);
        let reading = sending.and_then(|sending| sending.reading.as_mut());
        if let Some(reading) = reading.filter(|reading| reading.read == wanted.offset) {
            reading.read += bytes.len() as u64;
            reading.here_bytes += bytes.len() as u64;
            reading.here.push_back(bytes);
        }
    }

    /// Gives up the transfer whose payload cannot be read. Returns whether it is in progress.
    pub(super) fn spoil(&mut self, wanted: &Wanted, events: &mut VecDeque<Event>) -> bool {
        let sending = self.sending.as_ref();
        if sending.is_none_or(|sending| sending.id != wanted.transfer) {
            return false;
        }
        // The peer may have refused it meanwhile.
        if let Some(begun) = self.begun.remove(&wanted.transfer) {
            events.push_back(Event::Finished {
                key: begun.key,
                outcome: Outcome::Refused(Refusal::NotAcceptable),
            });
        }
        true
    }

    fn framed(&self, id: u64, length: u64) -> u64 {
        match &self.sending {
            Some(sending) if sending.id == id => sending.framed - sending.segment_left,
            _ => length,
        }
    }

    /// Takes an XFER_ACK. Its flags are not compared with the segment's: some
    /// peers leave them out.
    pub(super) fn acknowledged(
        &mut self,
        ack: &XferAck,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Unexpected> {
        let begun = self.begun.get(&ack.transfer_id).ok_or(Unexpected)?;
        let (key, length, before) = (begun.key, begun.length, begun.acknowledged);
        let sent = self.framed(ack.transfer_id, length);
        if ack.acknowledged > sent || ack.acknowledged < before {
            return Err(Unexpected);
        }
        if ack.acknowledged == length {
            events.push_back(Event::Finished {
                key,
                outcome: Outcome::Acknowledged,
            });
            self.begun.remove(&ack.transfer_id);
        } else if let Some(begun) = self.begun.get_mut(&ack.transfer_id) {
            begun.acknowledged = ack.acknowledged;
            events.push_back(Event::Progress {
                key,
                acknowledged: begun.acknowledged_of_bundle(),
            });
        }
        Ok(())
    }

    /// Takes an XFER_REFUSE. The current segment is completed, since the peer counts its bytes, and
    /// no further one is sent (RFC 9174, 5.2.4). If the peer lacks the bytes before the offset, the
    /// whole bundle is sent next; a session that is `ending` begins nothing.
    pub(super) fn refused(
        &mut self,
        id: u64,
        reason: RefuseReason,
        ending: bool,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Unexpected> {
        let mut begun = self.begun.remove(&id).ok_or(Unexpected)?;
        match (reason, begun.whole.take()) {
            (RefuseReason::Retransmit, Some(whole)) if !ending => {
                let resume = whole.resume.map(|r| Resume { offset: 0, ..r });
                self.waiting.push_front(Transfer { resume, ..whole });
            }
            (RefuseReason::Retransmit, Some(_)) => events.push_back(Event::Finished {
                key: begun.key,
                outcome: Outcome::Broken { acknowledged: 0 },
            }),
            _ => events.push_back(Event::Finished {
                key: begun.key,
                outcome: outcome_of(reason, begun.acknowledged_of_bundle()),
            }),
        }
        if let Some(sending) = &mut self.sending
            && sending.id == id
        {
            sending.length = sending.framed;
        }
        Ok(())
    }

    /// Gives up transfers that were not begun.
    pub(super) fn drop_waiting(&mut self, events: &mut VecDeque<Event>) {
        for transfer in self.waiting.drain(..) {
            events.push_back(Event::Finished {
                key: transfer.key,
                outcome: Outcome::Broken { acknowledged: 0 },
            });
        }
    }

    /// Gives up everything.
    pub(super) fn fail(&mut self, events: &mut VecDeque<Event>) {
        for begun in std::mem::take(&mut self.begun).into_values() {
            events.push_back(Event::Finished {
                key: begun.key,
                outcome: Outcome::Broken {
                    acknowledged: begun.acknowledged_of_bundle(),
                },
            });
        }
        self.sending = None;
        self.drop_waiting(events);
    }
}

impl Sending {
    fn frame_segment(&mut self, segment_bytes: u64, head: &mut BytesMut) {
        let data_bytes = segment_bytes.min(self.length - self.framed);
        let mut flags = 0;
        if self.framed == 0 {
            flags |= segment_flag::START;
        }
        self.framed += data_bytes;
        if self.framed == self.length {
            flags |= segment_flag::END;
        }
        self.segment_left = data_bytes;
        let private = self.resumption.map(Resumption::to_item);
        emit_segment_header(flags, self.id, self.length, data_bytes, private, head);
    }

    /// A piece of the segment's data, uncopied; none while it is being read.
    /// `segment_left` is not zero, and the pieces hold at least as much.
    fn take_data(&mut self) -> Option<Bytes> {
        let left = usize::try_from(self.segment_left).unwrap_or(usize::MAX);
        let mut piece = take_first(&mut self.first, left);
        if piece.is_none()
            && let Some(reading) = &mut self.reading
        {
            piece = take_first(&mut reading.here, left);
            match &piece {
                Some(piece) => reading.here_bytes -= piece.len() as u64,
                None if reading.read < reading.file.len() => return None,
                None => self.reading = None,
            }
        }
        let piece = piece.or_else(|| take_first(&mut self.chunks, left));
        let Some(piece) = piece else {
            self.segment_left = 0;
            return Some(Bytes::new());
        };
        self.segment_left -= piece.len() as u64;
        Some(piece)
    }
}

/// Up to `most` bytes of the first piece that has any.
fn take_first(pieces: &mut VecDeque<Bytes>, most: usize) -> Option<Bytes> {
    while pieces.front().is_some_and(Bytes::is_empty) {
        pieces.pop_front();
    }
    let first = pieces.front_mut()?;
    Some(first.split_to(most.min(first.len())))
}

/// Takes the first `bytes` off. Returns how many of them are missing if there are too few.
fn skip(chunks: &mut Vec<Bytes>, mut bytes: u64) -> u64 {
    chunks.retain_mut(|chunk| {
        let first = bytes.min(chunk.len() as u64);
        bytes -= first;
        chunk.advance(usize::try_from(first).unwrap_or(usize::MAX));
        !chunk.is_empty()
    });
    bytes
}

fn outcome_of(reason: RefuseReason, acknowledged: u64) -> Outcome {
    match reason {
        RefuseReason::Completed => Outcome::Refused(Refusal::Completed),
        RefuseReason::NotAcceptable | RefuseReason::ExtensionFailure => {
            Outcome::Refused(Refusal::NotAcceptable)
        }
        RefuseReason::SessionTerminating => Outcome::Broken { acknowledged },
        RefuseReason::Unknown
        | RefuseReason::NoResources
        | RefuseReason::Retransmit
        | RefuseReason::Other(_) => Outcome::Refused(Refusal::NoResources),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_without_an_answer_keeps_no_room_for_those_behind_it() {
        let mut outgoing = Outgoing::new(1_000, 1_000, false);
        let (mut events, mut head) = (VecDeque::new(), BytesMut::new());
        for id in 0..1_000 {
            let transfer = Transfer::new(id, vec![Bytes::from_static(b"x")]);
            outgoing.offer(transfer, &mut events);
            while outgoing.poll(&mut head).is_some() {}
            let ack = XferAck {
                flags: 0,
                transfer_id: id,
                acknowledged: 1,
            };
            if id > 0 {
                assert_eq!(outgoing.acknowledged(&ack, &mut events), Ok(()));
            }
        }
        assert_eq!(outgoing.begun.len(), 1);
        assert_eq!(events.len(), 999);
    }
}
