//! BCB-AES-GCM (RFC 9173 §4).

use std::borrow::Cow;

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, Tag, UnboundKey};
use underpass_bundle::wire::Content;

use crate::Failure;
use crate::block::{self, SecurityBlock, Value};
use crate::gcm::Checking;
pub use crate::gcm::{Decrypting, Encrypting};
use crate::keys::Key;
use crate::scope::{Header, Scope, Target, covered};

/// Security context parameters (RFC 9173 §4.3).
mod parameter {
    pub const IV: u64 = 1;
    pub const AES_VARIANT: u64 = 2;
    pub const WRAPPED_KEY: u64 = 3;
    pub const SCOPE: u64 = 4;
}

/// The security result: the authentication tag (RFC 9173 §4.4.2).
const TAG: u64 = 1;
/// The only supported length of an initialization vector, which RFC 9173 §4.3.1
/// recommends.
pub const IV_BYTES: usize = 12;
pub(crate) const TAG_BYTES: usize = 16;

/// The length of the AES key (RFC 9173 §4.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// A128GCM.
    Aes128,
    /// A256GCM, the context's default.
    #[default]
    Aes256,
}

impl Variant {
    /// The variant for keys of `bytes` bytes.
    pub fn of_key(bytes: usize) -> Option<Variant> {
        match bytes {
            16 => Some(Variant::Aes128),
            32 => Some(Variant::Aes256),
            _ => None,
        }
    }

    /// The variant's number.
    pub fn number(self) -> u64 {
        match self {
            Variant::Aes128 => 1,
            Variant::Aes256 => 3,
        }
    }

    fn from_number(number: u64) -> Result<Variant, Failure> {
        match number {
            1 => Ok(Variant::Aes128),
            3 => Ok(Variant::Aes256),
            _ => Err(Failure::Unknown),
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Variant::Aes128 => &AES_128_GCM,
            Variant::Aes256 => &AES_256_GCM,
        }
    }

    /// A key, ready for use.
    ///
    /// # Errors
    /// When the key has another length.
    pub fn cipher(self, key: &Key) -> Result<Cipher, Failure> {
        let key = UnboundKey::new(self.algorithm(), key.material());
        Ok(Cipher(LessSafeKey::new(key.map_err(|_| Failure::Failed)?)))
    }
}

/// A content encryption key, ready for use.
#[derive(Debug)]
pub struct Cipher(LessSafeKey);

/// The parameters of a block that this node adds.
pub fn parameters(
    iv: [u8; IV_BYTES],
    variant: Variant,
    wrapped: Option<&[u8]>,
    scope: Scope,
) -> Vec<(u64, Value)> {
    let wrapped = wrapped.map(|wrapped| (parameter::WRAPPED_KEY, Value::Bytes(wrapped.to_vec())));
    let first = [
        (parameter::IV, Value::Bytes(iv.to_vec())),
        (parameter::AES_VARIANT, Value::Unsigned(variant.number())),
    ];
    let scope = (parameter::SCOPE, Value::Unsigned(scope.0));
    first.into_iter().chain(wrapped).chain([scope]).collect()
}

/// Encrypts a target's content in place and returns its result. An IV may be used only
/// once with a key, except for several targets of one block, as in the examples of
/// RFC 9173: a caller that encrypts more than one target uses different keys.
///
/// # Errors
/// When the content is longer than AES-GCM may encrypt at once (64 GiB).
pub fn encrypt(
    cipher: &Cipher,
    iv: [u8; IV_BYTES],
    scope: Scope,
    primary: &[u8],
    target: Header,
    security: Header,
    content: &mut [u8],
) -> Result<Vec<(u64, Value)>, Failure> {
    let aad = additional(scope, primary, target, security);
    let nonce = Nonce::assume_unique_for_key(iv);
    let tag = cipher
        .0
        .seal_in_place_separate_tag(nonce, Aad::from(aad), content);
    let tag = tag.map_err(|_| Failure::Unknown)?;
    Ok(result(tag.as_ref()))
}

/// Begins to encrypt a content of so many bytes that is too long for memory, as [`encrypt`] does.
///
/// # Errors
/// As there; also when the key has another length than the variant's.
pub fn begin_to_encrypt(
    key: (Variant, &Key),
    iv: [u8; IV_BYTES],
    scope: Scope,
    primary: &[u8],
    target: Header,
    security: Header,
    bytes: u64,
) -> Result<Encrypting, Failure> {
    let aad = additional(scope, primary, target, security);
    Encrypting::new(key, iv, &aad, bytes)
}

/// The result for a target: its tag.
pub fn result(tag: &[u8]) -> Vec<(u64, Value)> {
    vec![(TAG, Value::Bytes(tag.to_vec()))]
}

/// The additional authenticated data (RFC 9173 §4.7.2).
fn additional(scope: Scope, primary: &[u8], target: Header, security: Header) -> Vec<u8> {
    let target = Target::Block(target, Content::Here(&[]));
    covered(scope, primary, &target, security)
}

/// The scope of a block's operations.
///
/// # Errors
/// When the parameter is malformed.
pub fn scope(block: &SecurityBlock) -> Result<Scope, Failure> {
    let flags = block::number(block.parameters(), parameter::SCOPE)?;
    Ok(flags.map_or(Scope::ALL, Scope::of))
}

/// Decrypts the target with index `place` of a block, with any of the keys. Each key is
/// the content encryption key itself or, where the block has a wrapped key, the key that
/// wraps it.
///
/// # Errors
/// When no key decrypts it, or the block cannot be understood.
pub fn decrypt(
    block: &SecurityBlock,
    place: usize,
    keys: &[Key],
    primary: &[u8],
    target: Header,
    security: Header,
    content: &[u8],
) -> Result<Vec<u8>, Failure> {
    let result = Expected::of(block, place)?;
    let (tag, length) = match result.tag {
        Some(tag) => (tag, content.len()),
        None => {
            let length = content.len().checked_sub(TAG_BYTES);
            let length = length.ok_or(Failure::Failed)?;
            (&content[length..], length)
        }
    };
    let tag = <[u8; TAG_BYTES]>::try_from(tag).map_err(|_| Failure::Failed)?;
    let aad = additional(result.scope, primary, target, security);
    let mut opened = Vec::with_capacity(length);
    for key in result.keys(keys) {
        let Ok(cipher) = result.variant.cipher(&key) else {
            continue;
        };
        // A failed attempt leaves zeros in the buffer.
        opened.clear();
        opened.extend_from_slice(&content[..length]);
        let nonce = Nonce::assume_unique_for_key(result.iv);
        let (aad, tag) = (Aad::from(&aad), Tag::from(tag));
        let done = cipher
            .0
            .open_in_place_separate_tag(nonce, aad, tag, &mut opened, 0..);
        if done.is_ok() {
            return Ok(opened);
        }
    }
    Err(Failure::Failed)
}

/// A target that is too long for memory, whose tag is verified as it comes, with each of the keys
/// at once. It is decrypted in a second pass.
#[derive(Debug)]
pub struct Running {
    checks: Vec<Checking>,
    plain_bytes: u64,
    /// Bytes of the ciphertext that are still to come.
    left: u64,
    /// The tag, or as much of it as has come behind the ciphertext.
    tag: Vec<u8>,
}

impl Running {
    /// Begins to verify the target with index `place` of a block, as [`decrypt`] does: a block of
    /// this header, whose content is to have so many bytes.
    ///
    /// # Errors
    /// When the block cannot be understood, or the content is longer than AES-GCM may encrypt at
    /// once (64 GiB).
    pub fn begin(
        (block, place): (&SecurityBlock, usize),
        keys: &[Key],
        primary: &[u8],
        (target, bytes): (Header, u64),
        security: Header,
    ) -> Result<Running, Failure> {
        let result = Expected::of(block, place)?;
        let behind = match result.tag {
            Some(tag) if tag.len() != TAG_BYTES => return Err(Failure::Failed),
            Some(_) => 0,
            None => TAG_BYTES as u64,
        };
        let bytes = bytes.checked_sub(behind).ok_or(Failure::Failed)?;
        let aad = additional(result.scope, primary, target, security);
        let mut checks = Vec::new();
        for key in result.keys(keys) {
            // Keys for the other variant have another length.
            if Variant::of_key(key.bytes()) == Some(result.variant) {
                let key = (result.variant, &*key);
                checks.push(Checking::new(key, result.iv, &aad, bytes)?);
            }
        }
        // Nothing that comes can make up for that.
        if checks.is_empty() {
            return Err(Failure::Failed);
        }
        Ok(Running {
            checks,
            plain_bytes: bytes,
            left: bytes,
            tag: result.tag.unwrap_or_default().to_vec(),
        })
    }

    /// The bytes of the content once it is decrypted.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// Takes the next piece of the content.
    pub fn take(&mut self, piece: &[u8]) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let (ciphertext, behind) = piece.split_at(piece.len().min(left));
        self.checks
            .iter_mut()
            .for_each(|check| check.take(ciphertext));
        self.left -= ciphertext.len() as u64;
        self.tag.extend_from_slice(behind);
    }

    /// Verifies the tag. What is returned decrypts the first [`Running::plain_bytes`] of the
    /// content.
    ///
    /// # Errors
    /// When no key gives this tag.
    pub fn finish(self) -> Result<Decrypting, Failure> {
        let tag = <[u8; TAG_BYTES]>::try_from(self.tag).map_err(|_| Failure::Failed)?;
        let mut checks = self.checks.into_iter();
        let decrypting = checks.find_map(|check| check.finish(&tag).ok());
        decrypting.ok_or(Failure::Failed)
    }
}

/// A result as its block has it, with what it was computed by.
struct Expected<'a> {
    iv: [u8; IV_BYTES],
    variant: Variant,
    wrapped: Option<&'a [u8]>,
    scope: Scope,
    /// Without a tag among the results, the tag is at the end of the content (§4.4.2).
    tag: Option<&'a [u8]>,
}

impl<'a> Expected<'a> {
    fn of(block: &'a SecurityBlock, place: usize) -> Result<Expected<'a>, Failure> {
        let parameters = block.parameters();
        let iv = block::bytes(parameters, parameter::IV)?.ok_or(Failure::Malformed)?;
        let variant = block::number(parameters, parameter::AES_VARIANT)?;
        Ok(Expected {
            iv: iv.try_into().map_err(|_| Failure::Unknown)?,
            variant: variant.map_or(Ok(Variant::default()), Variant::from_number)?,
            wrapped: block::bytes(parameters, parameter::WRAPPED_KEY)?,
            scope: scope(block)?,
            tag: block::bytes(block.results(place), TAG)?,
        })
    }

    /// The keys by which it may have been computed.
    fn keys<'k>(&self, keys: &'k [Key]) -> impl Iterator<Item = Cow<'k, Key>> {
        keys.iter().filter_map(move |key| match self.wrapped {
            // Another key may have wrapped it.
            Some(wrapped) => key.unwrap_key(wrapped).ok().map(Cow::Owned),
            None => Some(Cow::Borrowed(key)),
        })
    }
}
