//! The bytes that applications send, which show their stream and place.

use std::sync::LazyLock;

use bytes::Bytes;

use crate::random::Random;

/// A prime, so that no length in use maps a stream onto itself.
const PERIOD: usize = 65_521;

static BYTES: LazyLock<Bytes> = LazyLock::new(|| {
    let mut random = Random::new(7);
    let period: Vec<u8> = (0..PERIOD).map(|_| random.next() as u8).collect();
    Bytes::from([period.clone(), period].concat())
});

/// Up to one period of the bytes of one direction of a stream, from `offset` on.
pub fn pattern(stream: usize, end: usize, offset: u64, length: usize) -> Bytes {
    let start = stream * 7919 + end * 31_337 + offset as usize;
    let start = start % PERIOD;
    BYTES.slice(start..start + length.min(PERIOD))
}

pub fn is_pattern(stream: usize, end: usize, offset: u64, data: &[u8]) -> bool {
    let mut offset = offset;
    data.chunks(PERIOD).all(|part| {
        let expected = pattern(stream, end, offset, part.len());
        offset += part.len() as u64;
        expected == part
    })
}
