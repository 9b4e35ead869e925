//! A bundle block by block, for display: as much as can be read, and what is wrong with it.

use bp7::primary::PrimaryBlock;
use bytes::Bytes;

use super::bundle::{DecodeLimits, MAX_BLOCKS, MAX_HEADER_BYTES, Malformed, decode, read_block};
use super::cbor::Reader;
use super::crc::CrcKind;
use super::custody::CodePoints;
use super::primary::read_primary;

/// A block behind the primary one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Block type code.
    pub kind: u64,
    /// Block number.
    pub number: u64,
    /// Block processing control flags.
    pub flags: u64,
    /// Its CRC, which is right.
    pub crc: CrcKind,
    /// Its content.
    pub data: Bytes,
}

/// What bytes that may be a bundle hold.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// The primary block, and its CRC.
    pub primary: Option<(PrimaryBlock, CrcKind)>,
    /// The blocks behind it, up to the first that cannot be read.
    pub blocks: Vec<Block>,
    /// Why this node would not take the bundle.
    pub problem: Option<Malformed>,
}

/// Reads what can be read. Work and memory are bounded as in
/// [`decode`](super::decode).
pub fn inspect(raw: &Bytes, limits: &DecodeLimits, codes: &CodePoints) -> Inspection {
    let mut inspection = Inspection::default();
    let read = read_all(raw, limits, &mut inspection);
    inspection.problem = match read {
        Err(problem) => Some(problem),
        // Each block may be right although the whole is not.
        Ok(()) => decode(raw, limits, codes).err().map(|error| error.reason),
    };
    inspection
}

fn read_all(
    raw: &Bytes,
    limits: &DecodeLimits,
    inspection: &mut Inspection,
) -> Result<(), Malformed> {
    let mut reader = Reader::new(raw);
    let length = reader.array()?;
    inspection.primary = Some(read_primary(&mut reader, raw)?);
    let mut taken = 1;
    while reader.more(length, taken)? {
        if taken == MAX_BLOCKS as u64 {
            return Err(Malformed::TooManyBlocks);
        }
        let block = read_block(&mut reader, raw, limits)?;
        inspection.blocks.push(Block {
            kind: block.kind,
            number: block.number,
            flags: block.flags,
            crc: block.crc,
            data: raw.slice_ref(block.data),
        });
        let headers = reader.position() > MAX_HEADER_BYTES;
        if headers && block.number != 1 {
            return Err(Malformed::HeaderTooLarge);
        }
        taken += 1;
    }
    Ok(reader.end()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{CborError, ipn};

    /// A bundle as dtn7-rs sends it: no CRC anywhere.
    const BUNDLE: &[u8] = &[
        0x9f, 0x88, 0x07, 0x00, 0x00, 0x82, 0x02, 0x82, 0x01, 0x07, 0x82, 0x02, 0x82, 0x0a, 0x18,
        0x28, 0x82, 0x01, 0x00, 0x82, 0x01, 0x02, 0x19, 0x03, 0xe8, 0x85, 0x01, 0x01, 0x00, 0x00,
        0x42, b'h', b'i', 0xff,
    ];

    fn look(bytes: &[u8]) -> Inspection {
        let raw = Bytes::copy_from_slice(bytes);
        inspect(&raw, &DecodeLimits::default(), &CodePoints::default())
    }

    #[test]
    fn a_bundle_is_shown_block_by_block() {
        let seen = look(BUNDLE);
        assert_eq!(seen.problem, None);
        let (primary, crc) = seen.primary.unwrap();
        assert_eq!(primary.destination, ipn(1, 7));
        assert_eq!(crc, CrcKind::None);
        let [payload] = &seen.blocks[..] else {
            panic!("{:?}", seen.blocks);
        };
        assert_eq!((payload.kind, payload.number), (1, 1));
        assert_eq!(&payload.data[..], b"hi");
    }

    #[test]
    fn what_comes_before_the_damage_is_shown_and_the_damage_named() {
        let seen = look(&BUNDLE[..BUNDLE.len() - 2]);
        assert!(seen.primary.is_some() && seen.blocks.is_empty());
        assert_eq!(seen.problem, Some(Malformed::Cbor(CborError::Truncated)));
        let seen = look(&BUNDLE[..BUNDLE.len() - 1]);
        assert_eq!(seen.blocks.len(), 1);
        assert_eq!(seen.problem, Some(Malformed::Cbor(CborError::Truncated)));
        let seen = look(b"no bundle");
        assert!(seen.primary.is_none() && seen.problem.is_some());
    }

    proptest! {
        #[test]
        fn it_finds_fault_where_decoding_does(at in 0..BUNDLE.len(), byte in any::<u8>()) {
            let mut bytes = BUNDLE.to_vec();
            bytes[at] = byte;
            let raw = Bytes::from(bytes.clone());
            let decoded = decode(&raw, &DecodeLimits::default(), &CodePoints::default());
            prop_assert_eq!(look(&bytes).problem.is_some(), decoded.is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            look(&bytes);
        }
    }
}
