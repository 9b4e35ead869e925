//! Keys, and what they authenticate.

use std::fmt;

use ring::hmac;
use subtle::ConstantTimeEq;
use thiserror::Error;

use crate::wire::{BEACON_BYTES, Beacon, HEAD_BYTES, KeyId, sealed_under};

/// A secret's length, bytes.
pub const SECRET_BYTES: usize = 32;

/// A key's id is the HMAC of this, shortened.
const ID_LABEL: &[u8] = b"underpass beacon key id";

/// Why a text is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a beacon key is 64 hexadecimal digits (32 random bytes)")]
pub struct SecretError;

/// Authenticates beacons by HMAC-SHA-256 (RFC 2104), shortened to 128 bits.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    hmac: hmac::Key,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.id).finish()
    }
}

impl Key {
    /// The key of a secret.
    pub fn new(secret: &[u8; SECRET_BYTES]) -> Key {
        let hmac = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let mut id = [0; 8];
        id.copy_from_slice(&hmac::sign(&hmac, ID_LABEL).as_ref()[..8]);
        Key {
            id: KeyId(id),
            hmac,
        }
    }

    /// The key of a secret in hexadecimal digits.
    ///
    /// # Errors
    /// Unless there are exactly 64 of them and nothing else.
    pub fn from_hex(text: &str) -> Result<Key, SecretError> {
        let text = text.as_bytes();
        if text.len() != 2 * SECRET_BYTES {
            return Err(SecretError);
        }
        let mut secret = [0; SECRET_BYTES];
        for (byte, pair) in secret.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(SecretError);
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        Ok(Key::new(&secret))
    }

    /// The key's name in datagrams.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// A datagram; the beacon must name this key.
    pub fn seal(&self, beacon: &Beacon) -> [u8; BEACON_BYTES] {
        let head = beacon.head();
        let tag = hmac::sign(&self.hmac, &head);
        let mut datagram = [0; BEACON_BYTES];
        datagram[..HEAD_BYTES].copy_from_slice(&head);
        datagram[HEAD_BYTES..].copy_from_slice(&tag.as_ref()[..BEACON_BYTES - HEAD_BYTES]);
        datagram
    }

    /// Whether a datagram that [`Beacon::parse`] accepted was sealed with this key, be it a beacon
    /// or a returned one.
    pub fn is_authentic(&self, datagram: &[u8]) -> bool {
        let Some((head, tag)) = datagram.split_first_chunk::<HEAD_BYTES>() else {
            return false;
        };
        let mut head = *head;
        sealed_under(head[0]).iter().any(|first| {
            head[0] = *first;
            let expected = hmac::sign(&self.hmac, &head);
            let expected = &expected.as_ref()[..BEACON_BYTES - HEAD_BYTES];
            // In constant time, so that a tag cannot be found byte by byte.
            bool::from(expected.ct_eq(tag))
        })
    }
}
