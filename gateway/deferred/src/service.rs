//! The machine on a thread of its own, where its store may wait for the disk.
//!
//! Calls that come during a commit are carried out together and committed once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::node::{Figures, Limits, Name, Node, Order, Output};
use crate::store::{SqliteStore, StoreError};
use crate::wire::Message;

/// Most calls that wait. Further callers wait for these; further messages of peers are dropped, and
/// the peers repeat them.
const WAITING: usize = 1024;
/// Calls that are committed together at most.
const TOGETHER: usize = 64;
/// How long a store that fails is left alone before it is tried again.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

type Machine = Node<SqliteStore>;
type Call = Box<dyn FnOnce(&mut Machine, u64) -> Result<Answer, StoreError> + Send>;
/// Returns the result to the caller, once it is committed.
type Answer = Box<dyn FnOnce() + Send>;

/// Takes messages to peers. It must not wait.
pub trait Carrier: Send + Sync {
    /// Sends a message in a class, with this lifetime. It may replace one of the same name that has
    /// not left. False if there is no room; it is then tried again.
    fn send(&self, peer: u64, class: u8, lifetime: Duration, name: Name, message: Bytes) -> bool;
}

/// Where requests are kept, and within which bounds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The database file.
    pub path: PathBuf,
    /// Bounds and times.
    pub limits: Limits,
}

/// A call was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ServiceError {
    /// The store could not keep it; the log says why.
    #[error("the store of deferred requests fails")]
    Store,
}

/// Calls on the machine from anywhere.
#[derive(Clone)]
pub struct Handle {
    calls: mpsc::Sender<Call>,
    limits: Limits,
    worker: Arc<Shared>,
}

/// What is common to the handles and the thread.
#[derive(Default)]
struct Shared {
    is_closed: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    /// Carries `work` out on the machine; the result comes when it is on
    /// stable storage.
    ///
    /// # Errors
    /// When the store fails; nothing has changed then.
    pub async fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Machine, u64) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, ServiceError> {
        let (sender, receiver) = oneshot::channel();
        let call: Call = Box::new(move |machine, now_ms| {
            let result = work(machine, now_ms)?;
            let answer: Answer = Box::new(move || {
                // A caller that is gone wants no answer.
                let _ = sender.send(result);
            });
            Ok(answer)
        });
        let sent = self.calls.send(call).await;
        sent.map_err(|_| ServiceError::Store)?;
        receiver.await.map_err(|_| ServiceError::Store)
    }

    /// A message of a peer that is `age` old. If too many wait it is dropped; the peer repeats it.
    pub fn message(&self, peer: u64, class: u8, age: Duration, message: Message) {
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.tell(move |machine, now_ms| {
            machine.message(now_ms, peer, class, message.aged(age_ms))
        });
    }

    /// A peer has restarted.
    pub fn peer_restarted(&self, peer: u64) {
        self.tell(move |machine, _| {
            machine.peer_restarted(peer);
            Ok(())
        });
    }

    /// Carries `work` out some time, if there is room for it.
    pub fn tell(
        &self,
        work: impl FnOnce(&mut Machine, u64) -> Result<(), StoreError> + Send + 'static,
    ) {
        let call: Call = Box::new(move |machine, now_ms| {
            work(machine, now_ms)?;
            Ok(Box::new(|| ()))
        });
        if self.calls.try_send(call).is_err() {
            tracing::debug!("too much waits for the store of deferred requests");
        }
    }

    /// Ends the thread after its present work, and closes the store, so that another process may
    /// open it. Calls fail from then on. Blocks.
    pub fn close(&self) {
        self.worker.is_closed.store(true, Ordering::Release);
        // The thread checks for its end after each call.
        self.tell(|_, _| Ok(()));
        let thread = self.worker.thread.lock().unwrap().take();
        if let Some(thread) = thread {
            // A panic has ended the process.
            let _ = thread.join();
        }
    }

    /// Bounds and times.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Figures for metrics.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn figures(&self) -> Result<Figures, ServiceError> {
        self.call(|machine, _| Ok(machine.figures())).await
    }
}

/// Opens the store and starts the thread. Orders for origins come out of the receiver.
///
/// # Errors
/// When the store cannot be opened.
pub fn start(
    settings: &Settings,
    carrier: Arc<dyn Carrier>,
) -> Result<(Handle, mpsc::UnboundedReceiver<Order>), StoreError> {
    let store = SqliteStore::open(&settings.path)?;
    let clock = Clock::new();
    let machine = Node::open(clock.now_ms(), settings.limits, store)?;
    // After a step of the clock, waits end early rather than late.
    let clock = clock.after(machine.latest_ms());
    let limits = *machine.limits();
    let (calls, waiting) = mpsc::channel(WAITING);
    let (orders, ordered) = mpsc::unbounded_channel();
    let worker = Worker {
        machine: Some(machine),
        settings: settings.clone(),
        opens_after: Instant::now(),
        clock,
        carrier,
        orders,
    };
    let shared = Arc::new(Shared::default());
    let closing = shared.clone();
    let thread = std::thread::Builder::new()
        .name("deferred".to_owned())
        .spawn(move || worker.run(waiting, &closing.is_closed))?;
    *shared.thread.lock().unwrap() = Some(thread);
    let handle = Handle {
        calls,
        limits,
        worker: shared,
    };
    Ok((handle, ordered))
}

/// Time that only moves forward: it starts with the wall clock's time or, if that was set back or
/// never set, with the last recorded time.
struct Clock {
    base_ms: u64,
    since: Instant,
}

impl Clock {
    fn new() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.unwrap_or_default().as_millis();
        Clock {
            base_ms: u64::try_from(wall).unwrap_or(0),
            since: Instant::now(),
        }
    }

    fn after(self, latest_ms: u64) -> Clock {
        Clock {
            base_ms: self.base_ms.max(latest_ms),
            ..self
        }
    }

    fn now_ms(&self) -> u64 {
        let passed = self.since.elapsed().as_millis();
        self.base_ms
            .saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

struct Worker {
    /// None after a failure, until the store opens again.
    machine: Option<Machine>,
    settings: Settings,
    /// The store is not opened again before.
    opens_after: Instant,
    clock: Clock,
    carrier: Arc<dyn Carrier>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Worker {
    fn run(mut self, mut calls: mpsc::Receiver<Call>, is_closed: &AtomicBool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "deferred requests rest"),
        };
        let mut batch = Vec::with_capacity(TOGETHER);
        // Work in progress when the node stopped continues first.
        self.work(&mut batch);
        loop {
            let pause = self.pause();
            let received = runtime.block_on(async {
                let next = calls.recv_many(&mut batch, TOGETHER);
                tokio::time::timeout(pause, next).await
            });
            if received == Ok(0) {
                return;
            }
            self.work(&mut batch);
            if is_closed.load(Ordering::Acquire) {
                return;
            }
        }
    }

    fn pause(&self) -> Duration {
        const LONGEST_MS: u64 = 60_000;
        let Some(machine) = &self.machine else {
            return FAILURE_PAUSE;
        };
        let next = machine.next_timeout();
        let now_ms = self.clock.now_ms();
        let wait = next.map_or(LONGEST_MS, |next| next.saturating_sub(now_ms));
        Duration::from_millis(wait.min(LONGEST_MS))
    }

    fn work(&mut self, batch: &mut Vec<Call>) {
        if self.machine.is_none() {
            self.open_again();
        }
        let Some(mut machine) = self.machine.take() else {
            return batch.clear();
        };
        let now_ms = self.clock.now_ms();
        let mut answers = Vec::with_capacity(batch.len());
        let mut done = || {
            machine.handle_timeout(now_ms)?;
            for call in batch.drain(..) {
                answers.push(call(&mut machine, now_ms)?);
            }
            machine.commit(now_ms)
        };
        match done() {
            Ok(outputs) => {
                answers.into_iter().for_each(|answer| answer());
                self.perform(&mut machine, outputs);
                self.machine = Some(machine);
            }
            Err(error) => {
                batch.clear();
                self.recover(machine, error);
            }
        }
    }

    fn perform(&self, machine: &mut Machine, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send {
                    peer,
                    class,
                    lifetime_ms,
                    name,
                    message,
                } => {
                    let lifetime = Duration::from_millis(lifetime_ms);
                    let payload = message.encode();
                    if !self.carrier.send(peer, class, lifetime, name, payload) {
                        machine.unsent(self.clock.now_ms(), peer, name);
                    }
                }
                // The node is stopping if nobody takes orders any more.
                Output::Order(order) => drop(self.orders.send(order)),
            }
        }
    }

    /// Returns to the last commit. Callers notice the failure since no answer comes; peers repeat
    /// their messages.
    fn recover(&mut self, machine: Machine, error: StoreError) {
        tracing::error!(%error, "nothing is deferred until the store works again");
        std::thread::sleep(FAILURE_PAUSE);
        match machine.reopen(self.clock.now_ms()) {
            Ok(machine) => self.machine = Some(machine),
            Err(error) => {
                tracing::error!(%error, "deferred requests rest until the store opens again");
            }
        }
    }

    /// Opens a store that could not go back to its last commit, if it can be
    /// opened by now.
    fn open_again(&mut self) {
        let now = Instant::now();
        if now < self.opens_after {
            return;
        }
        self.opens_after = now + FAILURE_PAUSE;
        let store = SqliteStore::open(&self.settings.path);
        let limits = self.settings.limits;
        match store.and_then(|store| Node::open(self.clock.now_ms(), limits, store)) {
            Ok(machine) => {
                tracing::info!("the store of deferred requests works again");
                self.machine = Some(machine);
            }
            Err(error) => tracing::debug!(%error, "the store cannot be opened"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl Carrier for Nowhere {
        fn send(&self, _: u64, _: u8, _: Duration, _: Name, _: Bytes) -> bool {
            true
        }
    }

    const LIMITS: Limits = Limits {
        request_bytes: 1 << 20,
        response_bytes: 1 << 20,
        quota_bytes: 1 << 24,
        requests: 10,
        part_bytes: 1 << 16,
        lifetime_ms: 60_000,
        keep_ms: 60_000,
        keep_fetched_ms: 60_000,
        exchanges: 1,
    };

    /// The store's bytes that a caller is told.
    fn asked(worker: &mut Worker) -> Option<u64> {
        let (sender, mut receiver) = oneshot::channel();
        let call: Call = Box::new(move |machine, _| {
            let bytes = machine.bytes();
            let answer: Answer = Box::new(move || {
                let _ = sender.send(bytes);
            });
            Ok(answer)
        });
        worker.work(&mut vec![call]);
        receiver.try_recv().ok()
    }

    #[test]
    fn a_store_that_could_not_be_opened_is_opened_once_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.sqlite");
        // A database cannot replace a folder.
        std::fs::create_dir(&path).unwrap();
        let (orders, _ordered) = mpsc::unbounded_channel();
        let mut worker = Worker {
            machine: None,
            settings: Settings {
                path: path.clone(),
                limits: LIMITS,
            },
            opens_after: Instant::now(),
            clock: Clock::new(),
            carrier: Arc::new(Nowhere),
            orders,
        };
        assert_eq!(asked(&mut worker), None);
        std::fs::remove_dir(&path).unwrap();
        assert_eq!(asked(&mut worker), None, "it is not tried at every call");
        assert_eq!(worker.pause(), FAILURE_PAUSE);
        worker.opens_after = Instant::now();
        assert_eq!(asked(&mut worker), Some(0));
        assert!(worker.pause() > FAILURE_PAUSE);
    }
}
