//! Keys, as key files hold them.

use std::fmt;

use aes_kw::{KekAes128, KekAes192, KekAes256};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::Failure;

/// The length of the shortest key, bytes.
pub const MIN_KEY_BYTES: usize = 16;
/// The length of the longest key, bytes: HMAC would hash a longer one before its use.
pub const MAX_KEY_BYTES: usize = 64;
/// The bytes that AES key wrap adds to a key (RFC 3394).
const WRAPPING_BYTES: usize = 8;

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// It has characters other than hexadecimal digits.
    #[error("must be hexadecimal digits; make one with: openssl rand -hex 32")]
    Digits,
    /// It is too short or too long.
    #[error(
        "must have {} to {} hexadecimal digits; make one with: openssl rand -hex 32",
        2 * MIN_KEY_BYTES,
        2 * MAX_KEY_BYTES
    )]
    Length,
}

/// A secret that a security source shares with verifiers and acceptors.
#[derive(Clone)]
pub struct Key(Zeroizing<Vec<u8>>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

impl Key {
    /// A key with these bytes.
    pub fn new(material: Vec<u8>) -> Key {
        Key(Zeroizing::new(material))
    }

    /// Parses a key file's text: hexadecimal digits, with white space around them.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(text: &str) -> Result<Key, KeyError> {
        let digits = text.trim().as_bytes();
        if !(2 * MIN_KEY_BYTES..=2 * MAX_KEY_BYTES).contains(&digits.len())
            || !digits.len().is_multiple_of(2)
        {
            return Err(KeyError::Length);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(KeyError::Digits);
        let mut material = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
        for pair in digits.chunks_exact(2) {
            // Two digits make at most 255.
            material.push((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
        }
        Ok(Key(material))
    }

    /// The key's length, bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn material(&self) -> &[u8] {
        &self.0
    }

    /// Wraps another key in this one (RFC 3394).
    ///
    /// # Errors
    /// When this is not an AES key, or the other key's length is not a multiple of 8
    /// bytes.
    pub fn wrap_key(&self, other: &Key) -> Result<Vec<u8>, Failure> {
        let wrapped = match Kek::of(self)? {
            Kek::Aes128(kek) => kek.wrap_vec(&other.0),
            Kek::Aes192(kek) => kek.wrap_vec(&other.0),
            Kek::Aes256(kek) => kek.wrap_vec(&other.0),
        };
        wrapped.map_err(|_| Failure::Unknown)
    }

    /// Unwraps a key that was wrapped in this one.
    ///
    /// # Errors
    /// When this is not an AES key, or not the one that wrapped it.
    pub fn unwrap_key(&self, wrapped: &[u8]) -> Result<Key, Failure> {
        if wrapped.len() > MAX_KEY_BYTES + WRAPPING_BYTES {
            return Err(Failure::Unknown);
        }
        // RFC 3394 defines nothing below two semiblocks. A wrapped key of no semiblocks
        // is just the initial value, which unwraps under every key, to an empty key that
        // everybody has.
        if wrapped.len() < MIN_KEY_BYTES + WRAPPING_BYTES {
            return Err(Failure::Failed);
        }
        let unwrapped = match Kek::of(self)? {
            Kek::Aes128(kek) => kek.unwrap_vec(wrapped),
            Kek::Aes192(kek) => kek.unwrap_vec(wrapped),
            Kek::Aes256(kek) => kek.unwrap_vec(wrapped),
        };
        unwrapped.map(Key::new).map_err(|_| Failure::Failed)
    }
}

/// A key that wraps others.
enum Kek {
    Aes128(KekAes128),
    Aes192(KekAes192),
    Aes256(KekAes256),
}

impl Kek {
    fn of(key: &Key) -> Result<Kek, Failure> {
        let bytes = key.material();
        let kek = match bytes.len() {
            16 => KekAes128::try_from(bytes).map(Kek::Aes128),
            24 => KekAes192::try_from(bytes).map(Kek::Aes192),
            32 => KekAes256::try_from(bytes).map(Kek::Aes256),
            _ => return Err(Failure::Unknown),
        };
        kek.map_err(|_| Failure::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_with_white_space_around_it() {
        let key = Key::parse("  000102030405060708090A0b0c0d0e0f\n").unwrap();
        assert_eq!(key.material(), (0..16).collect::<Vec<u8>>());
    }

    #[test]
    fn other_texts_are_no_keys() {
        for (text, error) in [
            ("", KeyError::Length),
            ("00", KeyError::Length),
            ("000102030405060708090a0b0c0d0e0f0", KeyError::Length),
            ("g00102030405060708090a0b0c0d0e0f", KeyError::Digits),
            (&"0".repeat(130), KeyError::Length),
        ] {
            assert_eq!(Key::parse(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = Key::parse("aabbccddeeff00112233445566778899").unwrap();
        assert_eq!(format!("{key:?}"), "Key(16 bytes)");
    }

    /// RFC 3394 §4.1 and §4.6.
    #[test]
    fn keys_are_wrapped_as_rfc_3394_wraps_them() {
        for (kek, key, wrapped) in [
            (
                "000102030405060708090a0b0c0d0e0f",
                "00112233445566778899aabbccddeeff",
                "1fa68b0a8112b447aef34bd8fb5a7b829d3e862371d2cfe5",
            ),
            (
                "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
                "00112233445566778899aabbccddeeff000102030405060708090a0b0c0d0e0f",
                "28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21",
            ),
        ] {
            let [kek, key, wrapped] = [kek, key, wrapped].map(|text| Key::parse(text).unwrap());
            assert_eq!(kek.wrap_key(&key).unwrap(), wrapped.material());
            let back = kek.unwrap_key(wrapped.material()).unwrap();
            assert_eq!(back.material(), key.material());
            assert_eq!(
                key.unwrap_key(wrapped.material()).unwrap_err(),
                Failure::Failed
            );
        }
    }
}
