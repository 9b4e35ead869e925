//! Several bundles in one block of LTP.
//!
//! ION-DTN gathers the bundles of up to a second in one block, one after the other (its `ltprc`,
//! *aggregation size limit*). Only a bundle's own encoding shows where it ends: it is an array of
//! indefinite length whose blocks are arrays of definite length (RFC 9171, 4.1).

use std::convert::Infallible;

use bytes::{Buf, Bytes};

/// An array of indefinite length begins (RFC 8949, 3.2.2).
const BEGIN: u8 = 0x9f;
/// It ends.
const BREAK: u8 = 0xff;

/// The shortest possible bundle: a primary block that names nobody and an empty payload block (RFC
/// 9171, 4.3). With at least this many bytes for each bundle, a block costs the node no more work
/// than bundles in datagrams would.
const LEAST_BUNDLE_BYTES: u64 = 24;

/// The longest head of an item, bytes (RFC 8949, 3).
pub(crate) const HEAD_BYTES: usize = 9;

/// The bundles of a block, as encoded. If the end of one cannot be found, the rest of the block
/// counts as the last one; the node decides whether it is a bundle.
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
        let rest = &self.rest;
        let read = |at, head: &mut [u8; HEAD_BYTES]| Ok::<_, Infallible>(head_at(rest, at, head));
        let Ok(length) = next_bytes(rest.len() as u64, read);
        // No more than the rest, which is in memory.
        let length = length as usize;
        if length == self.bytes {
            return Some(std::mem::take(&mut self.rest));
        }
        // A bundle that is kept must not keep the whole block in memory.
        let bundle = Bytes::copy_from_slice(&self.rest[..length]);
        self.rest.advance(length);
        Some(bundle)
    }
}

/// The length of the bundle with which the last `rest` bytes of a block begin: all of them if its
/// end cannot be found. `read` fills the array with the bytes from a place on, and returns how many
/// there are.
///
/// # Errors
/// Those of `read`.
pub(crate) fn next_bytes<E>(
    rest: u64,
    read: impl FnMut(u64, &mut [u8; HEAD_BYTES]) -> Result<usize, E>,
) -> Result<u64, E> {
    let length = bundle_bytes(read)?;
    let length = length.filter(|length| (LEAST_BUNDLE_BYTES..=rest).contains(length));
    Ok(length.unwrap_or(rest))
}

/// The length of the bundle that begins there. It takes no memory and does not recurse, so that
/// nesting and false lengths cost nothing.
fn bundle_bytes<E>(
    mut read: impl FnMut(u64, &mut [u8; HEAD_BYTES]) -> Result<usize, E>,
) -> Result<Option<u64>, E> {
    let (mut head, mut at) = ([0; HEAD_BYTES], 0_u64);
    let mut outline = Outline::default();
    loop {
        let count = read(at, &mut head)?;
        let skipped = match outline.take(&head[..count]) {
            Some(Item::End) => return Ok(Some(at + 1)),
            Some(Item::Within(bytes)) => at.checked_add(bytes),
            None => None,
        };
        let Some(next) = skipped else {
            return Ok(None);
        };
        at = next;
    }
}

/// What of an item is known by its head.
enum Item {
    /// The bundle ends with it.
    End,
    /// The next item begins this many bytes after the beginning of this one.
    Within(u64),
}

/// How far a bundle has come, item by item.
#[derive(Default)]
struct Outline {
    begun: bool,
    /// Items that are still to come of the bundle's present block.
    due: u64,
}

impl Outline {
    /// Takes the next item, of which these are the first bytes; `None` if it has no place
    /// in a bundle.
    fn take(&mut self, head: &[u8]) -> Option<Item> {
        let first = *head.first()?;
        if !self.begun {
            self.begun = first == BEGIN;
            return self.begun.then_some(Item::Within(1));
        }
        if self.due == 0 && first == BREAK {
            return Some(Item::End);
        }
        let (argument, bytes) = argument(head)?;
        let due = self.due.saturating_sub(1);
        let (due, content) = match first >> 5 {
            2 | 3 => (due, argument),
            4 => (due.checked_add(argument)?, 0),
            5 => (due.checked_add(argument.checked_mul(2)?)?, 0),
            6 => (due.checked_add(1)?, 0),
            _ => (due, 0),
        };
        self.due = due;
        Some(Item::Within(content.checked_add(bytes as u64)?))
    }
}

/// Fills the array with the bytes from a place on, and returns how many there are.
fn head_at(bytes: &[u8], at: u64, head: &mut [u8; HEAD_BYTES]) -> usize {
    let at = usize::try_from(at).ok();
    let rest = at.and_then(|at| bytes.get(at..)).unwrap_or_default();
    let count = rest.len().min(HEAD_BYTES);
    head[..count].copy_from_slice(&rest[..count]);
    count
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

    /// A bundle's outline: an array with a byte string of `bytes` bytes.
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
        // A single bundle is not copied.
        let alone = Bytes::from(outline(30));
        let parts: Vec<Bytes> = Bundles::of(alone.clone()).collect();
        assert_eq!(parts[0].as_ptr(), alone.as_ptr());
    }
}
