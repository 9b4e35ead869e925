//! The log: bundles appended to segments, and an index of those still kept.
//!
//! A group of bundles is written with one call and made durable with one more.
//! What is released is noted in memory, and in the log at the next occasion:
//! a release that a crash loses costs a repetition, which the next hop
//! suppresses. A segment without a kept bundle is deleted.

use std::collections::{BTreeMap, HashMap};
use std::io;

use bytes::Bytes;
use thiserror::Error;

use crate::disk::Disk;
use crate::group::Group;
use crate::record::{
    Kind, MAX_DESCRIPTION, RECORD_HEAD, SEGMENT_HEAD, SegmentHeader, encode_ids, encode_trailer,
    payload_checksum,
};
use crate::segment::{Identity, Location, Segment};

/// A segment is closed when the index of its records has this size: it is in
/// memory until then.
const MOST_INDEX_BYTES: usize = 8 << 20;
/// Ids in one release record at most.
const MOST_RELEASES: usize = MAX_DESCRIPTION / 16;

/// A bundle to be kept.
#[derive(Clone, Debug)]
pub struct Put {
    /// Its name; never used again.
    pub id: u64,
    /// When it was to be kept, ms of the boot's time.
    pub stored_at_ms: i64,
    /// What describes it.
    pub description: Bytes,
    /// Its payload.
    pub payload: Vec<Bytes>,
}

impl Put {
    /// What it occupies, bytes.
    pub fn bytes(&self) -> u64 {
        let payload: usize = self.payload.iter().map(Bytes::len).sum();
        (RECORD_HEAD + self.description.len() + payload) as u64
    }
}

/// Why a payload is not there.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It was not kept, or is released.
    #[error("not in the log")]
    Unknown,
    /// Its bytes are not those that were written.
    #[error("its checksum is wrong")]
    Damaged(Bytes),
    /// The disk cannot read it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The segment that is written, and the index it will end with.
#[derive(Debug)]
pub(crate) struct Active {
    pub number: u64,
    pub index: Vec<u8>,
}

/// The log over a disk.
#[derive(Debug)]
pub struct Log<D> {
    pub(crate) disk: D,
    pub(crate) identity: Identity,
    pub(crate) segment_bytes: u64,
    pub(crate) segments: BTreeMap<u64, Segment>,
    pub(crate) active: Option<Active>,
    pub(crate) index: HashMap<u64, Location>,
    /// Releases that no segment tells yet, each with the segment of the
    /// bundle's record.
    pub(crate) untold: Vec<(u64, u64)>,
    pub(crate) next_segment: u64,
    /// The time of the last bundle or release, ms of the boot's time.
    pub(crate) latest_ms: i64,
    /// The segment whose bundles are being moved, and which are left.
    pub(crate) moving: Option<(u64, Vec<u64>)>,
}

impl<D: Disk> Log<D> {
    /// Bundles kept.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether no bundle is kept.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Segments on the disk.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Bytes on the disk.
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.length).sum()
    }

    /// Bytes of bundles that are kept, with what describes them.
    pub fn live_bytes(&self) -> u64 {
        let segments = self.segments.values();
        segments.map(|segment| segment.live_bytes).sum()
    }

    /// Forgets bundles; [`Log::tell`] or [`Log::commit`] tells the disk.
    pub fn release(&mut self, at_ms: i64, ids: impl IntoIterator<Item = u64>) {
        self.latest_ms = self.latest_ms.max(at_ms);
        for id in ids {
            if let Some(location) = self.index.remove(&id) {
                self.untold.push((id, location.segment));
                if let Some(segment) = self.segments.get_mut(&location.segment) {
                    segment.lose(&location);
                }
            }
        }
    }

    /// Keeps bundles: when it returns, they are on stable storage, and so are
    /// all releases so far.
    ///
    /// # Errors
    /// When the disk fails or is full: none of them counts as kept, and all
    /// may be tried again.
    pub fn commit(&mut self, puts: &[Put]) -> io::Result<()> {
        if puts.is_empty() && self.untold.is_empty() {
            return Ok(());
        }
        let group = self.append(puts)?;
        if let Err(error) = self.disk.sync(group.segment) {
            // Nothing is known of what was written: nothing more goes there,
            // and it must not be taken for bundles later.
            if self.disk.truncate(group.segment, group.start).is_ok()
                && let Some(segment) = self.segments.get_mut(&group.segment)
            {
                segment.length = group.start;
            }
            self.active = None;
            return Err(error);
        }
        self.accept(group);
        Ok(())
    }

    /// Writes releases down, without waiting for stable storage.
    ///
    /// # Errors
    /// When the disk fails or is full; they are tried again later.
    pub fn tell(&mut self) -> io::Result<()> {
        self.prune_untold();
        if !self.untold.is_empty() {
            let group = self.append(&[])?;
            self.accept(group);
        }
        Ok(())
    }

    /// Reads a payload and verifies it.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&mut self, id: u64) -> Result<Bytes, ReadError> {
        let location = *self.index.get(&id).ok_or(ReadError::Unknown)?;
        let nonce = self.nonce(location.segment);
        let length = usize::try_from(location.payload).map_err(io::Error::other)?;
        let payload = self
            .disk
            .read(location.segment, location.payload_at(), length)?;
        let intact = payload.len() == length
            && payload_checksum(nonce, [&payload[..]]) == location.payload_crc;
        match intact {
            true => Ok(payload),
            false => Err(ReadError::Damaged(payload)),
        }
    }

    pub(crate) fn nonce(&self, segment: u64) -> u64 {
        self.segments.get(&segment).map_or(0, |s| s.nonce)
    }

    /// Releases whose segment is gone need no telling.
    fn prune_untold(&mut self) {
        let segments = &self.segments;
        self.untold
            .retain(|(_, target)| segments.contains_key(target));
    }

    /// Writes releases and bundles behind what is in the active segment.
    fn append(&mut self, puts: &[Put]) -> io::Result<Group> {
        self.prune_untold();
        let number = self.open_segment()?;
        let length = self.segments.get(&number).map_or(0, |s| s.length);
        let mut group = Group::new(number, self.nonce(number), length);
        group.told = self.untold.len().min(MOST_RELEASES);
        if group.told > 0 {
            let told = self.untold.iter().take(group.told);
            let mut ids = told.map(|(id, _)| *id).collect();
            let description = encode_ids(&mut ids);
            group.add(Kind::Release, 0, self.latest_ms, &description, &[]);
        }
        for put in puts {
            self.latest_ms = self.latest_ms.max(put.stored_at_ms);
            group.add(
                Kind::Bundle,
                put.id,
                put.stored_at_ms,
                &put.description,
                &put.payload,
            );
        }
        if let Err(error) = self.disk.write(number, group.start, &group.pieces) {
            // What was written of it must not be taken for bundles later.
            if self.disk.truncate(number, group.start).is_err() {
                self.active = None;
            }
            return Err(error);
        }
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.length = group.end;
        }
        Ok(group)
    }

    /// What a group says holds from now on.
    fn accept(&mut self, group: Group) {
        let told: Vec<_> = self.untold.drain(..group.told).collect();
        if let Some(segment) = self.segments.get_mut(&group.segment) {
            segment.releases.extend(told);
        }
        if let Some(active) = &mut self.active {
            active.index.extend(group.index);
        }
        for (id, location) in group.located {
            if let Some(segment) = self.segments.get_mut(&group.segment) {
                segment.gain(&location);
            }
            if let Some(old) = self.index.insert(id, location)
                && let Some(segment) = self.segments.get_mut(&old.segment)
            {
                segment.lose(&old);
            }
        }
    }

    /// The active segment; a new one if there is none or it is full.
    fn open_segment(&mut self) -> io::Result<u64> {
        if let Some(active) = &self.active {
            let length = self.segments.get(&active.number).map_or(0, |s| s.length);
            if length < self.segment_bytes && active.index.len() < MOST_INDEX_BYTES {
                return Ok(active.number);
            }
            self.close();
        }
        let number = self.next_segment;
        let header = SegmentHeader {
            node: self.identity.node,
            number,
            nonce: self.identity.nonce(number),
            boot: self.identity.boot,
        };
        self.disk.create(number)?;
        self.next_segment += 1;
        if let Err(error) = self.disk.write(number, 0, &[header.encode()]) {
            // An empty segment is no loss, and deleted at the next start.
            let _ = self.disk.delete(number);
            return Err(error);
        }
        let segment = Segment::new(header.nonce, SEGMENT_HEAD);
        self.segments.insert(number, segment);
        self.active = Some(Active {
            number,
            index: Vec::new(),
        });
        Ok(number)
    }

    /// Ends the active segment with its index, so that the next start need not
    /// read it. Without room for the index it stays as it is.
    fn close(&mut self) {
        if let Some(Active { number, index }) = self.active.take() {
            let _ = self.seal(number, index.into());
        }
    }

    /// Appends an index to a segment.
    pub(crate) fn seal(&mut self, number: u64, index: Bytes) -> io::Result<()> {
        let Some(segment) = self.segments.get_mut(&number) else {
            return Ok(());
        };
        let start = segment.length;
        let mut group = Group::new(number, segment.nonce, start);
        group.add(Kind::Index, 0, self.latest_ms, &Bytes::new(), &[index]);
        let trailer = encode_trailer(segment.nonce, start);
        group.pieces.push(Bytes::copy_from_slice(&trailer));
        let written = self.disk.write(number, start, &group.pieces);
        if let Err(error) = written.and_then(|()| self.disk.sync(number)) {
            let _ = self.disk.truncate(number, start);
            return Err(error);
        }
        segment.length = group.end + trailer.len() as u64;
        Ok(())
    }
}

impl<D> Log<D> {
    /// Whether a segment is the one that is written.
    pub(crate) fn is_active(&self, number: u64) -> bool {
        self.active
            .as_ref()
            .is_some_and(|active| active.number == number)
    }
}
