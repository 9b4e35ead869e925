//! The worker: it alone waits for the disk.

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

/// The most bytes that are written and made durable together, and the most that are read before the
/// next group is written.
const GROUP_BYTES: u64 = 8 << 20;
/// How long after a failed write the next attempt is made.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Payloads that were not verified at the start are read one by one, at this interval.
const VERIFY_EVERY: Duration = Duration::from_millis(5);
/// Bytes that compaction moves in one step, unless segments are small.
const MOVE_BYTES: u64 = 4 << 20;
/// The part (1/n) of a segment that it moves if they are.
const MOVE_PART: u64 = 4;
/// While there is too much garbage, so many bytes are moved for each byte put. At least a quarter
/// of each segment emptied is garbage, so this gains more than the puts take.
const MOVED_PER_PUT: u64 = 2;
/// Emptying a segment that has nearly nothing to move counts as this part (1/n)
/// of a step.
const LEAST_MOVE_PART: u64 = 4;
/// How often in all a bundle that the disk cannot read is tried.
const READ_ATTEMPTS: u8 = 3;

/// What to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another step at once.
    Step,
    /// Wait until something is asked, or so much time has passed.
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

/// A bundle that the disk could not read.
#[derive(Debug)]
struct Unreadable {
    /// How often it was tried.
    attempts: u8,
    /// The shard that has asked for it, if one has.
    asked_by: Option<usize>,
}

/// Does the work on the log that the stores ask for.
#[derive(Debug)]
pub struct Worker<D> {
    log: Log<D>,
    shared: Arc<Shared>,
    tasks: AllTasks,
    stalled: Option<Stall>,
    /// How many bytes compaction is behind the puts.
    to_move: u64,
    unverified: VecDeque<u64>,
    unreadable: BTreeMap<u64, Unreadable>,
    /// Payload files of released bundles, to be deleted once none of these bundles' records can
    /// come back.
    unneeded: Vec<(u64, Arc<PayloadFile>)>,
    /// The log's own figures are taken from it with each report.
    figures: Figures,
}

/// Gives payloads on disk lasting names, so that each record finds its payload.
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

    /// Tells how many entries each map, set and queue has, by a name, for diagnostics and tests;
    /// including those of the boards that it shares with the stores. When all bundles are released,
    /// only the entries of segments that compaction leaves remain.
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

    /// Reads some of the payloads that are to be read. Returns whether there were any.
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
            // The bundle was released meanwhile.
            Err(ReadError::Unknown) => {}
            Err(ReadError::Damaged(left)) => self.lose(id, asked_by, left),
            Err(ReadError::Io(_)) => {
                // A disk that fails as a whole may come back with all of it.
                if attempts >= READ_ATTEMPTS && self.stalled != Some(Stall::Failing) {
                    self.lose(id, asked_by, Bytes::new());
                } else {
                    let unreadable = Unreadable { attempts, asked_by };
                    self.unreadable.insert(id, unreadable);
                }
            }
        }
    }

    /// Notes that the disk cannot read a bundle that no shard has asked for.
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

    /// Reports a damaged bundle. If no shard has asked for it, all are told: one of them has it,
    /// and an owner kept with each bundle would take memory for what hardly ever happens.
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

    /// Deletes payloads on disk that no bundle has any more. If a crash loses a release, the bundle
    /// comes back, so the release must be durable first.
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

    /// Makes room on a full disk. Returns whether there is more than before.
    fn make_room(&mut self) -> bool {
        let before = self.log.bytes();
        // Room is gained only once a segment is empty.
        for _ in 0..=MOVE_PART {
            match self.log.make_room(self.portion()) {
                Ok(moved) => {
                    let done = moved.bytes == 0;
                    self.note(moved.lost, moved.unreadable);
                    if done || self.log.bytes() < before {
                        break;
                    }
                }
                // There will be room when others give it back.
                Err(_) => break,
            }
        }
        self.log.bytes() < before
    }

    /// Compacts in proportion to what was put meanwhile, so that continuous puts do not outrun it.
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

    /// One step of compaction. Returns the bytes moved; `None` if there is nothing to do or it
    /// cannot be done.
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
