//! The one who waits for the disk.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::disk::Disk;
use crate::log::{Log, ReadError, is_full};
use crate::pending::Pending;
use crate::queue::{Done, Figures, Jobs, Shared};

/// Bytes that are written and made durable together at most.
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

/// Does to the log what the store asks.
#[derive(Debug)]
pub struct Worker<D> {
    log: Log<D>,
    shared: Arc<Shared>,
    /// What is to be written.
    pending: Pending,
    stalled: Option<Stall>,
    /// Bytes that compaction is behind what was put.
    to_move: u64,
    unverified: VecDeque<u64>,
    /// What the disk could not read, and how often it was tried.
    unreadable: BTreeMap<u64, u8>,
    done: Vec<Done>,
    committed: (u64, u64),
    commits: u64,
    loaded: u64,
    lost: u64,
}

impl<D: Disk> Worker<D> {
    pub(crate) fn new(log: Log<D>, shared: Arc<Shared>, unverified: Vec<u64>) -> Worker<D> {
        let mut worker = Worker {
            log,
            shared,
            pending: Pending::default(),
            stalled: None,
            to_move: 0,
            unverified: unverified.into(),
            unreadable: BTreeMap::new(),
            done: Vec::new(),
            committed: (0, 0),
            commits: 0,
            loaded: 0,
            lost: 0,
        };
        worker.report();
        worker
    }

    /// The store in figures.
    pub fn figures(&self) -> Figures {
        self.shared.board().figures.clone()
    }

    /// Tells how many entries each map, set and queue has, by a name, for
    /// diagnostics and tests; those of the board that it shares with the store
    /// among them. What of the log stays when all bundles are released is that
    /// of the segments which compaction leaves.
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Worker {
            log,
            shared,
            pending,
            stalled: _,
            to_move: _,
            unverified,
            unreadable,
            done,
            committed: _,
            commits: _,
            loaded: _,
            lost: _,
        } = self;
        log.footprint(tell);
        shared.board().footprint(tell);
        pending.footprint(tell);
        tell("bundles to verify", unverified.len());
        tell("bundles to read again", unreadable.len());
        tell("work done", done.len());
    }

    /// Works until the store is dropped or closed and all is written.
    pub(crate) fn run(mut self) {
        let mut retry_at = Instant::now();
        loop {
            let retry = Instant::now() >= retry_at;
            if retry {
                retry_at = Instant::now() + RETRY_AFTER;
            }
            match self.step(retry) {
                Next::Step => {}
                Next::Wait(most) => self.shared.wait(most),
                Next::Stop => return,
            }
        }
    }

    /// Does what is to be done now, a bounded part of it. `retry` says whether
    /// a disk that has failed may be tried again.
    pub fn step(&mut self, retry: bool) -> Next {
        let jobs = self.shared.take();
        let stop = jobs.stop;
        let asked = !jobs.is_empty();
        let released = !jobs.releases.is_empty();
        if retry {
            self.log.retry();
            self.read_again();
        }
        let reads = self.sort(jobs);
        for id in reads {
            self.read(id);
        }
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
        let mut next = match self.pending.is_empty() {
            _ if self.stalled.is_some() && !made_room => Next::Wait(Some(RETRY_AFTER)),
            true => Next::Wait(None),
            false => Next::Step,
        };
        if stop && next != Next::Step {
            next = Next::Stop;
        } else if next == Next::Wait(None) {
            next = match asked {
                true => Next::Step,
                false => self.tidy(),
            };
        }
        self.report();
        next
    }

    /// Sorts what is asked; returns what is to be read.
    fn sort(&mut self, jobs: Jobs) -> VecDeque<u64> {
        for put in jobs.puts {
            self.pending.push(put);
        }
        // Released before it was written: it never is.
        for id in &jobs.releases {
            self.pending.withdraw(*id);
            self.unreadable.remove(id);
        }
        self.log.release(jobs.released_at_ms, jobs.releases);
        jobs.reads
    }

    fn read(&mut self, id: u64) {
        let outcome = self.log.read(id);
        self.take_read(id, outcome);
    }

    fn take_read(&mut self, id: u64, outcome: Result<Bytes, ReadError>) {
        match outcome {
            Ok(payload) => {
                self.loaded += 1;
                self.done.push(Done::Loaded(id, payload));
            }
            // Released meanwhile.
            Err(ReadError::Unknown) => {}
            Err(ReadError::Damaged(left)) => self.lose(id, left),
            Err(ReadError::Io(_)) => {
                let attempts = self.unreadable.get(&id).map_or(1, |n| n.saturating_add(1));
                // A disk that fails as a whole may have all of it again.
                if attempts >= READ_ATTEMPTS && self.stalled != Some(Stall::Failing) {
                    self.lose(id, Bytes::new());
                } else {
                    self.unreadable.insert(id, attempts);
                }
            }
        }
    }

    /// Tries again what the disk could not read.
    fn read_again(&mut self) {
        let ids: Vec<u64> = self.unreadable.keys().copied().collect();
        for id in ids {
            let outcome = self.log.read_again(id);
            if !matches!(outcome, Err(ReadError::Io(_))) {
                self.unreadable.remove(&id);
            }
            self.take_read(id, outcome);
        }
    }

    fn lose(&mut self, id: u64, left: Bytes) {
        self.lost += 1;
        self.unreadable.remove(&id);
        self.log.give_up(id);
        self.done.push(Done::Lost(id, left));
    }

    fn write(&mut self) {
        let group = self.pending.take(GROUP_BYTES);
        let bytes: u64 = group.iter().map(|(_, put)| put.bytes()).sum();
        let (places, puts): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let outcome = match puts.is_empty() {
            true => self.log.tell(),
            false => self.log.commit(&puts),
        };
        match outcome {
            Ok(()) => {
                if !puts.is_empty() {
                    self.commits += 1;
                    self.committed.0 += puts.len() as u64;
                    self.committed.1 += bytes;
                    self.to_move += MOVED_PER_PUT * bytes;
                    let ids = puts.iter().map(|put| put.id).collect();
                    self.done.push(Done::Committed(ids));
                }
                if self.stalled.take().is_some() {
                    self.done.push(Done::Resumed);
                }
            }
            Err(error) => {
                self.pending.put_back(places.into_iter().zip(puts));
                self.stall(&error);
            }
        }
    }

    fn stall(&mut self, error: &io::Error) {
        let stall = match is_full(error) {
            true => Stall::Full,
            false => Stall::Failing,
        };
        if self.stalled.replace(stall).is_none() {
            self.done.push(Done::Stalled(error.to_string()));
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
            self.lose(id, left);
        }
        for id in unreadable {
            self.unreadable.entry(id).or_insert(1);
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
            Err(ReadError::Damaged(left)) => self.lose(id, left),
            Err(ReadError::Io(_)) => drop(self.unreadable.entry(id).or_insert(1)),
            Ok(_) | Err(ReadError::Unknown) => {}
        }
        Next::Wait(Some(VERIFY_EVERY))
    }

    fn report(&mut self) {
        let log = &self.log;
        let (committed, commits) = (self.committed, self.commits);
        let (loaded, lost) = (self.loaded, self.lost);
        let stalled = self.done.iter().rev().find_map(|done| match done {
            Done::Stalled(why) => Some(Some(why.clone())),
            Done::Resumed => Some(None),
            _ => None,
        });
        let (log_bytes, live_bytes) = (log.bytes(), log.live_bytes());
        let (segments, bundles) = (log.segments(), log.len());
        let failed_segments = log.failed_segments();
        let done = std::mem::take(&mut self.done);
        self.shared.tell(done, |figures: &mut Figures| {
            figures.log_bytes = log_bytes;
            figures.live_bytes = live_bytes;
            figures.segments = segments;
            figures.bundles = bundles;
            figures.committed_bundles = committed.0;
            figures.committed_bytes = committed.1;
            figures.commits = commits;
            figures.loaded_bundles = loaded;
            figures.lost_bundles = lost;
            figures.failed_segments = failed_segments;
            if let Some(stalled) = stalled {
                figures.stalled = stalled;
            }
        });
    }
}
