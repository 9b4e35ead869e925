//! Getting back the room of what is released.
//!
//! A segment without a kept bundle is deleted, unless it tells of releases
//! whose bundles are still on the disk: these would come back at the next
//! start. If more is garbage than is kept, the segment with the least to move
//! is emptied, some megabytes at a time.

use std::io;

use bytes::Bytes;

use crate::disk::Disk;
use crate::log::{Log, Put, ReadError};
use crate::record::{RECORD_HEAD, RecordHead, payload_checksum};
use crate::segment::Location;

/// Bytes that are moved in one step.
const STEP_BYTES: u64 = 4 << 20;
/// Garbage of so many segments is left lie.
const TOLERATED_SEGMENTS: u64 = 4;
/// The active segment is given up once it has this part (1/n) of its size and
/// no kept bundle.
const LEAST_PART: u64 = 4;

/// What a step of compaction has done.
#[derive(Debug, Default)]
pub struct Moved {
    /// Whether there is more to do.
    pub more: bool,
    /// Bundles that were found damaged, and what is left of their payloads.
    pub lost: Vec<(u64, Bytes)>,
}

impl<D: Disk> Log<D> {
    /// Deletes segments that nothing needs. Tells whether there were any.
    ///
    /// # Errors
    /// When the disk fails; it is tried again with the next call.
    pub fn reclaim(&mut self) -> io::Result<bool> {
        let least = self.segment_bytes / LEAST_PART;
        if let Some(active) = &self.active
            && let Some(segment) = self.segments.get(&active.number)
            && segment.live == 0
            && segment.length >= least
        {
            self.active = None;
        }
        let mut any = false;
        // In order of age: a bundle that was moved is in an older segment too.
        while let Some(number) = self.needless() {
            self.disk.delete(number)?;
            self.segments.remove(&number);
            any = true;
        }
        Ok(any)
    }

    fn needless(&self) -> Option<u64> {
        let mut segments = self.segments.iter();
        let needless = segments.find(|(number, segment)| {
            let needed = || {
                segment
                    .releases
                    .iter()
                    .any(|(_, at)| self.needs(**number, *at))
            };
            segment.live == 0 && !self.is_active(**number) && !needed()
        });
        needless.map(|(number, _)| *number)
    }

    /// Whether a release told in `segment` of a bundle in `target` is needed.
    fn needs(&self, segment: u64, target: u64) -> bool {
        target != segment && self.segments.contains_key(&target)
    }

    /// Whether there is so much garbage that segments should be emptied.
    pub fn is_wasteful(&self) -> bool {
        let live = self.live_bytes();
        let garbage = self.bytes() - live;
        garbage > live.max(self.segment_bytes * TOLERATED_SEGMENTS)
    }

    /// Moves some bundles out of the segment that has the least to keep.
    ///
    /// # Errors
    /// When the disk fails or is full: nothing is lost, and it is tried again
    /// with the next call.
    pub fn compact(&mut self) -> io::Result<Moved> {
        let mut moved = Moved::default();
        if self.moving.is_none() {
            self.moving = self.next_to_move();
        }
        let Some((number, mut ids)) = self.moving.take() else {
            return Ok(moved);
        };
        let mut puts = Vec::new();
        let mut bytes = 0;
        while bytes < STEP_BYTES
            && let Some(id) = ids.pop()
        {
            // Released, or moved before, meanwhile.
            let location = self.index.get(&id).copied();
            let Some(location) = location.filter(|at| at.segment == number) else {
                continue;
            };
            match self.read_whole(id, &location) {
                Ok(put) => {
                    bytes += put.bytes();
                    puts.push(put);
                }
                Err(ReadError::Damaged(left)) => {
                    self.release(self.latest_ms, [id]);
                    moved.lost.push((id, left));
                }
                Err(ReadError::Unknown) => {}
                Err(ReadError::Io(error)) => return Err(error),
            }
        }
        let untold = self.untold.len();
        if ids.is_empty() {
            self.tell_again(number);
        }
        self.commit(&puts)
            .inspect_err(|_| self.untold.truncate(untold))?;
        if ids.is_empty() {
            if let Some(segment) = self.segments.get_mut(&number) {
                segment.releases.clear();
            }
            self.reclaim()?;
        } else {
            self.moving = Some((number, ids));
        }
        moved.more = self.moving.is_some() || self.is_wasteful();
        Ok(moved)
    }

    fn next_to_move(&self) -> Option<(u64, Vec<u64>)> {
        let closed = self.segments.iter();
        let closed = closed.filter(|(number, _)| !self.is_active(**number));
        let part = |live: u64, length: u64| (u128::from(live) << 32) / u128::from(length.max(1));
        let (number, _) = closed.min_by_key(|(_, s)| part(s.live_bytes, s.length))?;
        let inside = self.index.iter().filter(|(_, at)| at.segment == *number);
        let mut ids: Vec<u64> = inside.map(|(id, _)| *id).collect();
        // The oldest are popped first.
        ids.sort_unstable_by(|a, b| b.cmp(a));
        Some((*number, ids))
    }

    /// Has the releases that a segment tells, and that are needed, told again.
    fn tell_again(&mut self, number: u64) {
        if let Some(segment) = self.segments.get(&number) {
            let needed = segment.releases.iter().copied();
            let needed: Vec<_> = needed.filter(|(_, at)| self.needs(number, *at)).collect();
            self.untold.extend(needed);
        }
    }

    /// A bundle as it was put.
    fn read_whole(&mut self, id: u64, location: &Location) -> Result<Put, ReadError> {
        let length = usize::try_from(location.length()).map_err(io::Error::other)?;
        let nonce = self.nonce(location.segment);
        let record = self.disk.read(location.segment, location.at, length)?;
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
            }),
            false => Err(ReadError::Damaged(payload)),
        }
    }
}
