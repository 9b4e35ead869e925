//! The messages between the stores and their worker.
//!
//! Each shard has a board with a lock of its own, taken by its store and by the worker, which looks
//! at all boards in each step. The state common to all is locked only to wake a waiting worker.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use underpass_payloads::PayloadFile;

use crate::budget::Sum;
use crate::log::Put;

/// For so long after its last work, releases alone do not wake the worker, so that those of one
/// moment are written together. A bundle whose release is not written when the process is killed is
/// sent again, and recognised as a duplicate.
const RELEASES_TOGETHER: Duration = Duration::from_millis(50);

/// The worker is at work.
const AWAKE: u8 = 0;
/// It waits, and releases alone do not wake it.
const DOZING: u8 = 1;
/// It waits, and anything wakes it.
const ASLEEP: u8 = 2;

/// What the worker is to do for a shard.
#[derive(Debug, Default)]
pub struct Jobs {
    pub puts: VecDeque<Put>,
    pub releases: Vec<u64>,
    /// When the last one was released, ms of the boot's time.
    pub released_at_ms: i64,
    pub reads: VecDeque<u64>,
    /// Payloads on disk of bundles that are released, with these bundles.
    pub files: Vec<(u64, Arc<PayloadFile>)>,
}

impl Jobs {
    pub fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.files.is_empty() && !self.is_urgent()
    }

    /// Whether somebody waits for this work.
    fn is_urgent(&self) -> bool {
        !self.puts.is_empty() || !self.reads.is_empty()
    }
}

/// What the worker has done.
#[derive(Clone, Debug)]
pub enum Done {
    Committed(Vec<u64>),
    Loaded(u64, Bytes),
    /// Reported to all shards if the worker does not know which one has the bundle.
    Lost(u64, Bytes),
    Stalled(String),
    Resumed,
}

/// The store in figures: with several shards, those of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes on the disk.
    pub log_bytes: u64,
    /// Bytes of bundles that are kept.
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

/// A store's requests, and the answers to it.
#[derive(Debug, Default)]
pub struct Board {
    pub jobs: Jobs,
    pub done: VecDeque<Done>,
}

impl Board {
    fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Board { jobs, done } = self;
        let Jobs {
            puts,
            releases,
            released_at_ms: _,
            reads,
            files,
        } = jobs;
        let all = puts.len() + releases.len() + reads.len() + files.len();
        tell("jobs", all);
        tell("jobs done", done.len());
    }
}

/// Shared by the stores, their worker and whoever watches.
pub struct Shared {
    boards: Box<[Mutex<Board>]>,
    /// Stores that wait for memory which others have.
    short: Box<[AtomicBool]>,
    /// The worker's counts.
    figures: Mutex<Figures>,
    /// Payload in memory that is not on the disk yet, bytes.
    pub uncommitted: Arc<Sum>,
    /// Payload in memory that is on the disk too, bytes.
    pub resident: Arc<Sum>,
    /// Do what is left, and end.
    stop: AtomicBool,
    /// [`AWAKE`], or how the worker waits or is about to.
    asleep: AtomicU8,
    sleep: Mutex<()>,
    arrived: Condvar,
    notify: Box<dyn Fn(usize) + Send + Sync>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// `notify` is called with a shard when there is something for its store.
    pub fn new(shards: usize, notify: impl Fn(usize) + Send + Sync + 'static) -> Arc<Shared> {
        Arc::new(Shared {
            boards: (0..shards).map(|_| Mutex::default()).collect(),
            short: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            figures: Mutex::default(),
            uncommitted: Sum::new(shards),
            resident: Sum::new(shards),
            stop: AtomicBool::new(false),
            asleep: AtomicU8::new(AWAKE),
            sleep: Mutex::new(()),
            arrived: Condvar::new(),
            notify: Box::new(notify),
        })
    }

    fn board(&self, shard: usize) -> MutexGuard<'_, Board> {
        self.boards[shard].lock().unwrap()
    }

    pub fn shards(&self) -> usize {
        self.boards.len()
    }

    /// The store in figures.
    pub fn figures(&self) -> Figures {
        Figures {
            uncommitted_bytes: self.uncommitted.total(),
            resident_bytes: self.resident.total(),
            ..self.figures.lock().unwrap().clone()
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        for shard in 0..self.shards() {
            self.board(shard).footprint(tell);
        }
    }

    /// Gives the worker something to do for a shard.
    pub fn ask(&self, shard: usize, change: impl FnOnce(&mut Jobs)) {
        let urgent = {
            let jobs = &mut self.board(shard).jobs;
            change(jobs);
            jobs.is_urgent()
        };
        self.wake(if urgent { DOZING } else { ASLEEP });
    }

    /// Has the worker do what is left, and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake(DOZING);
    }

    /// Whether the worker is to end. All that was asked before is on the boards by then.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Takes all that is to be done for a shard.
    pub fn take(&self, shard: usize) -> Jobs {
        std::mem::take(&mut self.board(shard).jobs)
    }

    /// Takes all that was done for a shard.
    pub fn take_done(&self, shard: usize) -> VecDeque<Done> {
        std::mem::take(&mut self.board(shard).done)
    }

    /// Publishes the worker's counts.
    pub fn publish(&self, figures: Figures) {
        *self.figures.lock().unwrap() = figures;
    }

    /// Tells a shard what is done.
    pub fn tell(&self, shard: usize, done: Vec<Done>) {
        if !done.is_empty() {
            self.board(shard).done.extend(done);
            (self.notify)(shard);
        }
    }

    /// Registers a shard's store to be notified when others give memory back. To be called before
    /// it reads how much is taken.
    pub fn await_room(&self, shard: usize) {
        // Flags share a cache line, so one that is set already is not written again.
        if !self.short[shard].load(Ordering::SeqCst) {
            self.short[shard].store(true, Ordering::SeqCst);
        }
    }

    /// Notes that a shard's store has given memory back: stores that wait for memory look again.
    /// The store itself does so anyway.
    pub fn make_room(&self, by: usize) {
        for (shard, short) in self.short.iter().enumerate() {
            if shard != by && short.load(Ordering::SeqCst) && short.swap(false, Ordering::SeqCst) {
                (self.notify)(shard);
            }
        }
    }

    /// Wakes a worker that waits at depth `from` or deeper. A worker that is awake looks at the
    /// boards once more before it waits.
    fn wake(&self, from: u8) {
        if self.asleep.load(Ordering::SeqCst) >= from {
            let _sleep = self.sleep.lock().unwrap();
            self.asleep.store(AWAKE, Ordering::SeqCst);
            self.arrived.notify_one();
        }
    }

    /// Waits until there is something to do, or `most` has passed. With `hurry`, releases wake the
    /// worker at once.
    pub fn wait(&self, most: Option<Duration>, hurry: bool) {
        let mut left = most;
        if !hurry {
            let doze = most.map_or(RELEASES_TOGETHER, |most| most.min(RELEASES_TOGETHER));
            if self.sleep(DOZING, Some(doze), Jobs::is_urgent) {
                return;
            }
            left = most.map(|most| most - doze);
        }
        self.sleep(ASLEEP, left, |jobs| !jobs.is_empty());
    }

    /// Waits at depth `depth` until there is work or `most` has passed. Returns whether there is
    /// work.
    fn sleep(&self, depth: u8, most: Option<Duration>, is_work: fn(&Jobs) -> bool) -> bool {
        let sleep = self.sleep.lock().unwrap();
        // A store that asks after its board was looked at sees this flag.
        self.asleep.store(depth, Ordering::SeqCst);
        let asked = |shard: usize| is_work(&self.board(shard).jobs);
        let mut woken = self.is_stopping() || (0..self.shards()).any(asked);
        if !woken {
            let asleep = |(): &mut ()| self.asleep.load(Ordering::SeqCst) != AWAKE;
            // A poisoned lock is taken all the same.
            woken = match most {
                Some(most) => {
                    let waited = self.arrived.wait_timeout_while(sleep, most, asleep);
                    waited.is_ok_and(|(_, waited)| !waited.timed_out())
                }
                None => self.arrived.wait_while(sleep, asleep).is_ok(),
            };
        }
        self.asleep.store(AWAKE, Ordering::SeqCst);
        woken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// A worker that hears nothing for this time would wait for ever.
    const FOR_EVER: Duration = Duration::from_secs(60);

    #[test]
    fn a_worker_does_not_wait_when_it_was_asked_before() {
        let ask = |shared: &Shared| shared.ask(1, |jobs| jobs.reads.push_back(7));
        for before in [ask, Shared::stop] {
            let shared = Shared::new(2, |_| ());
            before(&shared);
            let (woken, wakes) = mpsc::channel();
            thread::spawn(move || {
                shared.wait(None, false);
                woken.send(())
            });
            wakes.recv_timeout(FOR_EVER).expect("it does not wait");
        }
    }

    #[test]
    fn releases_alone_do_not_wake_a_worker_that_dozes() {
        let release = |jobs: &mut Jobs| jobs.releases.push(7);
        let read = |jobs: &mut Jobs| jobs.reads.push_back(7);
        let after = |depth: u8, change: fn(&mut Jobs)| {
            let shared = Shared::new(2, |_| ());
            shared.asleep.store(depth, Ordering::SeqCst);
            shared.ask(1, change);
            shared.asleep.load(Ordering::SeqCst)
        };
        assert_eq!(after(DOZING, release), DOZING);
        assert_eq!(after(DOZING, read), AWAKE);
        assert_eq!(after(ASLEEP, release), AWAKE);
        assert_eq!(after(ASLEEP, read), AWAKE);
    }

    #[test]
    fn a_worker_that_dozed_sees_what_was_released_meanwhile() {
        let shared = Shared::new(2, |_| ());
        shared.asleep.store(DOZING, Ordering::SeqCst);
        shared.ask(1, |jobs| jobs.releases.push(7));
        assert!(!shared.sleep(DOZING, Some(Duration::ZERO), Jobs::is_urgent));
        assert!(shared.sleep(ASLEEP, None, |jobs| !jobs.is_empty()));
    }

    #[test]
    fn whoever_asks_while_the_worker_goes_to_sleep_wakes_it() {
        let (answer, answers) = mpsc::channel();
        let shared = Shared::new(2, move |shard| {
            let _ = answer.send(shard);
        });
        let worker = shared.clone();
        let thread = thread::spawn(move || {
            while !worker.is_stopping() {
                worker.wait(None, false);
                for shard in 0..2 {
                    for id in worker.take(shard).reads {
                        worker.tell(shard, vec![Done::Committed(vec![id])]);
                    }
                }
            }
        });
        for round in 0..20_000 {
            let shard = round % 2;
            shared.ask(shard, |jobs| jobs.reads.push_back(1));
            assert_eq!(answers.recv_timeout(FOR_EVER), Ok(shard), "round {round}");
        }
        shared.stop();
        thread.join().unwrap();
    }
}
