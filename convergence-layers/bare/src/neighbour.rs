//! The sessions with one neighbour: the one that this node begins and keeps up, and over TCP those
//! that the neighbour begins.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use underpass_cla::{Down, Node, comes_and_goes};

use crate::config::{Config, Layer};
use crate::framing::Framing;
use crate::{datagrams, ecla, licklider, reading, socket, stream};

/// How long the neighbour's host has to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Connections of one neighbour at once. A further one ends the oldest, so that connections of an
/// ended run do not block new ones.
const CONNECTIONS: usize = 4;

/// Keeps the sessions with one neighbour. Dropping it ends them.
#[derive(Debug)]
pub struct Neighbour {
    stop: CancellationToken,
    held: Arc<watch::Sender<Held>>,
    left: Arc<Left>,
    tracker: TaskTracker,
}

/// What does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    /// The neighbour's connections, which wait in the kernel.
    Arrivals,
    All,
}

/// What a session over UDP or LTP leaves.
#[derive(Debug, Default)]
struct Left {
    /// One is up.
    up: AtomicBool,
    /// Numbers of the neighbour's sessions of LTP whose blocks were not received to the end.
    unfinished: Mutex<Vec<u64>>,
}

impl Neighbour {
    /// Begins to listen and to dial. Must be called within a tokio runtime.
    pub fn spawn(config: Config, node: Arc<dyn Node>) -> Neighbour {
        Neighbour::begin(config, node, Held::Nothing)
    }

    /// As [`Neighbour::spawn`], for a node that another process still has, and that does not use
    /// sessions yet ([`Node::poll_in_use`]): until released ([`Neighbour::hold`]), takes no
    /// connection of the neighbour's, and dials no daemon, which serves one process at a time.
    pub fn spawn_early(config: Config, node: Arc<dyn Node>) -> Neighbour {
        let held = match config.layer {
            Layer::Ecla => Held::All,
            _ => Held::Arrivals,
        };
        Neighbour::begin(config, node, held)
    }

    fn begin(config: Config, node: Arc<dyn Node>, held: Held) -> Neighbour {
        let stop = CancellationToken::new();
        let held = Arc::new(watch::Sender::new(held));
        let left = Arc::<Left>::default();
        let tracker = TaskTracker::new();
        let keeper = Keeper {
            config: Arc::new(config),
            node,
            stop: stop.clone(),
            held: held.clone(),
            left: left.clone(),
        };
        match keeper.config.layer {
            Layer::Stcp => keeper.spawn_streams(Framing::Stcp, &tracker),
            Layer::Mtcp => keeper.spawn_streams(Framing::Mtcp, &tracker),
            Layer::Ecla => drop(tracker.spawn(keeper.keep_ecla())),
            Layer::Udp | Layer::Ltp { .. } => {
                tracker.spawn(keeper.keep_datagrams());
            }
        }
        tracker.close();
        Neighbour {
            stop,
            held,
            left,
            tracker,
        }
    }

    /// While held, begins no session; one that is up continues.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(match held {
            true => Held::All,
            false => Held::Nothing,
        });
    }

    /// Numbers of the neighbour's sessions of LTP whose blocks were not received to the end; none
    /// while a session over UDP or LTP is up.
    pub fn unfinished(&self) -> Option<Vec<u64>> {
        let ended = !self.left.up.load(Ordering::SeqCst);
        ended.then(|| self.left.unfinished.lock().unwrap().clone())
    }

    /// Refuses these sessions, which another process has not received to the end, as soon as the
    /// node uses the next session.
    pub fn refuse(&self, unfinished: Vec<u64>) {
        self.left.unfinished.lock().unwrap().extend(unfinished);
    }

    /// Ends the sessions and waits for their end.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tracker.wait().await;
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(Clone)]
struct Keeper {
    config: Arc<Config>,
    node: Arc<dyn Node>,
    stop: CancellationToken,
    held: Arc<watch::Sender<Held>>,
    left: Arc<Left>,
}

impl Keeper {
    fn spawn_streams(self, framing: Framing, tracker: &TaskTracker) {
        tracker.spawn(self.clone().accept_streams(framing, tracker.clone()));
        tracker.spawn(self.keep_stream(framing));
    }

    /// Takes what the neighbour sends on its own connections, whether or not it can be
    /// dialled.
    async fn accept_streams(self, framing: Framing, tracker: TaskTracker) {
        let listening = reading::listen(&self.config);
        let Some(listener) = self.stop.run_until_cancelled(listening).await else {
            return;
        };
        let mut held = self.held.subscribe();
        let mut open: VecDeque<CancellationToken> = VecDeque::new();
        loop {
            // The node's next process takes what waits in the kernel.
            let accepting = async {
                held.wait_for(|held| *held == Held::Nothing).await.ok()?;
                tokio::select! {
                    biased;
                    _ = held.wait_for(|held| *held != Held::Nothing) => None,
                    connection = reading::accept(&self.config, &listener) => Some(connection),
                }
            };
            let connection = match self.stop.run_until_cancelled(accepting).await {
                Some(Some(connection)) => connection,
                Some(None) => continue,
                None => return,
            };
            open.retain(|other| !other.is_cancelled());
            if open.len() >= CONNECTIONS
                && let Some(oldest) = open.pop_front()
            {
                oldest.cancel();
            }
            let over = self.stop.child_token();
            open.push_back(over.clone());
            let keeper = self.clone();
            tracker.spawn(async move {
                let (config, node) = (&keeper.config, &keeper.node);
                reading::run(config, node, framing, connection, &over).await;
                over.cancel();
            });
        }
    }

    /// Dials, and runs the session, again and again.
    async fn keep_stream(self, framing: Framing) {
        let mut failures = 0;
        while self.may_begin().await {
            let dial = tokio::time::timeout(CONNECT_TIMEOUT, socket::dial(&self.config));
            let Some(dialled) = self.stop.run_until_cancelled(dial).await else {
                return;
            };
            let dialled = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let mut lasts = false;
            let reason = match dialled {
                Ok(connection) => {
                    let begun = Instant::now();
                    let session =
                        stream::Session::new(&self.config, &self.node, connection, framing);
                    let down = session.run(&self.stop).await;
                    if begun.elapsed() >= self.config.backoff.base {
                        failures = 0;
                    }
                    down.to_string()
                }
                Err(error) => {
                    lasts = !comes_and_goes(&error);
                    error.to_string()
                }
            };
            let path = &self.config.path;
            match lasts {
                true => warn!(path, reason, "no session"),
                false => info!(path, reason, "session ended or not reached"),
            }
            failures += 1;
            if !self.pause(failures).await {
                return;
            }
        }
    }

    /// Serves a daemon, over and over.
    async fn keep_ecla(self) {
        let mut failures = 0;
        while self.may_begin().await {
            let dial = self.stop.run_until_cancelled(ecla::dial(&self.config));
            let Some(dialled) = dial.await else {
                return;
            };
            let reason = match dialled {
                Ok(daemon) => {
                    failures = 0;
                    let down = ecla::run(&self.config, &self.node, daemon, &self.stop).await;
                    format!("{down:?}")
                }
                Err(error) => error.to_string(),
            };
            let path = &self.config.path;
            info!(path, reason, "session ended or not reached");
            failures += 1;
            if !self.pause(failures).await {
                return;
            }
        }
    }

    /// Binds a socket, and runs the session over it.
    async fn keep_datagrams(self) {
        let mut failures = 0;
        while self.may_begin().await {
            let (config, node, stop) = (&self.config, &self.node, &self.stop);
            self.left.up.store(true, Ordering::SeqCst);
            // If it was held in between, whoever asks may have found no session up already.
            if *self.held.borrow() == Held::All {
                self.left.up.store(false, Ordering::SeqCst);
                continue;
            }
            let down = match socket::udp(config) {
                Ok(socket) => {
                    failures = 0;
                    match config.layer {
                        Layer::Ltp { local, remote } => {
                            let (engines, left) = ((local, remote), &self.left.unfinished);
                            licklider::run(config, node, socket, engines, left, stop).await
                        }
                        _ => datagrams::run(config, node, socket, stop).await,
                    }
                }
                Err(error) => Down::Broken(error.to_string()),
            };
            self.left.up.store(false, Ordering::SeqCst);
            let (path, address) = (&self.config.path, self.config.listen);
            warn!(path, %address, %down, "no session");
            failures += 1;
            if !self.pause(failures).await {
                return;
            }
        }
    }

    /// Waits until a session may begin. Returns false if it never may.
    async fn may_begin(&self) -> bool {
        let mut held = self.held.subscribe();
        let free = held.wait_for(|held| *held != Held::All);
        let free = self.stop.run_until_cancelled(free).await;
        matches!(free, Some(Ok(_))) && !self.stop.is_cancelled()
    }

    /// Whether to go on after a pause.
    async fn pause(&self, failures: u32) -> bool {
        let pause = self.config.backoff.jittered(failures, fastrand::f64());
        let slept = tokio::time::sleep(pause);
        self.stop.run_until_cancelled(slept).await.is_some()
    }
}
