//! BIB-HMAC-SHA2 (RFC 9173 §3).

use bytes::Bytes;
use ring::hmac;
use subtle::ConstantTimeEq;
use underpass_bundle::wire::{BYTES, Content, write_head};

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
/// the target must have no CRC (RFC 9173 §3.8.1). Waits for the disk if the target is there.
///
/// # Errors
/// When the target cannot be read.
pub fn sign(
    key: &Key,
    hash: Hash,
    scope: Scope,
    primary: &[u8],
    target: &Target<'_>,
    security: Header,
) -> Result<Vec<(u64, Value)>, Failure> {
    let key = hmac::Key::new(hash.algorithm(), key.material());
    let tag = plaintext(&key, scope, primary, target, security)?.sign();
    Ok(vec![(EXPECTED_HMAC, Value::Bytes(tag.as_ref().to_vec()))])
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
    let result = Expected::of(block, place)?;
    for key in result.keys(keys) {
        let tag = plaintext(&key, result.scope, primary, target, security)?.sign();
        if bool::from(tag.as_ref().ct_eq(result.hmac)) {
            return Ok(());
        }
    }
    Err(Failure::Failed)
}

/// A result that is verified as its target comes, with each of the keys at once.
#[derive(Debug)]
pub struct Running {
    hmacs: Vec<hmac::Context>,
    expected: Vec<u8>,
}

impl Running {
    /// Begins to verify the result for the target with index `place` of a block: a block of this
    /// header, whose content is to have so many bytes.
    ///
    /// # Errors
    /// When the result cannot be understood.
    pub fn begin(
        (block, place): (&SecurityBlock, usize),
        keys: &[Key],
        primary: &[u8],
        (target, bytes): (Header, u64),
        security: Header,
    ) -> Result<Running, Failure> {
        let result = Expected::of(block, place)?;
        let target = Target::Block(target, Content::Here(&[]));
        let begun = |key: hmac::Key| begin(&key, result.scope, primary, &target, security, bytes);
        Ok(Running {
            hmacs: result.keys(keys).map(begun).collect(),
            expected: result.hmac.to_vec(),
        })
    }

    /// Takes the next piece of the content.
    pub fn take(&mut self, piece: &[u8]) {
        self.hmacs.iter_mut().for_each(|hmac| hmac.update(piece));
    }

    /// Verifies the result.
    ///
    /// # Errors
    /// When it is wrong.
    pub fn finish(self) -> Result<(), Failure> {
        let mut tags = self.hmacs.into_iter().map(hmac::Context::sign);
        match tags.any(|tag| bool::from(tag.as_ref().ct_eq(&self.expected))) {
            true => Ok(()),
            false => Err(Failure::Failed),
        }
    }
}

/// A result as its block has it, with what it was computed by.
struct Expected<'a> {
    hash: Hash,
    scope: Scope,
    wrapped: Option<&'a [u8]>,
    hmac: &'a [u8],
}

impl<'a> Expected<'a> {
    fn of(block: &'a SecurityBlock, place: usize) -> Result<Expected<'a>, Failure> {
        let parameters = block.parameters();
        let variant = block::number(parameters, parameter::SHA_VARIANT)?;
        let hash = variant.map_or(Ok(Hash::default()), Hash::from_variant)?;
        let wrapped = block::bytes(parameters, parameter::WRAPPED_KEY)?;
        let scope = scope(block)?;
        let hmac = block::bytes(block.results(place), EXPECTED_HMAC)?;
        let hmac = hmac.ok_or(Failure::Malformed)?;
        if hmac.len() != hash.algorithm().digest_algorithm().output_len() {
            return Err(Failure::Failed);
        }
        Ok(Expected {
            hash,
            scope,
            wrapped,
            hmac,
        })
    }

    /// The keys by which it may have been computed.
    fn keys(&self, keys: &[Key]) -> impl Iterator<Item = hmac::Key> {
        keys.iter().filter_map(move |key| {
            let unwrapped = match self.wrapped {
                // Another key may have wrapped it, and this key may not be an AES key.
                Some(wrapped) => Some(key.unwrap_key(wrapped).ok()?),
                None => None,
            };
            let key = unwrapped.as_ref().unwrap_or(key);
            Some(hmac::Key::new(self.hash.algorithm(), key.material()))
        })
    }
}

/// The HMAC over the integrity-protected plaintext (RFC 9173 §3.7), which is never
/// assembled in memory.
fn plaintext(
    key: &hmac::Key,
    scope: Scope,
    primary: &[u8],
    target: &Target<'_>,
    security: Header,
) -> Result<hmac::Context, Failure> {
    // The primary block, too, is covered as if it were in a byte string, as in the
    // example of appendix A.3.3.1.
    let whole = [Bytes::copy_from_slice(primary)];
    let content = match target {
        Target::Primary => Content::Here(&whole),
        Target::Block(_, content) => *content,
    };
    let mut context = begin(key, scope, primary, target, security, content.bytes());
    let read = content.each_piece(|piece| context.update(piece));
    read.map_err(|_| Failure::Unread)?;
    Ok(context)
}

/// That HMAC over all before the content of the target, which is to have so many bytes.
fn begin(
    key: &hmac::Key,
    scope: Scope,
    primary: &[u8],
    target: &Target<'_>,
    security: Header,
    bytes: u64,
) -> hmac::Context {
    let mut context = hmac::Context::with_key(key);
    context.update(&covered(scope, primary, target, security));
    let mut head = Vec::with_capacity(9);
    write_head(&mut head, BYTES, bytes);
    context.update(&head);
    context
}
