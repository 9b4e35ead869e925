//! Several bundles in one block of LTP.
//!
//! ION-DTN gathers the bundles of up to a second in one block, one behind the
//! other (its `ltprc`, *aggregation size limit*). Nothing but the bundles' own
//! encoding tells where one ends: an array of indefinite length whose blocks
//! are arrays of definite length (RFC 9171, 4.1).

use bytes::{Buf, Bytes};

/// An array of indefinite length begins (RFC 8949, 3.2.2).
const BEGIN: u8 = 0x9f;
/// It ends.
const BREAK: u8 = 0xff;

/// No bundle is shorter: a primary block that names nobody and an empty payload
/// block (RFC 9171, 4.3). A block of so many bytes for each makes the node do no
/// more than bundles in datagrams would.
const LEAST_BUNDLE_BYTES: usize = 24;

/// The bundles of a block, each as it lies there. What cannot be told apart is
/// the last one: whether it is a bundle is the node's to say.
#[derive(Debug)]
pub struct Bundles {
    rest: Bytes,
    /// The block's length.
    bytes: usize,
}

impl Bundles {
    /// Those of this block.
    pub fn of(block: Bytes) -> Bundles {
        Bundles {
            bytes: block.len(),
            rest: block,
        }
    }
}

impl Iterator for Bundles {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            return None;
        }
        let length = bundle_bytes(&self.rest).filter(|length| *length >= LEAST_BUNDLE_BYTES);
        let length = length.unwrap_or(self.rest.len());
        if length == self.bytes {
            return Some(std::mem::take(&mut self.rest));
        }
        // One that is kept must not keep all of the block in memory.
        let bundle = Bytes::copy_from_slice(&self.rest[..length]);
        self.rest.advance(length);
        Some(bundle)
    }
}

/// How long the bundle is with which these bytes begin. It takes no memory and
/// has no recursion, so that nesting and lengths that lie cost nothing.
fn bundle_bytes(bytes: &[u8]) -> Option<usize> {
    if bytes.first() != Some(&BEGIN) {
        return None;
    }
    let mut at = 1;
    // Items that are still to come of the bundle's present block.
    let mut due: u64 = 0;
    loop {
        let first = *bytes.get(at)?;
        if due == 0 && first == BREAK {
            return Some(at + 1);
        }
        let (argument, head) = argument(&bytes[at..])?;
        at += head;
        due = due.saturating_sub(1);
        match first >> 5 {
            2 | 3 => at = at.checked_add(usize::try_from(argument).ok()?)?,
            4 => due = due.checked_add(argument)?,
            5 => due = due.checked_add(argument.checked_mul(2)?)?,
            6 => due = due.checked_add(1)?,
            _ => {}
        }
    }
}

/// The argument of an item of definite length, and the bytes of its head.
fn argument(bytes: &[u8]) -> Option<(u64, usize)> {
    let info = bytes.first()? & 0x1f;
    let count = match info {
        0..=23 => return Some((info.into(), 1)),
        24..=27 => 1usize << (info - 24),
        _ => return None,
    };
    let value = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    let number = bytes.get(1..1 + count)?.iter().fold(0, value);
    Some((number, 1 + count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle's outline: an array with a byte string of so many bytes.
    fn outline(bytes: u8) -> Vec<u8> {
        let mut bundle = vec![BEGIN, 0x58, bytes];
        bundle.resize(3 + usize::from(bytes), 7);
        bundle.push(BREAK);
        bundle
    }

    #[test]
    fn a_bundle_among_others_does_not_hold_its_block_in_memory() {
        let block = Bytes::from([outline(30), outline(40), vec![0; 10_000]].concat());
        let within = |part: &Bytes| block.as_ptr_range().contains(&part.as_ptr());
        let parts: Vec<Bytes> = Bundles::of(block.clone()).collect();
        assert_eq!(parts.concat(), block);
        assert_eq!(parts.len(), 3);
        assert!(!parts.iter().any(within));
        // One alone is not copied.
        let alone = Bytes::from(outline(30));
        let parts: Vec<Bytes> = Bundles::of(alone.clone()).collect();
        assert_eq!(parts[0].as_ptr(), alone.as_ptr());
    }
}
