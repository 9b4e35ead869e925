//! The side of the process that runs.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::runtime::Handle;
use tokio::signal::unix::Signal;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use underpass_cla::ExportedKey;
use underpass_edge::Edge;
use underpass_edge::direct;
use underpass_edge::relay::{HeldRelay, RelayState, Relayed};
use underpass_edge::stream::StreamName;
use underpass_engine::{Engine, EngineConfig, EngineError, NodeState};
use underpass_handover::HandoverError;
use underpass_quic::ListenerKey;

use super::channel::Channel;
use super::launcher::Launcher;
use super::messages::{Answer, Hello, Order, ProcessState};
use super::sockets::Sockets;
use super::take_over::connection;
use crate::budgets::KeptBudgets;
use crate::config::Current;
use crate::interception::Interceptor;
use crate::known_links::KnownLinks;
use crate::privileged::{HeldHelper, Helper, PathCommands};
use crate::run::{Parting, Restarter, set_clocks};
use crate::shell::{Shell, Stopped, StreamEdge, StreamOutlet};

/// How long operations inside the node may take to end.
const SETTLE: Duration = Duration::from_secs(10);
/// How long peers may take to set sessions up with the next process, ms: some
/// round trips, and a pause before a dial.
const SET_UP_MS: u64 = 10_000;
/// How often this checks whether they have ended.
const GLANCE: Duration = Duration::from_millis(2);

/// Why the node goes on as it is.
#[derive(Debug, Error)]
pub enum UpgradeError {
    #[error("another program is being started already")]
    Busy,
    #[error("this process is the first of its container, which ends with it: start another one")]
    First,
    #[error("the next program does not start: {0}")]
    Launch(io::Error),
    #[error("the next program does not answer: {0}")]
    Channel(#[from] io::Error),
    #[error("the next program refuses: {0}")]
    Refused(String),
    #[error("the next program does not say what was expected")]
    Answer,
    #[error("this node cannot be handed over now: {0}")]
    Unsettled(&'static str),
    #[error(transparent)]
    State(#[from] HandoverError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Begins the hand-over to the next program; returns its process.
pub type Upgrade = Box<dyn Fn() -> JoinHandle<Result<u32, UpgradeError>> + Send + Sync>;

/// What is handed over, and who does it.
pub struct Parts {
    pub shell: Arc<Shell>,
    pub edge: Arc<Edge>,
    pub outlet: Arc<StreamOutlet>,
    pub interceptor: Option<Arc<Interceptor>>,
    pub helper: Option<Arc<Helper>>,
    /// Whether it was started to set MPTCP endpoints, too.
    pub manages_paths: bool,
    pub commands: BTreeMap<String, PathCommands>,
    pub sockets: Arc<Sockets>,
    pub launcher: Launcher,
    pub known_links: Arc<KnownLinks>,
    /// What was spent on metered paths.
    pub budgets: Arc<KeptBudgets>,
    pub current: Arc<Current>,
    /// Ends the parts that the engines talk to, and begins them again.
    pub restarter: Restarter,
    pub incarnation: u64,
    /// The key of listeners over QUIC.
    pub quic_key: ListenerKey,
    /// When the run has begun.
    pub begun: Instant,
    /// Ends what two processes cannot have at once.
    pub parting: Arc<Parting>,
}

/// Hands a running node over.
pub struct HandOver {
    parts: Parts,
    runtime: Handle,
    /// Held by the one hand-over that is under way.
    alone: Mutex<()>,
    done: CancellationToken,
}

/// What prevents every upgrade in place of the node that `process` runs.
pub fn lasting_obstacle(process: u32) -> Option<UpgradeError> {
    const FIRST: u32 = 1;
    (process == FIRST).then_some(UpgradeError::First)
}

/// Everything at its moment of hand-over.
struct Moment<'a> {
    held: Vec<HeldRelay>,
    helper: Option<HeldHelper<'a>>,
}

/// This process's ends of connections between the two processes.
type Bridges = Vec<(StreamName, TcpStream)>;

impl HandOver {
    /// Of the node that these are parts of.
    pub fn new(parts: Parts) -> Arc<HandOver> {
        Arc::new(HandOver {
            parts,
            runtime: Handle::current(),
            alone: Mutex::new(()),
            done: CancellationToken::new(),
        })
    }

    /// Waits until another process has the node.
    pub async fn done(&self) {
        self.done.cancelled().await;
    }

    /// Hands the node over to the program that is installed now, on a thread that may wait.
    pub fn upgrade(self: &Arc<Self>) -> JoinHandle<Result<u32, UpgradeError>> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let upgraded = this.run();
            let took_ms = begun.elapsed().as_millis();
            match &upgraded {
                Ok(process) => tracing::info!(process, took_ms, "another process goes on"),
                // The upgrade under way has a line of its own.
                Err(error @ UpgradeError::Busy) => tracing::warn!(%error, "no second upgrade"),
                Err(error) => {
                    tracing::error!(%error, took_ms, "not upgraded: this process goes on");
                }
            }
            upgraded
        })
    }

    fn run(&self) -> Result<u32, UpgradeError> {
        let Ok(_alone) = self.alone.try_lock() else {
            return Err(UpgradeError::Busy);
        };
        if self.done.is_cancelled() {
            return Err(UpgradeError::Busy);
        }
        if let Some(obstacle) = lasting_obstacle(std::process::id()) {
            return Err(obstacle);
        }
        // If this were found only later, the sessions would have been cut in vain.
        if let Some(obstacle) = self.parts.shell.lasting_obstacle() {
            return Err(UpgradeError::Unsettled(obstacle));
        }
        self.parts.known_links.save(&self.parts.shell);
        let (mut channel, its) = Channel::pair()?;
        let patience = self.parts.current.get().node.upgrade_patience_s;
        channel.set_patience(Some(Duration::from_secs(patience)))?;
        let process = self.parts.launcher.launch(its);
        let process = process.map_err(UpgradeError::Launch)?;
        tracing::info!(process, "the next program prepares");
        // A reload holds the configuration and then needs the engines: without this order, each
        // would wait for the other.
        let config = self.parts.restarter.hold_config();
        let prepared = match self.prepare(&mut channel) {
            Ok(true) => self.set_up_sessions(&mut channel),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = prepared {
            self.end_next(channel);
            self.parts.restarter.stay();
            return Err(error);
        }
        self.hand_over(channel, &config.engine)?;
        self.parts.restarter.leave();
        self.parts.sockets.leave();
        self.parts.launcher.end();
        super::notify::main_process(process);
        self.done.cancel();
        Ok(process)
    }

    /// Lets the next process get ready. Returns whether it can set sessions up beforehand.
    fn prepare(&self, channel: &mut Channel) -> Result<bool, UpgradeError> {
        let parts = &self.parts;
        let config = parts.current.get();
        let (names, sockets): (Vec<_>, Vec<_>) = parts.sockets.all()?.into_iter().unzip();
        let interceptor = parts.interceptor.as_ref();
        let age_ms = u64::try_from(parts.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        channel.send(&Hello {
            node: config.node.number,
            incarnation: parts.incarnation,
            age_ms,
            is_durable: config.custody.is_durable(),
            has_helper: parts.helper.is_some(),
            manages_paths: parts.helper.is_some() && parts.manages_paths,
            commands: parts.commands.clone(),
            up: parts.restarter.brought_up(),
            proxies: parts.edge.switch(),
            quic_key: Some(parts.quic_key.0),
            interception: interceptor.map(|rules| (rules.switch(), rules.families())),
            sockets: names,
            sets_up_sessions: true,
        })?;
        let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        channel.send_files(&sockets)?;
        match channel.receive()? {
            Answer::CanSetUp => Ok(true),
            Answer::Ready => Ok(false),
            Answer::Refused(reason) => Err(UpgradeError::Refused(reason)),
            _ => Err(UpgradeError::Answer),
        }
    }

    /// Lets all peers set sessions up with the next process, beside those in use. A peer that is
    /// too slow gets them after the hand-over.
    fn set_up_sessions(&self, channel: &mut Channel) -> Result<(), UpgradeError> {
        let parts = &self.parts;
        let patience = parts.current.get().node.upgrade_patience_s * 1_000;
        let within_ms = SET_UP_MS.min(patience / 2);
        let sessions = parts.restarter.make_way();
        channel.send(&Order::SetUp {
            sessions,
            within_ms,
        })?;
        loop {
            match channel.receive()? {
                // Beacons of the peer are sealed with the newest key.
                Answer::Key { path, peer, key } => {
                    parts.shell.know_key(&path, &peer, &ExportedKey(key));
                }
                Answer::SetUp => return Ok(()),
                Answer::Refused(reason) => return Err(UpgradeError::Refused(reason)),
                _ => return Err(UpgradeError::Answer),
            }
        }
    }

    fn hand_over(&self, channel: Channel, config: &EngineConfig) -> Result<(), UpgradeError> {
        let parts = &self.parts;
        let begun = Instant::now();
        parts.edge.pause(true);
        parts.restarter.end_sessions();
        let held = self.runtime.block_on(parts.edge.relays().hold());
        parts.shell.end_sessions();
        parts.budgets.step(&parts.shell, false);
        let moment = Moment {
            held,
            helper: parts.helper.as_ref().map(|helper| helper.hold()),
        };
        let given = match self.settle() {
            Ok(stopped) => self.give(channel, stopped, &moment, config),
            Err(error) => {
                self.end_next(channel);
                Err(error)
            }
        };
        if let Err(error) = given {
            self.go_on(moment.held);
            return Err(error);
        }
        let connections = moment.held.len();
        if let Some(helper) = moment.helper {
            helper.leave();
        }
        let paused_ms = begun.elapsed().as_millis();
        tracing::info!(paused_ms, connections, "handed over");
        Ok(())
    }

    /// Waits until no operation is in progress inside; then everything stands still.
    fn settle(&self) -> Result<Stopped<'_>, UpgradeError> {
        let until = Instant::now() + SETTLE;
        loop {
            let stopped = self.parts.shell.stop();
            let waits = || self.parts.parting.obstacle();
            let reads = || match self.parts.restarter.unfinished_blocks() {
                Some(_) => None,
                None => Some("sessions over UDP or LTP have not ended"),
            };
            let Some(obstacle) = stopped.obstacle().or_else(waits).or_else(reads) else {
                return Ok(stopped);
            };
            drop(stopped);
            if Instant::now() >= until {
                return Err(UpgradeError::Unsettled(obstacle));
            }
            std::thread::sleep(GLANCE);
            self.parts.shell.end_sessions();
        }
    }

    /// Gives the state to the next process, or takes it back.
    fn give(
        &self,
        mut channel: Channel,
        mut stopped: Stopped<'_>,
        moment: &Moment<'_>,
        config: &EngineConfig,
    ) -> Result<(), UpgradeError> {
        let parts = &self.parts;
        let (engines, streams) = match stopped.take(config) {
            Ok(taken) => taken,
            Err(error) => {
                self.end_next(channel);
                return Err(error.into());
            }
        };
        parts.restarter.close_store();
        let (bridges, others) = bridges(&streams, &moment.held);
        let state = ProcessState {
            engines,
            streams,
            relays: moment
                .held
                .iter()
                .map(|held| held.state.clone())
                .chain(others.iter().map(|(state, _)| state.clone()))
                .collect(),
            unfinished_blocks: parts.restarter.unfinished_blocks().unwrap_or_default(),
        };
        let sockets = moment.held.iter().map(|held| held.socket.as_fd());
        let sockets = sockets.chain(others.iter().map(|(_, socket)| socket.as_fd()));
        let sockets: Vec<BorrowedFd<'_>> = sockets.collect();
        let helper = moment.helper.as_ref();
        match send(&mut channel, &state, &sockets, helper) {
            Ok(()) => {
                // The commit point: the other process has the node. If that process has ended by
                // now, this is like any crash.
                let bridges = bridges.into_iter().filter_map(|(stream, socket)| {
                    let _runtime = self.runtime.enter();
                    let socket = tokio::net::TcpStream::from_std(socket).ok()?;
                    Some((stream, direct::over(socket)))
                });
                // Streams that are requested from now on wait for this message.
                let channel = Arc::new(Mutex::new(channel));
                let mut word = channel.lock().unwrap();
                parts.outlet.lead_to(channel.clone());
                stopped.bridge(bridges.collect());
                parts.parting.end(&self.runtime);
                if let Err(error) = word.send(&Order::Go) {
                    panic!("the next program has ended when it had the node: {error}");
                }
                Ok(())
            }
            Err(error) => {
                self.end_next(channel);
                self.take_back(stopped, state.engines, config);
                Err(error)
            }
        }
    }

    /// Takes this process's own state over again. If that is not possible, the process ends as if
    /// it had crashed, and custody continues in the next one.
    fn take_back(&self, stopped: Stopped<'_>, state: NodeState, config: &EngineConfig) {
        let restarter = &self.parts.restarter;
        let _runtime = self.runtime.enter();
        let stores = match restarter.open_store() {
            Ok(stores) => stores,
            Err(error) => panic!("the custody store cannot be opened again: {error}"),
        };
        match Engine::take_over(Instant::now(), config, stores, state) {
            Ok(mut engines) => {
                set_clocks(&mut engines);
                stopped.put_back(engines);
            }
            Err(error) => panic!("the node cannot take its own state over: {error}"),
        }
    }

    /// Goes on as before.
    fn go_on(&self, held: Vec<HeldRelay>) {
        let parts = &self.parts;
        let _runtime = self.runtime.enter();
        parts.restarter.begin_sessions();
        parts.edge.relays().release();
        for held in held {
            let conduit = parts
                .shell
                .conduit_again(held.state.stream, held.state.up_done);
            parts.edge.resume(held, conduit);
        }
        parts.edge.pause(false);
    }

    /// Ends the next process, which does not get the node.
    fn end_next(&self, channel: Channel) {
        // It sees this, and then ends by itself.
        drop(channel);
        if let Err(error) = self.parts.launcher.kill() {
            tracing::error!(%error, "the next program may still be there");
        }
    }
}

/// Sends all that the next process needs, until it has taken all over.
fn send(
    channel: &mut Channel,
    state: &ProcessState,
    sockets: &[BorrowedFd<'_>],
    helper: Option<&HeldHelper<'_>>,
) -> Result<(), UpgradeError> {
    channel.send_state(state)?;
    channel.send_files(sockets)?;
    if let Some(helper) = helper {
        channel.send_files(&[helper.socket()?])?;
    }
    match channel.receive()? {
        Answer::TakenOver => Ok(()),
        Answer::Refused(reason) => Err(UpgradeError::Refused(reason)),
        _ => Err(UpgradeError::Answer),
    }
}

/// Connections to the next process for the streams whose tasks stay here: one end of each, and the
/// other end with its relay's state.
fn bridges(streams: &[StreamEdge], held: &[HeldRelay]) -> (Bridges, Vec<(RelayState, TcpStream)>) {
    let held: HashSet<StreamName> = held.iter().map(|held| held.state.stream).collect();
    let moved = |stream: &StreamEdge| stream.is_dialled() || held.contains(&stream.stream);
    let (mut bridges, mut others) = (Vec::new(), Vec::new());
    for stream in streams.iter().filter(|stream| !moved(stream)) {
        match connection() {
            Ok((near, far)) => {
                let state = RelayState::fresh(Relayed::Process, stream.stream, stream.finished);
                bridges.push((stream.stream, near));
                others.push((state, far));
            }
            // Its stream is reset.
            Err(error) => tracing::error!(%error, "no connection to the next process"),
        }
    }
    (bridges, others)
}

/// Upgrades at each signal. Runs until dropped.
pub async fn at_signals(mut signals: Signal, hand_over: Arc<HandOver>) {
    while signals.recv().await.is_some() {
        // The outcome is in the log.
        let _ = hand_over.upgrade().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_a_container_is_never_upgraded() {
        const FIRST: u32 = 1;
        const LATER: u32 = 77;
        assert!(matches!(lasting_obstacle(FIRST), Some(UpgradeError::First)));
        assert!(lasting_obstacle(LATER).is_none());
    }
}
