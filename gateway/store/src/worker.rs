//! The one who waits for the disk.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::disk::Disk;
use crate::log::{Log, Put, ReadError};
use crate::queue::{Done, Figures, Jobs, Shared};

/// Bytes that are written and made durable together at most.
const GROUP_BYTES: u64 = 8 << 20;
/// How long a failed write waits for the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// What was not verified at the start is read one by one, so far apart.
const VERIFY_EVERY: Duration = Duration::from_millis(5);

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

/// Does to the log what the store asks.
#[derive(Debug)]
pub struct Worker<D> {
    log: Log<D>,
    shared: Arc<Shared>,
    /// What is to be written.
    pending: VecDeque<Put>,
    stalled: bool,
    unverified: VecDeque<u64>,
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
            pending: VecDeque::new(),
            stalled: false,
            unverified: unverified.into(),
            done: Vec::new(),
            committed: (0, 0),
            commits: 0,
            loaded: 0,
            lost: 0,
        };
        worker.report();
        worker
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
    /// a disk that could not be written may be tried again.
    pub fn step(&mut self, retry: bool) -> Next {
        let jobs = self.shared.take();
        let stop = jobs.stop;
        let asked = !jobs.is_empty();
        let reads = self.sort(jobs);
        for id in reads {
            self.read(id);
        }
        let freed = self.reclaim();
        if !self.stalled || retry || freed {
            self.write();
        }
        let mut next = match self.pending.is_empty() {
            _ if self.stalled => Next::Wait(Some(RETRY_AFTER)),
            true => Next::Wait(None),
            false => Next::Step,
        };
        if stop && next != Next::Step {
            next = Next::Stop;
        } else if !asked && next == Next::Wait(None) {
            next = self.tidy();
        } else if asked && next == Next::Wait(None) {
            next = Next::Step;
        }
        self.report();
        next
    }

    /// Sorts what is asked; returns what is to be read.
    fn sort(&mut self, jobs: Jobs) -> VecDeque<u64> {
        self.pending.extend(jobs.puts);
        if !jobs.releases.is_empty() {
            if !self.pending.is_empty() {
                // Released before it was written: it never is.
                let released: HashSet<u64> = jobs.releases.iter().copied().collect();
                self.pending.retain(|put| !released.contains(&put.id));
            }
            self.log.release(jobs.released_at_ms, jobs.releases);
        }
        jobs.reads
    }

    fn read(&mut self, id: u64) {
        match self.log.read(id) {
            Ok(payload) => {
                self.loaded += 1;
                self.done.push(Done::Loaded(id, payload));
            }
            // Released meanwhile.
            Err(ReadError::Unknown) => {}
            Err(ReadError::Damaged(left)) => self.lose(id, left),
            Err(ReadError::Io(_)) => self.lose(id, bytes::Bytes::new()),
        }
    }

    fn lose(&mut self, id: u64, left: bytes::Bytes) {
        self.lost += 1;
        self.done.push(Done::Lost(id, left));
    }

    fn write(&mut self) {
        let mut group = Vec::new();
        let mut bytes = 0;
        while bytes < GROUP_BYTES
            && let Some(put) = self.pending.pop_front()
        {
            bytes += put.bytes();
            group.push(put);
        }
        let outcome = match group.is_empty() {
            true => self.log.tell(),
            false => self.log.commit(&group),
        };
        match outcome {
            Ok(()) => {
                if !group.is_empty() {
                    self.commits += 1;
                    self.committed.0 += group.len() as u64;
                    self.committed.1 += bytes;
                    let ids = group.iter().map(|put| put.id).collect();
                    self.done.push(Done::Committed(ids));
                }
                if std::mem::take(&mut self.stalled) {
                    self.done.push(Done::Resumed);
                }
            }
            Err(error) => {
                group
                    .into_iter()
                    .rev()
                    .for_each(|put| self.pending.push_front(put));
                self.stall(&error);
            }
        }
    }

    fn stall(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.stalled, true) {
            self.done.push(Done::Stalled(error.to_string()));
        }
    }

    fn reclaim(&mut self) -> bool {
        // What cannot be deleted now is deleted later.
        self.log.reclaim().unwrap_or(false)
    }

    /// Does what can wait: compaction, and verifying what a start has found.
    fn tidy(&mut self) -> Next {
        if self.log.is_wasteful() {
            match self.log.compact() {
                Ok(moved) => {
                    for (id, left) in moved.lost {
                        self.lose(id, left);
                    }
                    if moved.more {
                        return Next::Step;
                    }
                }
                // There is no room to move to; releases will make some.
                Err(_) => return Next::Wait(Some(RETRY_AFTER)),
            }
        }
        let Some(id) = self.unverified.pop_front() else {
            return Next::Wait(None);
        };
        match self.log.read(id) {
            Err(ReadError::Damaged(left)) => self.lose(id, left),
            Err(ReadError::Io(_)) => self.lose(id, bytes::Bytes::new()),
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
            if let Some(stalled) = stalled {
                figures.stalled = stalled;
            }
        });
    }
}
