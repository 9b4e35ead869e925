//! What secures a bundle that comes in fragments (RFC 9172): blocks that were added before it was
//! cut, and that cover it as it was then. The first fragment has all of them (RFC 9171 §5.8).

use std::time::Instant;

use bp7::primary::PrimaryBlock;
use bytes::Bytes;

use super::super::receive::Arrival;
use crate::wire::{Bundle, Extension, Malformed, is_security, primary_of_whole, targets};

/// The number of the primary block, as a target.
const PRIMARY: u64 = 0;

/// The parts of the first fragment that its bundle is judged by, and what they say.
pub(super) struct Proof {
    primary: PrimaryBlock,
    expires: Instant,
    encrypted: bool,
    primary_raw: Bytes,
    payload_head: Bytes,
    blocks: Vec<Extension>,
}

impl Proof {
    /// Copies of them, which do not keep the fragment in memory.
    pub fn of(first: &Arrival) -> Proof {
        let bundle = &first.bundle;
        let blocks = bundle.others.iter().filter(|block| is_security(block));
        Proof {
            primary: bundle.primary.clone(),
            expires: first.expires,
            encrypted: bundle.encrypted,
            primary_raw: Bytes::copy_from_slice(&bundle.primary_raw),
            payload_head: Bytes::copy_from_slice(&bundle.payload_head),
            blocks: blocks
                .map(|block| Extension {
                    raw: Bytes::copy_from_slice(&block.raw),
                    ..block.clone()
                })
                .collect(),
        }
    }

    /// Makes the bundle of this payload as it was before it was cut, as far as its security blocks
    /// cover it. It is what the first fragment's primary block says, which is judged: anybody can
    /// have changed that of another fragment, to an administrative record's, say.
    ///
    /// # Errors
    /// When that was no fragment.
    pub fn put_back(self, arrival: &mut Arrival) -> Result<(), Malformed> {
        let has_crc = !self.blocks.iter().any(signs_primary);
        arrival.expires = self.expires;
        let bundle = &mut arrival.bundle;
        bundle.primary = self.primary;
        bundle.primary_raw = primary_of_whole(&self.primary_raw, has_crc)?;
        bundle.payload_head = self.payload_head;
        bundle.encrypted = self.encrypted;
        bundle.others = self.blocks;
        Ok(())
    }
}

/// Whether a block has the primary block as a target, which then has no CRC (RFC 9173 §3.8.1).
fn signs_primary(block: &Extension) -> bool {
    let content = block.content();
    content.is_ok_and(|content| targets(&content).contains(&PRIMARY))
}

/// The bytes of a bundle's security blocks.
pub(super) fn security_bytes(bundle: &Bundle) -> u64 {
    let blocks = bundle.others.iter().filter(|block| is_security(block));
    blocks.map(|block| block.raw.len() as u64).sum()
}
