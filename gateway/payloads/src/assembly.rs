//! A payload whose parts come in any order.
//!
//! A payload's length is only claimed by its sender. So it takes only as much of the disk
//! and of the quota as has come: its file has holes until it is whole. One thread writes
//! the parts of all payloads of a folder, so that callers do not wait for the disk; it
//! reports the outcome of each part later. Bytes that are there are never overwritten: of
//! parts that contradict each other, the first is believed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use bytes::Bytes;

use crate::file::{PIECE_BYTES, PayloadFile};
use crate::folder::{Payloads, Refused, Room, check_disk};
use crate::ranges::Ranges;

/// Unsynced bytes that may wait in the page cache; bounded so that the last part does not
/// have to wait for all of them.
const SYNC_BYTES: u64 = 64 << 20;
/// Upper limit of disjoint ranges of a payload: each takes some memory, and up to two blocks of
/// the disk beside its bytes.
const MOST_RANGES: usize = 4_096;

/// A part of a payload.
#[derive(Clone, Debug)]
pub enum Part {
    /// In memory.
    Here(Bytes),
    /// In a file of its own.
    OnDisk(Arc<PayloadFile>),
}

/// The outcome of a part.
#[derive(Debug)]
pub enum Placed {
    /// It is in its place, or was there before.
    There,
    /// As `There`, and the payload is now whole and on stable storage.
    Whole(Arc<PayloadFile>),
    /// It differs from the bytes that are there; nothing of it is written.
    Contradicts,
    /// There is no room for it; nothing of it is written.
    Refused(Refused),
    /// The disk has failed, and the payload is lost.
    Lost(io::Error),
}

/// Collects the outcomes of parts, each with its part's number.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(Arc<Mutex<Vec<(u64, Placed)>>>);

impl Outcomes {
    /// The outcomes since the last call.
    pub fn take(&self) -> Vec<(u64, Placed)> {
        std::mem::take(&mut *locked(&self.0))
    }
}

/// A payload that is assembled from parts. Dropping it before it is whole deletes its
/// bytes.
#[derive(Debug)]
pub struct Assembly(Arc<Unfinished>);

/// A payload that is not whole yet.
#[derive(Debug)]
pub(crate) struct Unfinished {
    bytes: u64,
    payloads: Arc<Payloads>,
    /// Only the thread locks it, while it waits for the disk.
    written: Mutex<Written>,
    /// None once it is whole or lost.
    room: Mutex<Option<Room>>,
    forgotten: AtomicBool,
}

#[derive(Debug, Default)]
struct Written {
    /// None before the first part, and once it is whole or lost.
    file: Option<File>,
    there: Ranges,
    unsynced: u64,
}

/// A job for the thread of a folder.
#[derive(Debug)]
pub(crate) enum Job {
    Place(Placing),
    /// Closes the file; the disk takes a while to free it.
    Forget(Arc<Unfinished>),
    /// The same for a payload that is whole.
    Close(Arc<PayloadFile>),
}

/// A part on its way to its place.
#[derive(Debug)]
pub(crate) struct Placing {
    payload: Arc<Unfinished>,
    sender: u64,
    offset: u64,
    part: Part,
    number: u64,
    outcomes: Outcomes,
}

impl Assembly {
    pub(crate) fn new(room: Room, bytes: u64) -> Assembly {
        Assembly(Arc::new(Unfinished {
            bytes,
            payloads: Arc::clone(&room.payloads),
            written: Mutex::default(),
            room: Mutex::new(Some(room)),
            forgotten: AtomicBool::new(false),
        }))
    }

    /// The length of the whole payload, bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Whether none of its bytes are there, and no part is on its way.
    pub fn is_empty(&self) -> bool {
        self.0.with_room(|room| room.bytes()) == Some(0)
    }

    /// Whether parts of it are on their way to their places.
    pub fn is_being_written(&self) -> bool {
        // Each part that waits for the thread has a handle of its own.
        Arc::strong_count(&self.0) > 1
    }

    /// Gives its place to another payload of its owner; false if it had none.
    pub(crate) fn give_place(&self, to: &mut Room) -> bool {
        self.0.with_room(|room| room.give_place(to)) == Some(true)
    }

    /// Hands a part to the thread of the folder, which writes it to its place and reports
    /// the outcome to `outcomes` under `number`. Its bytes count for `sender`.
    ///
    /// # Errors
    /// When it lies outside the payload, or its sender has no room for it.
    pub fn place(
        &self,
        sender: u64,
        offset: u64,
        part: Part,
        number: u64,
        outcomes: &Outcomes,
    ) -> Result<(), Refused> {
        let (bytes, most) = (part.len(), self.0.bytes);
        let end = offset.saturating_add(bytes);
        if end > most {
            return Err(Refused::TooLong { bytes: end, most });
        }
        // A payload that has just become whole needs no room: the part is a duplicate.
        let grown = self.0.with_room(|room| room.grow(sender, bytes));
        if grown == Some(false) {
            return Err(Refused::Quota);
        }
        let placing = Placing {
            payload: Arc::clone(&self.0),
            sender,
            offset,
            part,
            number,
            outcomes: outcomes.clone(),
        };
        if self.0.payloads.ask(Job::Place(placing)) {
            return Ok(());
        }
        self.0.with_room(|room| room.shrink(sender, bytes));
        Err(io::Error::other("no thread writes payloads").into())
    }
}

impl Drop for Assembly {
    fn drop(&mut self) {
        self.0.forgotten.store(true, Ordering::Relaxed);
        // Another one may begin at once, even if the thread waits for the disk for long.
        self.0.with_room(Room::end_assembly);
        // If there is no thread, the payload is dropped here.
        self.0.payloads.ask(Job::Forget(Arc::clone(&self.0)));
    }
}

impl Payloads {
    /// Gives the thread a job; starts the thread if there is none yet.
    pub(crate) fn ask(&self, job: Job) -> bool {
        let jobs = self.jobs.get_or_init(|| {
            let (sender, jobs) = mpsc::channel();
            let thread = thread::Builder::new().name("payloads".to_owned());
            // If the thread cannot start, the channel's receiver is dropped and sending
            // fails.
            drop(thread.spawn(move || work(jobs)));
            sender
        });
        jobs.send(job).is_ok()
    }
}

/// Does the jobs of a folder for as long as it is used.
fn work(jobs: mpsc::Receiver<Job>) {
    for job in jobs {
        match job {
            Job::Place(placing) => placing.run(),
            Job::Forget(payload) => drop(payload),
            Job::Close(file) => drop(file),
        }
    }
}

impl Placing {
    fn run(self) {
        let placed = self.payload.place(self.sender, self.offset, &self.part);
        let told = (self.number, placed);
        locked(&self.outcomes.0).push(told);
    }
}

impl Unfinished {
    fn with_room<R>(&self, call: impl FnOnce(&mut Room) -> R) -> Option<R> {
        locked(&self.room).as_mut().map(call)
    }

    /// Writes a part for which its sender has reserved room.
    fn place(&self, sender: u64, offset: u64, part: &Part) -> Placed {
        let give_back = |bytes| self.with_room(|room| room.shrink(sender, bytes));
        if self.forgotten.load(Ordering::Relaxed) {
            give_back(part.len());
            return Placed::There;
        }
        let mut written = locked(&self.written);
        let (added, placed) = match self.write(&mut written, offset, part) {
            Ok(Some(added)) => (added, Placed::There),
            Ok(None) => (0, Placed::Contradicts),
            Err(refused) => (0, Placed::Refused(refused)),
        };
        give_back(part.len() - added);
        if added == 0 {
            return placed;
        }
        written.unsynced += added;
        let whole = written.there.bytes() == self.bytes;
        match self.sync(&mut written, whole) {
            Ok(Some(file)) => Placed::Whole(file),
            Ok(None) => placed,
            Err(error) => {
                // After a failed sync, what the disk has is unknown (fsync(2), EIO).
                written.file = None;
                locked(&self.room).take();
                Placed::Lost(error)
            }
        }
    }

    /// Writes those bytes of a part that are not there yet, and returns their number;
    /// none if the part contradicts bytes that are there.
    fn write(
        &self,
        written: &mut Written,
        offset: u64,
        part: &Part,
    ) -> Result<Option<u64>, Refused> {
        // It may have become whole or been lost meanwhile.
        if locked(&self.room).is_none() {
            return Ok(Some(0));
        }
        let leave_free = self.payloads.limits.leave_free_bytes;
        if written.file.is_none() {
            let new = self.payloads.nameless()?;
            // A payload that could never become whole is not begun.
            check_disk(&new, self.bytes, leave_free)?;
            written.file = Some(new);
        }
        let Written { file, there, .. } = written;
        let Some(file) = &*file else {
            return Ok(Some(0));
        };
        let range = offset..offset + part.len();
        for known in there.within(&range) {
            if !is_same(file, &known, offset, part)? {
                return Ok(None);
            }
        }
        if there.count() >= MOST_RANGES && !there.touches(&range) {
            return Err(Refused::Quota);
        }
        check_disk(file, part.len(), leave_free)?;
        let mut added = 0;
        for missing in there.missing(&range) {
            added += missing.end - missing.start;
            let of_part = missing.start - offset..missing.end - offset;
            part.each_piece(of_part, |piece, at| {
                file.write_all_at(piece, offset + at).map(|()| true)
            })?;
        }
        there.insert(range);
        Ok(Some(added))
    }

    /// Makes the file durable once it is whole, or once [`SYNC_BYTES`] are unsynced.
    fn sync(&self, written: &mut Written, whole: bool) -> io::Result<Option<Arc<PayloadFile>>> {
        let Some(file) = written.file.take_if(|_| whole) else {
            if let Some(file) = &written.file
                && written.unsynced >= SYNC_BYTES
            {
                file.sync_data()?;
                written.unsynced = 0;
            }
            return Ok(None);
        };
        file.sync_all()?;
        let room = locked(&self.room).take();
        Ok(room.map(|mut room| {
            // Room is still reserved for duplicates that wait for the thread.
            room.trim(self.bytes);
            PayloadFile::nameless(file, self.bytes, room.complete(), 0)
        }))
    }
}

/// Whether a part has the same bytes as the file in the range `both`.
fn is_same(file: &File, both: &Range<u64>, offset: u64, part: &Part) -> io::Result<bool> {
    let of_part = both.start - offset..both.end - offset;
    let mut known = Vec::new();
    part.each_piece(of_part, |piece, at| {
        known.resize(piece.len(), 0);
        file.read_exact_at(&mut known, offset + at)?;
        Ok(known == piece)
    })
}

impl Part {
    /// Its length, bytes.
    pub fn len(&self) -> u64 {
        match self {
            Part::Here(bytes) => bytes.len() as u64,
            Part::OnDisk(file) => file.len(),
        }
    }

    /// Whether it has no byte at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes a range of it to a callback piece by piece, each with its offset in the
    /// part, until the callback returns false; whether it never did.
    fn each_piece(
        &self,
        range: Range<u64>,
        mut call: impl FnMut(&[u8], u64) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let mut buffer = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let length = left.min(PIECE_BYTES);
            let goes_on = match self {
                Part::Here(bytes) => {
                    let from = usize::try_from(at).unwrap_or(usize::MAX);
                    call(&bytes[from..from + length], at)?
                }
                Part::OnDisk(file) => {
                    buffer.resize(length, 0);
                    file.read_at(&mut buffer, at)?;
                    call(&buffer, at)?
                }
            };
            if !goes_on {
                return Ok(false);
            }
            at += length as u64;
        }
        Ok(true)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds a lock can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
