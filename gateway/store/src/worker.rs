//! The one who waits for the disk.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_payloads::PayloadFile;

use crate::disk::Disk;
use crate::log::{Log, Put, ReadError, is_full};
use crate::queue::{Done, Figures, Shared};
use crate::tasks::AllTasks;

/// Bytes that are written and made durable together at most, and bytes that are
/// read before the next group is written.
const GROUP_BYTES: u64 = 8 << 20;
/// How long a failed write waits for the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// What was not verified at the start is read one by one, so far apart.
const VERIFY_EVERY: Duration = Duration::from_millis(5);
/// Bytes that compaction moves in one step, unless segments are small.
const MOVE_BYTES: u64 = 4 << 20;
/// And the part (1/n) of a segment that it moves if they are.
const MOVE_PART: u64 = 4;
/// While there is too much garbage, so many bytes are moved for each byte put:
/// of what is emptied at least a quarter is garbage, so this gains more than
/// the puts take.
const MOVED_PER_PUT: u64 = 2;
/// Emptying a segment that has nearly nothing to move counts as this part (1/n)
/// of a step.
const LEAST_MOVE_PART: u64 = 4;
/// A bundle that the disk cannot read is tried so often in all.
const READ_ATTEMPTS: u8 = 3;

/// What is to happen after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another step at once.
    Step,
    /// Nothing until something is asked, or so much time has passed.
    Wait(Option<Duration>),
    /// It was told to stop, and has done all that it can.
    Stop,
}

/// Why nothing can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    /// There is no room.
    Full,
    /// The disk fails.
    Failing,
}

/// What the disk could not read.
#[derive(Debug)]
struct Unreadable {
    /// How often it was tried.
    attempts: u8,
    /// The shard that has asked for it, if one has.
    asked_by: Option<usize>,
}

/// Does to the log what the stores ask.
#[derive(Debug)]
pub struct Worker<D> {
    log: Log<D>,
    shared: Arc<Shared>,
    tasks: AllTasks,
    stalled: Option<Stall>,
    /// Bytes that compaction is behind what was put.
    to_move: u64,
    unverified: VecDeque<u64>,
    unreadable: BTreeMap<u64, Unreadable>,
    /// Payloads on disk of bundles that are released, to be deleted once no
    /// record of theirs can come back.
    unneeded: Vec<(u64, Arc<PayloadFile>)>,
    /// Those of the log are taken from it with each report.
    figures: Figures,
}

/// Has payloads on disk keep their names, so that each record finds its payload.
fn save_files(puts: &[Put]) -> io::Result<()> {
    for put in puts {
        if let Some(file) = &put.file {
            file.save(put.id)?;
        }
    }
    Ok(())
}

impl<D: Disk> Worker<D> {
    /// `figures` are those of the start.
    pub(crate) fn new(
        log: Log<D>,
        shared: Arc<Shared>,
        unverified: Vec<u64>,
        figures: Figures,
    ) -> Worker<D> {
        let mut worker = Worker {
            log,
            tasks: AllTasks::new(shared.shards()),
            shared,
            stalled: None,
            to_move: 0,
            unverified: unverified.into(),
            unreadable: BTreeMap::new(),
            unneeded: Vec::new(),
            figures,
        };
        worker.report();
        worker
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// The store in figures.
    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// Tells how many entries each map, set and queue has, by a name, for
    /// diagnostics and tests; those of the boards that it shares with the stores
    /// among them. What of the log stays when all bundles are released is that
    /// of the segments which compaction leaves.
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Worker {
            log,
            shared,
            tasks,
            stalled: _,
            to_move: _,
            unverified,
            unreadable,
            unneeded,
            figures: _,
        } = self;
        log.footprint(tell);
        shared.footprint(tell);
        tasks.footprint(tell);
        tell("bundles to verify", unverified.len());
        tell("bundles to read again", unreadable.len());
        tell("payloads to delete", unneeded.len());
    }

    /// Works until it is told to stop and all is written.
    pub(crate) fn run(mut self) {
        let mut retry_at = Instant::now();
        loop {
            let retry = Instant::now() >= retry_at;
            if retry {
                retry_at = Instant::now() + RETRY_AFTER;
            }
            match self.step(retry) {
                Next::Step => {}
                Next::Wait(most) => self.shared.wait(most, self.stalled.is_some()),
                Next::Stop => return,
            }
        }
    }

    /// Does what is to be done now, a bounded part of it. `retry` says whether
    /// a disk that has failed may be tried again.
    pub fn step(&mut self, retry: bool) -> Next {
        let stop = self.shared.is_stopping();
        if retry {
            self.log.retry();
            self.read_again();
        }
        let (mut asked, mut released) = (false, false);
        for shard in 0..self.tasks.shards() {
            let mut jobs = self.shared.take(shard);
            asked |= !jobs.is_empty();
            released |= !jobs.releases.is_empty();
            self.tasks.add(shard, &mut jobs);
            for id in &jobs.releases {
                self.unreadable.remove(id);
            }
            self.log.release(jobs.released_at_ms, jobs.releases);
            self.unneeded.append(&mut jobs.files);
        }
        asked |= self.read();
        let freed = self.log.reclaim();
        if self.stalled.is_none() || retry || freed {
            self.write();
        }
        let mut made_room = false;
        if self.stalled == Some(Stall::Full) && (retry || released) {
            made_room = self.make_room();
            if made_room {
                self.write();
            }
        }
        self.keep_up();
        if self.stalled.is_none() || retry || freed {
            self.delete_files();
        }
        let reads = self.tasks.has_reads();
        let mut next = match reads || self.tasks.has_puts() {
            _ if self.stalled.is_some() && !made_room && !reads => Next::Wait(Some(RETRY_AFTER)),
            true => Next::Step,
            false => Next::Wait(None),
        };
        if stop && next != Next::Step {
            next = Next::Stop;
        } else if next == Next::Wait(None) {
            next = match asked {
                true => Next::Step,
                false => self.tidy(),
            };
        }
        if next == Next::Wait(None) && !self.unneeded.is_empty() {
            next = Next::Wait(Some(RETRY_AFTER));
        }
        self.report();
        next
    }

    /// Reads some of what is to be read; tells whether there was any.
    fn read(&mut self) -> bool {
        let any = self.tasks.has_reads();
        let bytes_of = |id| self.log.payload_bytes(id);
        for (shard, id) in self.tasks.take_reads(GROUP_BYTES, bytes_of) {
            let outcome = self.log.read(id);
            self.take_read(id, Some(shard), outcome);
        }
        any
    }

    fn take_read(&mut self, id: u64, asked_by: Option<usize>, outcome: Result<Bytes, ReadError>) {
        let known = self.unreadable.get(&id);
        let attempts = known.map_or(1, |known| known.attempts.saturating_add(1));
        let asked_by = asked_by.or(known.and_then(|known| known.asked_by));
        match outcome {
            Ok(payload) => {
                self.figures.loaded_bundles += 1;
                if let Some(shard) = asked_by {
                    self.tasks.tell(shard, Done::Loaded(id, payload));
                }
            }
            // Released meanwhile.
            Err(ReadError::Unknown) => {}
            Err(ReadError::Damaged(left)) => self.lose(id, asked_by, left),
            Err(ReadError::Io(_)) => {
                // A disk that fails as a whole may have all of it again.
                if attempts >= READ_ATTEMPTS && self.stalled != Some(Stall::Failing) {
                    self.lose(id, asked_by, Bytes::new());
                } else {
                    let unreadable = Unreadable { attempts, asked_by };
                    self.unreadable.insert(id, unreadable);
                }
            }
        }
    }

    /// The disk cannot read a bundle that no shard has asked for.
    fn note_unreadable(&mut self, id: u64) {
        let first = Unreadable {
            attempts: 1,
            asked_by: None,
        };
        self.unreadable.entry(id).or_insert(first);
    }

    /// Tries again what the disk could not read.
    fn read_again(&mut self) {
        let ids: Vec<u64> = self.unreadable.keys().copied().collect();
        for id in ids {
            let outcome = self.log.read_again(id);
            let fails = matches!(outcome, Err(ReadError::Io(_)));
            self.take_read(id, None, outcome);
            if !fails {
                self.unreadable.remove(&id);
            }
        }
    }

    /// A bundle is damaged. Without a shard that has asked for it all are told:
    /// it is one store's, and an owner kept with each bundle would take memory
    /// for what hardly ever happens.
    fn lose(&mut self, id: u64, asked_by: Option<usize>, left: Bytes) {
        self.figures.lost_bundles += 1;
        let known = self.unreadable.remove(&id);
        self.log.give_up(id);
        match asked_by.or(known.and_then(|known| known.asked_by)) {
            Some(shard) => self.tasks.tell(shard, Done::Lost(id, left)),
            None => self.tasks.tell_all(&Done::Lost(id, left)),
        }
    }

    fn write(&mut self) {
        let taken = self.tasks.take_puts(GROUP_BYTES);
        let puts = &taken.puts;
        let bytes: u64 = puts.iter().map(Put::bytes).sum();
        let outcome = match puts.is_empty() {
            true => self.log.tell(),
            false => save_files(puts).and_then(|()| self.log.commit(puts)),
        };
        match outcome {
            Ok(()) => {
                if !puts.is_empty() {
                    self.figures.commits += 1;
                    self.figures.committed_bundles += puts.len() as u64;
                    self.figures.committed_bytes += bytes;
                    self.to_move += MOVED_PER_PUT * bytes;
                    self.tasks.committed(&taken);
                }
                if self.stalled.take().is_some() {
                    self.figures.stalled = None;
                    self.tasks.tell_all(&Done::Resumed);
                }
            }
            Err(error) => {
                self.tasks.put_back(taken);
                self.stall(&error);
            }
        }
    }

    /// Deletes payloads on disk that no bundle has any more. A release that a
    /// crash loses brings the bundle back, so it must be durable before.
    fn delete_files(&mut self) {
        if self.unneeded.is_empty() || self.log.tell_durably().is_err() {
            return;
        }
        self.unneeded.retain(|(id, file)| file.delete(*id).is_err());
    }

    fn stall(&mut self, error: &io::Error) {
        let stall = match is_full(error) {
            true => Stall::Full,
            false => Stall::Failing,
        };
        if self.stalled.replace(stall).is_none() {
            let why = error.to_string();
            self.figures.stalled = Some(why.clone());
            self.tasks.tell_all(&Done::Stalled(why));
        }
    }

    /// Bytes that compaction moves in one step.
    fn portion(&self) -> u64 {
        MOVE_BYTES.min(self.log.segment_bytes / MOVE_PART).max(1)
    }

    /// Makes room on a full disk; tells whether there is more than before.
    fn make_room(&mut self) -> bool {
        let before = self.log.bytes();
        // What one step moves is gained once the segment is empty.
        for _ in 0..=MOVE_PART {
            match self.log.make_room(self.portion()) {
                Ok(moved) => {
                    let done = moved.bytes == 0;
                    self.note(moved.lost, moved.unreadable);
                    if done || self.log.bytes() < before {
                        break;
                    }
                }
                // There will be some when others give it back.
                Err(_) => break,
            }
        }
        self.log.bytes() < before
    }

    /// Compacts as much as what was put meanwhile asks for, so that puts that
    /// never pause do not outrun it.
    fn keep_up(&mut self) {
        if self.stalled.is_some() || !self.log.wants_compaction() {
            self.to_move = 0;
            return;
        }
        let portion = self.portion();
        while self.to_move >= portion {
            let Some(moved) = self.compact() else {
                return;
            };
            let counted = moved.max(portion / LEAST_MOVE_PART);
            self.to_move = self.to_move.saturating_sub(counted.max(1));
        }
    }

    /// One step of compaction: the bytes moved; none if there is nothing to do
    /// or it cannot be done.
    fn compact(&mut self) -> Option<u64> {
        if !self.log.wants_compaction() {
            return None;
        }
        // There may be no room to move to; releases will make some.
        let moved = self.log.compact(self.portion()).ok()?;
        self.note(moved.lost, moved.unreadable);
        Some(moved.bytes)
    }

    fn note(&mut self, lost: Vec<(u64, Bytes)>, unreadable: Vec<u64>) {
        for (id, left) in lost {
            self.lose(id, None, left);
        }
        for id in unreadable {
            self.note_unreadable(id);
        }
    }

    /// Does what can wait: compaction, and verifying what a start has found.
    fn tidy(&mut self) -> Next {
        if self.log.wants_compaction() {
            return match self.compact() {
                Some(_) => Next::Step,
                None => Next::Wait(Some(RETRY_AFTER)),
            };
        }
        let Some(id) = self.unverified.pop_front() else {
            return Next::Wait((!self.unreadable.is_empty()).then_some(RETRY_AFTER));
        };
        match self.log.read(id) {
            Err(ReadError::Damaged(left)) => self.lose(id, None, left),
            Err(ReadError::Io(_)) => self.note_unreadable(id),
            Ok(_) | Err(ReadError::Unknown) => {}
        }
        Next::Wait(Some(VERIFY_EVERY))
    }

    fn report(&mut self) {
        let log = &self.log;
        self.figures.log_bytes = log.bytes();
        self.figures.live_bytes = log.live_bytes();
        self.figures.segments = log.segments();
        self.figures.bundles = log.len();
        self.figures.failed_segments = log.failed_segments();
        self.shared.publish(self.figures.clone());
        for (shard, done) in self.tasks.take_done().enumerate() {
            self.shared.tell(shard, done);
        }
    }
}
