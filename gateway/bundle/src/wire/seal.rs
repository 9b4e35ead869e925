//! Encoding a bundle around a payload that stays where it is.

use std::time::Duration;

use bp7::crc::CrcValue;
use bp7::dtntime::CreationTimestamp;
use bp7::flags::{BundleControlFlags, BundleControlFlagsType};
use bp7::primary::{PrimaryBlock, PrimaryBlockBuilder};
use bytes::Bytes;
use underpass_payloads::PayloadFile;

use super::bundle::{Extension, Malformed, block_flag, block_type};
use super::cbor::{ARRAY, BYTES, Reader, UNSIGNED, write_head};
use super::crc::CrcKind;
use super::custody::{CodePoints, Creb, Cteb};
use super::eid::{Eid, read_eid, write_eid};
use super::primary::{read_crc_kind, read_timestamp};

const OPEN: u8 = 0x9F;
const VERSION: u64 = 7;
/// Of a primary block that is no fragment's, without its CRC.
const PRIMARY_ELEMENTS: u64 = 8;
/// Of a canonical block without a CRC.
const BLOCK_ELEMENTS: u64 = 5;
const BREAK: u8 = 0xFF;
/// The order block's content: its format, a CBOR number.
const ORDER_FORMAT: u8 = 0;

/// The primary block with its CRC32C, and its encoding.
pub(crate) fn seal_primary(
    destination: Eid,
    source: Eid,
    report_to: Eid,
    timestamp: CreationTimestamp,
    lifetime: Duration,
    flags: BundleControlFlagsType,
) -> (PrimaryBlock, Bytes) {
    let primary = PrimaryBlockBuilder::new()
        .destination(destination)
        .source(source)
        .report_to(report_to)
        .creation_timestamp(timestamp)
        .lifetime(lifetime)
        .bundle_control_flags(flags)
        .crc(CrcValue::Crc32Empty)
        .build()
        .expect("callers check the destination");
    with_crc(primary)
}

/// The primary block of a fragment of a bundle: `offset` bytes into a payload of
/// `total` bytes (RFC 9171 §4.3.1).
pub(crate) fn seal_fragment(
    bundle: &PrimaryBlock,
    offset: u64,
    total: u64,
) -> (PrimaryBlock, Bytes) {
    let mut primary = bundle.clone();
    primary.bundle_control_flags |= BundleControlFlags::BUNDLE_IS_FRAGMENT.bits();
    primary.fragmentation_offset = offset;
    primary.total_data_length = total;
    with_crc(primary)
}

/// A primary block with its CRC32C, and its encoding.
fn with_crc(mut primary: PrimaryBlock) -> (PrimaryBlock, Bytes) {
    let raw = encode_primary(&primary, CrcKind::Crc32c);
    let mut value = [0; 4];
    let at = raw.len() - value.len();
    value.copy_from_slice(&raw[at..]);
    primary.crc = CrcValue::Crc32(value);
    (primary, raw)
}

/// A primary block in deterministic encoding (RFC 8949 §4.2), with a CRC of this
/// kind.
pub fn encode_primary(primary: &PrimaryBlock, crc: CrcKind) -> Bytes {
    let fragment = primary.has_fragmentation();
    let mut raw = Vec::with_capacity(112);
    let of_fragment = if fragment { 2 } else { 0 };
    let elements = PRIMARY_ELEMENTS + of_fragment + u64::from(crc != CrcKind::None);
    write_head(&mut raw, ARRAY, elements);
    write_head(&mut raw, UNSIGNED, VERSION);
    write_head(&mut raw, UNSIGNED, primary.bundle_control_flags);
    write_head(&mut raw, UNSIGNED, u64::from(crc.code()));
    for eid in [&primary.destination, &primary.source, &primary.report_to] {
        write_eid(&mut raw, eid);
    }
    write_head(&mut raw, ARRAY, 2);
    let timestamp = &primary.creation_timestamp;
    for number in [timestamp.dtntime(), timestamp.seqno()] {
        write_head(&mut raw, UNSIGNED, number);
    }
    let lifetime_ms = u64::try_from(primary.lifetime.as_millis()).unwrap_or(u64::MAX);
    write_head(&mut raw, UNSIGNED, lifetime_ms);
    if fragment {
        write_head(&mut raw, UNSIGNED, primary.fragmentation_offset);
        write_head(&mut raw, UNSIGNED, primary.total_data_length);
    }
    write_crc(&mut raw, crc);
    raw.into()
}

/// The primary block of the bundle that a fragment is of, from that of the fragment, with a CRC of
/// the same type or none. Flags, offset, length and CRC apart, it has the fragment's bytes.
///
/// # Errors
/// When it is no primary block.
pub(crate) fn primary_of_whole(fragment: &[u8], has_crc: bool) -> Result<Bytes, Malformed> {
    let mut reader = Reader::new(fragment);
    reader.array()?;
    reader.unsigned()?;
    let flags = reader.unsigned()? & !BundleControlFlags::BUNDLE_IS_FRAGMENT.bits();
    let crc = match (read_crc_kind(&mut reader)?, has_crc) {
        (kind, true) => kind,
        (_, false) => CrcKind::None,
    };
    let start = reader.position();
    for _ in 0..3 {
        read_eid(&mut reader)?;
    }
    read_timestamp(&mut reader)?;
    reader.unsigned()?;
    let mut raw = Vec::with_capacity(fragment.len());
    let elements = PRIMARY_ELEMENTS + u64::from(crc != CrcKind::None);
    write_head(&mut raw, ARRAY, elements);
    for number in [VERSION, flags, u64::from(crc.code())] {
        write_head(&mut raw, UNSIGNED, number);
    }
    raw.extend(&fragment[start..reader.position()]);
    write_crc(&mut raw, crc);
    Ok(raw.into())
}

/// Writes a block's CRC, of all that is written of it.
fn write_crc(raw: &mut Vec<u8>, crc: CrcKind) {
    if crc != CrcKind::None {
        write_head(raw, BYTES, crc.size() as u64);
        let value = crc.over([&raw[..]], &[]);
        raw.extend(value.as_slice());
    }
}

/// The payload block around a payload: what stands before it and after it.
pub(crate) fn seal_payload(payload: &[Bytes], crc: CrcKind) -> (Bytes, Bytes) {
    let length: u64 = payload.iter().map(|piece| piece.len() as u64).sum();
    let (head, mut tail) = payload_ends(length, crc);
    if crc != CrcKind::None {
        let before = std::iter::once(&head[..])
            .chain(payload.iter().map(|piece| &piece[..]))
            .chain(std::iter::once(&tail[..]));
        let value = crc.over(before, &[]);
        tail.extend(value.as_slice());
    }
    (head.into(), tail.into())
}

/// The same around a payload on disk, with a CRC-32C, which is computed from
/// that of the payload.
pub(crate) fn seal_payload_of(file: &PayloadFile) -> (Bytes, Bytes) {
    let (head, mut tail) = payload_ends(file.len(), CrcKind::Crc32c);
    let length = usize::try_from(file.len()).unwrap_or(usize::MAX);
    let crc = crc32c::crc32c_combine(crc32c::crc32c(&head), file.crc32c(), length);
    // The value itself counts as zeros (RFC 9171 §4.3.2).
    let crc = [&tail[..], &[0; 4]]
        .into_iter()
        .fold(crc, crc32c::crc32c_append);
    tail.extend(crc.to_be_bytes());
    (head.into(), tail.into())
}

/// The same around a part of a payload on disk, without a CRC: its bytes would have
/// to be read for that.
pub(crate) fn seal_payload_part(bytes: u64) -> (Bytes, Bytes) {
    let (head, tail) = payload_ends(bytes, CrcKind::None);
    (head.into(), tail.into())
}

/// The bytes before a payload of so many bytes, and those after it up to the CRC's value.
pub(super) fn payload_ends(length: u64, crc: CrcKind) -> (Vec<u8>, Vec<u8>) {
    let mut head = Vec::with_capacity(16);
    let elements = if crc == CrcKind::None { 5 } else { 6 };
    write_head(&mut head, ARRAY, elements);
    write_head(&mut head, UNSIGNED, block_type::PAYLOAD);
    write_head(&mut head, UNSIGNED, 1);
    write_head(&mut head, UNSIGNED, 0);
    write_head(&mut head, UNSIGNED, u64::from(crc.code()));
    write_head(&mut head, BYTES, length);
    let mut tail = Vec::with_capacity(8);
    if crc != CrcKind::None {
        write_head(&mut tail, BYTES, crc.size() as u64);
    }
    (head, tail)
}

/// The blocks before a payload that change from hop to hop.
pub(crate) struct HopBlocks<'a> {
    /// Block number and this node.
    pub previous_node: (u64, &'a Eid),
    /// Block number and age, ms.
    pub age_ms: (u64, u64),
    /// Block number, limit and count.
    pub hop_count: Option<(u64, u8, u8)>,
    /// Block number and content.
    pub cteb: Option<(u64, &'a Cteb)>,
    /// Block number and content.
    pub creb: Option<(u64, &'a Creb)>,
}

/// Writes all that precedes the payload: the array's head, the primary block,
/// the extension blocks and the payload block up to its byte string's head.
pub(crate) fn write_header(
    codes: &CodePoints,
    primary_raw: &[u8],
    hop: &HopBlocks<'_>,
    others: &[Extension],
    payload_head: &[u8],
) -> Bytes {
    let kept: usize = others.iter().map(|block| block.raw.len()).sum();
    let mut out = Vec::with_capacity(160 + primary_raw.len() + kept + payload_head.len());
    out.push(OPEN);
    out.extend(primary_raw);
    let mut content = Vec::with_capacity(32);
    // A block that another node has encrypted can be neither replaced nor left out.
    let encrypted = |kind| others.iter().any(|block| block.kind == kind);
    if !encrypted(block_type::PREVIOUS_NODE) {
        let (number, node) = hop.previous_node;
        write_eid(&mut content, node);
        write_block(&mut out, block_type::PREVIOUS_NODE, number, 0, &content);
    }
    let flags = block_flag::REPLICATE;
    if !encrypted(block_type::BUNDLE_AGE) {
        let (number, age) = hop.age_ms;
        content.clear();
        write_head(&mut content, UNSIGNED, age);
        write_block(&mut out, block_type::BUNDLE_AGE, number, flags, &content);
    }
    if let Some((number, limit, count)) = hop.hop_count {
        content.clear();
        write_head(&mut content, ARRAY, 2);
        write_head(&mut content, UNSIGNED, u64::from(limit));
        write_head(&mut content, UNSIGNED, u64::from(count));
        write_block(&mut out, block_type::HOP_COUNT, number, 0, &content);
    }
    if let Some((number, cteb)) = hop.cteb {
        let code = cteb_code(codes, cteb);
        write_block(&mut out, code, number, flags, &cteb.encode());
    }
    if let Some((number, creb)) = hop.creb {
        write_block(&mut out, codes.creb_block, number, flags, &creb.encode());
    }
    for block in others {
        out.extend(&block.raw);
    }
    out.extend(payload_head);
    out.into()
}

/// Whether a block must be in every fragment of its bundle (RFC 9171 §4.2.4).
pub(crate) fn is_replicated(block: &Extension) -> bool {
    block.flags & block_flag::REPLICATE != 0
}

/// Whether a block secures others (RFC 9172).
pub(crate) fn is_security(block: &Extension) -> bool {
    matches!(block.kind, block_type::BIB | block_type::BCB)
}

/// The order block: format 0. A node that does not know it passes it on.
pub(crate) fn order_block(number: u64) -> Extension {
    Extension::new(block_type::ORDER, number, 0, &[ORDER_FORMAT])
}

/// Whether a block that is passed on asks that its bundle does not overtake. Its content does not
/// matter, since keeping the order is never wrong.
pub(crate) fn is_order_block(block: &Extension) -> bool {
    block.kind == block_type::ORDER
}

/// A CTEB that is passed on keeps the code point of the dialect it came in.
fn cteb_code(codes: &CodePoints, cteb: &Cteb) -> u64 {
    match cteb.dialect == codes.dialect {
        true => codes.cteb_block,
        false => CodePoints::of(cteb.dialect).cteb_block,
    }
}

/// A block without a CRC around its content (RFC 9171 §4.3.2).
pub(super) fn write_block(out: &mut Vec<u8>, kind: u64, number: u64, flags: u64, content: &[u8]) {
    write_head(out, ARRAY, BLOCK_ELEMENTS);
    write_head(out, UNSIGNED, kind);
    write_head(out, UNSIGNED, number);
    write_head(out, UNSIGNED, flags);
    write_head(out, UNSIGNED, u64::from(CrcKind::None.code()));
    write_head(out, BYTES, content.len() as u64);
    out.extend(content);
}

/// What follows the payload: the payload block's CRC and the outer break.
pub(crate) fn write_trailer(payload_tail: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(payload_tail.len() + 1);
    out.extend(payload_tail);
    out.push(BREAK);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ipn;
    use bp7::bundle::Block;
    use bp7::canonical::{CanonicalData, new_canonical_block};

    fn eids() -> [Eid; 4] {
        let named = Eid::with_dtn("//node/service").unwrap();
        [ipn(1, 80), ipn(u64::MAX, u64::MAX), named, Eid::none()]
    }

    #[test]
    fn a_primary_block_is_written_as_bp7_writes_it() {
        for source in eids() {
            for (time, lifetime) in [(0, Duration::ZERO), (u64::MAX, Duration::from_hours(24))] {
                let (primary, raw) = seal_primary(
                    ipn(300, 70_000),
                    source.clone(),
                    source.clone(),
                    CreationTimestamp::with_time_and_seq(time, 24),
                    lifetime,
                    1 << 17,
                );
                let mut expected = Vec::new();
                primary.write_cbor(&mut expected).unwrap();
                assert_eq!(raw, expected);
            }
        }
    }

    #[test]
    fn a_header_is_written_as_bp7_writes_its_blocks() {
        for node in eids() {
            let hop = HopBlocks {
                previous_node: (2, &node),
                age_ms: (300, 1 << 40),
                hop_count: Some((4, 255, 24)),
                cteb: None,
                creb: None,
            };
            let order = order_block(u64::MAX);
            let order = std::slice::from_ref(&order);
            let header = write_header(&CodePoints::default(), b"primary", &hop, order, b"payload");
            let mut expected = b"\x9Fprimary".to_vec();
            let replicate = block_flag::REPLICATE;
            for (kind, number, flags, data) in [
                (
                    block_type::PREVIOUS_NODE,
                    2,
                    0,
                    CanonicalData::PreviousNode(node.clone()),
                ),
                (
                    block_type::BUNDLE_AGE,
                    300,
                    replicate,
                    CanonicalData::BundleAge(1 << 40),
                ),
                (
                    block_type::HOP_COUNT,
                    4,
                    0,
                    CanonicalData::HopCount(255, 24),
                ),
                (
                    block_type::ORDER,
                    u64::MAX,
                    0,
                    CanonicalData::Unknown(vec![ORDER_FORMAT]),
                ),
            ] {
                let block = new_canonical_block(kind, number, flags as u8, data);
                block.write_cbor(&mut expected).unwrap();
            }
            expected.extend(b"payload");
            assert_eq!(header, expected);
        }
    }
}
