//! What is known of a segment while the store runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{INDEX_ENTRY_HEAD, RECORD_HEAD, RecordHead};

/// The node that owns the log, and the boot whose clock its records use.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The node's ipn node number.
    pub node: u64,
    /// The present boot.
    pub boot: [u8; 16],
    /// Time since that boot, ms.
    pub boot_ms: i64,
    /// The seed of the nonces.
    pub seed: u64,
}

impl Identity {
    /// The nonce of a segment made in this run.
    pub fn nonce(&self, segment: u64) -> u64 {
        // Steele, Lea and Flood 2014, SplitMix64.
        let step = segment.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut z = self.seed.wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Where a bundle is in the log.
#[derive(Clone, Copy, Debug)]
pub struct Location {
    pub segment: u64,
    /// Where its record begins.
    pub at: u64,
    pub description: u32,
    pub payload: u64,
    pub payload_crc: u32,
    /// When it was put, ms of the present boot's time.
    pub stored_at_ms: i64,
}

impl Location {
    pub fn new(segment: u64, at: u64, head: &RecordHead) -> Location {
        Location {
            segment,
            at,
            description: head.description,
            payload: head.payload,
            payload_crc: head.payload_crc,
            stored_at_ms: head.stored_at_ms,
        }
    }

    /// Where its payload begins.
    pub fn payload_at(&self) -> u64 {
        self.at + RECORD_HEAD as u64 + u64::from(self.description)
    }

    /// The record's bytes without padding.
    pub fn length(&self) -> u64 {
        RECORD_HEAD as u64 + u64::from(self.description) + self.payload
    }

    /// The bytes that keeping it takes: the record, and its entry in an index.
    pub fn needed(&self) -> u64 {
        self.length() + INDEX_ENTRY_HEAD as u64 + u64::from(self.description)
    }
}

/// What a release that is written again takes, bytes, with its part of an index.
const RELEASE_BYTES: u64 = 32;
/// The needed part of a segment is counted in so many steps.
pub const PARTS: u8 = 64;

/// One segment of the log. [`crate::segments::Segments`] changes it.
#[derive(Debug, Default)]
pub struct Segment {
    pub nonce: u64,
    /// How much of it is written, bytes.
    pub length: u64,
    /// Bundles in it that are kept.
    pub live: usize,
    /// Their records' bytes.
    pub live_bytes: u64,
    /// The bytes that keeping them takes.
    pub needed_bytes: u64,
    /// Bundles that were written to it, in order; most of them may be gone.
    pub ids: Vec<u64>,
    /// Records in older segments, by segment, that are void because of this one: their bundles are
    /// released here, or were moved here. This segment must stay as long as the older one is there.
    pub voids: BTreeMap<u64, Vec<u64>>,
    pub void_count: usize,
    /// Segments that void records of this one.
    pub voided_by: BTreeSet<u64>,
    /// Nothing more is written to it.
    pub closed: bool,
    /// The disk cannot read all of it.
    pub failing: bool,
    /// Not to be emptied at present: the rest of it cannot be read, but has not been given up.
    pub resting: bool,
}

impl Segment {
    /// Whether nothing in it is needed.
    pub fn is_needless(&self) -> bool {
        self.closed && self.live == 0 && self.voids.is_empty()
    }

    /// What emptying it would write elsewhere, bytes.
    pub fn to_move(&self) -> u64 {
        self.needed_bytes + RELEASE_BYTES * self.void_count as u64
    }

    /// The part of it that is needed, in [`PARTS`]; `None` if it is not to be emptied.
    pub fn part(&self) -> Option<u8> {
        if !self.closed || self.resting || self.is_needless() {
            return None;
        }
        let part = u128::from(self.to_move()) * u128::from(PARTS) / u128::from(self.length.max(1));
        Some(u8::try_from(part).unwrap_or(u8::MAX))
    }
}
