//! A payload whose parts come in any order.
//!
//! How long it is to become only a stranger has said. So it takes of the disk and of
//! the quota what has come of it: its file has holes until it is whole. A thread
//! writes the parts of all payloads of a folder, so that whoever gives them does not
//! wait for the disk, and says later what has become of each. What is there is never
//! written again: of parts that contradict each other the first is believed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use bytes::Bytes;

use crate::file::PayloadFile;
use crate::folder::{Payloads, Refused, Room, check_disk};
use crate::ranges::Ranges;

/// Bytes that may wait in the system's memory to be written, so that the last part
/// does not have to wait for all.
const SYNC_BYTES: u64 = 64 << 20;
/// Bytes that are read or written at once.
const PIECE_BYTES: usize = 256 << 10;
/// Ranges of a payload that do not meet at most: each takes some memory, and up to
/// two blocks of the disk beside its bytes.
const MOST_RANGES: usize = 4_096;

/// A part of a payload.
#[derive(Clone, Debug)]
pub enum Part {
    /// In memory.
    Here(Bytes),
    /// In a file of its own.
    OnDisk(Arc<PayloadFile>),
}

/// What has become of a part.
#[derive(Debug)]
pub enum Placed {
    /// It is in its place, or was there before.
    There,
    /// As `There`; and now the payload is whole and on stable storage.
    Whole(Arc<PayloadFile>),
    /// It says something else than what is there; nothing is taken of it.
    Contradicts,
    /// There is no room for it; nothing is taken of it.
    Refused(Refused),
    /// The disk has failed, and the payload is lost.
    Lost(io::Error),
}

/// Where it is said what has become of parts, each by its number.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(Arc<Mutex<Vec<(u64, Placed)>>>);

impl Outcomes {
    /// What has been said since the last call.
    pub fn take(&self) -> Vec<(u64, Placed)> {
        std::mem::take(&mut *locked(&self.0))
    }
}

/// A payload that is put together. Dropped before it is whole, it leaves nothing
/// behind.
#[derive(Debug)]
pub struct Assembly(Arc<Unfinished>);

/// A payload that is not whole yet.
#[derive(Debug)]
pub(crate) struct Unfinished {
    bytes: u64,
    payloads: Arc<Payloads>,
    /// Locked by the thread alone, while it waits for the disk.
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

/// What the thread of a folder is to do.
#[derive(Debug)]
pub(crate) enum Job {
    Place(Placing),
    /// Its file goes: that takes the disk a while.
    Forget(Arc<Unfinished>),
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

    /// The length that it is to have, bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Whether nothing of it is there, and no part is on its way.
    pub fn is_empty(&self) -> bool {
        self.0.with_room(|room| room.bytes()) == Some(0)
    }

    /// Whether parts of it are on their way to their places.
    pub fn is_being_written(&self) -> bool {
        // Each of them has a handle of its own.
        Arc::strong_count(&self.0) > 1
    }

    /// Gives its place to another payload of its owner; whether it had one.
    pub(crate) fn give_place(&self, to: &mut Room) -> bool {
        self.0.with_room(|room| room.give_place(to)) == Some(true)
    }

    /// Has a part written where it belongs, by the thread of the folder: what has
    /// become of it is told to `outcomes` by its number. It counts for `sender`.
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
        // What has just become whole needs none: it is a duplicate.
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
        // Another one may be begun at once, however long the thread waits for the disk.
        self.0.with_room(Room::end_assembly);
        // Without a thread it goes here.
        self.0.payloads.ask(Job::Forget(Arc::clone(&self.0)));
    }
}

impl Payloads {
    /// Gives the thread something to do, which is begun if there is none yet.
    fn ask(&self, job: Job) -> bool {
        let jobs = self.jobs.get_or_init(|| {
            let (sender, jobs) = mpsc::channel();
            let thread = thread::Builder::new().name("payloads".to_owned());
            // Where it cannot begin, there is nobody to send to.
            drop(thread.spawn(move || work(jobs)));
            sender
        });
        jobs.send(job).is_ok()
    }
}

/// Does what there is to do for as long as the folder is used.
fn work(jobs: mpsc::Receiver<Job>) {
    for job in jobs {
        match job {
            Job::Place(placing) => placing.run(),
            Job::Forget(payload) => drop(payload),
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

    /// Writes a part for which its sender has taken room.
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
                // Nobody knows what the disk has of it (fsync(2), EIO).
                written.file = None;
                locked(&self.room).take();
                Placed::Lost(error)
            }
        }
    }

    /// Writes what is not there yet of a part, and tells how many bytes that were;
    /// none if the part contradicts what is there.
    fn write(
        &self,
        written: &mut Written,
        offset: u64,
        part: &Part,
    ) -> Result<Option<u64>, Refused> {
        // It may have become whole meanwhile, or be lost.
        if locked(&self.room).is_none() {
            return Ok(Some(0));
        }
        let leave_free = self.payloads.limits.leave_free_bytes;
        if written.file.is_none() {
            let new = self.payloads.nameless()?;
            // What could never be whole is not begun.
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

    /// Makes it durable where it is whole, or much of it waits for that.
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
            // Duplicates may wait for the thread.
            room.trim(self.bytes);
            PayloadFile::nameless(file, self.bytes, room.complete(), 0)
        }))
    }
}

/// Whether a part says the same as the file where both are.
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

    /// Gives a range of it piece by piece, each with its place in the part, until one
    /// is answered with no; whether none was.
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
    // Nothing that runs with a lock can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
