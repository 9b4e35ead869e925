//! The incremental parser of everything after the contact header.

use thiserror::Error;

use super::control::TERM_REPLY;
use super::cursor::Cursor;
use super::{
    ExtensionList, RefuseReason, RejectReason, SegmentHeader, SessInit, TermReason, XferAck, code,
    segment_flag,
};

/// Bounds on what a peer may announce, checked before anything is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest node id, bytes.
    pub node_id_bytes: u16,
    /// The longest list of extension items, bytes.
    pub extension_list_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            node_id_bytes: 1024,
            extension_list_bytes: 4096,
        }
    }
}

/// Why the byte stream cannot be parsed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A message of unknown type has no known length.
    #[error("message type {0:#04x} is unknown")]
    UnknownType(u8),
    /// The node id is longer than this side allows.
    #[error("a node id of {0} bytes is too long")]
    NodeIdTooLong(u16),
    /// The node id is no UTF-8.
    #[error("the node id is not UTF-8")]
    NodeIdNotUtf8,
    /// The list of extensions is longer than this side allows.
    #[error("a list of extensions of {0} bytes is too long")]
    ExtensionsTooLong(u32),
}

/// One thing that the stream holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// SESS_INIT.
    Init(SessInit),
    /// The head of an XFER_SEGMENT; its data follows as [`Frame::Data`].
    Segment(SegmentHeader),
    /// A piece of the current segment's data, never empty.
    Data(&'a [u8]),
    /// XFER_ACK.
    Ack(XferAck),
    /// XFER_REFUSE.
    Refuse {
        /// Why.
        reason: RefuseReason,
        /// The transfer.
        transfer_id: u64,
    },
    /// KEEPALIVE.
    Keepalive,
    /// SESS_TERM.
    Term {
        /// Whether it confirms our own.
        reply: bool,
        /// Why.
        reason: TermReason,
    },
    /// MSG_REJECT.
    Reject {
        /// Why.
        reason: RejectReason,
        /// The type of the message that was rejected.
        rejected: u8,
    },
}

/// Splits a byte stream into frames. It keeps no bytes: bytes that were not taken must be given
/// again, followed by more.
#[derive(Clone, Debug)]
pub struct Decoder {
    limits: Limits,
    data_left: u64,
}

impl Decoder {
    /// A decoder at a message boundary.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            data_left: 0,
        }
    }

    /// Bytes of the current segment's data that have not been returned yet.
    pub fn data_left(&self) -> u64 {
        self.data_left
    }

    /// Counts `bytes` of segment data that were read past the decoder.
    pub(crate) fn skip_data(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.data_left);
        self.data_left = self.data_left.saturating_sub(bytes);
    }

    /// The next frame and how many bytes of `input` it took; `None` if more
    /// bytes are needed. After an error the stream has no known boundary.
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, DecodeError> {
        if self.data_left > 0 {
            let length = input
                .len()
                .min(usize::try_from(self.data_left).unwrap_or(usize::MAX));
            if length == 0 {
                return Ok(None);
            }
            self.data_left -= length as u64;
            return Ok(Some((Frame::Data(&input[..length]), length)));
        }
        let mut cursor = Cursor::new(input);
        let frame = self.message(&mut cursor)?;
        if let Some(Frame::Segment(header)) = &frame {
            self.data_left = header.data_bytes;
        }
        Ok(frame.map(|frame| (frame, cursor.taken())))
    }

    fn message<'a>(&self, cursor: &mut Cursor<'a>) -> Result<Option<Frame<'a>>, DecodeError> {
        let Some(kind) = cursor.u8() else {
            return Ok(None);
        };
        Ok(match kind {
            code::XFER_SEGMENT => self.segment(cursor)?.map(Frame::Segment),
            code::XFER_ACK => ack(cursor),
            code::XFER_REFUSE => refuse(cursor),
            code::KEEPALIVE => Some(Frame::Keepalive),
            code::SESS_TERM => term(cursor),
            code::MSG_REJECT => reject(cursor),
            code::SESS_INIT => self.init(cursor)?.map(Frame::Init),
            unknown => return Err(DecodeError::UnknownType(unknown)),
        })
    }

    fn segment(&self, cursor: &mut Cursor<'_>) -> Result<Option<SegmentHeader>, DecodeError> {
        let (Some(flags), Some(transfer_id)) = (cursor.u8(), cursor.u64()) else {
            return Ok(None);
        };
        let mut extensions = Ok(ExtensionList::default());
        if flags & segment_flag::START != 0 {
            match self.extensions(cursor)? {
                Some(list) => extensions = ExtensionList::parse(list),
                None => return Ok(None),
            }
        }
        Ok(cursor.u64().map(|data_bytes| SegmentHeader {
            flags,
            transfer_id,
            extensions,
            data_bytes,
        }))
    }

    fn init(&self, cursor: &mut Cursor<'_>) -> Result<Option<SessInit>, DecodeError> {
        let (Some(keepalive_s), Some(segment_mru_bytes), Some(transfer_mru_bytes)) =
            (cursor.u16(), cursor.u64(), cursor.u64())
        else {
            return Ok(None);
        };
        let Some(length) = cursor.u16() else {
            return Ok(None);
        };
        if length > self.limits.node_id_bytes {
            return Err(DecodeError::NodeIdTooLong(length));
        }
        let Some(node_id) = cursor.bytes(usize::from(length)) else {
            return Ok(None);
        };
        let node_id = std::str::from_utf8(node_id).map_err(|_| DecodeError::NodeIdNotUtf8)?;
        Ok(self.extensions(cursor)?.map(|list| SessInit {
            keepalive_s,
            segment_mru_bytes,
            transfer_mru_bytes,
            node_id: node_id.to_owned(),
            extensions: ExtensionList::parse(list),
        }))
    }

    fn extensions<'a>(&self, cursor: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, DecodeError> {
        let Some(length) = cursor.u32() else {
            return Ok(None);
        };
        if length > self.limits.extension_list_bytes {
            return Err(DecodeError::ExtensionsTooLong(length));
        }
        Ok(cursor.bytes(length as usize))
    }
}

fn ack<'a>(cursor: &mut Cursor<'a>) -> Option<Frame<'a>> {
    Some(Frame::Ack(XferAck {
        flags: cursor.u8()?,
        transfer_id: cursor.u64()?,
        acknowledged: cursor.u64()?,
    }))
}

fn refuse<'a>(cursor: &mut Cursor<'a>) -> Option<Frame<'a>> {
    Some(Frame::Refuse {
        reason: RefuseReason::from_code(cursor.u8()?),
        transfer_id: cursor.u64()?,
    })
}

fn term<'a>(cursor: &mut Cursor<'a>) -> Option<Frame<'a>> {
    Some(Frame::Term {
        reply: cursor.u8()? & TERM_REPLY != 0,
        reason: TermReason::from_code(cursor.u8()?),
    })
}

fn reject<'a>(cursor: &mut Cursor<'a>) -> Option<Frame<'a>> {
    Some(Frame::Reject {
        reason: RejectReason::from_code(cursor.u8()?),
        rejected: cursor.u8()?,
    })
}
