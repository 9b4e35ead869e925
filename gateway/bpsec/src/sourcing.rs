//! This node as security source: adds blocks to a bundle that begins here.

use std::io;

use bp7::flags::BundleControlFlags as Flags;
use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_bundle::wire::{Content, CrcKind, Eid, Extension, block_type, encode_primary};
use underpass_bundle::{Encrypted, Secured};

use crate::Failure;
use crate::block::{BCB_AES_GCM, BIB_HMAC_SHA2, SecurityBlock, Value};
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
/// fragmented, since a fragment cannot be verified. A payload on disk is encrypted into another
/// file: a bundle that is sent again is the same then.
///
/// # Errors
/// When the payload cannot be read, or is to be encrypted and is longer than AES-GCM may encrypt,
/// or has no room for that on the disk.
pub(crate) fn secure(
    active: &Active,
    source: &Eid,
    primary: &mut PrimaryBlock,
    first_number: u64,
    payload: Content<'_>,
) -> io::Result<Secured> {
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
        let block = bib(rule, source, &primary, first_number, payload);
        blocks.push(block.map_err(io::Error::other)?);
    }
    let mut encrypted = None;
    if let Some(sealing) = &active.sealing {
        let header = Header {
            kind: block_type::BCB,
            number: first_number + blocks.len() as u64,
            flags: REPLICATE,
        };
        let iv = sealing.next_iv();
        let (content, result) = encrypt(sealing, iv, &primary, header, payload)?;
        blocks.push(bcb(sealing, iv, source, header, result));
        encrypted = Some(content);
    }
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

/// Encrypts a payload; returns it, and the result for it.
fn encrypt(
    sealing: &Sealing,
    iv: [u8; IV_BYTES],
    primary: &[u8],
    security: Header,
    payload: Content<'_>,
) -> io::Result<(Encrypted, Vec<(u64, Value)>)> {
    let scope = Scope::ALL;
    match payload {
        Content::Here(pieces) => {
            let mut content = pieces.concat();
            let (cipher, into) = (&sealing.cipher, &mut content);
            let result =
                confidentiality::encrypt(cipher, iv, scope, primary, PAYLOAD, security, into);
            let result = result.map_err(io::Error::other)?;
            Ok((Encrypted::Here(Bytes::from(content)), result))
        }
        Content::OnDisk(file) => {
            let (key, bytes) = ((sealing.variant, &sealing.key), file.len());
            let begun = confidentiality::begin_to_encrypt(
                key, iv, scope, primary, PAYLOAD, security, bytes,
            );
            let mut encrypting = begun.map_err(io::Error::other)?;
            let encrypted = file.changed_copy(|piece| encrypting.apply(piece))?;
            let result = confidentiality::result(&encrypting.finish());
            Ok((Encrypted::OnDisk(encrypted), result))
        }
    }
}

fn bcb(
    sealing: &Sealing,
    iv: [u8; IV_BYTES],
    source: &Eid,
    header: Header,
    result: Vec<(u64, Value)>,
) -> Extension {
    let wrapped = Some(&sealing.wrapped[..]);
    let block = SecurityBlock::new(
        vec![PAYLOAD.number],
        BCB_AES_GCM,
        source.clone(),
        confidentiality::parameters(iv, sealing.variant, wrapped, Scope::ALL),
        vec![result],
    );
    Extension::new(header.kind, header.number, header.flags, &block.encode())
}
