//! This node as security source: adds blocks to a bundle that begins here.

use bp7::flags::BundleControlFlags as Flags;
use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_bundle::Secured;
use underpass_bundle::wire::{Content, CrcKind, Eid, Extension, block_type, encode_primary};

use crate::Failure;
use crate::block::{BCB_AES_GCM, BIB_HMAC_SHA2, SecurityBlock};
use crate::confidentiality::{self, IV_BYTES};
use crate::integrity;
use crate::rules::{Active, Rule, Sealing};
use crate::scope::{Header, Scope, Target};

/// Block processing control flag: the block must be in every fragment. RFC 9172 §3.8
/// requires this of a BCB on the payload.
const REPLICATE: u64 = 1;

/// The header of this node's payload blocks.
pub(crate) const PAYLOAD: Header = Header {
    kind: block_type::PAYLOAD,
    number: 1,
    flags: 0,
};

/// Adds the blocks that a rule asks for, numbered from `first_number`. Where AES-GCM
/// encrypts the payload, it also protects its integrity: a BIB on the payload would have
/// to be encrypted as well (RFC 9172 §3.9) and prove nothing more. The bundle must not be
/// fragmented, since a fragment cannot be verified.
///
/// # Errors
/// When the payload cannot be read, or is to be encrypted and is on disk or longer than
/// AES-GCM may encrypt.
pub(crate) fn secure(
    active: &Active,
    source: &Eid,
    primary: &mut PrimaryBlock,
    first_number: u64,
    payload: Content<'_>,
) -> Result<Secured, Failure> {
    let rule = &active.rule;
    primary.bundle_control_flags |= Flags::BUNDLE_MUST_NOT_FRAGMENTED.bits();
    // RFC 9173 §3.8.1: a target of a BIB has no CRC.
    let crc = match rule.signs() {
        true => CrcKind::None,
        false => CrcKind::default(),
    };
    let primary = encode_primary(primary, crc);
    let mut blocks = Vec::with_capacity(2);
    if rule.signs() {
        blocks.push(bib(rule, source, &primary, first_number, payload)?);
    }
    let encrypted = match (&active.sealing, payload) {
        (Some(_), Content::OnDisk(_)) => return Err(Failure::Unknown),
        (Some(sealing), Content::Here(pieces)) => {
            let mut content = pieces.concat();
            let number = first_number + blocks.len() as u64;
            let block = bcb(sealing, source, &primary, number, &mut content)?;
            blocks.push(block);
            Some(Bytes::from(content))
        }
        (None, _) => None,
    };
    Ok(Secured {
        primary,
        blocks,
        encrypted,
    })
}

fn bib(
    rule: &Rule,
    source: &Eid,
    primary: &[u8],
    number: u64,
    payload: Content<'_>,
) -> Result<Extension, Failure> {
    let header = Header {
        kind: block_type::BIB,
        number,
        flags: 0,
    };
    let mut targets = vec![(0, Target::Primary)];
    if !rule.encrypts() {
        targets.push((1, Target::Block(PAYLOAD, payload)));
    }
    let key = &rule.integrity_keys[0];
    let results = targets
        .iter()
        .map(|(_, target)| integrity::sign(key, rule.hash, Scope::ALL, primary, target, header));
    let results: Result<Vec<_>, Failure> = results.collect();
    let block = SecurityBlock::new(
        targets.iter().map(|(number, _)| *number).collect(),
        BIB_HMAC_SHA2,
        source.clone(),
        integrity::parameters(rule.hash, Scope::ALL),
        results?,
    );
    Ok(Extension::new(
        header.kind,
        number,
        header.flags,
        &block.encode(),
    ))
}

fn bcb(
    sealing: &Sealing,
    source: &Eid,
    primary: &[u8],
    number: u64,
    content: &mut [u8],
) -> Result<Extension, Failure> {
    let header = Header {
        kind: block_type::BCB,
        number,
        flags: REPLICATE,
    };
    let iv: [u8; IV_BYTES] = sealing.next_iv();
    let scope = Scope::ALL;
    let cipher = &sealing.cipher;
    let result = confidentiality::encrypt(cipher, iv, scope, primary, PAYLOAD, header, content)?;
    let block = SecurityBlock::new(
        vec![PAYLOAD.number],
        BCB_AES_GCM,
        source.clone(),
        confidentiality::parameters(iv, sealing.variant, Some(&sealing.wrapped), scope),
        vec![result],
    );
    Ok(Extension::new(
        header.kind,
        number,
        header.flags,
        &block.encode(),
    ))
}
