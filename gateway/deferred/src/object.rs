//! The shape of a stored HTTP message.

use serde::{Deserialize, Serialize};

/// The largest part that is accepted, bytes.
pub const MAX_PART_BYTES: u32 = 256 << 10;
/// The longest head that is accepted, bytes: twice what a node takes of a client or an origin. Heads
/// are in memory as a whole.
const MAX_HEAD_BYTES: u32 = 256 << 10;
/// The smallest part that is accepted, where it is not the last one, bytes.
pub const MIN_PART_BYTES: u32 = 1 << 10;

/// An HTTP message as `message/http` has it (RFC 9112 §10.1), cut into parts:
/// a head without framing fields, and all that follows it is the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes of the head, its empty line included.
    pub head_bytes: u32,
    /// Bytes of each part but the last.
    pub part_bytes: u32,
}

impl Object {
    /// Number of parts, at least 1.
    pub fn parts(&self) -> u32 {
        let parts = self.total_bytes.div_ceil(u64::from(self.part_bytes));
        u32::try_from(parts).unwrap_or(u32::MAX).max(1)
    }

    /// Bytes of part `index`.
    pub fn part_len(&self, index: u32) -> u64 {
        let start = u64::from(index) * u64::from(self.part_bytes);
        let left = self.total_bytes.saturating_sub(start);
        left.min(u64::from(self.part_bytes))
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> u64 {
        self.total_bytes - u64::from(self.head_bytes)
    }

    /// Whether a peer may name such an object at all.
    pub(crate) fn is_sound(&self) -> bool {
        (MIN_PART_BYTES..=MAX_PART_BYTES).contains(&self.part_bytes)
            && (1..=MAX_HEAD_BYTES).contains(&self.head_bytes)
            && u64::from(self.head_bytes) <= self.total_bytes
            && self.total_bytes <= u64::from(self.part_bytes) * u64::from(u32::MAX >> 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_object_exactly() {
        for total_bytes in [1, 1024, 1025, 5000] {
            let object = Object {
                total_bytes,
                head_bytes: 1,
                part_bytes: 1024,
            };
            assert!(object.is_sound());
            let sum: u64 = (0..object.parts()).map(|i| object.part_len(i)).sum();
            assert_eq!(sum, total_bytes);
            assert!(object.part_len(object.parts() - 1) > 0);
        }
    }

    #[test]
    fn a_head_that_would_fill_memory_is_no_head() {
        let object = |head_bytes| Object {
            total_bytes: 64 << 20,
            head_bytes,
            part_bytes: MAX_PART_BYTES,
        };
        assert!(object(MAX_HEAD_BYTES).is_sound());
        for head_bytes in [0, MAX_HEAD_BYTES + 1, 64 << 20, u32::MAX] {
            assert!(!object(head_bytes).is_sound(), "{head_bytes}");
        }
    }
}
