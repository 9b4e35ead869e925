//! A queue of bytes that keeps large pieces as they are and packs small ones.

use std::collections::VecDeque;

use bytes::Bytes;

/// Pieces shorter than this are packed together: a `Bytes` and its allocation
/// cost about 100 bytes, whatever it holds.
const SMALL_BYTES: usize = 4096;

/// Packed bytes are closed off at this size.
const PACK_BYTES: usize = 64 * 1024;

/// A slice is kept only if it is at least this part of the buffer that it
/// keeps alive; otherwise an unread byte could pin a whole payload.
const LEAST_PART: usize = 32;

/// The buffer that a piece is a slice of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Distinguishes it from the buffers before and after it.
    pub serial: u64,
    /// Bytes that a slice of it keeps alive.
    pub pinned: usize,
}

/// Bytes in order.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    queue: VecDeque<Bytes>,
    /// Small pieces behind the queue.
    tail: Vec<u8>,
    length: usize,
    /// Where the queue's last pieces come from.
    origin: Origin,
    /// How many they are; some may have been taken since.
    last: usize,
}

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Allocations in use.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.queue.len() + usize::from(!self.tail.is_empty())
    }

    /// Appends a slice of `origin`.
    pub(crate) fn push(&mut self, piece: Bytes, origin: Origin) {
        self.length += piece.len();
        if piece.len() < SMALL_BYTES || piece.len() < origin.pinned / LEAST_PART {
            self.tail.extend_from_slice(&piece);
            if self.tail.len() >= PACK_BYTES {
                self.close_tail();
            }
            return;
        }
        self.close_tail();
        if self.origin != origin {
            self.unpin();
            self.origin = origin;
        }
        self.last += 1;
        self.queue.push_back(piece);
    }

    /// Appends all of `after`, moving the shorter queue.
    pub(crate) fn append(&mut self, mut after: Pieces) {
        self.close_tail();
        self.unpin();
        self.length += after.length;
        if self.queue.len() <= after.queue.len() {
            for piece in self.queue.drain(..).rev() {
                after.queue.push_front(piece);
            }
            self.queue = after.queue;
        } else {
            self.queue.append(&mut after.queue);
        }
        self.tail = after.tail;
        self.origin = after.origin;
        self.last = after.last;
        self.pack_if_scattered();
    }

    /// Appends a copy of the first `count` bytes to `copy`.
    pub(crate) fn copy_front(&self, mut count: usize, copy: &mut Vec<u8>) {
        let queue = self.queue.iter().map(|piece| &piece[..]);
        for piece in queue.chain([&self.tail[..]]) {
            let part = count.min(piece.len());
            copy.extend_from_slice(&piece[..part]);
            count -= part;
            if count == 0 {
                break;
            }
        }
    }

    /// Takes at most `limit` bytes off the front; `None` if there are none.
    pub(crate) fn pop(&mut self, limit: usize) -> Option<Bytes> {
        if self.queue.is_empty() {
            self.close_tail();
        }
        let first = self.queue.front_mut()?;
        let piece = if first.len() > limit {
            first.split_to(limit)
        } else {
            self.queue.pop_front()?
        };
        self.length -= piece.len();
        if self.length == 0 {
            // An idle stream keeps no memory for bytes that it once had.
            *self = Self::default();
        }
        Some(piece)
    }

    /// Ends the packing.
    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            let mut tail = std::mem::take(&mut self.tail);
            tail.shrink_to_fit();
            self.queue.push_back(tail.into());
            self.last += 1;
        }
    }

    /// Copies what a reader has left unread, if it is less than half of the buffer that it keeps
    /// alive.
    fn unpin(&mut self) {
        let first = self.queue.len().saturating_sub(self.last);
        let held: usize = self.queue.range(first..).map(Bytes::len).sum();
        if held < self.origin.pinned / 2 {
            for piece in self.queue.range_mut(first..) {
                *piece = Bytes::copy_from_slice(piece);
            }
        }
        self.last = 0;
        self.origin = Origin::default();
    }

    /// Packs all if the pieces are small on average: runs that arrive last to
    /// first would otherwise stay in as many pieces as they had frames.
    fn pack_if_scattered(&mut self) {
        if self.queue.len() < 32 + self.length / (SMALL_BYTES / 2) {
            return;
        }
        let tail = std::mem::take(&mut self.tail);
        let queue = std::mem::take(&mut self.queue);
        (self.length, self.last) = (0, 0);
        for piece in queue.into_iter().chain([tail.into()]) {
            self.push(piece, Origin::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(serial: u64, pinned: usize) -> Origin {
        Origin { serial, pinned }
    }

    #[test]
    fn slices_that_fill_their_payload_together_are_not_copied() {
        let mut pieces = Pieces::default();
        let payloads: Vec<Bytes> = (0..2).map(|_| Bytes::from(vec![1; 100_000])).collect();
        for (serial, payload) in (1..).zip(&payloads) {
            for at in (0..100_000).step_by(10_000) {
                pieces.push(payload.slice(at..at + 10_000), of(serial, payload.len()));
            }
        }
        assert!(payloads.iter().all(|payload| !payload.is_unique()));
    }

    #[test]
    fn a_large_piece_is_passed_on_without_a_copy() {
        let piece = Bytes::from(vec![7; 64 * 1024]);
        let mut pieces = Pieces::default();
        pieces.push(piece.clone(), of(1, piece.len()));
        assert_eq!(pieces.pop(usize::MAX).unwrap().as_ptr(), piece.as_ptr());
    }

    #[test]
    fn small_pieces_share_an_allocation() {
        let mut pieces = Pieces::default();
        for _ in 0..10_000 {
            pieces.push(Bytes::from_static(b"x"), of(1, 1));
        }
        assert_eq!((pieces.len(), pieces.count()), (10_000, 1));
    }

    #[test]
    fn unread_slices_do_not_pin_their_payloads() {
        let mut pieces = Pieces::default();
        let payloads: Vec<Bytes> = (0..4).map(|_| Bytes::from(vec![1; 100_000])).collect();
        for (serial, payload) in (1..).zip(&payloads) {
            pieces.push(payload.slice(..10_000), of(serial, payload.len()));
        }
        let pinned = payloads
            .iter()
            .filter(|payload| !payload.is_unique())
            .count();
        assert_eq!(pinned, 1, "only the newest");
    }

    #[test]
    fn bytes_that_arrive_last_to_first_are_packed() {
        let mut pieces = Pieces::default();
        for _ in 0..5000 {
            let mut before = Pieces::default();
            before.push(Bytes::from_static(b"y"), of(1, 1));
            before.append(pieces);
            pieces = before;
        }
        assert_eq!(pieces.len(), 5000);
        assert!(pieces.count() < 64, "{}", pieces.count());
    }

    #[test]
    fn a_copy_of_the_front_takes_nothing() {
        let mut pieces = Pieces::default();
        pieces.push(Bytes::from(vec![1; 5000]), of(1, 5000));
        pieces.push(Bytes::from_static(b"abc"), of(2, 3));
        for count in [0, 4999, 5002, 5003] {
            let mut copy = vec![9];
            pieces.copy_front(count, &mut copy);
            let expected = [vec![9], vec![1; 5000], b"abc".to_vec()].concat();
            assert_eq!(copy, expected[..=count]);
        }
        assert_eq!(pieces.len(), 5003);
    }

    #[test]
    fn an_emptied_queue_holds_no_memory() {
        let mut pieces = Pieces::default();
        pieces.push(Bytes::from_static(b"abc"), of(1, 3));
        assert_eq!(pieces.pop(2).unwrap(), "ab");
        assert_eq!(pieces.pop(2).unwrap(), "c");
        assert_eq!((pieces.queue.capacity(), pieces.tail.capacity()), (0, 0));
    }
}
