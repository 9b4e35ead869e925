//! The sender's blocks, and the bundles that wait to be cut.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::sent::SentBlock;
use crate::symbol::{BODY_HEADER_BYTES, Body};

/// Bytes of a bundle that are in no block.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) bundle: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

/// A block is kept while it is being filled, and then until all of its bundles are judged.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    waiting: VecDeque<Piece>,
    blocks: BTreeMap<u64, SentBlock>,
    next: u64,
    filling: Option<u64>,
    /// Whether a block that has ended may still get the repair of a tail.
    unprotected: bool,
}

impl Blocks {
    /// A piece waits behind all others.
    pub(crate) fn wait(&mut self, piece: Piece) {
        if !piece.bytes.is_empty() {
            self.waiting.push_back(piece);
        }
    }

    /// Whether anything waits to be cut.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The bundle whose bytes are next.
    pub(crate) fn waiting_bundle(&self) -> Option<u64> {
        self.waiting.front().map(|piece| piece.bundle)
    }

    /// The bundle was judged before all of it was cut into symbols. Returns how many of its bytes
    /// were waiting.
    pub(crate) fn drop_waiting(&mut self, bundle: u64) -> u64 {
        let mut dropped_bytes = 0;
        self.waiting.retain(|piece| {
            let stays = piece.bundle != bundle;
            if !stays {
                dropped_bytes += piece.bytes.len() as u64;
            }
            stays
        });
        dropped_bytes
    }

    /// The block that gets symbols.
    pub(crate) fn filling(&mut self, body_bytes: usize) -> u64 {
        // A larger body fits as soon as the next block begins.
        *self.filling.get_or_insert_with(|| {
            let number = self.next;
            self.next += 1;
            self.blocks.insert(number, SentBlock::new(body_bytes));
            number
        })
    }

    /// The next bytes of the waiting bundle, as many as a symbol of the block holds, and where they
    /// begin.
    pub(crate) fn take(&mut self, block: u64) -> (u64, Bytes) {
        let most = self.blocks.get(&block).map_or(0, |sent| sent.body_bytes);
        let most = most.saturating_sub(BODY_HEADER_BYTES);
        let Some((bundle, offset, first)) = self.take_piece(most) else {
            return (0, Bytes::new());
        };
        if first.len() == most {
            return (offset, first);
        }
        let mut bytes = BytesMut::from(&first[..]);
        while bytes.len() < most
            && let Some(next) = self.waiting.front()
            && next.bundle == bundle
            && next.offset == offset + bytes.len() as u64
            && let Some((_, _, more)) = self.take_piece(most - bytes.len())
        {
            bytes.extend_from_slice(&more);
        }
        (offset, bytes.freeze())
    }

    fn take_piece(&mut self, most: usize) -> Option<(u64, u64, Bytes)> {
        let front = self.waiting.front_mut()?;
        let (bundle, offset) = (front.bundle, front.offset);
        let bytes = front.bytes.split_to(front.bytes.len().min(most));
        front.offset += bytes.len() as u64;
        if front.bytes.is_empty() {
            self.waiting.pop_front();
        }
        Some((bundle, offset, bytes))
    }

    /// A symbol is added to a block; its number.
    pub(crate) fn push(&mut self, block: u64, body: Bytes, bundle: u64) -> u16 {
        let sent = self.blocks.get_mut(&block);
        sent.map_or(0, |sent| sent.push(body, bundle))
    }

    /// Whether a block is to get repair when there is nothing more to send.
    pub(crate) fn want_end(&self) -> bool {
        self.filling.is_some() || self.unprotected
    }

    /// The blocks that then get it, the oldest first. Requests of the receiver have been answered
    /// already.
    pub(crate) fn ending(&mut self) -> Vec<u64> {
        self.unprotected = false;
        let open = self.blocks.iter().filter(|(_, sent)| sent.asked == 0);
        open.map(|(number, _)| *number).collect()
    }

    /// Closes a block, or makes it a tail, if it was not before.
    pub(crate) fn close(&mut self, block: u64, is_tail: bool) -> Option<&mut SentBlock> {
        let sent = self.blocks.get_mut(&block)?;
        if sent.closed && (sent.is_tail || !is_tail) {
            return None;
        }
        if self.filling == Some(block) {
            self.filling = None;
        }
        self.unprotected |= !is_tail;
        sent.closed = true;
        sent.is_tail = is_tail;
        Some(sent)
    }

    pub(crate) fn contains(&self, block: u64) -> bool {
        self.blocks.contains_key(&block)
    }

    pub(crate) fn get_mut(&mut self, block: u64) -> Option<&mut SentBlock> {
        self.blocks.get_mut(&block)
    }

    pub(crate) fn body(&self, block: u64, number: u16) -> Option<Bytes> {
        let sent = self.blocks.get(&block)?;
        sent.bodies.get(usize::from(number)).cloned()
    }

    /// Whether such a block has been begun.
    pub(crate) fn has_begun(&self, block: u64) -> bool {
        block < self.next
    }

    /// How many blocks have been begun since the oldest one that is kept.
    pub(crate) fn span(&self) -> u64 {
        let oldest = self.blocks.keys().next().copied();
        self.next - oldest.unwrap_or(self.next)
    }

    /// A bundle that is in these blocks is judged.
    pub(crate) fn end_bundle(&mut self, bundle: u64, blocks: &[u64]) {
        for block in blocks {
            if let Some(sent) = self.blocks.get_mut(block) {
                sent.bundles.remove(&bundle);
            }
            self.drop_judged(*block);
        }
    }

    /// Drops a block if all of its bundles are judged.
    pub(crate) fn drop_judged(&mut self, block: u64) {
        let sent = self.blocks.get(&block);
        if sent.is_some_and(|sent| sent.closed && sent.bundles.is_empty()) {
            self.blocks.remove(&block);
        }
    }

    /// Datagrams have become smaller: the bytes in blocks of larger ones wait again, ahead of all
    /// others. Returns the blocks that no longer exist.
    pub(crate) fn recut(&mut self, body_bytes: usize) -> Vec<u64> {
        let larger = |sent: &SentBlock| sent.body_bytes > body_bytes;
        let numbers = self.blocks.iter().filter(|(_, sent)| larger(sent));
        let numbers: Vec<u64> = numbers.map(|(number, _)| *number).collect();
        let mut again = VecDeque::new();
        for number in &numbers {
            if let Some(sent) = self.blocks.remove(number) {
                again.extend(pieces_of(&sent));
            }
            if self.filling == Some(*number) {
                self.filling = None;
            }
        }
        again.append(&mut self.waiting);
        self.waiting = again;
        numbers
    }
}

/// The pieces in a block of bundles that are not judged.
fn pieces_of(sent: &SentBlock) -> Vec<Piece> {
    let pieces = sent.bodies.iter().filter_map(|whole| {
        let body = Body::parse(whole).ok()?;
        let bundles = sent.bundles.iter();
        let mut bundles = bundles.filter(|bundle| **bundle & 0xffff == u64::from(body.bundle));
        Some(Piece {
            bundle: *bundles.next()?,
            offset: body.offset.into(),
            bytes: whole.slice(BODY_HEADER_BYTES..),
        })
    });
    pieces.collect()
}
