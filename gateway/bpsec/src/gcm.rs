//! AES-GCM (NIST SP 800-38D) of contents that are too long for memory: piece by piece, with
//! initialization vectors of 12 bytes and tags of 16.
//!
//! A content is decrypted in two passes. [`Checking`] compares the tag with the ciphertext, and
//! only its success gives a [`Decrypting`]: no plaintext exists before the tag is verified.

use std::fmt;

use aes::cipher::consts::U16;
use aes::cipher::{BlockEncrypt, BlockSizeUser, KeyInit, KeyIvInit, StreamCipher};
use aes::{Aes128, Aes256};
use ctr::Ctr32BE;
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::Failure;
use crate::confidentiality::{IV_BYTES, TAG_BYTES, Variant};
use crate::keys::Key;

/// The most bytes of one content (SP 800-38D §5.2.1.1): the counter has 32 bits, and its first
/// block encrypts the tag.
pub(crate) const MOST_BYTES: u64 = (1 << 36) - 32;

const BLOCK_BYTES: usize = 16;

type Block = [u8; BLOCK_BYTES];
type Keystream = Box<dyn StreamCipher + Send>;

/// GHASH of the additional data and the ciphertext.
struct Hash {
    ghash: GHash,
    /// The beginning of a block whose other bytes are still to come.
    begun: Block,
    additional_bytes: u64,
    bytes: u64,
}

impl Hash {
    fn new(key: &Block, additional: &[u8]) -> Hash {
        let mut ghash = GHash::new(key.into());
        ghash.update_padded(additional);
        Hash {
            ghash,
            begun: [0; BLOCK_BYTES],
            additional_bytes: additional.len() as u64,
            bytes: 0,
        }
    }

    fn take(&mut self, mut piece: &[u8]) {
        let begun = (self.bytes % BLOCK_BYTES as u64) as usize;
        self.bytes += piece.len() as u64;
        if begun > 0 {
            let (first, rest) = piece.split_at(piece.len().min(BLOCK_BYTES - begun));
            let end = begun + first.len();
            self.begun[begun..end].copy_from_slice(first);
            if end < BLOCK_BYTES {
                return;
            }
            self.ghash.update(&[self.begun.into()]);
            piece = rest;
        }
        let (whole, rest) = piece.split_at(piece.len() - piece.len() % BLOCK_BYTES);
        self.ghash.update_padded(whole);
        self.begun[..rest.len()].copy_from_slice(rest);
    }

    fn finish(mut self) -> Block {
        let begun = (self.bytes % BLOCK_BYTES as u64) as usize;
        self.ghash.update_padded(&self.begun[..begun]);
        let mut lengths = [0; BLOCK_BYTES];
        lengths[..8].copy_from_slice(&(8 * self.additional_bytes).to_be_bytes());
        lengths[8..].copy_from_slice(&(8 * self.bytes).to_be_bytes());
        self.ghash.update(&[lengths.into()]);
        self.ghash.finalize().into()
    }
}

/// What encryption and decryption begin with.
struct Begun {
    keystream: Keystream,
    hash: Hash,
    /// What the tag is encrypted with: the first block of the keystream.
    mask: Zeroizing<Block>,
}

impl Begun {
    fn new(
        (variant, key): (Variant, &Key),
        iv: [u8; IV_BYTES],
        additional: &[u8],
        bytes: u64,
    ) -> Result<Begun, Failure> {
        if bytes > MOST_BYTES {
            return Err(Failure::Unknown);
        }
        let key = key.material();
        let mut first = [0; BLOCK_BYTES];
        first[..IV_BYTES].copy_from_slice(&iv);
        first[BLOCK_BYTES - 1] = 1;
        let keyed = match variant {
            Variant::Aes128 => keyed::<Aes128, Ctr32BE<Aes128>>(key, &first),
            Variant::Aes256 => keyed::<Aes256, Ctr32BE<Aes256>>(key, &first),
        };
        let (hash_key, mut keystream) = keyed.ok_or(Failure::Failed)?;
        let mut mask = Zeroizing::new([0; BLOCK_BYTES]);
        keystream.apply_keystream(&mut mask[..]);
        Ok(Begun {
            keystream,
            hash: Hash::new(&hash_key, additional),
            mask,
        })
    }
}

/// The key of GHASH, and the keystream from this block on; `None` if the key has another length.
fn keyed<C, S>(key: &[u8], first: &Block) -> Option<(Zeroizing<Block>, Keystream)>
where
    C: BlockEncrypt + BlockSizeUser<BlockSize = U16> + KeyInit,
    S: KeyIvInit + StreamCipher + Send + 'static,
{
    let mut hash_key = Zeroizing::new([0; BLOCK_BYTES]);
    let cipher = C::new_from_slice(key).ok()?;
    cipher.encrypt_block((&mut *hash_key).into());
    let keystream = S::new_from_slices(key, first).ok()?;
    Some((hash_key, Box::new(keystream)))
}

fn masked(mut tag: Block, mask: &Block) -> Block {
    tag.iter_mut()
        .zip(mask)
        .for_each(|(tag, mask)| *tag ^= mask);
    tag
}

/// A content that is encrypted.
pub struct Encrypting(Begun);

impl fmt::Debug for Encrypting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encrypting").finish_non_exhaustive()
    }
}

impl Encrypting {
    /// Begins to encrypt a content of so many bytes, which is bound to the additional data. An IV
    /// may be used only once with a key.
    ///
    /// # Errors
    /// [`Failure::Unknown`] above 64 GiB less 32 bytes, [`Failure::Failed`] when the key has
    /// another length than the variant's.
    pub fn new(
        key: (Variant, &Key),
        iv: [u8; IV_BYTES],
        additional: &[u8],
        bytes: u64,
    ) -> Result<Encrypting, Failure> {
        Begun::new(key, iv, additional, bytes).map(Encrypting)
    }

    /// Encrypts the next piece of the content in place.
    pub fn apply(&mut self, piece: &mut [u8]) {
        self.0.keystream.apply_keystream(piece);
        self.0.hash.take(piece);
    }

    /// The tag.
    pub fn finish(self) -> [u8; TAG_BYTES] {
        masked(self.0.hash.finish(), &self.0.mask)
    }
}

/// A ciphertext whose tag is verified as it comes.
pub struct Checking(Begun);

impl Checking {
    /// Begins to verify the tag of a ciphertext of so many bytes.
    ///
    /// # Errors
    /// As [`Encrypting::new`].
    pub fn new(
        key: (Variant, &Key),
        iv: [u8; IV_BYTES],
        additional: &[u8],
        bytes: u64,
    ) -> Result<Checking, Failure> {
        Begun::new(key, iv, additional, bytes).map(Checking)
    }

    /// Takes the next piece of the ciphertext.
    pub fn take(&mut self, piece: &[u8]) {
        self.0.hash.take(piece);
    }

    /// Compares the tag, in constant time.
    ///
    /// # Errors
    /// [`Failure::Failed`] when it is another one.
    pub fn finish(self, tag: &[u8; TAG_BYTES]) -> Result<Decrypting, Failure> {
        let own = masked(self.0.hash.finish(), &self.0.mask);
        match bool::from(own.ct_eq(tag)) {
            true => Ok(Decrypting(self.0.keystream)),
            false => Err(Failure::Failed),
        }
    }
}

impl fmt::Debug for Checking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checking").finish_non_exhaustive()
    }
}

/// A ciphertext whose tag is verified, and which is decrypted in a second pass.
pub struct Decrypting(Keystream);

impl Decrypting {
    /// Decrypts the next piece of the ciphertext in place.
    pub fn apply(&mut self, piece: &mut [u8]) {
        self.0.apply_keystream(piece);
    }
}

impl fmt::Debug for Decrypting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decrypting").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

    use super::*;

    const IV: [u8; IV_BYTES] = *b"Twelve121212";

    fn key(variant: Variant, seed: u8) -> Key {
        let bytes = match variant {
            Variant::Aes128 => 16,
            Variant::Aes256 => 32,
        };
        Key::new((0..bytes).map(|i| seed.wrapping_add(i)).collect())
    }

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|i| (i % 251) as u8).collect()
    }

    /// The ciphertext and the tag, as ring makes them.
    fn by_ring(variant: Variant, key: &Key, additional: &[u8], content: &[u8]) -> (Vec<u8>, Block) {
        let algorithm = match variant {
            Variant::Aes128 => &AES_128_GCM,
            Variant::Aes256 => &AES_256_GCM,
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key.material()).unwrap());
        let mut sealed = content.to_vec();
        let nonce = Nonce::assume_unique_for_key(IV);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(additional), &mut sealed);
        (sealed, tag.unwrap().as_ref().try_into().unwrap())
    }

    /// Where a content is cut; its end is one of the places.
    fn cut(mut places: Vec<usize>, bytes: usize) -> Vec<usize> {
        places.retain(|place| *place < bytes);
        places.push(bytes);
        places.sort_unstable();
        places
    }

    /// The content in place, changed piece by piece.
    fn each_piece(content: &mut [u8], places: &[usize], mut change: impl FnMut(&mut [u8])) {
        let mut start = 0;
        for end in places {
            change(&mut content[start..*end]);
            start = *end;
        }
    }

    /// Whether both directions are as with ring.
    fn is_as_ring(variant: Variant, additional: &[u8], plain: &[u8], places: &[usize]) -> bool {
        let (key, bytes) = (key(variant, 7), plain.len() as u64);
        let (sealed, tag) = by_ring(variant, &key, additional, plain);
        let mut own = plain.to_vec();
        let mut encrypting = Encrypting::new((variant, &key), IV, additional, bytes).unwrap();
        each_piece(&mut own, places, |piece| encrypting.apply(piece));
        let encrypted = own == sealed && encrypting.finish() == tag;
        let mut checking = Checking::new((variant, &key), IV, additional, bytes).unwrap();
        each_piece(&mut own, places, |piece| checking.take(piece));
        let mut decrypting = checking.finish(&tag).unwrap();
        // The second pass may be cut in other places.
        each_piece(&mut own, &[plain.len()], |piece| decrypting.apply(piece));
        encrypted && own == plain
    }

    #[test]
    fn it_is_as_with_ring_around_the_bounds_of_blocks() {
        for variant in [Variant::Aes128, Variant::Aes256] {
            for bytes in (0..=130).chain([255, 256, 257, 4_095, 4_096, 4_097]) {
                let plain = content(bytes);
                for size in [1, 15, 16, 17, 64, 100, 5_000] {
                    let places = cut((0..bytes).step_by(size).collect(), bytes);
                    assert!(is_as_ring(variant, b"what it is bound to", &plain, &places));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_as_with_ring_however_a_content_is_cut(
            plain in prop::collection::vec(any::<u8>(), 0..3_000),
            additional in prop::collection::vec(any::<u8>(), 0..70),
            places in prop::collection::vec(0_usize..3_000, 0..12),
            long in any::<bool>(),
        ) {
            let variant = match long {
                true => Variant::Aes256,
                false => Variant::Aes128,
            };
            let places = cut(places, plain.len());
            prop_assert!(is_as_ring(variant, &additional, &plain, &places));
        }
    }

    #[test]
    fn nothing_is_decrypted_of_what_is_not_as_it_was_encrypted() {
        let (variant, additional, plain) = (Variant::Aes256, b"its bundle", content(1_000));
        let key_of_it = key(variant, 7);
        let (sealed, tag) = by_ring(variant, &key_of_it, additional, &plain);
        let check = |key: &Key, additional: &[u8], sealed: &[u8], tag: &Block| {
            let bytes = sealed.len() as u64;
            let mut checking = Checking::new((variant, key), IV, additional, bytes).unwrap();
            sealed.chunks(300).for_each(|piece| checking.take(piece));
            checking.finish(tag).map(drop)
        };
        assert_eq!(check(&key_of_it, additional, &sealed, &tag), Ok(()));
        let changed = |bytes: &[u8], place: usize| {
            let mut changed = bytes.to_vec();
            changed[place] ^= 0x80;
            changed
        };
        let other_tag: Block = changed(&tag, 15).try_into().unwrap();
        for failed in [
            check(&key(variant, 8), additional, &sealed, &tag),
            check(&key_of_it, b"another", &sealed, &tag),
            check(&key_of_it, additional, &changed(&sealed, 0), &tag),
            check(&key_of_it, additional, &changed(&sealed, 999), &tag),
            check(&key_of_it, additional, &sealed[..999], &tag),
            check(&key_of_it, additional, &sealed, &other_tag),
        ] {
            assert_eq!(failed, Err(Failure::Failed));
        }
    }

    /// Test case 16 of McGrew and Viega, "The Galois/Counter Mode of Operation (GCM)": AES-256, an
    /// IV of 12 bytes, additional data, and a last block that is not whole.
    #[test]
    fn the_vector_of_its_designers_is_met() {
        let hex = |text: &str| Key::parse(text).unwrap();
        let key = hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
        let iv = [
            0xca, 0xfe, 0xba, 0xbe, 0xfa, 0xce, 0xdb, 0xad, 0xde, 0xca, 0xf8, 0x88,
        ];
        let additional = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let plain = hex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        );
        let mut content = plain.material().to_vec();
        let bytes = content.len() as u64;
        let mut encrypting =
            Encrypting::new((Variant::Aes256, &key), iv, additional.material(), bytes).unwrap();
        content
            .chunks_mut(7)
            .for_each(|piece| encrypting.apply(piece));
        let sealed = hex(
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
             8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
        );
        assert_eq!(content, sealed.material());
        let tag = hex("76fc6ece0f4e1768cddf8853bb2d551b");
        assert_eq!(encrypting.finish(), tag.material());
    }

    #[test]
    fn what_its_counter_does_not_reach_is_refused_before_it_comes() {
        let key = key(Variant::Aes256, 7);
        let begin = |variant, bytes| Checking::new((variant, &key), IV, b"", bytes).map(drop);
        assert_eq!(begin(Variant::Aes256, MOST_BYTES), Ok(()));
        assert_eq!(
            begin(Variant::Aes256, MOST_BYTES + 1),
            Err(Failure::Unknown)
        );
        assert_eq!(begin(Variant::Aes128, 0), Err(Failure::Failed));
    }
}
