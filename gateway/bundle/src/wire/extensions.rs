//! Extension blocks: those that this node writes itself, and the treatment of the others.

use bytes::Bytes;

use super::bundle::{Block, Bundle, Extension, MAX_BLOCKS, Malformed, block_flag, block_type};
use super::cbor::{CborError, Reader};
use super::custody::CodePoints;
use super::eid::read_eid;

/// Puts a bundle's extension blocks, each with its encoding, where they belong. What a block
/// confidentiality block has encrypted is unreadable, whatever its type (RFC 9172 §3.8).
pub(super) fn sort_extensions(
    bundle: &mut Bundle,
    codes: &CodePoints,
    blocks: Vec<(Block<'_>, Bytes)>,
) -> Result<(), Malformed> {
    let bcbs = blocks
        .iter()
        .filter(|(block, _)| block.kind == block_type::BCB);
    let encrypted: Vec<u64> = bcbs.flat_map(|(bcb, _)| targets(bcb.data)).collect();
    for (block, raw) in blocks {
        let known = matches!(
            block.kind,
            block_type::PREVIOUS_NODE | block_type::BUNDLE_AGE | block_type::HOP_COUNT
        );
        match encrypted.contains(&block.number) {
            true if known => keep(bundle, &block, raw),
            true => pass_on(bundle, &block, raw)?,
            false => sort_extension(bundle, codes, &block, raw)?,
        }
    }
    Ok(())
}

/// The blocks that a security block secures, of which there are no more than a bundle may have;
/// none if it cannot be read.
pub(crate) fn targets(content: &[u8]) -> Vec<u64> {
    let read = |reader: &mut Reader<'_>| -> Result<Vec<u64>, CborError> {
        let length = reader.array()?;
        let mut targets = Vec::new();
        while targets.len() < MAX_BLOCKS && reader.more(length, targets.len() as u64)? {
            targets.push(reader.unsigned()?);
        }
        Ok(targets)
    };
    read(&mut Reader::new(content)).unwrap_or_default()
}

/// Puts an extension block where it belongs.
fn sort_extension(
    bundle: &mut Bundle,
    codes: &CodePoints,
    block: &Block<'_>,
    raw: Bytes,
) -> Result<(), Malformed> {
    let Block {
        kind, number, data, ..
    } = *block;
    let unintelligible = |_| Malformed::Unintelligible(kind);
    match kind {
        block_type::PREVIOUS_NODE => {
            let node = whole(data, read_eid).map_err(unintelligible)?;
            once(&mut bundle.previous_node, (number, node), kind)
        }
        block_type::BUNDLE_AGE => {
            let age = whole(data, Reader::unsigned).map_err(unintelligible)?;
            once(&mut bundle.age_ms, (number, age), kind)
        }
        block_type::HOP_COUNT => {
            let (limit, count) = whole(data, read_hop_count).map_err(unintelligible)?;
            once(&mut bundle.hop_count, (number, limit, count), kind)
        }
        _ if bundle.cteb.is_none()
            && let Some(cteb) = codes.read_cteb(kind, data) =>
        {
            bundle.cteb = Some((number, cteb));
            Ok(())
        }
        _ if bundle.creb.is_none()
            && let Some(creb) = codes.read_creb(kind, data) =>
        {
            bundle.creb = Some((number, creb));
            Ok(())
        }
        _ => pass_on(bundle, block, raw),
    }
}

/// Treats a block of unknown type as its flags ask (RFC 9171 §5.6 step 4).
fn pass_on(bundle: &mut Bundle, block: &Block<'_>, raw: Bytes) -> Result<(), Malformed> {
    let security = matches!(block.kind, block_type::BIB | block_type::BCB);
    bundle.encrypted |= block.kind == block_type::BCB;
    if !security {
        bundle.report_unsupported |= block.flags & block_flag::REPORT != 0;
        if block.flags & block_flag::DELETE_BUNDLE != 0 {
            return Err(Malformed::Unsupported(block.kind));
        }
        if block.flags & block_flag::DISCARD != 0 {
            return Ok(());
        }
    }
    keep(bundle, block, raw);
    Ok(())
}

fn keep(bundle: &mut Bundle, block: &Block<'_>, raw: Bytes) {
    bundle.others.push(Extension {
        kind: block.kind,
        number: block.number,
        flags: block.flags,
        raw,
    });
}

fn once<T>(slot: &mut Option<T>, value: T, kind: u64) -> Result<(), Malformed> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed::Repeated(kind)),
    }
}

/// Reads one value that must fill `data`.
pub(crate) fn whole<'a, T>(
    data: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, CborError>,
) -> Result<T, CborError> {
    let mut reader = Reader::new(data);
    let value = read(&mut reader)?;
    reader.end()?;
    Ok(value)
}

fn read_hop_count(reader: &mut Reader<'_>) -> Result<(u8, u8), CborError> {
    let length = reader.array()?;
    let limit = u8::try_from(reader.unsigned()?).map_err(|_| CborError::Malformed)?;
    let count = u8::try_from(reader.unsigned()?).map_err(|_| CborError::Malformed)?;
    reader.array_end(length, 2)?;
    Ok((limit, count))
}
