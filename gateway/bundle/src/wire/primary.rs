//! Reading a primary block, and what other blocks have in common with it.

use std::time::Duration;

use bp7::dtntime::CreationTimestamp;
use bp7::flags::{BundleControlFlags, BundleValidation};
use bp7::primary::{PrimaryBlock, PrimaryBlockBuilder};
use bytes::Bytes;

use super::bundle::{MAX_HEADER_BYTES, Malformed};
use super::cbor::{CborError, Reader};
use super::crc::CrcKind;
use super::eid::{is_taken, read_eid};

/// Decodes a primary block that stands alone: one that this node has kept, maybe in a version
/// that took other endpoints.
pub(crate) fn decode_primary(raw: &Bytes) -> Result<PrimaryBlock, Malformed> {
    let mut reader = Reader::new(raw);
    let (primary, _) = read_any_primary(&mut reader, raw)?;
    reader.end()?;
    Ok(primary)
}

/// Decodes a primary block again that was decoded or written by this node.
///
/// # Panics
/// When it was not.
pub(crate) fn decode_primary_again(raw: &[u8]) -> PrimaryBlock {
    let mut reader = Reader::new(raw);
    let fields = reader.array().map_err(Malformed::from);
    let fields = fields.and_then(|_| read_primary_fields(&mut reader));
    let built = fields.map(|(builder, ..)| builder.build());
    built
        .ok()
        .and_then(Result::ok)
        .expect("it was decoded or written before")
}

/// Reads the primary block of a bundle that comes in, and verifies its CRC.
pub(super) fn read_primary(
    reader: &mut Reader<'_>,
    raw: &Bytes,
) -> Result<(PrimaryBlock, CrcKind), Malformed> {
    let (primary, crc) = read_any_primary(reader, raw)?;
    let named = [&primary.destination, &primary.source, &primary.report_to];
    if !named.into_iter().all(is_taken) {
        return Err(Malformed::Endpoint);
    }
    Ok((primary, crc))
}

/// The same, whatever its endpoints are.
fn read_any_primary(
    reader: &mut Reader<'_>,
    raw: &Bytes,
) -> Result<(PrimaryBlock, CrcKind), Malformed> {
    let start = reader.position();
    let length = reader.array()?;
    let (builder, crc, taken) = read_primary_fields(reader)?;
    read_crc_and_end(reader, raw, start, length, taken, crc, 0)?;
    if reader.position() - start > MAX_HEADER_BYTES {
        return Err(Malformed::HeaderTooLarge);
    }
    let primary = builder.build().map_err(|_| Malformed::NoDestination)?;
    Ok((primary, crc))
}

/// All of a primary block between its array's head and its CRC, and how many
/// elements that were.
fn read_primary_fields(
    reader: &mut Reader<'_>,
) -> Result<(PrimaryBlockBuilder, CrcKind, u64), Malformed> {
    match reader.unsigned()? {
        7 => {}
        version => return Err(Malformed::Version(version)),
    }
    let flags = reader.unsigned()?;
    let crc = read_crc_kind(reader)?;
    let destination = read_eid(reader)?;
    let source = read_eid(reader)?;
    let report_to = read_eid(reader)?;
    let timestamp = read_timestamp(reader)?;
    let lifetime_ms = reader.unsigned()?;
    let mut builder = PrimaryBlockBuilder::new()
        .bundle_control_flags(flags)
        .destination(destination)
        .source(source)
        .report_to(report_to)
        .creation_timestamp(timestamp)
        .lifetime(Duration::from_millis(lifetime_ms));
    let mut taken = 8;
    if flags.contains(BundleControlFlags::BUNDLE_IS_FRAGMENT) {
        builder = builder
            .fragmentation_offset(reader.unsigned()?)
            .total_data_length(reader.unsigned()?);
        taken += 2;
    }
    Ok((builder, crc, taken))
}

/// A creation timestamp, `[DTN time in ms, sequence number]`.
pub(crate) fn read_timestamp(reader: &mut Reader<'_>) -> Result<CreationTimestamp, CborError> {
    let length = reader.array()?;
    let time = reader.unsigned()?;
    let sequence = reader.unsigned()?;
    reader.array_end(length, 2)?;
    Ok(CreationTimestamp::with_time_and_seq(time, sequence))
}

pub(super) fn read_crc_kind(reader: &mut Reader<'_>) -> Result<CrcKind, Malformed> {
    let code = reader.unsigned()?;
    CrcKind::from_code(code).ok_or(Malformed::CrcKind(code))
}

/// Reads a block's CRC, if it has one, and the array's end; verifies the CRC
/// over the bytes as they came.
pub(super) fn read_crc_and_end(
    reader: &mut Reader<'_>,
    raw: &Bytes,
    start: usize,
    length: Option<u64>,
    taken: u64,
    crc: CrcKind,
    number: u64,
) -> Result<(), Malformed> {
    if crc == CrcKind::None {
        return Ok(reader.array_end(length, taken)?);
    }
    let value = reader.byte_string()?;
    let at = reader.position();
    reader.array_end(length, taken + 1)?;
    if value.len() != crc.size() {
        return Err(Malformed::Crc(number));
    }
    let computed = crc.over([&raw[start..at - value.len()]], &raw[at..reader.position()]);
    match computed.as_slice() == value {
        true => Ok(()),
        false => Err(Malformed::Crc(number)),
    }
}
