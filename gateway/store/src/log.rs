//! The log: bundles appended to segments, and an index of those still kept.
//!
//! A group of bundles is written with one call and made durable with one more. A release is noted
//! in memory, and in the log at the next occasion: if a crash loses it, the bundle is sent again,
//! and the next hop drops the duplicate. A segment without a kept bundle is deleted.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;
use underpass_payloads::PayloadFile;
use underpass_work::{IdMap, count, count_all};

use crate::disk::Disk;
use crate::group::Group;
use crate::reclaim::Moving;
use crate::record::{
    Kind, MAX_DESCRIPTION, RECORD_HEAD, SEGMENT_HEAD, SegmentHeader, encode_ids, encode_trailer,
    payload_checksum,
};
use crate::segment::{Identity, Location};
use crate::segments::Segments;
use crate::untold::Untold;

/// A segment is closed when the index of its records has this size. The index is in memory until
/// then, and grows with all that is written, not only with what is kept. A small one keeps memory
/// constant, however long the node runs. A million bundles take about a thousand such segments.
const MOST_INDEX_BYTES: usize = 256 << 10;
/// The most ids in one release record.
const MOST_RELEASES: usize = MAX_DESCRIPTION / 16;
/// Room that is set aside for compaction: a segment with this part (1/n) of
/// its bytes.
const RESERVE_PART: u64 = 4;

/// A bundle to be kept.
#[derive(Clone, Debug)]
pub struct Put {
    /// Its name; never used again.
    pub id: u64,
    /// When it was to be kept, ms of the boot's time.
    pub stored_at_ms: i64,
    /// Its description.
    pub description: Bytes,
    /// Its payload.
    pub payload: Vec<Bytes>,
    /// A payload file that the description names; it gets its name before the record is written.
    pub file: Option<Arc<PayloadFile>>,
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
    /// Its bytes differ from those that were written.
    #[error("its checksum is wrong")]
    Damaged(Bytes),
    /// The disk cannot read it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The segment that is being written, and the index with which it will end.
#[derive(Debug)]
pub(crate) struct Active {
    pub number: u64,
    pub index: Vec<u8>,
    /// Releases written to it since it was last made durable, each with the segment of its record.
    unsynced: Vec<(u64, u64)>,
}

/// The log over a disk.
#[derive(Debug)]
pub struct Log<D> {
    pub(crate) disk: D,
    pub(crate) identity: Identity,
    pub(crate) segment_bytes: u64,
    pub(crate) segments: Segments,
    pub(crate) active: Option<Active>,
    pub(crate) index: IdMap<u64, Location>,
    pub(crate) untold: Untold,
    pub(crate) next_segment: u64,
    /// The time of the last bundle or release, ms of the boot's time.
    pub(crate) latest_ms: i64,
    /// The segment that is being emptied.
    pub(crate) moving: Option<Moving>,
    /// Bundles released as damaged in a step of compaction that then failed, with the rest of their
    /// payloads: the next step reports them.
    pub(crate) untold_lost: Vec<(u64, Bytes)>,
    /// A segment of zeros that reserves room for compaction on a full disk; it is never begun.
    pub(crate) reserve: Option<u64>,
    /// Segments that are deleted, but that a loss of power may bring back.
    pub(crate) deleted: Vec<u64>,
    /// Segments that could not be deleted; this is tried again.
    pub(crate) undeleted: Vec<u64>,
    /// Segments that could not be truncated where a write failed, and the place.
    pub(crate) uncut: BTreeMap<u64, u64>,
}

/// Whether an error means that there was no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

impl<D> Log<D> {
    pub(crate) fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Log {
            disk: _,
            identity: _,
            segment_bytes: _,
            segments,
            active,
            index,
            untold,
            next_segment: _,
            latest_ms: _,
            moving: _,
            untold_lost,
            reserve: _,
            deleted,
            undeleted,
            uncut,
        } = self;
        segments.footprint(tell);
        if let Some(Active {
            number: _,
            index,
            unsynced,
        }) = active
        {
            tell("index bytes of the active segment", index.len());
            tell("unsynced releases", unsynced.len());
        }
        tell("bundles in the log", index.len());
        untold.footprint(tell);
        tell("lost bundles to tell", untold_lost.len());
        tell("deleted segments", deleted.len());
        tell("undeleted segments", undeleted.len());
        tell("uncut segments", uncut.len());
    }
}

impl<D: Disk> Log<D> {
    pub(crate) fn new(disk: D, identity: Identity, segment_bytes: u64) -> Log<D> {
        Log {
            disk,
            identity,
            segment_bytes,
            segments: Segments::default(),
            active: None,
            index: IdMap::default(),
            untold: Untold::default(),
            next_segment: 0,
            latest_ms: identity.boot_ms,
            moving: None,
            untold_lost: Vec::new(),
            reserve: None,
            deleted: Vec::new(),
            undeleted: Vec::new(),
            uncut: BTreeMap::new(),
        }
    }

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

    /// Bytes on the disk, with the room that is set aside.
    pub fn bytes(&self) -> u64 {
        let reserve = self.reserve.map_or(0, |_| self.reserve_bytes());
        self.segments.bytes() + reserve
    }

    /// Bytes of bundles that are kept, with their descriptions.
    pub fn live_bytes(&self) -> u64 {
        self.segments.live_bytes()
    }

    /// Segments that the disk could not read, since the start.
    pub fn failed_segments(&self) -> u64 {
        self.segments.failed()
    }

    /// Releases bundles; [`Log::tell`] or [`Log::commit`] writes that to the disk.
    pub fn release(&mut self, at_ms: i64, ids: impl IntoIterator<Item = u64>) {
        self.latest_ms = self.latest_ms.max(at_ms);
        for id in ids {
            count();
            if let Some(location) = self.index.remove(id) {
                self.untold.add(location.segment, id);
                self.segments.lose(&location);
            }
        }
    }

    /// Writes bundles: when it returns, they are on stable storage, and so are the releases written
    /// so far.
    ///
    /// # Errors
    /// When the disk fails or is full: none of them counts as kept, and all
    /// may be tried again.
    pub fn commit(&mut self, puts: &[Put]) -> io::Result<()> {
        if puts.is_empty() {
            return self.tell();
        }
        self.set_room_aside()?;
        self.write_durably(puts, &[])
    }

    /// Writes bundles and releases, and makes all that is in their segment durable. `again` are
    /// releases from another segment, each with the segment of its record.
    pub(crate) fn write_durably(&mut self, puts: &[Put], again: &[(u64, u64)]) -> io::Result<()> {
        let group = self.append(puts, again)?;
        if let Err(error) = self.disk.sync(group.segment) {
            // It is unknown what was written, and another sync may succeed without writing it. So
            // all is written again elsewhere, and what is here must not be taken for bundles later.
            self.untold.put_back(group.told);
            self.cut(group.segment, group.start);
            self.abandon();
            return Err(error);
        }
        self.accept(group);
        if let Some(active) = &mut self.active {
            active.unsynced.clear();
        }
        Ok(())
    }

    /// Writes releases down, without waiting for stable storage.
    ///
    /// # Errors
    /// When the disk fails or is full; they are tried again later.
    pub fn tell(&mut self) -> io::Result<()> {
        if !self.untold.is_empty() {
            let group = self.append(&[], &[])?;
            if let Some(active) = &mut self.active {
                active.unsynced.extend(&group.told);
            }
            self.accept(group);
        }
        Ok(())
    }

    /// Makes all releases durable: none of what was released comes back.
    ///
    /// # Errors
    /// When the disk fails or is full; they are tried again later.
    pub fn tell_durably(&mut self) -> io::Result<()> {
        while !self.untold.is_empty() {
            self.write_durably(&[], &[])?;
        }
        let Some(active) = self.active.as_ref().filter(|a| !a.unsynced.is_empty()) else {
            return Ok(());
        };
        if let Err(error) = self.disk.sync(active.number) {
            // Another sync may succeed without writing them, so they are written again elsewhere.
            self.abandon();
            return Err(error);
        }
        if let Some(active) = &mut self.active {
            active.unsynced.clear();
        }
        Ok(())
    }

    /// A payload's length, unless it is released.
    pub(crate) fn payload_bytes(&self, id: u64) -> Option<u64> {
        self.index.get(id).map(|location| location.payload)
    }

    /// Reads a payload and verifies it. A segment of which something cannot be
    /// read is emptied by [`Log::compact`], and then deleted.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&mut self, id: u64) -> Result<Bytes, ReadError> {
        let location = *self.index.get(id).ok_or(ReadError::Unknown)?;
        let nonce = self.segments.nonce(location.segment);
        let length = usize::try_from(location.payload).map_err(io::Error::other)?;
        let read = self
            .disk
            .read(location.segment, location.payload_at(), length);
        let payload = read.inspect_err(|_| self.fail(location.segment))?;
        let intact = payload.len() == length
            && payload_checksum(nonce, [&payload[..]]) == location.payload_crc;
        match intact {
            true => Ok(payload),
            false => Err(ReadError::Damaged(payload)),
        }
    }

    /// Releases a bundle that cannot be read, or is not as it was written.
    pub fn give_up(&mut self, id: u64) {
        if let Some(location) = self.index.get(id).copied() {
            self.release(self.latest_ms, [id]);
            self.segments.rest(location.segment, false);
        }
    }

    /// Notes that the disk cannot read all of a segment: nothing more is written there, and it is
    /// emptied.
    pub(crate) fn fail(&mut self, number: u64) {
        if self.is_active(number) {
            self.abandon();
        }
        self.segments.fail(number);
    }

    /// The room that is set aside, bytes.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        SEGMENT_HEAD + self.segment_bytes / RESERVE_PART
    }

    /// Sets room aside, so that a full disk can still be compacted. A disk
    /// without that room is full.
    fn set_room_aside(&mut self) -> io::Result<()> {
        if self.reserve.is_some() {
            return Ok(());
        }
        let number = self.next_segment;
        self.next_segment += 1;
        let made = self.disk.create(number);
        let bytes = self.reserve_bytes();
        if let Err(error) = made.and_then(|()| self.disk.reserve(number, bytes)) {
            // A segment that was never begun is deleted at the next start.
            let _ = self.disk.delete(number);
            return Err(error);
        }
        self.reserve = Some(number);
        Ok(())
    }

    /// Appends releases and bundles to the active segment.
    fn append(&mut self, puts: &[Put], again: &[(u64, u64)]) -> io::Result<Group> {
        let number = self.open_segment()?;
        let length = self.segments.length(number);
        let mut group = Group::new(number, self.segments.nonce(number), length);
        let told = self.untold.take(MOST_RELEASES);
        for releases in [&told[..]].into_iter().chain(again.chunks(MOST_RELEASES)) {
            if !releases.is_empty() {
                count_all(releases.len());
                let mut ids = releases.iter().map(|(_, id)| *id).collect();
                let description = encode_ids(&mut ids);
                group.add(Kind::Release, 0, self.latest_ms, &description, &[]);
            }
        }
        group.told = told;
        for put in puts {
            count();
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
            self.untold.put_back(group.told);
            // The part that was written must not be taken for bundles later.
            let cut = self.cut(number, group.start);
            if !cut || !is_full(&error) {
                self.abandon();
            }
            return Err(error);
        }
        group.told.extend(again);
        self.segments.set_length(number, group.end);
        Ok(group)
    }

    /// Puts a written group into effect.
    fn accept(&mut self, group: Group) {
        for (target, id) in group.told {
            self.segments.void(group.segment, target, id);
        }
        if let Some(active) = &mut self.active {
            active.index.extend(group.index);
        }
        for (id, location) in group.located {
            self.segments.gain(id, &location);
            if let Some(old) = self.index.insert(id, location) {
                self.segments.lose(&old);
                self.segments.void(location.segment, old.segment, id);
            }
        }
    }

    /// The active segment; a new one if there is none or it is full.
    fn open_segment(&mut self) -> io::Result<u64> {
        if let Some(active) = &self.active {
            let length = self.segments.length(active.number);
            if length < self.segment_bytes && active.index.len() < MOST_INDEX_BYTES {
                return Ok(active.number);
            }
            self.close();
        }
        // A name is tried once: after a failure its state is unknown.
        let number = self.next_segment;
        self.next_segment += 1;
        let header = SegmentHeader {
            node: self.identity.node,
            number,
            nonce: self.identity.nonce(number),
            boot: self.identity.boot,
            records_at: SEGMENT_HEAD,
        };
        if let Err(error) = self.begin(&header) {
            // An empty segment does no harm, and is deleted at the next start.
            let _ = self.disk.delete(number);
            return Err(error);
        }
        self.forget_deleted();
        self.segments.insert(number, header.nonce, SEGMENT_HEAD);
        self.active = Some(Active {
            number,
            index: Vec::new(),
            unsynced: Vec::new(),
        });
        Ok(number)
    }

    fn begin(&mut self, header: &SegmentHeader) -> io::Result<()> {
        self.disk.create(header.number)?;
        self.disk.sync_names()?;
        self.disk.write(header.number, 0, &[header.encode()])
    }

    /// Ends the active segment with its index, so that the next start need not read it. If there is
    /// no room for the index, the segment stays as it is.
    fn close(&mut self) {
        let Some(active) = self.active.take() else {
            return;
        };
        self.segments.close(active.number);
        if self.seal(active.number, active.index.into()).is_err() {
            self.untold.put_back(active.unsynced);
        }
    }

    /// Closes the active segment as it is. Its releases that are not durable are written again
    /// elsewhere.
    pub(crate) fn abandon(&mut self) {
        if let Some(active) = self.active.take() {
            self.segments.close(active.number);
            self.untold.put_back(active.unsynced);
        }
    }

    /// Appends an index to a segment.
    pub(crate) fn seal(&mut self, number: u64, index: Bytes) -> io::Result<()> {
        let Some(segment) = self.segments.get(number) else {
            return Ok(());
        };
        let start = segment.length;
        let mut group = Group::new(number, segment.nonce, start);
        let trailer = encode_trailer(segment.nonce, start);
        group.add(Kind::Index, 0, self.latest_ms, &Bytes::new(), &[index]);
        group.pieces.push(Bytes::copy_from_slice(&trailer));
        let written = self.disk.write(number, start, &group.pieces);
        if let Err(error) = written.and_then(|()| self.disk.sync(number)) {
            self.cut(number, start);
            return Err(error);
        }
        self.segments
            .set_length(number, group.end + trailer.len() as u64);
        Ok(())
    }

    /// Truncates a segment; if that fails it is tried again later.
    fn cut(&mut self, number: u64, length: u64) -> bool {
        let cut = self.disk.truncate(number, length).is_ok();
        if !cut {
            self.uncut.insert(number, length);
        }
        cut
    }
}

impl<D> Log<D> {
    /// Whether a segment is the one that is being written.
    pub(crate) fn is_active(&self, number: u64) -> bool {
        self.active
            .as_ref()
            .is_some_and(|active| active.number == number)
    }
}
