//! Decoding a bundle: the outer array is split into blocks, the payload stays
//! where it is.

use bp7::flags::{BundleControlFlags, BundleValidation};
use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use std::sync::Arc;
use thiserror::Error;
use underpass_payloads::PayloadFile;

use super::cbor::{CborError, Reader};
use super::crc::CrcKind;
use super::custody::{CodePoints, Creb, Cteb};
use super::eid::{Eid, MOST_NAME_BYTES, ipn_parts, name_bytes};
use super::extensions::sort_extensions;
use super::primary::{read_crc_and_end, read_crc_kind, read_primary};
use super::seal::write_block;

/// Blocks a bundle may have, the primary block included.
pub const MAX_BLOCKS: usize = 32;
/// Bytes all blocks but the payload block may have together.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Payload and other blocks are copied out of a bundle that has so many bytes more than
/// twice its payload.
const COPIED_BYTES: usize = 1024;

/// Block types of RFC 9171 §4.4 and RFC 9172.
pub mod block_type {
    /// Payload.
    pub const PAYLOAD: u64 = 1;
    /// Previous node.
    pub const PREVIOUS_NODE: u64 = 6;
    /// Bundle age.
    pub const BUNDLE_AGE: u64 = 7;
    /// Hop count.
    pub const HOP_COUNT: u64 = 10;
    /// Block integrity block (RFC 9172 §3.7).
    pub const BIB: u64 = 11;
    /// Block confidentiality block (RFC 9172 §3.8).
    pub const BCB: u64 = 12;
    /// Of the private range: the bundle must not overtake.
    pub const ORDER: u64 = 213;
}

/// Block processing control flags (RFC 9171 §4.2.4).
pub(crate) mod block_flag {
    pub const REPLICATE: u64 = 0x01;
    pub const REPORT: u64 = 0x02;
    pub const DELETE_BUNDLE: u64 = 0x04;
    pub const DISCARD: u64 = 0x10;
}

/// What is accepted on receipt beyond RFC 9171.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// The largest payload, bytes.
    pub max_payload_bytes: u64,
    /// Whether a primary block may come with neither CRC nor BIB, as
    /// dtn7-rs sends it.
    pub allow_missing_primary_crc: bool,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        DecodeLimits {
            max_payload_bytes: 64 << 20,
            allow_missing_primary_crc: true,
        }
    }
}

/// Why bytes are not an acceptable bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Not well-formed, or not the structure of RFC 9171.
    #[error("malformed CBOR: {0}")]
    Cbor(#[from] CborError),
    /// Not Bundle Protocol version 7.
    #[error("bundle protocol version {0} is not 7")]
    Version(u64),
    /// More than [`MAX_BLOCKS`] blocks.
    #[error("more than {MAX_BLOCKS} blocks")]
    TooManyBlocks,
    /// More than [`MAX_HEADER_BYTES`] before the payload.
    #[error("more than {MAX_HEADER_BYTES} bytes of headers")]
    HeaderTooLarge,
    /// A payload above [`DecodeLimits::max_payload_bytes`].
    #[error("a payload of {0} bytes is too large")]
    PayloadTooLarge(u64),
    /// A CRC type that RFC 9171 does not define.
    #[error("unknown CRC type {0}")]
    CrcKind(u64),
    /// A CRC value that does not match.
    #[error("CRC mismatch in block {0}")]
    Crc(u64),
    /// Neither CRC nor BIB covers the primary block.
    #[error("the primary block has no CRC")]
    MissingPrimaryCrc,
    /// The destination is the null endpoint: nobody can be given the bundle.
    #[error("the destination is the null endpoint")]
    NoDestination,
    /// An endpoint has characters that no URI has, or more than [`MOST_NAME_BYTES`].
    #[error("an endpoint has characters that no URI has, or more than {MOST_NAME_BYTES} bytes")]
    Endpoint,
    /// No payload block at the end, or one elsewhere.
    #[error("the payload block is missing or misplaced")]
    Payload,
    /// Two blocks with one number, or two of a type that may occur once.
    #[error("block {0} is there twice")]
    Repeated(u64),
    /// A fragment that lies outside its bundle, or contradicts others of it.
    #[error("the fragment does not fit its bundle")]
    Fragment,
    /// A bundle in a bundle that is in a bundle itself.
    #[error("a bundle in a bundle is in a bundle itself")]
    Nested,
    /// An extension block's content is not what its type asks for.
    #[error("block of type {0} is unintelligible")]
    Unintelligible(u64),
    /// An extension block of unknown type asks that the bundle be deleted.
    #[error("block of type {0} is unsupported and asks for deletion")]
    Unsupported(u64),
}

/// A decode failure, with the primary block if that could be read.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct DecodeError {
    /// What is wrong.
    pub reason: Malformed,
    /// The primary block, if it was read and its CRC holds: a deletion can
    /// then be reported (RFC 9171 §5.6).
    pub primary: Option<Box<PrimaryBlock>>,
    /// Whether a block could not be processed and asked for a report.
    pub report_unsupported: bool,
}

impl DecodeError {
    /// Without a block that asked for a report.
    pub(crate) fn new(reason: Malformed, primary: Option<Box<PrimaryBlock>>) -> DecodeError {
        DecodeError {
            reason,
            primary,
            report_unsupported: false,
        }
    }
}

/// An extension block that is passed on as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Block type code.
    pub kind: u64,
    /// Block number.
    pub number: u64,
    /// Block processing control flags.
    pub flags: u64,
    /// The whole block, encoded.
    pub raw: Bytes,
}

impl Extension {
    /// A block without a CRC around its content.
    pub fn new(kind: u64, number: u64, flags: u64, content: &[u8]) -> Extension {
        let mut raw = Vec::with_capacity(content.len() + 16);
        write_block(&mut raw, kind, number, flags, content);
        Extension {
            kind,
            number,
            flags,
            raw: raw.into(),
        }
    }

    /// Its content.
    ///
    /// # Errors
    /// When `raw` is no block.
    pub fn content(&self) -> Result<Bytes, Malformed> {
        let mut reader = Reader::new(&self.raw);
        let block = read_block(&mut reader, &self.raw, &DecodeLimits::default())?;
        Ok(self.raw.slice_ref(block.data))
    }
}

/// A decoded bundle. `Bytes` are slices of the received one, or copies where they would
/// keep far more than themselves in memory.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The primary block; its CRC is verified and not kept here.
    pub primary: PrimaryBlock,
    /// The primary block as it came; it is immutable on its way.
    pub primary_raw: Bytes,
    /// Previous node block: number and node.
    pub previous_node: Option<(u64, Eid)>,
    /// Bundle age block: number and age, ms.
    pub age_ms: Option<(u64, u64)>,
    /// Hop count block: number, limit, count.
    pub hop_count: Option<(u64, u8, u8)>,
    /// Custody transfer extension block: number and content.
    pub cteb: Option<(u64, Cteb)>,
    /// Compressed reporting extension block: number and content.
    pub creb: Option<(u64, Creb)>,
    /// All other extension blocks that are to be passed on.
    pub others: Vec<Extension>,
    /// Whether a block could not be processed and asked for a report.
    pub report_unsupported: bool,
    /// Whether a block confidentiality block is there.
    pub encrypted: bool,
    /// The payload block's bytes before the payload.
    pub payload_head: Bytes,
    /// The payload; empty where it is on disk.
    pub payload: Bytes,
    /// The payload, where it is on disk.
    pub file: Option<Arc<PayloadFile>>,
    /// The payload block's bytes after the payload.
    pub payload_tail: Bytes,
}

impl Bundle {
    /// The payload's bytes, wherever it is.
    pub fn payload_bytes(&self) -> u64 {
        let here = self.payload.len() as u64;
        self.file.as_ref().map_or(here, |file| file.len())
    }

    /// Errors if it is a fragment that cannot belong to any bundle: with a payload of so many bytes
    /// it begins after the bundle's end, or its end overflows. Whether it ends after the bundle's
    /// end is for the destination to judge: an encrypted fragment may be longer than its plain
    /// text.
    pub(super) fn check_fragment(&self, payload_bytes: u64) -> Result<(), Malformed> {
        let primary = &self.primary;
        let (offset, total) = (primary.fragmentation_offset, primary.total_data_length);
        let fits = offset <= total && offset.checked_add(payload_bytes).is_some();
        match primary.has_fragmentation() && !fits {
            true => Err(Malformed::Fragment),
            false => Ok(()),
        }
    }

    /// Whether it holds an administrative record for the node of this number, and
    /// of this name in the dtn scheme.
    pub(crate) fn holds_record_for(&self, node: u64, name: Option<&str>) -> bool {
        let there = match &self.primary.destination {
            Eid::Dtn(_, address) => name == Some(address.node_name()),
            other => ipn_parts(other).is_some_and(|(to, _)| to == node),
        };
        there && self.holds_record()
    }

    pub(crate) fn holds_record(&self) -> bool {
        self.is_administrative() && !self.primary.has_fragmentation()
    }

    /// The same bundle with copies of all parts before the payload, so that the buffer it was read
    /// from is not kept in memory.
    pub(super) fn detached(mut self) -> Bundle {
        for bytes in [&mut self.primary_raw, &mut self.payload_head] {
            *bytes = Bytes::copy_from_slice(bytes);
        }
        self.detach_others();
        self
    }

    fn detach_others(&mut self) {
        for block in &mut self.others {
            block.raw = Bytes::copy_from_slice(&block.raw);
        }
    }

    /// Whether it stays within the limits of [`decode`] with the blocks that a forwarder adds, so
    /// that the next node of this kind accepts it.
    pub(crate) fn has_room_for_hop_blocks(&self) -> bool {
        // Primary and payload block, previous node and age.
        const ALWAYS: usize = 4;
        // More than the blocks that a forwarder writes have, without the endpoints in them.
        const BYTES: usize = 256;
        let kept = [
            self.hop_count.is_some(),
            self.cteb.is_some(),
            self.creb.is_some(),
        ];
        let blocks = ALWAYS + kept.into_iter().filter(|is| *is).count() + self.others.len();
        let creb = self.creb.as_ref().map(|(_, creb)| creb);
        let named = [
            self.cteb.as_ref().map(|(_, cteb)| &cteb.custodian),
            creb.and_then(|creb| creb.block_source.as_ref()),
            creb.and_then(|creb| creb.report_to.as_ref()),
        ];
        let bytes = BYTES
            + self.primary_raw.len()
            + named.into_iter().flatten().map(name_bytes).sum::<usize>()
            + self
                .others
                .iter()
                .map(|block| block.raw.len())
                .sum::<usize>();
        blocks <= MAX_BLOCKS && bytes <= MAX_HEADER_BYTES
    }

    /// Whether the payload is an administrative record.
    pub fn is_administrative(&self) -> bool {
        self.primary
            .bundle_control_flags
            .contains(BundleControlFlags::BUNDLE_ADMINISTRATIVE_RECORD_PAYLOAD)
    }
}

/// Decodes a bundle.
///
/// Definite and indefinite arrays are accepted for the bundle and its blocks;
/// byte strings are definite. Work and memory are bounded by the header's
/// size and the number of blocks, besides one CRC pass over the payload.
pub fn decode(
    raw: &Bytes,
    limits: &DecodeLimits,
    codes: &CodePoints,
) -> Result<Bundle, DecodeError> {
    let mut reader = Reader::new(raw);
    let (mut bundle, length, primary_crc) = begin(&mut reader, raw)?;
    match read_blocks(
        &mut reader,
        raw,
        length,
        limits,
        codes,
        &mut bundle,
        primary_crc,
    ) {
        Ok(()) => Ok(bundle),
        Err(reason) => Err(DecodeError {
            reason,
            primary: Some(Box::new(bundle.primary)),
            report_unsupported: bundle.report_unsupported,
        }),
    }
}

/// Reads a bundle's first block: the bundle with nothing but that, the length of
/// the array of blocks, and the block's CRC type.
pub(super) fn begin(
    reader: &mut Reader<'_>,
    raw: &Bytes,
) -> Result<(Bundle, Option<u64>, CrcKind), DecodeError> {
    let fail = |reason| DecodeError::new(reason, None);
    let length = reader.array().map_err(|e| fail(e.into()))?;
    let start = reader.position();
    let (primary, primary_crc) = read_primary(reader, raw).map_err(fail)?;
    let bundle = Bundle {
        primary,
        primary_raw: raw.slice(start..reader.position()),
        previous_node: None,
        age_ms: None,
        hop_count: None,
        cteb: None,
        creb: None,
        others: Vec::new(),
        report_unsupported: false,
        encrypted: false,
        payload_head: Bytes::new(),
        payload: Bytes::new(),
        file: None,
        payload_tail: Bytes::new(),
    };
    Ok((bundle, length, primary_crc))
}

/// Reads all blocks after the primary one.
fn read_blocks(
    reader: &mut Reader<'_>,
    raw: &Bytes,
    length: Option<u64>,
    limits: &DecodeLimits,
    codes: &CodePoints,
    bundle: &mut Bundle,
    primary_crc: CrcKind,
) -> Result<(), Malformed> {
    let mut seen = Seen::default();
    let mut extensions = Vec::new();
    let mut has_payload = false;
    while reader.more(length, seen.taken())? {
        if has_payload {
            return Err(Malformed::Payload);
        }
        let block = read_block(reader, raw, limits)?;
        seen.add(block.kind, block.number)?;
        if block.kind == block_type::PAYLOAD {
            let end = block.data_at + block.data.len();
            bundle.payload_head = raw.slice(block.start..block.data_at);
            bundle.payload = raw.slice(block.data_at..end);
            bundle.payload_tail = raw.slice(end..reader.position());
            has_payload = true;
        } else {
            if reader.position() > MAX_HEADER_BYTES {
                return Err(Malformed::HeaderTooLarge);
            }
            let whole = raw.slice(block.start..reader.position());
            extensions.push((block, whole));
        }
    }
    sort_extensions(bundle, codes, extensions)?;
    reader.end()?;
    if !has_payload {
        return Err(Malformed::Payload);
    }
    // The kept part must not keep far more in memory.
    if raw.len() > 2 * bundle.payload.len() + COPIED_BYTES {
        bundle.payload = Bytes::copy_from_slice(&bundle.payload);
        bundle.detach_others();
    }
    bundle.check_fragment(bundle.payload.len() as u64)?;
    seen.covers_primary(primary_crc, limits)
}

/// The blocks of a bundle that were read.
#[derive(Debug)]
pub(super) struct Seen {
    /// Their numbers; that of the primary block is 0.
    numbers: [u64; MAX_BLOCKS],
    taken: usize,
    has_bib: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Seen {
            numbers: [0; MAX_BLOCKS],
            taken: 1,
            has_bib: false,
        }
    }
}

impl Seen {
    /// How many, the primary block included.
    pub fn taken(&self) -> u64 {
        self.taken as u64
    }

    pub fn add(&mut self, kind: u64, number: u64) -> Result<(), Malformed> {
        if self.taken == MAX_BLOCKS {
            return Err(Malformed::TooManyBlocks);
        }
        if self.numbers[..self.taken].contains(&number) {
            return Err(Malformed::Repeated(number));
        }
        self.numbers[self.taken] = number;
        self.taken += 1;
        self.has_bib |= kind == block_type::BIB;
        Ok(())
    }

    /// Errors if neither CRC nor BIB covers the primary block although one must.
    pub fn covers_primary(&self, crc: CrcKind, limits: &DecodeLimits) -> Result<(), Malformed> {
        match crc == CrcKind::None && !self.has_bib && !limits.allow_missing_primary_crc {
            true => Err(Malformed::MissingPrimaryCrc),
            false => Ok(()),
        }
    }
}

/// One canonical block as it was read (RFC 9171 §4.3.2).
pub(super) struct Block<'a> {
    pub kind: u64,
    pub number: u64,
    pub flags: u64,
    pub crc: CrcKind,
    pub data: &'a [u8],
    pub start: usize,
    pub data_at: usize,
}

pub(super) fn read_block<'a>(
    reader: &mut Reader<'a>,
    raw: &Bytes,
    limits: &DecodeLimits,
) -> Result<Block<'a>, Malformed> {
    let start = reader.position();
    let length = reader.array()?;
    let kind = reader.unsigned()?;
    let number = reader.unsigned()?;
    let flags = reader.unsigned()?;
    let crc = read_crc_kind(reader)?;
    let data = reader.byte_string()?;
    let data_at = reader.position() - data.len();
    match (kind, number) {
        (block_type::PAYLOAD, 1) if data.len() as u64 > limits.max_payload_bytes => {
            return Err(Malformed::PayloadTooLarge(data.len() as u64));
        }
        (block_type::PAYLOAD, 1) => {}
        (block_type::PAYLOAD, _) | (_, 0 | 1) => return Err(Malformed::Payload),
        _ if data.len() > MAX_HEADER_BYTES => return Err(Malformed::HeaderTooLarge),
        _ => {}
    }
    read_crc_and_end(reader, raw, start, length, 5, crc, number)?;
    Ok(Block {
        kind,
        number,
        flags,
        crc,
        data,
        start,
        data_at,
    })
}
