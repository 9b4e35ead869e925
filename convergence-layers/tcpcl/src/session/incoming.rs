//! Transfers that we receive (RFC 9174, 5.2).

use bytes::{BufMut, Bytes, BytesMut};
use underpass_cla::Refusal;

use super::unfinished::{Counted, Unfinished};
use super::{RESUMPTION_EXTENSION, Resumption};
use crate::wire::{ExtensionList, RefuseReason, SegmentHeader, TRANSFER_LENGTH, segment_flag};

/// Most memory that is taken at once for a transfer of unknown length.
const GROWTH_BYTES: u64 = 256 << 10;

/// After a segment with this much data, the next one is expected to be as long: copying this much
/// takes longer than reading a header separately.
const LONG_SEGMENT_BYTES: u64 = 64 << 10;

/// A bundle that is taken in pieces is passed on in pieces of about this many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// What the session has to do about a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    /// Ask whether a transfer may begin; the length is that of its bundle.
    Admit {
        length: Option<u64>,
        resumption: Option<Resumption>,
    },
    /// Acknowledge the segment.
    Ack {
        flags: u8,
        id: u64,
        received: u64,
    },
    /// Hand a whole bundle on, or the last piece of one that is taken apart.
    Deliver(Bytes),
    Refuse {
        id: u64,
        reason: RefuseReason,
    },
    /// The segment belongs to no transfer.
    Unexpected,
}

#[derive(Debug)]
enum State {
    Idle,
    /// Waits for the answer to [`Action::Admit`].
    Admitting(Assembly),
    Receiving(Assembly),
    /// Waits for the answer to [`Action::Deliver`].
    Delivering {
        flags: u8,
        id: u64,
        received: u64,
    },
    /// A refused or unexpected transfer passes by.
    Draining {
        id: u64,
        ends: bool,
    },
}

#[derive(Debug)]
struct Assembly {
    id: u64,
    /// Flags of the current segment.
    flags: u8,
    /// The sender's name for the bundle, and where in it this begins.
    resumption: Option<Resumption>,
    /// Bytes of the transfer, where they are known.
    length: Option<u64>,
    /// Bytes in the segments whose head has come.
    framed: u64,
    /// The same plus what an earlier session received, in the count of all transfers of the peer.
    counted: Counted,
    /// Whether the bundle is handed on piece by piece.
    apart: bool,
    /// The bundle so far, with what an earlier session received of it; if it is taken in pieces,
    /// the next piece.
    buffer: BytesMut,
}

/// The receiving half of a session: at most one transfer at a time.
#[derive(Debug)]
pub(super) struct Incoming {
    segment_mru_bytes: u64,
    transfer_mru_bytes: u64,
    /// The most that is kept of a transfer whose length is unknown.
    whole_mru_bytes: u64,
    /// Whether the peer was told that broken transfers may continue here.
    knows_resumption: bool,
    /// The peer's transfers in progress on this session and others.
    unfinished: Unfinished,
    /// Data of the last segment.
    segment_bytes: u64,
    state: State,
}

impl Incoming {
    pub(super) fn new(
        segment_mru_bytes: u64,
        transfer_mru_bytes: u64,
        whole_mru_bytes: u64,
    ) -> Self {
        Self {
            segment_mru_bytes,
            transfer_mru_bytes,
            whole_mru_bytes: whole_mru_bytes.min(transfer_mru_bytes),
            knows_resumption: false,
            unfinished: Unfinished::default(),
            segment_bytes: 0,
            state: State::Idle,
        }
    }

    /// The peer is known, and with it the count of its other sessions.
    pub(super) fn count_with(&mut self, unfinished: Unfinished) {
        self.unfinished = unfinished;
    }

    /// The peer was told that broken transfers may continue here.
    pub(super) fn know_resumption(&mut self) {
        self.knows_resumption = true;
    }

    /// Whether the rest of a transfer is to come.
    pub(super) fn is_receiving(&self) -> bool {
        matches!(self.state, State::Receiving(_) | State::Draining { .. })
    }

    /// Whether an answer is awaited.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.state, State::Admitting(_) | State::Delivering { .. })
    }

    /// Whether a piece of a bundle that is taken apart waits to be handed on.
    pub(super) fn has_piece(&self) -> bool {
        match &self.state {
            State::Receiving(assembly) => assembly.apart && assembly.buffer.len() >= PIECE_BYTES,
            _ => false,
        }
    }

    /// The next piece of a bundle that is taken apart, if it waits.
    pub(super) fn take_piece(&mut self) -> Option<Bytes> {
        match &mut self.state {
            State::Receiving(assembly) if assembly.apart && !assembly.buffer.is_empty() => {
                Some(assembly.buffer.split().freeze())
            }
            _ => None,
        }
    }

    /// Whether a segment of a transfer that may continue elsewhere is in progress.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Receiving(_) | State::Draining { .. })
    }

    /// Whether no transfer that may continue elsewhere is in progress.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle | State::Draining { .. })
    }

    /// Whether the peer sends long segments at present.
    pub(super) fn has_long_segments(&self) -> bool {
        self.segment_bytes >= LONG_SEGMENT_BYTES
    }

    /// Takes the head of a segment. `ending` refuses new transfers.
    pub(super) fn segment(&mut self, header: &SegmentHeader, ending: bool) -> Action {
        self.segment_bytes = header.data_bytes;
        if header.is_start() {
            // A START in the middle of a transfer ends the earlier one.
            return self.start(header, ending);
        }
        match &mut self.state {
            State::Receiving(assembly) if assembly.id == header.transfer_id => {
                let segment_mru = self.segment_mru_bytes;
                let most = match assembly.length {
                    Some(_) => self.transfer_mru_bytes,
                    None => self.whole_mru_bytes,
                };
                match assembly.extend(header, segment_mru, most) {
                    Ok(()) => Action::Nothing,
                    Err(reason) => self.refuse(header, reason),
                }
            }
            State::Draining { id, ends } if *id == header.transfer_id => {
                *ends = header.is_end();
                Action::Nothing
            }
            _ => {
                self.drain(header);
                Action::Unexpected
            }
        }
    }

    fn start(&mut self, header: &SegmentHeader, ending: bool) -> Action {
        // An abandoned transfer no longer counts.
        self.state = State::Idle;
        if ending {
            return self.refuse(header, RefuseReason::SessionTerminating);
        }
        let announced = match &header.extensions {
            Ok(list) => announced(list, self.knows_resumption),
            Err(_) => Err(RefuseReason::ExtensionFailure),
        };
        let (length, resumption) = match announced {
            Ok((None, resumption)) if header.is_end() => (Some(header.data_bytes), resumption),
            Ok(announced) => announced,
            Err(reason) => return self.refuse(header, reason),
        };
        let mut assembly = Assembly {
            id: header.transfer_id,
            flags: header.flags,
            resumption,
            length,
            framed: 0,
            counted: self.unfinished.begin(),
            apart: false,
            buffer: BytesMut::new(),
        };
        let most = match length {
            Some(_) => self.transfer_mru_bytes,
            None => self.whole_mru_bytes,
        };
        match assembly.extend(header, self.segment_mru_bytes, most) {
            Ok(()) => {
                let length = length.map(|length| assembly.offset() + length);
                self.state = State::Admitting(assembly);
                Action::Admit { length, resumption }
            }
            Err(reason) => self.refuse(header, reason),
        }
    }

    fn drain(&mut self, header: &SegmentHeader) {
        self.state = State::Draining {
            id: header.transfer_id,
            ends: header.is_end(),
        };
    }

    fn refuse(&mut self, header: &SegmentHeader, reason: RefuseReason) -> Action {
        self.drain(header);
        Action::Refuse {
            id: header.transfer_id,
            reason,
        }
    }

    /// Takes data of the current segment.
    pub(super) fn data(&mut self, data: &[u8]) {
        if let State::Receiving(assembly) = &mut self.state {
            assembly.buffer.put_slice(data);
        }
    }

    /// Where `data_left` further bytes of the segment may be written directly:
    /// never more than these are taken from it.
    pub(super) fn buffer(&mut self, data_left: u64) -> Option<&mut BytesMut> {
        let State::Receiving(assembly) = &mut self.state else {
            return None;
        };
        if assembly.buffer.capacity() == assembly.buffer.len() {
            let more = data_left.min(GROWTH_BYTES.max(assembly.buffer.len() as u64));
            assembly.buffer.reserve(usize::try_from(more).ok()?);
        }
        Some(&mut assembly.buffer)
    }

    /// The current segment's data is complete.
    pub(super) fn segment_end(&mut self) -> Action {
        match &mut self.state {
            State::Receiving(assembly) => {
                let (flags, id, received) = (assembly.flags, assembly.id, assembly.framed);
                if flags & segment_flag::END == 0 {
                    return Action::Ack {
                        flags,
                        id,
                        received,
                    };
                }
                let bundle = std::mem::take(&mut assembly.buffer).freeze();
                self.state = State::Delivering {
                    flags,
                    id,
                    received,
                };
                Action::Deliver(bundle)
            }
            State::Draining { ends: true, .. } => {
                self.state = State::Idle;
                Action::Nothing
            }
            _ => Action::Nothing,
        }
    }

    /// Takes the received part of the bundle that [`Action::Admit`] wants to continue.
    pub(super) fn resume(&mut self, partial: Option<BytesMut>) -> Action {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Admitting(assembly) => self.begin(assembly, partial.unwrap_or_default()),
            other => {
                self.state = other;
                Action::Nothing
            }
        }
    }

    /// As the answer `Ok` to [`Action::Admit`], but the bundle is handed on
    /// piece by piece.
    pub(super) fn take_apart(&mut self) -> Action {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Admitting(mut assembly) => {
                assembly.apart = true;
                assembly.counted.clear();
                self.begin(assembly, BytesMut::new())
            }
            other => {
                self.state = other;
                Action::Nothing
            }
        }
    }

    /// Receives from the offset on, if `partial` reaches it.
    fn begin(&mut self, mut assembly: Assembly, mut partial: BytesMut) -> Action {
        let before = assembly.offset();
        let offset = usize::try_from(before).unwrap_or(usize::MAX);
        let refused = if partial.len() < offset {
            Some(RefuseReason::Retransmit)
        } else if before > 0 && !assembly.counted.add(before) {
            Some(RefuseReason::NoResources)
        } else {
            None
        };
        if let Some(reason) = refused {
            self.state = State::Draining {
                id: assembly.id,
                ends: assembly.flags & segment_flag::END != 0,
            };
            return Action::Refuse {
                id: assembly.id,
                reason,
            };
        }
        partial.truncate(offset);
        let first = match assembly.length {
            Some(length) if !assembly.apart => length,
            _ => assembly.framed.min(GROWTH_BYTES),
        };
        partial.reserve(usize::try_from(first).unwrap_or(usize::MAX));
        assembly.buffer = partial;
        self.state = State::Receiving(assembly);
        Action::Nothing
    }

    /// Gives up the transfer in progress. Returns the name and the first bytes of its bundle, if it
    /// has a name.
    pub(super) fn give_up(&mut self) -> Option<(u64, BytesMut)> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Receiving(Assembly {
                resumption: Some(Resumption { key, .. }),
                apart: false,
                buffer,
                ..
            }) if !buffer.is_empty() => Some((key, buffer)),
            _ => None,
        }
    }

    /// Takes the answer to [`Action::Admit`] or [`Action::Deliver`], or the
    /// refusal of a bundle that is taken apart.
    pub(super) fn answer(&mut self, answer: Result<(), Refusal>) -> Action {
        match (std::mem::replace(&mut self.state, State::Idle), answer) {
            (State::Admitting(assembly), Ok(())) => self.begin(assembly, BytesMut::new()),
            (State::Admitting(assembly), Err(refusal)) => {
                self.state = State::Draining {
                    id: assembly.id,
                    ends: assembly.flags & segment_flag::END != 0,
                };
                Action::Refuse {
                    id: assembly.id,
                    reason: refuse_reason(refusal),
                }
            }
            (
                State::Delivering {
                    flags,
                    id,
                    received,
                },
                Ok(()),
            ) => Action::Ack {
                flags,
                id,
                received,
            },
            (State::Delivering { id, .. }, Err(refusal)) => Action::Refuse {
                id,
                reason: refuse_reason(refusal),
            },
            // The rest of it is discarded.
            (State::Receiving(assembly), Err(refusal)) if assembly.apart => {
                self.state = State::Draining {
                    id: assembly.id,
                    ends: assembly.flags & segment_flag::END != 0,
                };
                Action::Refuse {
                    id: assembly.id,
                    reason: refuse_reason(refusal),
                }
            }
            (other, _) => {
                self.state = other;
                Action::Nothing
            }
        }
    }
}

impl Assembly {
    /// Bytes of the bundle before this transfer.
    fn offset(&self) -> u64 {
        self.resumption.map_or(0, |resumption| resumption.offset)
    }

    /// Counts a segment and checks it against the bounds (RFC 9174, 5.2.4 and 5.2.5.1: a violated
    /// bound or length is refused as not acceptable), and against the peer's transfers on other
    /// sessions.
    fn extend(
        &mut self,
        header: &SegmentHeader,
        segment_mru_bytes: u64,
        transfer_mru_bytes: u64,
    ) -> Result<(), RefuseReason> {
        self.flags = header.flags;
        self.framed = self.framed.saturating_add(header.data_bytes);
        let whole = self.length.unwrap_or(self.framed);
        let fits = header.data_bytes <= segment_mru_bytes
            && whole.saturating_add(self.offset()) <= transfer_mru_bytes
            && self.framed <= whole
            && (!header.is_end() || self.framed == whole);
        if !fits {
            Err(RefuseReason::NotAcceptable)
        } else if self.apart || self.counted.add(header.data_bytes) {
            Ok(())
        } else {
            Err(RefuseReason::NoResources)
        }
    }
}

/// The announced length and name; an unknown critical item or a malformed
/// length fails.
fn announced(
    list: &ExtensionList,
    knows_resumption: bool,
) -> Result<(Option<u64>, Option<Resumption>), RefuseReason> {
    let (mut length, mut resumption) = (None, None);
    for item in &list.0 {
        let failure = Err(RefuseReason::ExtensionFailure);
        match item.kind {
            TRANSFER_LENGTH => match <[u8; 8]>::try_from(&item.value[..]) {
                Ok(value) => length = Some(u64::from_be_bytes(value)),
                Err(_) => return failure,
            },
            RESUMPTION_EXTENSION if knows_resumption => {
                resumption = Resumption::from_value(&item.value);
                if resumption.is_none() && item.is_critical() {
                    return failure;
                }
            }
            _ if item.is_critical() => return failure,
            _ => {}
        }
    }
    Ok((length, resumption))
}

fn refuse_reason(refusal: Refusal) -> RefuseReason {
    match refusal {
        Refusal::Completed => RefuseReason::Completed,
        Refusal::NoResources => RefuseReason::NoResources,
        Refusal::NotAcceptable => RefuseReason::NotAcceptable,
    }
}
