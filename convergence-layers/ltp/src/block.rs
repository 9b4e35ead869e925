//! A block to be sent, in the pieces that it came in.

use bytes::Bytes;

/// A block in pieces, of which any range is copied into segments.
#[derive(Debug)]
pub(crate) struct Block {
    chunks: Vec<Bytes>,
    /// Where each piece begins.
    starts: Vec<u64>,
    bytes: u64,
}

impl Block {
    pub(crate) fn new(chunks: Vec<Bytes>) -> Block {
        let mut bytes = 0;
        let starts = chunks
            .iter()
            .map(|chunk| {
                let start = bytes;
                bytes += chunk.len() as u64;
                start
            })
            .collect();
        Block {
            chunks,
            starts,
            bytes,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// Appends the bytes of a range that is within the block.
    pub(crate) fn copy(&self, start: u64, end: u64, out: &mut Vec<u8>) {
        let first = self.starts.partition_point(|begin| *begin <= start);
        let mut at = start;
        for index in first.saturating_sub(1)..self.chunks.len() {
            let (chunk, begin) = (&self.chunks[index], self.starts[index]);
            let until = end.min(begin + chunk.len() as u64);
            if at < until {
                out.extend_from_slice(&chunk[(at - begin) as usize..(until - begin) as usize]);
                at = until;
            }
            if at >= end {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_range_is_copied(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
            ends: (prop::sample::Index, prop::sample::Index),
        ) {
            let whole = chunks.concat();
            let block = Block::new(chunks.into_iter().map(Bytes::from).collect());
            let ends = [ends.0.index(whole.len() + 1), ends.1.index(whole.len() + 1)];
            let (start, end) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
            let mut out = Vec::new();
            block.copy(start as u64, end as u64, &mut out);
            prop_assert_eq!(out, &whole[start..end]);
        }
    }
}
