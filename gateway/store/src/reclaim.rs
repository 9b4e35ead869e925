//! Reclaims the room of released bundles.
//!
//! A segment that is not needed is deleted. It is needed as long as it has a bundle that is kept,
//! or voids a record in another segment: without it that bundle would come back at the next start.
//! If there is more garbage than kept bundles, the segment with the least to move is emptied, some
//! megabytes at a time; so is a segment that the disk cannot read.

use std::io;

use bytes::Bytes;
use underpass_work::count;

use crate::disk::Disk;
use crate::log::{Log, Put, ReadError, is_full};
use crate::record::{RECORD_HEAD, RecordHead, SEGMENT_HEAD, payload_checksum};
use crate::segment::{Location, PARTS};

/// The garbage of so many segments is tolerated.
const TOLERATED_SEGMENTS: u64 = 4;
/// The active segment is closed early once its records fill this part (1/n) of it and it has no
/// kept bundle. The header does not count: otherwise a small segment would be closed as soon as it
/// holds a release, and so would the one that it is emptied into, for ever.
const LEAST_PART: u64 = 4;
/// A segment is emptied only if at most this part of it is needed; the rest is gained.
const MOST_PART: u8 = PARTS / 4 * 3;

/// A segment that is being emptied.
#[derive(Debug)]
pub(crate) struct Moving {
    number: u64,
    /// How many of its bundles have been looked at.
    at: usize,
    /// Whether some of them cannot be read.
    unreadable: bool,
}

/// What a step of compaction has done.
#[derive(Debug, Default)]
pub struct Moved {
    /// Bytes written elsewhere.
    pub bytes: u64,
    /// Whether there is more to do.
    pub more: bool,
    /// Bundles that were found damaged, and the rest of their payloads.
    pub lost: Vec<(u64, Bytes)>,
    /// Bundles that the disk cannot read, at least at present: they are tried again, and then
    /// released.
    pub unreadable: Vec<u64>,
}

impl<D: Disk> Log<D> {
    /// Deletes segments that are not needed. Returns whether there were any.
    pub fn reclaim(&mut self) -> bool {
        let least = SEGMENT_HEAD + self.segment_bytes / LEAST_PART;
        if let Some(active) = &self.active
            && let Some(segment) = self.segments.get(active.number)
            && segment.live == 0
            && segment.length >= least
        {
            self.abandon();
        }
        let mut any = false;
        // A segment is needed until those whose records it voids are gone for good.
        while self.delete_needless() {
            any = true;
            if self.disk.sync_names().is_err() {
                break;
            }
            self.forget_deleted();
        }
        any
    }

    /// Tries again what has failed at the disk: deleting and truncating segments.
    pub fn retry(&mut self) {
        for number in std::mem::take(&mut self.undeleted) {
            self.segments.put_back_needless(number);
        }
        for (number, length) in std::mem::take(&mut self.uncut) {
            if self.segments.contains(number) && self.disk.truncate(number, length).is_err() {
                self.uncut.insert(number, length);
            }
        }
        if !self.deleted.is_empty() && self.change_names().is_ok() {
            self.forget_deleted();
        }
    }

    fn delete_needless(&mut self) -> bool {
        let mut any = false;
        while let Some(number) = self.segments.take_needless() {
            count();
            match self.disk.delete(number) {
                Ok(()) => {
                    self.deleted.push(number);
                    any = true;
                }
                Err(_) => self.undeleted.push(number),
            }
        }
        any
    }

    /// Notes that deleted segments are gone for good.
    pub(crate) fn forget_deleted(&mut self) {
        for number in std::mem::take(&mut self.deleted) {
            count();
            self.segments.remove(number);
            self.untold.forget(number);
            self.uncut.remove(&number);
        }
    }

    /// After a failed sync of the names the next one would do nothing, so a name is changed first.
    fn change_names(&mut self) -> io::Result<()> {
        let number = self.next_segment;
        self.next_segment += 1;
        self.disk.create(number)?;
        self.disk.delete(number)?;
        self.disk.sync_names()
    }

    /// Whether compaction has something to do: there is too much garbage, the disk cannot read a
    /// segment, or a step that failed has damaged bundles left to report.
    pub fn wants_compaction(&self) -> bool {
        self.moving.is_some() || !self.untold_lost.is_empty() || self.next_to_move().is_some()
    }

    fn next_to_move(&self) -> Option<u64> {
        let failing = self.segments.first_failing();
        failing.or_else(|| {
            let needed = self.segments.needed_bytes();
            let garbage = self.segments.bytes().saturating_sub(needed);
            let wasteful = garbage > needed.max(self.segment_bytes * TOLERATED_SEGMENTS);
            wasteful.then(|| self.segments.sparsest(MOST_PART))?
        })
    }

    /// Moves about `most` bytes of bundles out of the segment that has the
    /// least to keep.
    ///
    /// # Errors
    /// When the disk fails or is full: nothing is lost, and it is tried again
    /// with the next call.
    pub fn compact(&mut self, most: u64) -> io::Result<Moved> {
        let next = self.next_to_move();
        self.empty(next, most)
    }

    /// Empties a segment of which little is needed, since the disk is full, if what has to be kept
    /// is sure to find room. The result says whether that made room.
    ///
    /// # Errors
    /// When the disk fails, or others have taken the room that was set aside.
    pub fn make_room(&mut self, most: u64) -> io::Result<Moved> {
        // The segment that is being emptied may have too much to move.
        self.moving = None;
        let Some(number) = self.roomiest() else {
            return self.empty(None, most);
        };
        match self.empty(Some(number), most) {
            Err(error) if is_full(&error) => {
                let Some(reserve) = self.reserve.take() else {
                    return Err(error);
                };
                self.disk.delete(reserve)?;
                self.empty(Some(number), most)
            }
            other => other,
        }
    }

    fn roomiest(&mut self) -> Option<u64> {
        let fits = |log: &Log<D>, number: u64| {
            let segment = log.segments.get(number);
            let room = log.reserve_bytes() - SEGMENT_HEAD;
            segment.is_some_and(|segment| segment.to_move() + RECORD_HEAD as u64 <= room)
        };
        let closed = self.segments.sparsest(MOST_PART);
        if let Some(number) = closed.filter(|number| fits(self, *number)) {
            return Some(number);
        }
        let active = self.active.as_ref()?.number;
        let garbage = self.segments.get(active)?;
        let worth = garbage.length > self.segment_bytes / 2;
        if !worth || !fits(self, active) {
            return None;
        }
        self.abandon();
        self.segments.sparsest(MOST_PART).filter(|n| *n == active)
    }

    fn empty(&mut self, next: Option<u64>, most: u64) -> io::Result<Moved> {
        let mut moved = Moved {
            lost: std::mem::take(&mut self.untold_lost),
            ..Moved::default()
        };
        let begun = self.moving.take();
        let next = next.map(|number| Moving {
            number,
            at: 0,
            unreadable: false,
        });
        let Some(mut moving) = begun.or(next) else {
            return Ok(moved);
        };
        let number = moving.number;
        let mut puts = Vec::new();
        while moved.bytes < most {
            let segment = self.segments.get(number);
            let Some(id) = segment.and_then(|segment| segment.ids.get(moving.at).copied()) else {
                break;
            };
            count();
            moving.at += 1;
            // Bundles that were released meanwhile, or moved before, are skipped.
            let location = self.index.get(id).copied();
            let Some(location) = location.filter(|at| at.segment == number) else {
                continue;
            };
            match self.read_whole(id, &location) {
                Ok(put) => {
                    moved.bytes += put.bytes();
                    puts.push(put);
                }
                Err(ReadError::Damaged(left)) => {
                    self.release(self.latest_ms, [id]);
                    moved.lost.push((id, left));
                }
                Err(ReadError::Unknown) => {}
                Err(ReadError::Io(_)) => {
                    moving.unreadable = true;
                    moved.unreadable.push(id);
                }
            }
        }
        let ids = self.segments.get(number).map_or(0, |s| s.ids.len());
        let last = moving.at >= ids;
        let again = match last {
            true => self.releases_in(number),
            false => Vec::new(),
        };
        if (!puts.is_empty() || !again.is_empty())
            && let Err(error) = self.write_durably(&puts, &again)
        {
            // The damaged bundles are released already, so no later step would find them again.
            self.untold_lost = moved.lost;
            return Err(error);
        }
        if last {
            self.hand_over_voids(number);
            self.segments.rest(number, moving.unreadable);
            self.reclaim();
        } else {
            self.moving = Some(moving);
        }
        moved.more = self.wants_compaction();
        Ok(moved)
    }

    /// The releases in a segment that are still needed.
    fn releases_in(&self, number: u64) -> Vec<(u64, u64)> {
        let Some(segment) = self.segments.get(number) else {
            return Vec::new();
        };
        let voids = segment.voids.iter();
        let all = voids.flat_map(|(target, ids)| ids.iter().map(move |id| (*target, *id)));
        // A bundle that was moved is not released: its new record voids the old one.
        all.filter(|(_, id)| !self.index.contains_key(*id))
            .collect()
    }

    /// Lets other segments void what a segment has voided until now.
    fn hand_over_voids(&mut self, number: u64) {
        for (target, ids) in self.segments.take_voids(number) {
            for id in ids {
                count();
                if let Some(location) = self.index.get(id) {
                    self.segments.void(location.segment, target, id);
                }
            }
        }
    }

    /// Reads a bundle that could not be read before. If it can be now, it is
    /// moved when its segment is emptied.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_again(&mut self, id: u64) -> Result<Bytes, ReadError> {
        let location = *self.index.get(id).ok_or(ReadError::Unknown)?;
        let put = self.read_whole(id, &location)?;
        self.segments.rest(location.segment, false);
        Ok(put.payload.concat().into())
    }

    fn read_whole(&mut self, id: u64, location: &Location) -> Result<Put, ReadError> {
        let length = usize::try_from(location.length()).map_err(io::Error::other)?;
        let nonce = self.segments.nonce(location.segment);
        let read = self.disk.read(location.segment, location.at, length);
        let record = read.inspect_err(|_| self.fail(location.segment))?;
        let payload_at = RECORD_HEAD + location.description as usize;
        let payload = record.slice(payload_at.min(record.len())..);
        let description = record.slice(RECORD_HEAD.min(record.len())..payload_at.min(record.len()));
        let intact = record.len() == length
            && RecordHead::is_valid(&record[..RECORD_HEAD], nonce, &description)
            && payload_checksum(nonce, [&payload[..]]) == location.payload_crc;
        match intact {
            true => Ok(Put {
                id,
                stored_at_ms: location.stored_at_ms,
                description,
                payload: vec![payload],
                // The payload's file has its name already.
                file: None,
            }),
            false => Err(ReadError::Damaged(payload)),
        }
    }
}
