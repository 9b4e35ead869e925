//! The log's bytes: segments' headers, records, indexes. All numbers are
//! big-endian; `docs/custody.md` has the tables.
//!
//! Every checksum begins with its segment's nonce, so that data from a peer may look like a record
//! but cannot be one.

use bytes::{BufMut, Bytes};

/// A segment's header has two copies in different sectors, so that losing one does no harm. Records
/// follow.
pub const SEGMENT_HEAD: u64 = SECOND_HEADER_AT + HEADER_COPY as u64;
/// Where the second copy is: no sector is larger.
pub const SECOND_HEADER_AT: u64 = 4096;
/// The bytes of a copy.
pub const HEADER_COPY: usize = 64;
/// Earlier versions had both copies at the beginning, and then the records.
pub const EARLIER_SEGMENT_HEAD: u64 = 2 * HEADER_COPY as u64;
const SEGMENT_MAGIC: &[u8; 8] = b"UPCUSTOD";
const VERSION: u32 = 1;

/// The fixed part of a record.
pub const RECORD_HEAD: usize = 48;
const RECORD_MAGIC: u32 = 0x5550_4352;
/// Records begin at multiples of this.
pub const ALIGNMENT: u64 = 8;
/// The longest description.
pub const MAX_DESCRIPTION: usize = 1 << 20;

/// An entry of an index without the description.
pub const INDEX_ENTRY_HEAD: usize = 8 + RECORD_HEAD;

/// The end of a sealed segment, which says where its index is.
pub const TRAILER: usize = 24;
const TRAILER_MAGIC: &[u8; 8] = b"UPCINDEX";

/// The node that owns a segment, and the nonce of its checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The node's ipn node number.
    pub node: u64,
    /// The segment's number.
    pub number: u64,
    /// Drawn at random.
    pub nonce: u64,
    /// The boot whose clock its records use.
    pub boot: [u8; 16],
    /// Where its records begin.
    pub records_at: u64,
}

impl SegmentHeader {
    /// The header's bytes, both copies.
    pub fn encode(&self) -> Bytes {
        let mut copy = Vec::with_capacity(self.records_at as usize);
        copy.put_slice(SEGMENT_MAGIC);
        copy.put_u32(VERSION);
        // Zero in segments of earlier versions.
        copy.put_u32(u32::try_from(self.records_at).unwrap_or_default());
        copy.put_u64(self.node);
        copy.put_u64(self.number);
        copy.put_u64(self.nonce);
        copy.put_slice(&self.boot);
        copy.put_u32(0);
        copy.put_u32(crc32c::crc32c(&copy));
        copy.resize(SECOND_HEADER_AT as usize, 0);
        copy.extend_from_within(..HEADER_COPY);
        copy.into()
    }

    /// Reads the first valid of copies that follow each other.
    pub fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        bytes.chunks_exact(HEADER_COPY).take(2).find_map(|copy| {
            let (content, crc) = copy.split_at(HEADER_COPY - 4);
            let known = content.starts_with(SEGMENT_MAGIC) && number32(content, 8) == VERSION;
            (known && number32(crc, 0) == crc32c::crc32c(content)).then(|| SegmentHeader {
                node: number64(content, 16),
                number: number64(content, 24),
                nonce: number64(content, 32),
                boot: content[40..56].try_into().unwrap_or_default(),
                records_at: match number32(content, 12) {
                    0 => EARLIER_SEGMENT_HEAD,
                    at => u64::from(at),
                },
            })
        })
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bundle: its description and its payload.
    Bundle,
    /// Bundles that were released; their ids are the description.
    Release,
    /// The heads and descriptions of all records before it, as payload.
    Index,
}

/// The fixed part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// What it is.
    pub kind: Kind,
    /// The bundle.
    pub id: u64,
    /// When it was put, ms of the boot's time.
    pub stored_at_ms: i64,
    /// The description's bytes.
    pub description: u32,
    /// The payload's checksum.
    pub payload_crc: u32,
    /// The payload's bytes.
    pub payload: u64,
}

impl RecordHead {
    /// The head's bytes, with the checksum over it and its description.
    pub fn encode(&self, nonce: u64, description: &[u8]) -> [u8; RECORD_HEAD] {
        let mut head = [0; RECORD_HEAD];
        let mut out = &mut head[..];
        out.put_u32(RECORD_MAGIC);
        out.put_u8(match self.kind {
            Kind::Bundle => 1,
            Kind::Release => 2,
            Kind::Index => 3,
        });
        out.put_slice(&[0; 3]);
        out.put_u64(self.id);
        out.put_i64(self.stored_at_ms);
        out.put_u32(self.description);
        out.put_u32(self.payload_crc);
        out.put_u64(self.payload);
        let crc = checksum(nonce, [&head[..RECORD_HEAD - 4], description]);
        head[RECORD_HEAD - 4..].copy_from_slice(&crc.to_be_bytes());
        head
    }

    /// Reads a head. Only [`RecordHead::is_valid`] can say whether it is one, once its description
    /// is there.
    pub fn decode(head: &[u8]) -> Option<RecordHead> {
        if head.len() < RECORD_HEAD || number32(head, 0) != RECORD_MAGIC {
            return None;
        }
        let kind = match head[4] {
            1 => Kind::Bundle,
            2 => Kind::Release,
            3 => Kind::Index,
            _ => return None,
        };
        let description = number32(head, 24);
        if description as usize > MAX_DESCRIPTION {
            return None;
        }
        Some(RecordHead {
            kind,
            id: number64(head, 8),
            stored_at_ms: number64(head, 16).cast_signed(),
            description,
            payload_crc: number32(head, 28),
            payload: number64(head, 32),
        })
    }

    /// Whether head and description are as they were written.
    pub fn is_valid(head: &[u8], nonce: u64, description: &[u8]) -> bool {
        let (content, crc) = head.split_at(RECORD_HEAD - 4);
        number32(crc, 0) == checksum(nonce, [content, description])
    }

    /// The whole record's bytes, padding included.
    pub fn length(&self) -> u64 {
        let content = RECORD_HEAD as u64 + u64::from(self.description);
        content
            .saturating_add(self.payload)
            .checked_next_multiple_of(ALIGNMENT)
            .unwrap_or(u64::MAX)
    }
}

/// The payload's checksum.
pub fn payload_checksum<'a>(nonce: u64, pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    checksum(nonce, pieces)
}

fn checksum<'a>(nonce: u64, pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let start = crc32c::crc32c(&nonce.to_be_bytes());
    pieces.into_iter().fold(start, crc32c::crc32c_append)
}

/// A release record's description: runs of ids, first and count.
pub fn encode_ids(ids: &mut Vec<u64>) -> Bytes {
    ids.sort_unstable();
    ids.dedup();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for id in ids.iter().copied() {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == id => *count += 1,
            _ => runs.push((id, 1)),
        }
    }
    let mut out = Vec::with_capacity(runs.len() * 16);
    for (first, count) in runs {
        out.put_u64(first);
        out.put_u64(count);
    }
    out.into()
}

/// Runs of ids in a release record, first and last.
pub fn decode_ids(description: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    description.chunks_exact(16).map(|run| {
        let (first, count) = (number64(run, 0), number64(run, 8));
        (first, first.saturating_add(count.saturating_sub(1)))
    })
}

/// The end of a sealed segment whose index record begins at `index_at`.
pub fn encode_trailer(nonce: u64, index_at: u64) -> [u8; TRAILER] {
    let mut trailer = [0; TRAILER];
    let mut out = &mut trailer[..];
    out.put_slice(TRAILER_MAGIC);
    out.put_u64(index_at);
    out.put_u32(0);
    let crc = checksum(nonce, [&trailer[..TRAILER - 4]]);
    trailer[TRAILER - 4..].copy_from_slice(&crc.to_be_bytes());
    trailer
}

/// Where the index record begins, if the segment is sealed.
pub fn decode_trailer(nonce: u64, trailer: &[u8]) -> Option<u64> {
    let (content, crc) = trailer.split_at_checked(TRAILER - 4)?;
    let valid = content.starts_with(TRAILER_MAGIC)
        && crc.len() == 4
        && number32(crc, 0) == checksum(nonce, [content]);
    valid.then(|| number64(content, 8))
}

/// One entry of an index: where a record begins, its head and description.
pub fn put_index_entry(index: &mut Vec<u8>, at: u64, head: &[u8; RECORD_HEAD], description: &[u8]) {
    index.put_u64(at);
    index.put_slice(head);
    index.put_slice(description);
}

/// Takes the first entry of the rest of an index.
pub fn take_index_entry(index: &mut Bytes) -> Option<(u64, RecordHead, Bytes)> {
    if index.len() < 8 + RECORD_HEAD {
        return None;
    }
    let at = number64(index, 0);
    let head = RecordHead::decode(&index[8..8 + RECORD_HEAD])?;
    let end = 8 + RECORD_HEAD + head.description as usize;
    if index.len() < end {
        return None;
    }
    let entry = index.split_to(end);
    Some((at, head, entry.slice(8 + RECORD_HEAD..)))
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    let number = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    u32::from_be_bytes(number.unwrap_or_default())
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    let number = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    u64::from_be_bytes(number.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        node: 20,
        number: 7,
        nonce: 0x1234_5678_9abc_def0,
        boot: [9; 16],
        records_at: SEGMENT_HEAD,
    };

    #[test]
    fn a_segment_header_has_its_copies_in_two_sectors_each_of_which_is_enough() {
        let encoded = HEADER.encode();
        assert_eq!(encoded.len() as u64, SEGMENT_HEAD);
        for at in 0..HEADER_COPY {
            for (damaged, whole) in [(0, 4096), (4096, 0)] {
                let mut bytes = encoded.to_vec();
                bytes[damaged + at] ^= 4;
                assert_eq!(SegmentHeader::decode(&bytes[damaged..][..64]), None);
                let decoded = SegmentHeader::decode(&bytes[whole..][..64]);
                assert_eq!(decoded, Some(HEADER));
            }
        }
    }

    #[test]
    fn a_segment_of_an_earlier_version_has_its_records_right_behind_its_header() {
        let mut copy = HEADER.encode()[..HEADER_COPY].to_vec();
        copy[12..16].fill(0);
        let crc = crc32c::crc32c(&copy[..HEADER_COPY - 4]);
        copy[HEADER_COPY - 4..].copy_from_slice(&crc.to_be_bytes());
        let damaged = vec![0; HEADER_COPY];
        let decoded = SegmentHeader::decode(&[damaged, copy].concat()).unwrap();
        assert_eq!(decoded.records_at, 128);
    }

    #[test]
    fn a_flip_anywhere_in_head_or_description_is_found() {
        let head = RecordHead {
            kind: Kind::Bundle,
            id: 5,
            stored_at_ms: -3,
            description: 4,
            payload_crc: 77,
            payload: 1000,
        };
        let encoded = head.encode(HEADER.nonce, b"what");
        assert_eq!(RecordHead::decode(&encoded), Some(head));
        assert!(RecordHead::is_valid(&encoded, HEADER.nonce, b"what"));
        assert!(!RecordHead::is_valid(&encoded, HEADER.nonce, b"whet"));
        assert!(!RecordHead::is_valid(&encoded, HEADER.nonce + 1, b"what"));
        for at in 0..RECORD_HEAD {
            let mut bytes = encoded;
            bytes[at] ^= 0x20;
            assert!(!RecordHead::is_valid(&bytes, HEADER.nonce, b"what"));
        }
    }

    #[test]
    fn released_ids_are_runs() {
        let mut ids = vec![9, 3, 4, 5, 10, 4];
        let runs: Vec<_> = decode_ids(&encode_ids(&mut ids)).collect();
        assert_eq!(runs, [(3, 5), (9, 10)]);
    }

    #[test]
    fn only_a_whole_trailer_names_an_index() {
        let trailer = encode_trailer(1, 4096);
        assert_eq!(decode_trailer(1, &trailer), Some(4096));
        assert_eq!(decode_trailer(2, &trailer), None);
        assert_eq!(decode_trailer(1, &trailer[1..]), None);
    }
}
