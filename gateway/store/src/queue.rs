//! What the store and its worker tell each other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;

use crate::log::Put;

/// What the worker is to do.
#[derive(Debug, Default)]
pub struct Jobs {
    pub puts: VecDeque<Put>,
    pub releases: Vec<u64>,
    /// When the last of them was released, ms of the boot's time.
    pub released_at_ms: i64,
    pub reads: VecDeque<u64>,
    /// Do what is left, and end.
    pub stop: bool,
}

impl Jobs {
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.releases.is_empty() && self.reads.is_empty()
    }
}

/// What the worker has done.
#[derive(Debug)]
pub enum Done {
    Committed(Vec<u64>),
    Loaded(u64, Bytes),
    Lost(u64, Bytes),
    Stalled(String),
    Resumed,
}

/// The store in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes on the disk.
    pub log_bytes: u64,
    /// Those of bundles that are kept.
    pub live_bytes: u64,
    /// Files on the disk.
    pub segments: usize,
    /// Bundles on the disk that are kept.
    pub bundles: usize,
    /// Payload in memory that is not on the disk yet, bytes.
    pub uncommitted_bytes: u64,
    /// Payload in memory that is on the disk too, bytes.
    pub resident_bytes: u64,
    /// Bundles written since the start.
    pub committed_bundles: u64,
    /// Their bytes.
    pub committed_bytes: u64,
    /// Times that the disk was asked to make something durable.
    pub commits: u64,
    /// Payloads read from the disk since the start.
    pub loaded_bundles: u64,
    /// Bundles found damaged since the start.
    pub lost_bundles: u64,
    /// Files that the disk could not read, since the start: they are emptied.
    pub failed_segments: u64,
    /// Damaged places found at the start.
    pub damaged_at_start: u64,
    /// Bundles restored at the start.
    pub restored_bundles: u64,
    /// Why nothing can be written at present.
    pub stalled: Option<String>,
}

#[derive(Debug, Default)]
pub struct Board {
    pub jobs: Jobs,
    pub done: VecDeque<Done>,
    pub figures: Figures,
}

/// Shared by store, worker and whoever watches.
pub struct Shared {
    board: Mutex<Board>,
    arrived: Condvar,
    notify: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Board {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Board {
            jobs,
            done,
            figures: _,
        } = self;
        let Jobs {
            puts,
            releases,
            released_at_ms: _,
            reads,
            stop: _,
        } = jobs;
        tell("jobs", puts.len() + releases.len() + reads.len());
        tell("jobs done", done.len());
    }
}

impl Shared {
    /// `notify` is called when the worker has done something.
    pub fn new(notify: impl Fn() + Send + Sync + 'static) -> Arc<Shared> {
        Arc::new(Shared {
            board: Mutex::new(Board::default()),
            arrived: Condvar::new(),
            notify: Box::new(notify),
        })
    }

    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap()
    }

    /// Gives the worker something to do.
    pub fn ask(&self, change: impl FnOnce(&mut Jobs)) {
        change(&mut self.board().jobs);
        self.arrived.notify_one();
    }

    /// Takes all that is to be done.
    pub fn take(&self) -> Jobs {
        let mut board = self.board();
        let stop = board.jobs.stop;
        let jobs = std::mem::take(&mut board.jobs);
        board.jobs.stop = stop;
        jobs
    }

    /// Tells what is done.
    pub fn tell(&self, done: Vec<Done>, change: impl FnOnce(&mut Figures)) {
        let any = !done.is_empty();
        let mut board = self.board();
        board.done.extend(done);
        change(&mut board.figures);
        drop(board);
        if any {
            (self.notify)();
        }
    }

    /// Waits until there is something to do, or `most` has passed.
    pub fn wait(&self, most: Option<Duration>) {
        let idle = |board: &mut Board| board.jobs.is_empty() && !board.jobs.stop;
        let board = self.board();
        let waited = match most {
            Some(most) => {
                let result = self.arrived.wait_timeout_while(board, most, idle);
                result.map(|(board, _)| drop(board)).is_ok()
            }
            None => self.arrived.wait_while(board, idle).map(drop).is_ok(),
        };
        // A poisoned lock is taken all the same.
        let _ = waited;
    }
}
