//! Decoding a bundle whose payload is too long for memory, piece by piece.
//!
//! The bytes before the payload are kept until they are complete, within the bounds of
//! [`super::decode`]; the payload is given back at once; only a few bytes follow it. The payload
//! block's CRC is computed as it passes. For a BPDU for this node, the payload that is given back
//! is that of the bundle in it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use crc::{Crc, Digest, Table};
use underpass_payloads::PayloadFile;

use super::bibe::{BpduHead, MAX_BPDU_HEAD_BYTES};
use super::bundle::{
    Bundle, DecodeError, DecodeLimits, MAX_HEADER_BYTES, Malformed, Seen, begin, block_type,
    read_block,
};
use super::cbor::{CborError, Reader};
use super::crc::CrcKind;
use super::custody::CodePoints;
use super::extensions::sort_extensions;
use super::primary::read_crc_kind;

static CRC_16: Crc<u16, Table<16>> = bp7::crc::X25;

/// The payload block's CRC and the breaks of the block and the bundle.
const MAX_TAIL_BYTES: usize = 16;

/// Elements of the payload block but its CRC (RFC 9171 §4.3.2).
const BEFORE_CRC: u64 = 5;

/// A bundle that has come in piece by piece.
#[derive(Debug)]
pub struct Long {
    /// The bundle; without a payload, if it is a BPDU for this node.
    pub bundle: Bundle,
    pub(crate) inside: Option<(BpduHead, Bundle)>,
}

/// A bundle that comes in piece by piece.
#[derive(Debug)]
pub struct LongDecoder {
    /// The node whose BPDUs are opened; `None` for a bundle that is in one.
    here: Option<Here>,
    limits: DecodeLimits,
    codes: CodePoints,
    /// The bytes that have come before the payload, later those after it.
    kept: BytesMut,
    opened: Option<Opened>,
    bpdu: Option<Box<Bpdu>>,
}

/// A node by its number, and by its name in the dtn scheme if it has one.
#[derive(Debug)]
struct Here {
    node: u64,
    name: Option<String>,
}

/// The payload of a BPDU.
#[derive(Debug)]
struct Bpdu {
    /// The bytes that have come before the bundle, and the head once it is complete.
    kept: BytesMut,
    head: Option<BpduHead>,
    bundle: LongDecoder,
}

impl Bpdu {
    /// Takes the next piece of a payload of so many bytes, and gives back the part of it that is
    /// payload of the bundle inside.
    fn take(&mut self, piece: Bytes, payload_bytes: u64) -> Result<Bytes, Malformed> {
        if self.head.is_some() {
            return self.bundle.take(piece).map_err(|error| error.reason);
        }
        self.kept.extend_from_slice(&piece);
        let raw = self.kept.split().freeze();
        let (head, at) = match BpduHead::read(&raw) {
            Ok(Some(read)) => read,
            Err(CborError::Truncated) if raw.len() < MAX_BPDU_HEAD_BYTES => {
                self.kept.extend_from_slice(&raw);
                return Ok(Bytes::new());
            }
            Err(error) => return Err(error.into()),
            // No other record is so long.
            Ok(None) => return Err(CborError::WrongCount.into()),
        };
        if payload_bytes != (at as u64).saturating_add(head.bundle_bytes) {
            return Err(CborError::WrongCount.into());
        }
        self.head = Some(head);
        let taken = self.bundle.take(raw.slice(at..));
        taken.map_err(|error| error.reason)
    }

    fn finish(self, file: Arc<PayloadFile>) -> Result<(BpduHead, Bundle), Malformed> {
        let head = self.head.ok_or(CborError::Truncated)?;
        let bundle = self.bundle.finish_one(Some(file));
        Ok((head, bundle.map_err(|error| error.reason)?))
    }
}

/// A bundle of which all before the payload has come.
struct Opened {
    bundle: Bundle,
    /// The number of blocks of the bundle, if it is given.
    blocks: Option<u64>,
    taken: u64,
    /// The number of elements of the payload block, if it is given.
    elements: Option<u64>,
    crc: CrcKind,
    running: Running,
    payload_bytes: u64,
    /// Bytes of the payload that are still to come.
    left: u64,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut opened = f.debug_struct("Opened");
        opened
            .field("bundle", &self.bundle)
            .field("left", &self.left);
        opened.finish_non_exhaustive()
    }
}

enum Running {
    None,
    Crc16(Digest<'static, u16, Table<16>>),
    Crc32c(u32),
}

impl Running {
    fn new(kind: CrcKind) -> Running {
        match kind {
            CrcKind::None => Running::None,
            CrcKind::Crc16 => Running::Crc16(CRC_16.digest()),
            CrcKind::Crc32c => Running::Crc32c(0),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Running::None => {}
            Running::Crc16(digest) => digest.update(bytes),
            Running::Crc32c(crc) => *crc = crc32c::crc32c_append(*crc, bytes),
        }
    }

    fn is(self, value: &[u8]) -> bool {
        match self {
            Running::None => true,
            Running::Crc16(digest) => digest.finalize().to_be_bytes() == value,
            Running::Crc32c(crc) => crc.to_be_bytes() == value,
        }
    }
}

impl LongDecoder {
    /// A decoder at the node with this number and name, for a bundle of which nothing has come. The
    /// limit on payloads in memory does not apply.
    pub fn new(
        node: u64,
        name: Option<String>,
        limits: DecodeLimits,
        codes: CodePoints,
    ) -> LongDecoder {
        LongDecoder {
            here: Some(Here { node, name }),
            limits: DecodeLimits {
                max_payload_bytes: u64::MAX,
                ..limits
            },
            codes,
            kept: BytesMut::new(),
            opened: None,
            bpdu: None,
        }
    }

    /// The bundle without its payload, and the payload's bytes, once all before the payload that is
    /// given back has come. For a BPDU it is the bundle in it.
    pub fn opened(&self) -> Option<(&Bundle, u64)> {
        if let Some(bpdu) = &self.bpdu {
            return bpdu.bundle.opened();
        }
        let opened = self.opened.as_ref()?;
        Some((&opened.bundle, opened.payload_bytes))
    }

    /// Takes the next piece of the bundle, and gives back the part of it that is payload.
    ///
    /// # Errors
    /// When the bundle is malformed.
    pub fn take(&mut self, mut piece: Bytes) -> Result<Bytes, DecodeError> {
        if self.opened.is_none() {
            self.kept.extend_from_slice(&piece);
            let raw = self.kept.split().freeze();
            let Some((opened, at)) = self.open(&raw)? else {
                self.kept.extend_from_slice(&raw);
                return Ok(Bytes::new());
            };
            let is_bpdu = self.here.as_ref().is_some_and(|here| {
                let name = here.name.as_deref();
                opened.bundle.holds_record_for(here.node, name)
            });
            self.bpdu = is_bpdu.then(|| Box::new(self.bpdu()));
            self.opened = Some(opened);
            piece = raw.slice(at..);
        }
        let Some(opened) = &mut self.opened else {
            return Ok(Bytes::new());
        };
        let here = usize::try_from(opened.left).unwrap_or(usize::MAX);
        let payload = piece.split_to(here.min(piece.len()));
        opened.running.update(&payload);
        opened.left -= payload.len() as u64;
        if self.kept.len() + piece.len() > MAX_TAIL_BYTES {
            return Err(self.fail(CborError::Trailing.into()));
        }
        self.kept.extend_from_slice(&piece);
        let payload_bytes = opened.payload_bytes;
        match &mut self.bpdu {
            Some(bpdu) => bpdu
                .take(payload, payload_bytes)
                .map_err(|reason| self.fail(reason)),
            None => Ok(payload),
        }
    }

    /// The decoder for the payload of a BPDU, of which nothing has come.
    fn bpdu(&self) -> Bpdu {
        Bpdu {
            kept: BytesMut::new(),
            head: None,
            bundle: LongDecoder {
                here: None,
                limits: self.limits,
                codes: self.codes,
                kept: BytesMut::new(),
                opened: None,
                bpdu: None,
            },
        }
    }

    /// The bundle, of which all has come, with its payload.
    ///
    /// # Errors
    /// When it is malformed, or is not all there.
    pub fn finish(mut self, file: Arc<PayloadFile>) -> Result<Long, DecodeError> {
        let Some(bpdu) = self.bpdu.take() else {
            let bundle = self.finish_one(Some(file))?;
            return Ok(Long {
                bundle,
                inside: None,
            });
        };
        let inside = bpdu.finish(file);
        let inside = Some(inside.map_err(|reason| self.fail(reason))?);
        let bundle = self.finish_one(None)?;
        Ok(Long { bundle, inside })
    }

    /// The bundle, of which all has come, with its payload if that is on disk.
    fn finish_one(mut self, file: Option<Arc<PayloadFile>>) -> Result<Bundle, DecodeError> {
        let Some(opened) = self.opened.take() else {
            return Err(self.fail(CborError::Truncated.into()));
        };
        let whole = |file: &Arc<PayloadFile>| file.len() == opened.payload_bytes;
        let (whole, tail) = (file.as_ref().is_none_or(whole), self.kept.freeze());
        let Opened {
            bundle, left: 0, ..
        } = &opened
        else {
            let primary = Some(Box::new(opened.bundle.primary));
            let reason = CborError::Truncated.into();
            return Err(DecodeError::new(reason, primary));
        };
        debug_assert!(whole, "the payload was written as it came");
        let primary = Box::new(bundle.primary.clone());
        let closed = opened.close(&tail, file);
        closed.map_err(|reason| DecodeError::new(reason, Some(primary)))
    }

    /// Reads all before the payload, and returns where that begins; `None` while it is not all
    /// there.
    fn open(&self, raw: &Bytes) -> Result<Option<(Opened, usize)>, DecodeError> {
        let truncated = Malformed::Cbor(CborError::Truncated);
        let bounded = raw.len() <= 2 * MAX_HEADER_BYTES;
        let mut reader = Reader::new(raw);
        let (bundle, blocks, primary_crc) = match begin(&mut reader, raw) {
            Ok(begun) => begun,
            Err(error) if error.reason == truncated && bounded => return Ok(None),
            Err(error) => return Err(error),
        };
        let primary = bundle.primary.clone();
        match self.read_to_payload(&mut reader, raw, bundle, blocks, primary_crc) {
            Ok(opened) => Ok(Some((opened, reader.position()))),
            Err(reason) if reason == truncated && bounded => Ok(None),
            Err(reason) => Err(DecodeError::new(reason, Some(Box::new(primary)))),
        }
    }

    fn read_to_payload(
        &self,
        reader: &mut Reader<'_>,
        raw: &Bytes,
        mut bundle: Bundle,
        blocks: Option<u64>,
        primary_crc: CrcKind,
    ) -> Result<Opened, Malformed> {
        let mut seen = Seen::default();
        let mut extensions = Vec::new();
        while reader.more(blocks, seen.taken())? {
            let start = reader.position();
            let mut ahead = *reader;
            let elements = ahead.array()?;
            if ahead.unsigned()? != block_type::PAYLOAD {
                let block = read_block(reader, raw, &self.limits)?;
                seen.add(block.kind, block.number)?;
                if reader.position() > MAX_HEADER_BYTES {
                    return Err(Malformed::HeaderTooLarge);
                }
                let whole = raw.slice(start..reader.position());
                extensions.push((block, whole));
                continue;
            }
            if ahead.unsigned()? != 1 {
                return Err(Malformed::Payload);
            }
            ahead.unsigned()?;
            let crc = read_crc_kind(&mut ahead)?;
            let payload_bytes = ahead.byte_string_head()?;
            seen.add(block_type::PAYLOAD, 1)?;
            sort_extensions(&mut bundle, &self.codes, extensions)?;
            seen.covers_primary(primary_crc, &self.limits)?;
            bundle.check_fragment(payload_bytes)?;
            bundle.payload_head = raw.slice(start..ahead.position());
            let mut running = Running::new(crc);
            running.update(&bundle.payload_head);
            *reader = ahead;
            return Ok(Opened {
                bundle: bundle.detached(),
                blocks,
                taken: seen.taken(),
                elements,
                crc,
                running,
                payload_bytes,
                left: payload_bytes,
            });
        }
        Err(Malformed::Payload)
    }

    fn fail(&mut self, reason: Malformed) -> DecodeError {
        let opened = self.opened.take();
        let primary = opened.map(|opened| Box::new(opened.bundle.primary));
        DecodeError::new(reason, primary)
    }
}

impl Opened {
    /// Reads what follows the payload, and compares the CRC.
    fn close(mut self, tail: &Bytes, file: Option<Arc<PayloadFile>>) -> Result<Bundle, Malformed> {
        let mut reader = Reader::new(tail);
        let value = match self.crc {
            CrcKind::None => &[],
            _ => reader.byte_string()?,
        };
        let at = reader.position();
        let elements = BEFORE_CRC + u64::from(self.crc != CrcKind::None);
        reader.array_end(self.elements, elements)?;
        let end = reader.position();
        if value.len() != self.crc.size() {
            return Err(Malformed::Crc(1));
        }
        // The value itself counts as zeros (RFC 9171 §4.3.2).
        self.running.update(&tail[..at - value.len()]);
        self.running.update(&[0; 4][..value.len()]);
        self.running.update(&tail[at..end]);
        if !self.running.is(value) {
            return Err(Malformed::Crc(1));
        }
        if reader.more(self.blocks, self.taken)? {
            return Err(Malformed::Payload);
        }
        reader.end()?;
        Ok(Bundle {
            file,
            payload_tail: tail.slice(..end),
            ..self.bundle
        })
    }
}

#[cfg(test)]
mod tests;
