//! What is known of a segment while the store runs.

use crate::record::{RECORD_HEAD, RecordHead};

/// Whose the log is, and in which time its records are.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The node's ipn node number.
    pub node: u64,
    /// The present boot.
    pub boot: [u8; 16],
    /// Time since that boot, ms.
    pub boot_ms: i64,
    /// Whence the nonces are drawn.
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
    /// When it was to be kept, ms of the present boot's time.
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
}

/// One segment of the log.
#[derive(Debug)]
pub struct Segment {
    pub nonce: u64,
    /// Up to where it is written, bytes.
    pub length: u64,
    /// Bundles in it that are kept.
    pub live: usize,
    /// Their records' bytes.
    pub live_bytes: u64,
    /// Releases told in it, each with the segment of the bundle's record: as
    /// long as that is there, the release is needed.
    pub releases: Vec<(u64, u64)>,
}

impl Segment {
    pub fn new(nonce: u64, length: u64) -> Segment {
        Segment {
            nonce,
            length,
            live: 0,
            live_bytes: 0,
            releases: Vec::new(),
        }
    }

    pub fn gain(&mut self, location: &Location) {
        self.live += 1;
        self.live_bytes += location.length();
    }

    pub fn lose(&mut self, location: &Location) {
        self.live -= 1;
        self.live_bytes -= location.length();
    }
}
