//! The record that the store keeps of a bundle besides its payload: enough to restore the bundle
//! after a restart.
//!
//! A CBOR array of definite length: version, flags, class, age in ms, neighbour, label, block
//! numbers, hop count, primary block, payload block's head, what follows the payload, CTEB, CREB,
//! other blocks, note; for a bundle whose payload is a file also an array of its name and bytes. A
//! part that may be absent is an array, which is then empty.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::Class;

use super::config::NeighbourId;
use super::fixed::FixedParts;
use super::originate::expiry;
use super::stored::{BlockNumbers, Phase, StoredBundle};
use crate::wire::{
    ARRAY, BYTES, CborError, Creb, Cteb, CustodyDialect, Extension, MAX_BLOCKS, Reader, UNSIGNED,
    decode_primary, ipn_parts, is_null, write_head,
};

const VERSION: u64 = 2;
const FIELDS: u64 = 15;
/// The version with a file: an earlier version of this program leaves such a bundle in the store.
const FILE_VERSION: u64 = 3;
const FILE_FIELDS: u64 = 16;
const OWN: u64 = 1;

/// A payload on disk, as a record names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedFile {
    pub name: String,
    pub bytes: u64,
}

/// Describes a bundle in custody.
pub(super) fn encode(stored: &StoredBundle) -> Bytes {
    let mut out = Vec::with_capacity(192 + stored.fixed.primary().len());
    let (version, fields) = match &stored.file {
        Some(_) => (FILE_VERSION, FILE_FIELDS),
        None => (VERSION, FIELDS),
    };
    write_head(&mut out, ARRAY, fields);
    for number in [
        version,
        if stored.own { OWN } else { 0 },
        u64::from(stored.class.0),
        stored.age_ms,
        stored.neighbour.0,
        stored.label,
    ] {
        write_head(&mut out, UNSIGNED, number);
    }
    write_numbers(&mut out, &BlockNumbers::from(&stored.numbers).all());
    match stored.hop_count {
        Some((limit, count)) => write_numbers(&mut out, &[limit.into(), count.into()]),
        None => write_numbers(&mut out, &[]),
    }
    let fixed = &stored.fixed;
    for bytes in [fixed.primary(), fixed.payload_head(), fixed.trailer()] {
        write_bytes(&mut out, bytes);
    }
    match &stored.passed_cteb {
        Some(cteb) => {
            out.extend(encoded_cteb(cteb));
        }
        None => write_numbers(&mut out, &[]),
    }
    match &stored.creb {
        Some(creb) => {
            write_head(&mut out, ARRAY, 1);
            write_bytes(&mut out, &creb.encode());
        }
        None => write_numbers(&mut out, &[]),
    }
    write_head(&mut out, ARRAY, stored.others.len() as u64);
    for block in stored.others.iter() {
        write_head(&mut out, ARRAY, 4);
        write_head(&mut out, UNSIGNED, block.kind);
        write_head(&mut out, UNSIGNED, block.number);
        write_head(&mut out, UNSIGNED, block.flags);
        write_bytes(&mut out, &block.raw);
    }
    write_numbers(&mut out, stored.note.as_deref().map_or(&[], |note| note));
    if let Some(file) = &stored.file {
        write_head(&mut out, ARRAY, 2);
        write_bytes(&mut out, file.name().as_bytes());
        write_head(&mut out, UNSIGNED, file.len());
    }
    out.into()
}

/// The bundle that `record` describes, which has been stored for `stored_for`; it expires at once
/// if its lifetime is over. The caller opens its file, if it has one.
pub(super) fn decode(
    now: Instant,
    record: &Bytes,
    payload_bytes: u64,
    stored_for: Duration,
) -> Result<(StoredBundle, Option<NamedFile>), CborError> {
    let mut reader = Reader::new(record);
    let length = reader.array()?;
    let version = version_of(&mut reader)?;
    let own = reader.unsigned()? & OWN != 0;
    let class = Class(small(reader.unsigned()?)?);
    let stored_ms = u64::try_from(stored_for.as_millis()).unwrap_or(u64::MAX);
    let age_ms = reader.unsigned()?.saturating_add(stored_ms);
    let neighbour = NeighbourId(reader.unsigned()?);
    let label = reader.unsigned()?;
    let numbers: [u64; 5] = read_numbers(&mut reader)?.ok_or(CborError::Malformed)?;
    let hops = read_numbers(&mut reader)?.map(|[limit, count]| Ok((small(limit)?, small(count)?)));
    let primary_raw = record.slice_ref(reader.byte_string()?);
    let fixed = FixedParts::new(&primary_raw, reader.byte_string()?, reader.byte_string()?);
    let passed_cteb = read_cteb(&mut reader)?;
    let passed_creb = read_creb(&mut reader)?;
    let others = read_others(&mut reader, record)?;
    let note = read_numbers(&mut reader)?;
    let file = match version {
        FILE_VERSION => Some(read_file(&mut reader)?),
        _ => None,
    };
    let fields = match file {
        Some(_) => FILE_FIELDS,
        None => FIELDS,
    };
    reader.array_end(length, fields)?;
    reader.end()?;
    let primary = decode_primary(&primary_raw).map_err(|_| CborError::Malformed)?;
    let expires = expiry(now, primary.lifetime, age_ms).unwrap_or(now);
    let bytes = file.as_ref().map_or(payload_bytes, |file| file.bytes);
    let stored = StoredBundle {
        others: others.into(),
        numbers: BlockNumbers::from(numbers).into(),
        reports: !is_null(&primary.report_to),
        hop_count: hops.transpose()?,
        passed_cteb: passed_cteb.map(Box::new),
        creb: passed_creb.map(Box::new),
        age_ms,
        custody: true,
        own,
        label,
        note: note.map(Box::new),
        phase: match note {
            Some(_) => Phase::Withheld,
            None => Phase::Queued,
        },
        ..StoredBundle::new(now, fixed, bytes, (neighbour, class), expires)
    };
    Ok((stored, file))
}

/// The node that a bundle is for, from what a store has kept as
/// [`DurableRecord::record`](crate::DurableRecord::record); `None` if it is of
/// a form that this version does not know.
pub fn destination_of(record: &Bytes) -> Option<u64> {
    let mut reader = Reader::new(record);
    let primary = primary_of(&mut reader).ok()?;
    let primary = decode_primary(&record.slice_ref(primary)).ok()?;
    ipn_parts(&primary.destination).map(|(node, _)| node)
}

fn primary_of<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], CborError> {
    reader.array()?;
    version_of(reader)?;
    // Flags, class, age, neighbour and label.
    for _ in 0..5 {
        reader.unsigned()?;
    }
    read_numbers::<5>(reader)?;
    read_numbers::<2>(reader)?;
    reader.byte_string()
}

fn version_of(reader: &mut Reader<'_>) -> Result<u64, CborError> {
    match reader.unsigned()? {
        known @ (VERSION | FILE_VERSION) => Ok(known),
        _ => Err(CborError::Malformed),
    }
}

fn read_file(reader: &mut Reader<'_>) -> Result<NamedFile, CborError> {
    let length = reader.array()?;
    let name = std::str::from_utf8(reader.byte_string()?);
    let name = name.map_err(|_| CborError::Malformed)?.to_owned();
    let bytes = reader.unsigned()?;
    reader.array_end(length, 2)?;
    Ok(NamedFile { name, bytes })
}

fn write_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    write_head(out, ARRAY, numbers.len() as u64);
    for number in numbers {
        write_head(out, UNSIGNED, *number);
    }
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_head(out, BYTES, bytes.len() as u64);
    out.extend(bytes);
}

fn small(number: u64) -> Result<u8, CborError> {
    u8::try_from(number).map_err(|_| CborError::Malformed)
}

/// An array of `N` numbers, or an empty one.
fn read_numbers<const N: usize>(reader: &mut Reader<'_>) -> Result<Option<[u64; N]>, CborError> {
    match reader.array()? {
        Some(0) => Ok(None),
        Some(length) if length == N as u64 => {
            let mut numbers = [0; N];
            for number in &mut numbers {
                *number = reader.unsigned()?;
            }
            Ok(Some(numbers))
        }
        _ => Err(CborError::Malformed),
    }
}

fn dialect_code(dialect: CustodyDialect) -> u64 {
    match dialect {
        CustodyDialect::Ion => 0,
        CustodyDialect::Bplib => 1,
        CustodyDialect::Bibe => 2,
    }
}

/// A CTEB behind its dialect.
pub(super) fn encoded_cteb(cteb: &Cteb) -> Vec<u8> {
    let mut out = Vec::new();
    write_head(&mut out, ARRAY, 2);
    write_head(&mut out, UNSIGNED, dialect_code(cteb.dialect));
    out.extend(cteb.encode());
    out
}

/// What [`encoded_cteb`] has written.
pub(super) fn decoded_cteb(bytes: &[u8]) -> Result<Cteb, CborError> {
    crate::wire::whole(bytes, read_cteb)?.ok_or(CborError::Malformed)
}

fn read_cteb(reader: &mut Reader<'_>) -> Result<Option<Cteb>, CborError> {
    match reader.array()? {
        Some(0) => Ok(None),
        Some(2) => {
            let dialect = match reader.unsigned()? {
                0 => CustodyDialect::Ion,
                1 => CustodyDialect::Bplib,
                2 => CustodyDialect::Bibe,
                _ => return Err(CborError::Malformed),
            };
            Cteb::read(reader, dialect).map(Some)
        }
        _ => Err(CborError::Malformed),
    }
}

fn read_creb(reader: &mut Reader<'_>) -> Result<Option<Creb>, CborError> {
    match reader.array()? {
        Some(0) => Ok(None),
        Some(1) => crate::wire::whole(reader.byte_string()?, Creb::read).map(Some),
        _ => Err(CborError::Malformed),
    }
}

fn read_others(reader: &mut Reader<'_>, record: &Bytes) -> Result<Vec<Extension>, CborError> {
    let count = reader.array()?.ok_or(CborError::Malformed)?;
    if count > MAX_BLOCKS as u64 {
        return Err(CborError::Malformed);
    }
    let mut others = Vec::new();
    for _ in 0..count {
        let length = reader.array()?;
        let (kind, number) = (reader.unsigned()?, reader.unsigned()?);
        let flags = reader.unsigned()?;
        let raw = record.slice_ref(reader.byte_string()?);
        reader.array_end(length, 4)?;
        others.push(Extension {
            kind,
            number,
            flags,
            raw,
        });
    }
    Ok(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Eid, ipn, seal_primary};
    use bp7::dtntime::CreationTimestamp;

    #[test]
    fn what_an_earlier_version_has_taken_is_read_whatever_its_endpoints() {
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        let long = format!("//{}/in", "n".repeat(300));
        for name in [&*long, "//rover/a b"] {
            let (_, primary) = seal_primary(
                ipn(3, 64),
                Eid::with_dtn(name).unwrap(),
                Eid::none(),
                CreationTimestamp::with_time_and_seq(1_000, 7),
                minute,
                0,
            );
            let fixed = FixedParts::new(&primary, b"", b"");
            let to = (NeighbourId(3), Class(3));
            let record = encode(&StoredBundle::new(now, fixed, 4, to, now + minute));
            let (stored, _) = decode(now, &record, 4, Duration::ZERO).unwrap();
            assert_eq!(stored.primary().source, Eid::with_dtn(name).unwrap());
            assert_eq!(destination_of(&record), Some(3));
        }
    }
}
