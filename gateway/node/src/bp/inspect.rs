//! `underpass bp inspect`: the blocks of a bundle.

use std::fmt::Write;

use bytes::Bytes;
use serde_json::{Value, json};
use underpass_bundle::wire::{
    Block, CodePoints, CrcKind, DecodeLimits, Inspection, MAX_HEADER_BYTES, inspect,
};

use super::command::InspectCommand;
use super::error::BpError;
use super::security;
use super::send::read_some;
use crate::client;
use crate::hexadecimal::hexadecimal;

/// Bytes of a block that are shown.
const SHOWN_BYTES: usize = 32;

pub fn execute(command: &InspectCommand) -> Result<(), BpError> {
    let limits = DecodeLimits::default();
    let most = limits.max_payload_bytes + 2 * MAX_HEADER_BYTES as u64;
    let raw = Bytes::from(read_some(command.file.as_deref(), most + 1)?);
    if raw.len() as u64 > most {
        let bytes = raw.len() as u64;
        return Err(BpError::TooLarge { bytes, most });
    }
    let seen = inspect(&raw, &limits, &CodePoints::default());
    let shown = match command.json {
        true => format!("{}\n", as_json(&raw, &seen)),
        false => as_text(&raw, &seen),
    };
    client::print(&shown)?;
    match seen.problem {
        Some(problem) => Err(problem.into()),
        None => Ok(()),
    }
}

fn as_json(raw: &Bytes, seen: &Inspection) -> Value {
    let primary = seen.primary.as_ref().map(|(primary, crc)| {
        let timestamp = &primary.creation_timestamp;
        let fragment = json!({
            "offset": primary.fragmentation_offset, "total_bytes": primary.total_data_length,
        });
        json!({
            "flags": primary.bundle_control_flags,
            "flag_names": named(primary.bundle_control_flags, &BUNDLE_FLAGS),
            "crc": crc_name(*crc),
            "destination": primary.destination.to_string(),
            "source": primary.source.to_string(),
            "report_to": primary.report_to.to_string(),
            "time_ms": timestamp.dtntime(), "sequence": timestamp.seqno(),
            "lifetime_ms": lifetime_ms(primary.lifetime),
            "fragment": (primary.bundle_control_flags & 1 == 1).then_some(fragment),
        })
    });
    let blocks = seen.blocks.iter().map(|block| {
        json!({
            "type": block.kind, "name": kind_name(block.kind), "number": block.number,
            "flags": block.flags, "flag_names": named(block.flags, &BLOCK_FLAGS),
            "crc": crc_name(block.crc), "bytes": block.data.len(), "begins": begins(block),
            "security": security::as_json(block),
        })
    });
    json!({
        "bytes": raw.len(),
        "primary": primary,
        "blocks": blocks.collect::<Vec<_>>(),
        "problem": seen.problem.map(|problem| problem.to_string()),
    })
}

fn as_text(raw: &Bytes, seen: &Inspection) -> String {
    let mut text = format!("{} bytes\n", raw.len());
    if let Some((primary, crc)) = &seen.primary {
        let timestamp = &primary.creation_timestamp;
        let flags = primary.bundle_control_flags;
        // The sender of the bundle chooses names: escape sequences in them must not reach a
        // terminal.
        let clean = |eid: String| eid.escape_debug().to_string();
        let _ = writeln!(
            text,
            "primary block: CRC {}\n  destination {}\n  source {}\n  report to {}\n  created {} ms \
             (DTN time), sequence {}\n  lifetime {} ms\n  flags {flags:#x} {}",
            crc_name(*crc),
            clean(primary.destination.to_string()),
            clean(primary.source.to_string()),
            clean(primary.report_to.to_string()),
            timestamp.dtntime(),
            timestamp.seqno(),
            lifetime_ms(primary.lifetime),
            named(flags, &BUNDLE_FLAGS).join(", "),
        );
        if flags & 1 == 1 {
            let (offset, total) = (primary.fragmentation_offset, primary.total_data_length);
            let _ = writeln!(text, "  fragment at {offset} of {total} bytes");
        }
    }
    for block in &seen.blocks {
        let _ = writeln!(
            text,
            "block {}: type {} ({}), CRC {}, {} bytes, flags {:#x} {}\n  {}",
            block.number,
            block.kind,
            kind_name(block.kind),
            crc_name(block.crc),
            block.data.len(),
            block.flags,
            named(block.flags, &BLOCK_FLAGS).join(", "),
            begins(block),
        );
        if let Some(security) = security::as_text(block) {
            let _ = writeln!(text, "  {security}");
        }
    }
    text
}

fn lifetime_ms(lifetime: std::time::Duration) -> u64 {
    u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX)
}

/// A block's first bytes, in hexadecimal.
fn begins(block: &Block) -> String {
    let shown = block.data.len().min(SHOWN_BYTES);
    let mut text = hexadecimal(&block.data[..shown]);
    if block.data.len() > SHOWN_BYTES {
        text.push('…');
    }
    text
}

/// RFC 9171 §4.2.3.
const BUNDLE_FLAGS: [(u64, &str); 9] = [
    (0x1, "fragment"),
    (0x2, "administrative record"),
    (0x4, "must not be fragmented"),
    (0x20, "acknowledgement by application"),
    (0x40, "report times"),
    (0x4000, "report reception"),
    (0x1_0000, "report forwarding"),
    (0x2_0000, "report delivery"),
    (0x4_0000, "report deletion"),
];

/// RFC 9171 §4.2.4.
const BLOCK_FLAGS: [(u64, &str); 4] = [
    (0x1, "in every fragment"),
    (0x2, "report if unprocessable"),
    (0x4, "delete bundle if unprocessable"),
    (0x10, "discard if unprocessable"),
];

fn named(flags: u64, names: &[(u64, &'static str)]) -> Vec<&'static str> {
    let set = names.iter().filter(|(flag, _)| flags & flag != 0);
    set.map(|(_, name)| *name).collect()
}

fn crc_name(crc: CrcKind) -> &'static str {
    match crc {
        CrcKind::None => "none",
        CrcKind::Crc16 => "16",
        CrcKind::Crc32c => "32C",
    }
}

/// RFC 9171 §9.1, RFC 9172, and what custody uses.
fn kind_name(kind: u64) -> &'static str {
    match kind {
        1 => "payload",
        6 => "previous node",
        7 => "bundle age",
        10 => "hop count",
        11 => "integrity",
        12 => "confidentiality",
        13 => "custody transfer",
        14 => "compressed reporting",
        192..=255 => "private",
        _ => "unknown",
    }
}
