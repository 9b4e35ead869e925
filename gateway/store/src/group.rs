//! Records that are written together.

use bytes::Bytes;

use crate::record::{ALIGNMENT, Kind, RECORD_HEAD, RecordHead, payload_checksum, put_index_entry};
use crate::segment::Location;

static PADDING: [u8; ALIGNMENT as usize] = [0; ALIGNMENT as usize];

/// Records for one segment, one after the other.
#[derive(Debug)]
pub struct Group {
    pub segment: u64,
    nonce: u64,
    /// Where it begins in the segment.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// What is to be written there.
    pub pieces: Vec<Bytes>,
    /// The records' entries in the segment's index.
    pub index: Vec<u8>,
    /// The bundles in it.
    pub located: Vec<(u64, Location)>,
    /// Releases in it, each with the segment of its record.
    pub told: Vec<(u64, u64)>,
}

impl Group {
    pub fn new(segment: u64, nonce: u64, start: u64) -> Group {
        Group {
            segment,
            nonce,
            start,
            end: start,
            pieces: Vec::new(),
            index: Vec::new(),
            located: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Appends a record.
    pub fn add(
        &mut self,
        kind: Kind,
        id: u64,
        stored_at_ms: i64,
        description: &Bytes,
        payload: &[Bytes],
    ) {
        let head = RecordHead {
            kind,
            id,
            stored_at_ms,
            // Descriptions are bounded far below.
            description: u32::try_from(description.len()).unwrap_or(u32::MAX),
            payload_crc: payload_checksum(self.nonce, payload.iter().map(|piece| &piece[..])),
            payload: payload.iter().map(|piece| piece.len() as u64).sum(),
        };
        let encoded = head.encode(self.nonce, description);
        if kind != Kind::Index {
            put_index_entry(&mut self.index, self.end, &encoded, description);
        }
        if kind == Kind::Bundle {
            let location = Location::new(self.segment, self.end, &head);
            self.located.push((id, location));
        }
        let mut first = Vec::with_capacity(RECORD_HEAD + description.len());
        first.extend(encoded);
        first.extend(&description[..]);
        self.pieces.push(first.into());
        self.pieces.extend(payload.iter().cloned());
        let content = RECORD_HEAD as u64 + u64::from(head.description) + head.payload;
        let padding = head.length() - content;
        if padding > 0 {
            let padding = usize::try_from(padding).unwrap_or_default();
            self.pieces.push(Bytes::from_static(&PADDING[..padding]));
        }
        self.end += head.length();
    }
}
