//! How bundles follow each other on a TCP connection, without I/O.
//!
//! STCP, as ION-DTN has it: a length of four bytes, the highest first, then the
//! bundle; a length of 0 is a keepalive. MTCP (draft-ietf-dtn-mtcpcl, as
//! dtn7-rs and µD3TN have it): each bundle is a CBOR byte string of definite
//! length; an empty one is a keepalive, as dtn7-go sends it.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// Memory reserved for a bundle before its bytes come.
const RESERVED_BYTES: usize = 64 << 10;

/// The longest head: that of a CBOR byte string.
const MOST_HEAD_BYTES: usize = 9;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Four bytes of length.
    Stcp,
    /// CBOR byte strings.
    Mtcp,
}

/// Why a stream is no sequence of bundles. It cannot continue after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FramingError {
    /// More than is taken.
    #[error("a bundle of {length} bytes, of which at most {most} are taken")]
    TooLong {
        /// As the head announces it, bytes.
        length: u64,
        /// What is taken, bytes.
        most: u64,
    },
    /// Not the head of a byte string of definite length.
    #[error("byte {0:#04x} where a CBOR byte string is to begin")]
    NoByteString(u8),
}

/// What was on the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A bundle's bytes, whatever they are.
    Bundle(Bytes),
    /// A bundle of this many bytes begins, which come in parts.
    Begin(u64),
    /// The next part of it.
    Part {
        /// These bytes.
        bytes: Bytes,
        /// Whether they are its last ones.
        last: bool,
    },
    /// The peer is there.
    Keepalive,
}

impl Framing {
    /// The head of a bundle of this many bytes; none if they cannot be encoded.
    pub fn head(self, length: u64) -> Option<Vec<u8>> {
        let be = length.to_be_bytes();
        Some(match self {
            Framing::Stcp => u32::try_from(length).ok()?.to_be_bytes().to_vec(),
            Framing::Mtcp => match length {
                0..=23 => vec![0x40 | be[7]],
                24..=0xff => vec![0x58, be[7]],
                0x100..=0xffff => [&[0x59], &be[6..]].concat(),
                0x1_0000..=0xffff_ffff => [&[0x5a], &be[4..]].concat(),
                _ => [&[0x5b], &be[..]].concat(),
            },
        })
    }

    /// Bytes of a head that begins with this one.
    fn head_bytes(self, first: u8) -> Result<usize, FramingError> {
        match (self, first) {
            (Framing::Stcp, _) => Ok(4),
            (Framing::Mtcp, 0x40..=0x57) => Ok(1),
            (Framing::Mtcp, 0x58) => Ok(2),
            (Framing::Mtcp, 0x59) => Ok(3),
            (Framing::Mtcp, 0x5a) => Ok(5),
            (Framing::Mtcp, 0x5b) => Ok(9),
            (Framing::Mtcp, other) => Err(FramingError::NoByteString(other)),
        }
    }

    /// The length that a whole head announces.
    fn length(self, head: &[u8]) -> u64 {
        let number = |bytes: &[u8]| {
            let value = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
            bytes.iter().fold(0, value)
        };
        match self {
            Framing::Stcp => number(head),
            Framing::Mtcp if head.len() == 1 => u64::from(head[0] & 0x1f),
            Framing::Mtcp => number(&head[1..]),
        }
    }
}

/// Takes a stream apart.
#[derive(Debug)]
pub struct Decoder {
    framing: Framing,
    most: u64,
    most_in_parts: u64,
    head: Vec<u8>,
    /// The bundle's length, once its head is there.
    length: Option<usize>,
    /// What remains of a bundle that comes in parts, bytes.
    left: u64,
    bundle: BytesMut,
}

impl Decoder {
    /// Takes bundles of at most so many bytes.
    pub fn new(framing: Framing, most: u64) -> Decoder {
        Decoder {
            framing,
            most,
            most_in_parts: most,
            head: Vec::with_capacity(MOST_HEAD_BYTES),
            length: None,
            left: 0,
            bundle: BytesMut::new(),
        }
    }

    /// Lets longer bundles, of at most `most` bytes, come in parts.
    pub fn in_parts(self, most: u64) -> Decoder {
        Decoder {
            most_in_parts: most.max(self.most),
            ..self
        }
    }

    /// Takes bytes off the front of `input`, up to the end of a frame. Returns that frame, or none
    /// if all bytes were taken and the frame continues.
    ///
    /// # Errors
    /// If no further frame can be found.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, FramingError> {
        if self.left > 0 {
            return Ok(self.take_part(input));
        }
        let length = match self.length {
            Some(length) => length,
            None => match self.take_head(input)? {
                None => return Ok(None),
                Some(0) => {
                    self.head.clear();
                    return Ok(Some(Frame::Keepalive));
                }
                Some(length) if length > self.most => {
                    self.head.clear();
                    self.left = length;
                    return Ok(Some(Frame::Begin(length)));
                }
                // No more than memory takes.
                Some(length) => *self.length.insert(length as usize),
            },
        };
        // Memory follows the bytes that come, not the declared length.
        let missing = length - self.bundle.len();
        if self.bundle.is_empty() {
            self.bundle.reserve(missing.min(RESERVED_BYTES));
        }
        let (taken, rest) = input.split_at(missing.min(input.len()));
        self.bundle.extend_from_slice(taken);
        *input = rest;
        if self.bundle.len() < length {
            return Ok(None);
        }
        self.head.clear();
        self.length = None;
        Ok(Some(Frame::Bundle(
            std::mem::take(&mut self.bundle).freeze(),
        )))
    }

    fn take_part(&mut self, input: &mut &[u8]) -> Option<Frame> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let (taken, rest) = input.split_at(most.min(input.len()));
        *input = rest;
        self.left -= taken.len() as u64;
        (!taken.is_empty()).then(|| Frame::Part {
            bytes: Bytes::copy_from_slice(taken),
            last: self.left == 0,
        })
    }

    fn take_head(&mut self, input: &mut &[u8]) -> Result<Option<u64>, FramingError> {
        while let Some((byte, rest)) = input.split_first() {
            self.head.push(*byte);
            *input = rest;
            if self.head.len() < self.framing.head_bytes(self.head[0])? {
                continue;
            }
            let length = self.framing.length(&self.head);
            let most = self.most_in_parts;
            if length > most {
                return Err(FramingError::TooLong { length, most });
            }
            return Ok(Some(length));
        }
        Ok(None)
    }
}
