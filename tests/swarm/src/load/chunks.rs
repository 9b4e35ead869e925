//! What the origin's streams consist of: chunks of one length, each with a
//! stamp at its beginning.

use std::time::Instant;

use thiserror::Error;

/// Length of a stamp.
pub const STAMP_BYTES: usize = 16;

/// What a chunk says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub stream: u32,
    /// Its number in the stream, from 0.
    pub number: u32,
    /// When the origin offered it, ns since the swarm's beginning by the
    /// monotonic clock.
    pub offered_ns: u64,
}

impl Stamp {
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..4].copy_from_slice(&self.stream.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_be_bytes());
        bytes[8..].copy_from_slice(&self.offered_ns.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8; STAMP_BYTES]) -> Stamp {
        let whole = u128::from_be_bytes(*bytes);
        Stamp {
            stream: (whole >> 96) as u32,
            number: (whole >> 64) as u32,
            offered_ns: whole as u64,
        }
    }
}

/// A chunk that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// What it said of itself.
    pub stamp: Stamp,
    /// When its last byte had left the hub, ns since the swarm's beginning.
    pub left_ns: u64,
}

/// The bytes of a stream are not those that the origin sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("chunk {number} of stream {stream} is not what the origin sent")]
pub struct NotTheOrigins {
    stream: u32,
    number: u32,
}

/// Finds the chunks in one stream's bytes.
#[derive(Clone, Debug)]
pub struct Reader {
    stream: u32,
    chunk_bytes: usize,
    epoch: Instant,
    /// Bytes of the present chunk that have come.
    at: usize,
    stamp: [u8; STAMP_BYTES],
    next: u32,
}

impl Reader {
    /// For a stream whose chunks are `chunk_bytes` long; `epoch` is the
    /// swarm's beginning.
    pub fn new(stream: u32, chunk_bytes: usize, epoch: Instant) -> Reader {
        Reader {
            stream,
            chunk_bytes: chunk_bytes.max(STAMP_BYTES),
            epoch,
            at: 0,
            stamp: [0; STAMP_BYTES],
            next: 0,
        }
    }

    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// Takes the stream's next bytes, which left the hub at `left`; notes
    /// chunks that are whole.
    ///
    /// # Errors
    /// When a chunk is not the next of this stream.
    pub fn read(
        &mut self,
        mut bytes: &[u8],
        left: Instant,
        into: &mut Vec<Arrived>,
    ) -> Result<(), NotTheOrigins> {
        let left_ns = nanos_between(self.epoch, left);
        while !bytes.is_empty() {
            let part = bytes.len().min(self.chunk_bytes - self.at);
            let of_stamp = part.min(STAMP_BYTES.saturating_sub(self.at));
            self.stamp[self.at.min(STAMP_BYTES)..][..of_stamp].copy_from_slice(&bytes[..of_stamp]);
            self.at += part;
            bytes = &bytes[part..];
            if self.at == self.chunk_bytes {
                self.at = 0;
                let stamp = Stamp::parse(&self.stamp);
                if (stamp.stream, stamp.number) != (self.stream, self.next) {
                    return Err(NotTheOrigins {
                        stream: self.stream,
                        number: self.next,
                    });
                }
                self.next += 1;
                into.push(Arrived { stamp, left_ns });
            }
        }
        Ok(())
    }
}

/// From `epoch` to `at`, ns.
pub fn nanos_between(epoch: Instant, at: Instant) -> u64 {
    let since = at.saturating_duration_since(epoch);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn chunk(number: u32) -> Vec<u8> {
        let stamp = Stamp {
            stream: 3,
            number,
            offered_ns: 1000 * u64::from(number),
        };
        let mut chunk = stamp.to_bytes().to_vec();
        chunk.resize(50, 0xee);
        chunk
    }

    #[test]
    fn chunks_are_found_wherever_the_bytes_are_cut() {
        let epoch = Instant::now();
        let bytes = [chunk(0), chunk(1), chunk(2)].concat();
        for size in 1..bytes.len() {
            let mut reader = Reader::new(3, 50, epoch);
            let mut found = Vec::new();
            for (number, part) in bytes.chunks(size).enumerate() {
                let left = epoch + Duration::from_nanos(number as u64);
                reader.read(part, left, &mut found).expect("the origin's");
            }
            for (number, arrived) in (0..).zip(&found) {
                assert_eq!(arrived.stamp.number, number);
                assert_eq!(arrived.stamp.offered_ns, 1000 * u64::from(number));
                let last_byte = 50 * u64::from(number) + 49;
                assert_eq!(arrived.left_ns, last_byte / size as u64);
            }
            assert_eq!(found.len(), 3);
        }
    }

    #[test]
    fn a_chunk_that_is_missing_or_of_another_stream_is_noticed() {
        let now = Instant::now();
        let mut found = Vec::new();
        let mut reader = Reader::new(3, 50, now);
        assert!(reader.read(&chunk(1), now, &mut found).is_err());
        let mut reader = Reader::new(4, 50, now);
        assert!(reader.read(&chunk(0), now, &mut found).is_err());
        assert!(found.is_empty());
    }
}
