//! What a start finds in the log.
//!
//! A sealed segment's index says what is in it; payloads are verified when they are read, and in
//! the background. A segment without index (the last one written before the node was killed) is
//! read whole, and sealed, so that torn records in it are reported once. Places that the disk
//! cannot read are skipped, and the segment is emptied while the node runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;

use bytes::Bytes;
use thiserror::Error;
use underpass_work::count_all;

use crate::disk::Disk;
use crate::log::Log;
use crate::record::{
    ALIGNMENT, EARLIER_SEGMENT_HEAD, HEADER_COPY, Kind, RECORD_HEAD, RecordHead, SECOND_HEADER_AT,
    SegmentHeader, TRAILER, decode_ids, decode_trailer, payload_checksum, put_index_entry,
    take_index_entry,
};
use crate::salvage::read_around;
use crate::segment::{Identity, Location};

/// In search of the next record, checking heads may cost up to so many times a segment's bytes. A
/// payload may look like heads everywhere, each of which asks for a checksum over much.
const SEARCH_FACTOR: usize = 8;
/// Beyond that cost, only heads with descriptions up to this length are checked.
const SHORT_DESCRIPTION: u32 = 1024;

/// Why a log cannot be opened.
#[derive(Debug, Error)]
pub enum RecoveryError {
    /// The disk cannot be read.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// It is another node's.
    #[error("belongs to node {0}")]
    OtherNode(u64),
}

/// Bytes that differ from what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub segment: u64,
    /// Where in it.
    pub at: u64,
    /// How much.
    pub bytes: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { segment, at, bytes } = self;
        write!(f, "segment {segment:016x}: {bytes} bytes at {at}")
    }
}

/// A bundle that is still kept.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name.
    pub id: u64,
    /// What describes it.
    pub description: Bytes,
    /// Its payload's bytes.
    pub payload_bytes: u64,
    /// For how long it has been kept, as far as that is known, ms.
    pub stored_for_ms: u64,
}

/// What was found at a start.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The bundles, in order of their ids.
    pub bundles: Vec<Found>,
    /// The lowest id that was never used.
    pub first_free_id: u64,
    /// Bundles whose payloads have not been verified yet.
    pub unverified: Vec<u64>,
    /// What was dropped.
    pub damaged: Vec<Damage>,
}

/// A record as recovery finds it.
struct Entry {
    at: u64,
    head: RecordHead,
    description: Bytes,
    payload: Seen,
}

/// What recovery knows of a record's payload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Intact,
    Damaged,
    Unread,
}

/// A segment as recovery finds it.
struct Scanned {
    header: SegmentHeader,
    length: u64,
    entries: Vec<Entry>,
    sealed: bool,
    /// The disk cannot read all of it.
    failing: bool,
}

impl<D: Disk> Log<D> {
    /// Opens the log on a disk. Segments are as large as `segment_bytes` or slightly larger.
    ///
    /// # Errors
    /// When the disk cannot be read, or holds another node's log.
    pub fn recover(
        disk: D,
        identity: Identity,
        segment_bytes: u64,
    ) -> Result<(Log<D>, Recovered), RecoveryError> {
        let mut log = Log::new(disk, identity, segment_bytes);
        let mut recovered = Recovered::default();
        let mut state = State::default();
        let mut numbers = log.disk.segments()?;
        numbers.sort_unstable();
        for (number, length) in numbers {
            log.next_segment = number + 1;
            if let Some(scanned) = log.scan(number, length, &mut recovered.damaged)? {
                log.take_up(scanned, &mut state, &mut recovered.first_free_id);
            }
        }
        log.restore(&state, &mut recovered);
        for number in &state.failing {
            log.segments.fail(*number);
        }
        // Nothing depends on these: the next start would do them.
        log.reclaim();
        for (number, index) in state.indexes {
            // A segment that cannot be read is not written either.
            if !state.failing.contains(&number) {
                let _ = log.seal(number, index.into());
            }
        }
        Ok((log, recovered))
    }

    /// Reads a segment's records; `None` if it was never begun, or has no header that can be read.
    fn scan(
        &mut self,
        number: u64,
        length: u64,
        damaged: &mut Vec<Damage>,
    ) -> Result<Option<Scanned>, RecoveryError> {
        let earlier = EARLIER_SEGMENT_HEAD as usize;
        let mut failing = false;
        let mut blank = true;
        let mut header = None;
        for (at, bytes) in [(0, earlier), (SECOND_HEADER_AT, HEADER_COPY)] {
            let start = self.disk.read(number, at, bytes);
            failing |= start.is_err();
            let start = start.unwrap_or_default();
            blank &= start.iter().all(|byte| *byte == 0);
            let decoded = SegmentHeader::decode(&start);
            // Bytes there that are no header of ours are a payload of an earlier version.
            let ours = |header: &SegmentHeader| {
                header.number == number && (at == 0 || header.records_at > at)
            };
            header = header.or(decoded.filter(ours));
            if header.is_some() {
                break;
            }
        }
        let Some(header) = header else {
            if !failing && (length <= EARLIER_SEGMENT_HEAD || blank) {
                // If this fails, it is tried again at the next start.
                let _ = self.disk.delete(number);
            } else {
                damaged.push(Damage {
                    segment: number,
                    at: 0,
                    bytes: length,
                });
            }
            return Ok(None);
        };
        if header.node != self.identity.node {
            return Err(RecoveryError::OtherNode(header.node));
        }
        let mut scanned = Scanned {
            header,
            length,
            entries: Vec::new(),
            sealed: true,
            failing,
        };
        match self.read_index(&header, length) {
            Ok(Some(mut index)) => {
                while let Some((at, head, description)) = take_index_entry(&mut index) {
                    scanned.entries.push(Entry {
                        at,
                        head,
                        description,
                        payload: Seen::Unread,
                    });
                }
            }
            outcome => {
                scanned.failing |= outcome.is_err();
                scanned.sealed = false;
                self.read_records(&mut scanned, damaged);
            }
        }
        Ok(Some(scanned))
    }

    /// The index at the end of a sealed segment.
    fn read_index(&mut self, header: &SegmentHeader, length: u64) -> io::Result<Option<Bytes>> {
        let Some(trailer_at) = length.checked_sub(TRAILER as u64) else {
            return Ok(None);
        };
        let trailer = self.disk.read(header.number, trailer_at, TRAILER)?;
        let Some(at) = decode_trailer(header.nonce, &trailer) else {
            return Ok(None);
        };
        let size = usize::try_from(trailer_at.saturating_sub(at)).unwrap_or(0);
        let record = self.disk.read(header.number, at, size)?;
        let Some(head) = RecordHead::decode(&record).filter(|head| head.kind == Kind::Index) else {
            return Ok(None);
        };
        let end = RECORD_HEAD as u64 + head.payload;
        if end > record.len() as u64
            || !RecordHead::is_valid(&record[..RECORD_HEAD], header.nonce, &[])
        {
            return Ok(None);
        }
        let index = record.slice(RECORD_HEAD..end as usize);
        let intact = payload_checksum(header.nonce, [&index[..]]) == head.payload_crc;
        Ok(intact.then_some(index))
    }

    /// Reads a segment without index from record to record. Bytes that are no record are searched
    /// for the next one.
    fn read_records(&mut self, scanned: &mut Scanned, damaged: &mut Vec<Damage>) {
        let header = scanned.header;
        let number = header.number;
        let (content, unreadable) = read_around(&mut self.disk, number, scanned.length);
        scanned.failing |= unreadable;
        let mut at = header.records_at as usize;
        let mut bad_from = None;
        let mut search_bytes = content.len().saturating_mul(SEARCH_FACTOR);
        let mut note = |from: Option<usize>, to: usize| {
            if let Some(from) = from {
                damaged.push(Damage {
                    segment: number,
                    at: from as u64,
                    bytes: (to - from) as u64,
                });
            }
        };
        while at + RECORD_HEAD <= content.len() {
            let found = record_at(&content, at, header.nonce, &mut search_bytes);
            let Some((head, description, payload)) = found else {
                bad_from.get_or_insert(at);
                at += ALIGNMENT as usize;
                continue;
            };
            note(bad_from.take(), at);
            let intact = payload_checksum(header.nonce, [payload]) == head.payload_crc;
            if !intact {
                note(Some(at), at + head.length() as usize);
            }
            scanned.entries.push(Entry {
                at: at as u64,
                head,
                description: Bytes::copy_from_slice(description),
                payload: if intact { Seen::Intact } else { Seen::Damaged },
            });
            at += head.length() as usize;
            // The trailer follows its index and is no record.
            if head.kind == Kind::Index {
                at += TRAILER;
            }
        }
        note(bad_from, content.len());
    }

    fn take_up(&mut self, scanned: Scanned, state: &mut State, first_free_id: &mut u64) {
        let header = scanned.header;
        let number = header.number;
        let length = scanned.length.next_multiple_of(ALIGNMENT);
        self.segments.insert(number, header.nonce, length);
        self.segments.close(number);
        if scanned.failing {
            state.failing.insert(number);
        }
        if !scanned.sealed {
            state.indexes.insert(number, Vec::new());
        }
        state.boots.insert(number, header.boot);
        for entry in scanned.entries {
            let head = entry.head;
            let latest = state.latest.entry(header.boot).or_insert(i64::MIN);
            // An index may have been written in a later boot, and then has that boot's time.
            if head.kind != Kind::Index {
                *latest = (*latest).max(head.stored_at_ms);
            }
            let dropped = entry.payload == Seen::Damaged || head.kind == Kind::Index;
            if !scanned.sealed && !dropped {
                let encoded = head.encode(header.nonce, &entry.description);
                let index = state.indexes.entry(number).or_default();
                put_index_entry(index, entry.at, &encoded, &entry.description);
            }
            match head.kind {
                Kind::Bundle => {
                    *first_free_id = (*first_free_id).max(head.id + 1);
                    if dropped {
                        continue;
                    }
                    let location = Location::new(number, entry.at, &head);
                    let intact = entry.payload == Seen::Intact;
                    let kept = (location, entry.description, intact);
                    self.segments.gain(head.id, &location);
                    if let Some((old, ..)) = state.kept.insert(head.id, kept) {
                        self.segments.lose(&old);
                        self.segments.void(number, old.segment, head.id);
                    }
                }
                Kind::Release => self.take_up_releases(number, &entry.description, state),
                Kind::Index => {}
            }
        }
    }

    fn take_up_releases(&mut self, number: u64, description: &[u8], state: &mut State) {
        for (first, last) in decode_ids(description) {
            let ids: Vec<u64> = state.kept.range(first..=last).map(|(id, _)| *id).collect();
            for id in ids {
                let Some((location, ..)) = state.kept.remove(&id) else {
                    continue;
                };
                self.segments.lose(&location);
                self.segments.void(number, location.segment, id);
            }
        }
    }

    /// Converts the times of kept bundles to the present boot's.
    fn restore(&mut self, state: &State, recovered: &mut Recovered) {
        let now = self.identity.boot_ms;
        for (id, (location, description, verified)) in &state.kept {
            let mut location = *location;
            let boot = state.boots.get(&location.segment);
            let until = match boot {
                Some(boot) if *boot != self.identity.boot => state.latest.get(boot).copied(),
                _ => None,
            };
            // The time since the last write of another boot is not known.
            let stored_for = until.unwrap_or(now).saturating_sub(location.stored_at_ms);
            let stored_for = stored_for.max(0);
            location.stored_at_ms = now.saturating_sub(stored_for);
            recovered.bundles.push(Found {
                id: *id,
                // A slice would keep the whole index in memory.
                description: Bytes::copy_from_slice(description),
                payload_bytes: location.payload,
                stored_for_ms: stored_for.unsigned_abs(),
            });
            if !*verified {
                recovered.unverified.push(*id);
            }
            self.index.insert(*id, location);
        }
    }
}

/// What recovery gathers from segment to segment.
#[derive(Default)]
struct State {
    kept: BTreeMap<u64, (Location, Bytes, bool)>,
    boots: HashMap<u64, [u8; 16]>,
    /// The time of the last record of each boot.
    latest: HashMap<[u8; 16], i64>,
    /// The indexes for segments that have none.
    indexes: HashMap<u64, Vec<u8>>,
    /// Segments that the disk cannot read all of.
    failing: BTreeSet<u64>,
}

/// The record that begins at `at`, if one does: its head, description and payload. Checking bytes
/// that are no record is charged to `search_bytes`.
fn record_at<'a>(
    content: &'a [u8],
    at: usize,
    nonce: u64,
    search_bytes: &mut usize,
) -> Option<(RecordHead, &'a [u8], &'a [u8])> {
    let rest = content.get(at..)?;
    let head = RecordHead::decode(rest)?;
    let description_end = RECORD_HEAD + head.description as usize;
    let end = usize::try_from(head.payload)
        .ok()?
        .checked_add(description_end)?;
    let description = rest.get(RECORD_HEAD..description_end)?;
    let payload = rest.get(description_end..end)?;
    if description_end > *search_bytes && head.description > SHORT_DESCRIPTION {
        return None;
    }
    count_all(description_end);
    if !RecordHead::is_valid(&rest[..RECORD_HEAD], nonce, description) {
        *search_bytes = search_bytes.saturating_sub(description_end);
        return None;
    }
    Some((head, description, payload))
}
