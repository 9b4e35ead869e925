//! BIB-HMAC-SHA2 (RFC 9173 §3).

use bytes::Bytes;
use ring::hmac;
use subtle::ConstantTimeEq;
use underpass_bundle::wire::{BYTES, write_head};

use crate::Failure;
use crate::block::{self, SecurityBlock, Value};
use crate::keys::Key;
use crate::scope::{Header, Scope, Target, covered};

/// Security context parameters (RFC 9173 §3.3).
mod parameter {
    pub const SHA_VARIANT: u64 = 1;
    pub const WRAPPED_KEY: u64 = 2;
    pub const SCOPE: u64 = 3;
}

/// The security result: the HMAC (RFC 9173 §3.4).
const EXPECTED_HMAC: u64 = 1;

/// The hash of the HMAC (RFC 9173 §3.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hash {
    /// HMAC 256/256.
    Sha256,
    /// HMAC 384/384, the context's default.
    #[default]
    Sha384,
    /// HMAC 512/512.
    Sha512,
}

impl Hash {
    /// The hash's SHA variant.
    pub fn variant(self) -> u64 {
        match self {
            Hash::Sha256 => 5,
            Hash::Sha384 => 6,
            Hash::Sha512 => 7,
        }
    }

    fn from_variant(variant: u64) -> Result<Hash, Failure> {
        match variant {
            5 => Ok(Hash::Sha256),
            6 => Ok(Hash::Sha384),
            7 => Ok(Hash::Sha512),
            _ => Err(Failure::Unknown),
        }
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha384 => hmac::HMAC_SHA384,
            Hash::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// The parameters of a block that this node adds.
pub fn parameters(hash: Hash, scope: Scope) -> Vec<(u64, Value)> {
    vec![
        (parameter::SHA_VARIANT, Value::Unsigned(hash.variant())),
        (parameter::SCOPE, Value::Unsigned(scope.0)),
    ]
}

/// The result for one target. `primary` is the primary block in deterministic encoding;
/// the target must have no CRC (RFC 9173 §3.8.1).
pub fn sign(
    key: &Key,
    hash: Hash,
    scope: Scope,
    primary: &[u8],
    target: &Target<'_>,
    security: Header,
) -> Vec<(u64, Value)> {
    let key = hmac::Key::new(hash.algorithm(), key.material());
    let tag = plaintext(&key, scope, primary, target, security).sign();
    vec![(EXPECTED_HMAC, Value::Bytes(tag.as_ref().to_vec()))]
}

/// The scope of a block's operations.
///
/// # Errors
/// When the parameter is malformed.
pub fn scope(block: &SecurityBlock) -> Result<Scope, Failure> {
    let flags = block::number(block.parameters(), parameter::SCOPE)?;
    Ok(flags.map_or(Scope::ALL, Scope::of))
}

/// Verifies the result for the target with index `place` of a block, with any of the
/// keys.
///
/// # Errors
/// When the result is wrong, or cannot be understood.
pub fn verify(
    block: &SecurityBlock,
    place: usize,
    keys: &[Key],
    primary: &[u8],
    target: &Target<'_>,
    security: Header,
) -> Result<(), Failure> {
    let parameters = block.parameters();
    let variant = block::number(parameters, parameter::SHA_VARIANT)?;
    let hash = variant.map_or(Ok(Hash::default()), Hash::from_variant)?;
    let wrapped = block::bytes(parameters, parameter::WRAPPED_KEY)?;
    let scope = scope(block)?;
    let expected = block::bytes(block.results(place), EXPECTED_HMAC)?;
    let expected = expected.ok_or(Failure::Malformed)?;
    if expected.len() != hash.algorithm().digest_algorithm().output_len() {
        return Err(Failure::Failed);
    }
    for key in keys {
        let unwrapped = match wrapped {
            // Another key may have wrapped it, and this key may not be an AES key.
            Some(wrapped) => match key.unwrap_key(wrapped) {
                Ok(unwrapped) => Some(unwrapped),
                Err(_) => continue,
            },
            None => None,
        };
        let key = unwrapped.as_ref().unwrap_or(key);
        let key = hmac::Key::new(hash.algorithm(), key.material());
        let tag = plaintext(&key, scope, primary, target, security).sign();
        if bool::from(tag.as_ref().ct_eq(expected)) {
            return Ok(());
        }
    }
    Err(Failure::Failed)
}

/// The HMAC over the integrity-protected plaintext (RFC 9173 §3.7), which is never
/// assembled in memory.
fn plaintext(
    key: &hmac::Key,
    scope: Scope,
    primary: &[u8],
    target: &Target<'_>,
    security: Header,
) -> hmac::Context {
    let mut context = hmac::Context::with_key(key);
    context.update(&covered(scope, primary, target, security));
    // The primary block, too, is covered as if it were in a byte string, as in the
    // example of appendix A.3.3.1.
    let primary = [Bytes::copy_from_slice(primary)];
    let pieces = match target {
        Target::Primary => &primary,
        Target::Block(_, pieces) => *pieces,
    };
    let length = pieces.iter().map(|piece| piece.len() as u64).sum();
    let mut head = Vec::with_capacity(9);
    write_head(&mut head, BYTES, length);
    context.update(&head);
    pieces.iter().for_each(|piece| context.update(piece));
    context
}
