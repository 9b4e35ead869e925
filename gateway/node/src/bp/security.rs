//! What `underpass bp inspect` shows of a security block (RFC 9172 §3.6).

use std::fmt::Write;

use serde_json::{Value as Json, json};
use underpass_bpsec::{BCB_AES_GCM, BIB_HMAC_SHA2, Opaque, SecurityBlock, Value};
use underpass_bundle::wire::{Block, block_type};

use crate::hexadecimal::hexadecimal;

/// What is in a security block; `None` if the block is of another type.
pub fn as_json(block: &Block) -> Option<Json> {
    let read = read(block)?;
    Some(match read {
        Ok(security) => json!({
            "targets": security.targets,
            "context": security.context.to_string(),
            "context_name": context_name(security.context),
            "source": security.source.to_string(),
            "parameters": parameters(&security).map(|(name, value)| json!({
                "name": name, "value": value,
            })).collect::<Vec<_>>(),
            "results": results(&security),
        }),
        Err(problem) => json!({ "problem": problem }),
    })
}

/// A line for people, as [`as_json`].
pub fn as_text(block: &Block) -> Option<String> {
    let security = match read(block)? {
        Ok(security) => security,
        Err(problem) => return Some(problem),
    };
    let mut text = format!(
        "{} by {}, on block",
        context_name(security.context),
        security.source.to_string().escape_debug()
    );
    for target in &security.targets {
        let _ = write!(text, " {target}");
    }
    for (name, value) in parameters(&security) {
        let _ = write!(text, ", {name} {value}");
    }
    let results = results(&security);
    if !results.is_empty() {
        let _ = write!(text, "; results {}", results.concat().join(" "));
    }
    Some(text)
}

fn read(block: &Block) -> Option<Result<SecurityBlock, String>> {
    if !matches!(block.kind, block_type::BIB | block_type::BCB) {
        return None;
    }
    let read = SecurityBlock::parse(&block.data);
    Some(read.map_err(|error| format!("encrypted, or not readable: {error}")))
}

fn context_name(context: i128) -> &'static str {
    match context {
        BIB_HMAC_SHA2 => "BIB-HMAC-SHA2",
        BCB_AES_GCM => "BCB-AES-GCM",
        _ => "unknown context",
    }
}

fn parameters(block: &SecurityBlock) -> impl Iterator<Item = (&'static str, String)> + '_ {
    block.parameters().iter().map(|(id, value)| {
        let name = match (block.context, id) {
            (BIB_HMAC_SHA2, 1) => "SHA variant",
            (BIB_HMAC_SHA2, 2) | (BCB_AES_GCM, 3) => "wrapped key",
            (BIB_HMAC_SHA2, 3) | (BCB_AES_GCM, 4) => "scope flags",
            (BCB_AES_GCM, 1) => "IV",
            (BCB_AES_GCM, 2) => "AES variant",
            _ => "unknown parameter",
        };
        (name, shown(value))
    })
}

/// The results of each target.
fn results(block: &SecurityBlock) -> Vec<Vec<String>> {
    match &block.rest {
        Opaque::Read { results, .. } => {
            let each =
                |result: &Vec<(u64, Value)>| result.iter().map(|(_, value)| shown(value)).collect();
            results.iter().map(each).collect()
        }
        Opaque::Unread(_) => Vec::new(),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Unsigned(number) => number.to_string(),
        Value::Bytes(bytes) => hexadecimal(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use underpass_bundle::wire::CrcKind;

    fn block(kind: u64, data: &'static [u8]) -> Block {
        Block {
            kind,
            number: 2,
            flags: 0,
            crc: CrcKind::None,
            data: Bytes::from_static(data),
        }
    }

    /// As in RFC 9173, appendix A.1, with a shorter result.
    const BIB: &[u8] = &[
        0x81, 1, 1, 1, 0x82, 2, 0x82, 2, 1, 0x82, 0x82, 1, 7, 0x82, 3, 0, 0x81, 0x81, 0x82, 1,
        0x42, 0xAB, 0xCD,
    ];

    #[test]
    fn a_security_block_is_shown_field_by_field() {
        assert_eq!(
            as_text(&block(11, BIB)).unwrap(),
            "BIB-HMAC-SHA2 by ipn:2.1, on block 1, SHA variant 7, scope flags 0; results abcd"
        );
        let json = as_json(&block(11, BIB)).unwrap();
        assert_eq!(json["targets"], json!([1]));
        assert_eq!(json["results"], json!([["abcd"]]));
    }

    #[test]
    fn one_that_cannot_be_read_says_so_and_another_block_has_none() {
        let cut = as_text(&block(12, &BIB[..4])).unwrap();
        assert!(cut.starts_with("encrypted, or not readable"), "{cut}");
        assert_eq!(as_json(&block(7, &[0])), None);
    }
}
