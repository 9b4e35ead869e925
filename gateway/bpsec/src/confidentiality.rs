//! BCB-AES-GCM (RFC 9173 §4).

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, Tag, UnboundKey};
use underpass_bundle::wire::Content;

use crate::Failure;
use crate::block::{self, SecurityBlock, Value};
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
const TAG_BYTES: usize = 16;

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
    let target = Target::Block(target, Content::Here(&[]));
    let aad = covered(scope, primary, &target, security);
    let nonce = Nonce::assume_unique_for_key(iv);
    let tag = cipher
        .0
        .seal_in_place_separate_tag(nonce, Aad::from(aad), content);
    let tag = tag.map_err(|_| Failure::Unknown)?;
    Ok(vec![(TAG, Value::Bytes(tag.as_ref().to_vec()))])
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
    let parameters = block.parameters();
    let iv = block::bytes(parameters, parameter::IV)?.ok_or(Failure::Malformed)?;
    let iv: [u8; IV_BYTES] = iv.try_into().map_err(|_| Failure::Unknown)?;
    let variant = block::number(parameters, parameter::AES_VARIANT)?;
    let variant = variant.map_or(Ok(Variant::default()), Variant::from_number)?;
    let wrapped = block::bytes(parameters, parameter::WRAPPED_KEY)?;
    // Without a tag among the results, the tag is at the end of the content (§4.4.2).
    let (tag, length) = match block::bytes(block.results(place), TAG)? {
        Some(tag) => (tag, content.len()),
        None => {
            let length = content.len().checked_sub(TAG_BYTES);
            let length = length.ok_or(Failure::Failed)?;
            (&content[length..], length)
        }
    };
    let tag = <[u8; TAG_BYTES]>::try_from(tag).map_err(|_| Failure::Failed)?;
    let aad = covered(
        scope(block)?,
        primary,
        &Target::Block(target, Content::Here(&[])),
        security,
    );
    let mut opened = Vec::with_capacity(length);
    for key in keys {
        let unwrapped = wrapped.map(|wrapped| key.unwrap_key(wrapped));
        let cipher = match &unwrapped {
            Some(Err(_)) => continue,
            Some(Ok(unwrapped)) => variant.cipher(unwrapped),
            None => variant.cipher(key),
        };
        let Ok(cipher) = cipher else { continue };
        // A failed attempt leaves zeros in the buffer.
        opened.clear();
        opened.extend_from_slice(&content[..length]);
        let nonce = Nonce::assume_unique_for_key(iv);
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
