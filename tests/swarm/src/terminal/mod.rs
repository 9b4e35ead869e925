//! A light terminal: the project's engine, sessions and beacons as a real one
//! has them, and downloads in place of an edge.

mod parts;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use underpass_beacon::{Key, PeerId, Signs};
use underpass_cla::{
    Class, Down, Node, Outcome, Refusal, Session, SessionId, SessionInfo, Transfer,
};
use underpass_engine::{Action, Engine, HopId, Sign, StreamKey};
use underpass_streams::{Event, Open, Target};
use underpass_tcpcl::Dialer;

use crate::hop::{Arrival, DelayedBeacons, Hop, SentBeacons};
use crate::load::chunks::{Arrived, Reader};

pub use parts::{Config, TerminalError};

const HOP: HopId = HopId(0);
/// The class of downloads.
const NORMAL: Class = Class(2);
/// What is read from a stream at once, bytes.
const READ_BYTES: usize = 1 << 20;

/// What a terminal has done and seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Sessions up at present.
    pub sessions: usize,
    /// Blockages of its link that were seen.
    pub blockages: u64,
    pub blocked: bool,
    /// Payload received, HTTP heads included, bytes.
    pub received_bytes: u64,
    /// Downloads that ended in order with every byte.
    pub complete: u64,
    /// Downloads that did not.
    pub broken: u64,
    /// Bundles that the engine refused although their session had taken them: a delayed answer can
    /// no longer be sent.
    pub refused: u64,
    /// When the last byte of the last download came.
    pub last_byte: Option<Instant>,
}

/// A terminal at work; it goes with this.
pub struct Terminal {
    shell: Arc<Shell>,
    _dialer: Dialer,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Terminal {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

struct Shell {
    hub_node: u64,
    inner: Mutex<Inner>,
    timer: Notify,
    beacons: Arc<DelayedBeacons>,
}

struct Inner {
    engine: Engine,
    hop: Hop,
    downloads: HashMap<StreamKey, Download>,
    /// When the input that the engine gets now came to the socket.
    at_socket: Instant,
    armed: Option<Instant>,
    figures: Figures,
    /// Chunks of paced streams.
    arrived: Vec<Arrived>,
}

enum Download {
    /// By HTTP: bytes that have not come.
    File(u64),
    /// Of a paced stream.
    Paced(Reader),
}

enum Effect {
    Offer(Arc<dyn Session>, Transfer),
    SetRate(Arc<dyn Session>, Option<u64>),
    Suspend(Arc<dyn Session>, bool),
    Abort(Arc<dyn Session>, &'static str),
}

impl Terminal {
    /// Starts `node`; it dials at once. Must be called within a runtime.
    ///
    /// # Errors
    /// When it has no certificate, or the system no socket for it.
    pub fn start(config: &Config, node: u64) -> Result<Terminal, TerminalError> {
        let now = Instant::now();
        let beacons = DelayedBeacons::new(parts::endpoint(config, now, node), config.delay);
        let shell = Arc::new(Shell {
            hub_node: config.hub_node,
            inner: Mutex::new(Inner {
                engine: Engine::new(now, parts::engine(config, node))?,
                hop: Hop::new(config.delay),
                downloads: HashMap::new(),
                at_socket: now,
                armed: None,
                figures: Figures::default(),
                arrived: Vec::new(),
            }),
            timer: Notify::new(),
            beacons: beacons.clone(),
        });
        let hearer = Hearer(Arc::downgrade(&shell));
        let beacons = tokio::spawn(beacons.run(parts::socket(config, node)?, hearer));
        let dialer = Dialer::spawn(parts::dialer(config, node)?, shell.clone());
        let timer = tokio::spawn(drive(Arc::downgrade(&shell)));
        Ok(Terminal {
            shell,
            _dialer: dialer,
            tasks: [timer, beacons],
        })
    }

    /// What it has done and seen.
    pub fn figures(&self) -> Figures {
        let inner = lock(&self.shell.inner);
        Figures {
            sessions: inner.hop.sessions(),
            ..inner.figures
        }
    }

    /// When its beacons that are awaited have left.
    pub fn beacons(&self) -> Arc<SentBeacons> {
        self.shell.beacons.sent()
    }

    /// The chunks of paced streams that have come.
    pub fn take_arrived(&self) -> Vec<Arrived> {
        std::mem::take(&mut lock(&self.shell.inner).arrived)
    }

    /// Begins a download of `bytes` from an origin by HTTP.
    pub fn download(&self, origin: SocketAddr, bytes: u64) {
        let request =
            format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n");
        self.begin(origin, Bytes::from(request), Download::File(bytes));
    }

    /// Opens a paced stream.
    pub fn follow(&self, origin: SocketAddr, reader: Reader) {
        let request = Bytes::copy_from_slice(&reader.stream().to_be_bytes());
        self.begin(origin, request, Download::Paced(reader));
    }

    fn begin(&self, origin: SocketAddr, request: Bytes, download: Download) {
        let hub = self.shell.hub_node;
        self.shell.with(|inner, now| {
            let open = Open::new(NORMAL, Target::Address(origin));
            let Ok(key) = inner.engine.open(now, hub, open) else {
                inner.figures.broken += 1;
                return;
            };
            // A new stream takes so little.
            let _ = inner.engine.write(now, key, request);
            inner.downloads.insert(key, download);
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls engine and hop at their deadlines, as long as there are any.
async fn drive(shell: Weak<Shell>) {
    loop {
        let Some(now) = shell.upgrade() else { return };
        let deadline = {
            let mut inner = lock(&now.inner);
            inner.armed = inner.next_timeout();
            inner.armed
        };
        let due = async {
            match deadline {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {
                now.with(|inner, at| inner.engine.handle_timeout(at));
                now.take_arrivals();
            }
            () = now.timer.notified() => {}
        }
    }
}

impl Shell {
    /// Takes what the hop has brought by now. Each arrival is handled with its effects, so that the
    /// time when it came to the socket is known.
    fn take_arrivals(&self) {
        while self.with(Inner::take_arrival) {}
    }

    fn with<R>(&self, call: impl FnOnce(&mut Inner, Instant) -> R) -> R {
        let mut inner = lock(&self.inner);
        let now = Instant::now();
        let result = call(&mut inner, now);
        let effects = inner.gather(now);
        let deadline = inner.next_timeout();
        let earlier = deadline.is_some_and(|at| inner.armed.is_none_or(|armed| at < armed));
        if earlier {
            inner.armed = deadline;
        }
        drop(inner);
        if earlier {
            self.timer.notify_one();
        }
        for effect in effects {
            match effect {
                Effect::Offer(session, transfer) => session.offer(transfer),
                Effect::SetRate(session, rate) => session.set_rate(rate),
                Effect::Suspend(session, blocked) => session.suspend(blocked),
                Effect::Abort(session, reason) => session.abort(reason),
            }
        }
        result
    }
}

impl Inner {
    fn next_timeout(&self) -> Option<Instant> {
        let hop = self.hop.next_timeout();
        hop.into_iter().chain(self.engine.next_timeout()).min()
    }

    /// The next that the hop has brought by now; false if there is none.
    fn take_arrival(&mut self, now: Instant) -> bool {
        let Some((at_socket, arrival)) = self.hop.next_arrival(now) else {
            return false;
        };
        self.at_socket = at_socket;
        match arrival {
            Arrival::Bundle(id, bundle) => {
                let bundle = self.engine.decoder().decode(&bundle);
                if self.engine.receive(now, id, bundle).is_err() {
                    self.figures.refused += 1;
                }
            }
            Arrival::Down(id) => {
                for unsent in self.hop.down(id).unwrap_or_default() {
                    let outcome = Outcome::Broken { acknowledged: 0 };
                    self.engine.transfer_finished(now, unsent.key, outcome);
                }
                self.engine.session_down(now, id);
            }
        }
        true
    }

    fn gather(&mut self, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.act(now, &mut effects);
        loop {
            let offers = self.hop.offers(now);
            if offers.is_empty() {
                return effects;
            }
            for (id, session, transfer) in offers {
                effects.push(Effect::Offer(session, transfer));
                if self.hop.has_room(id) {
                    self.engine.session_ready(now, id);
                }
            }
            self.act(now, &mut effects);
        }
    }

    /// Does what the engine wants.
    fn act(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        while let Some(action) = self.engine.poll_action() {
            let session = |id| self.hop.session(id).cloned();
            match action {
                Action::Offer {
                    session: id,
                    transfer,
                } => {
                    self.hop.send(now, id, transfer);
                    if self.hop.has_room(id) {
                        self.engine.session_ready(now, id);
                    }
                }
                Action::SetRate {
                    session: id,
                    ip_bps,
                } => {
                    effects.extend(session(id).map(|s| Effect::SetRate(s, ip_bps)));
                }
                Action::Suspend {
                    session: id,
                    blocked,
                } => {
                    effects.extend(session(id).map(|s| Effect::Suspend(s, blocked)));
                }
                Action::Abort {
                    session: id,
                    reason,
                } => {
                    effects.extend(session(id).map(|s| Effect::Abort(s, reason)));
                }
                Action::Link { change, .. } => self.link(change),
                Action::Stream { peer, epoch, event } => {
                    self.stream(now, |id| StreamKey { peer, epoch, id }, event);
                }
                _ => {}
            }
        }
    }

    fn link(&mut self, change: underpass_engine::LinkChange) {
        use underpass_engine::LinkChange::{Blocked, Free};
        match change {
            Blocked(_) => {
                self.figures.blockages += 1;
                self.figures.blocked = true;
            }
            Free(_) => self.figures.blocked = false,
            _ => {}
        }
    }

    fn stream(
        &mut self,
        now: Instant,
        key: impl Fn(underpass_streams::StreamId) -> StreamKey,
        event: Event,
    ) {
        match event {
            Event::Readable(id) => {
                let key = key(id);
                while let Some(bytes) = self.engine.read(now, key, READ_BYTES) {
                    self.figures.received_bytes += bytes.len() as u64;
                    self.figures.last_byte = Some(now);
                    match self.downloads.get_mut(&key) {
                        // The head of the answer counts as bytes of it, too.
                        Some(Download::File(left)) => {
                            *left = left.saturating_sub(bytes.len() as u64);
                        }
                        Some(Download::Paced(reader)) => {
                            let read = reader.read(&bytes, self.at_socket, &mut self.arrived);
                            if let Err(error) = read {
                                tracing::error!("{error}");
                                self.figures.broken += 1;
                                self.downloads.remove(&key);
                            }
                        }
                        None => {}
                    }
                }
            }
            Event::PeerFinished(id) => {
                let key = key(id);
                match self.downloads.remove(&key) {
                    Some(Download::File(0)) => self.figures.complete += 1,
                    Some(_) => self.figures.broken += 1,
                    None => {}
                }
                // One that is gone needs no end.
                let _ = self.engine.finish(now, key);
            }
            Event::Reset { id, .. } if self.downloads.remove(&key(id)).is_some() => {
                self.figures.broken += 1;
            }
            _ => {}
        }
    }
}

impl Node for Shell {
    fn session_up(&self, id: SessionId, info: SessionInfo, session: Arc<dyn Session>) -> SessionId {
        if let Some(key) = &info.exported_key {
            self.beacons.add_key(PeerId(HOP.0), Key::new(&key.0));
        }
        self.with(|inner, now| {
            inner.hop.up(id, session);
            inner.engine.session_up(now, id, HOP, info);
        });
        id
    }

    fn ready(&self, id: SessionId) {
        self.with(|inner, now| {
            inner.hop.ready(id);
            if inner.hop.has_room(id) {
                inner.engine.session_ready(now, id);
            }
        });
    }

    fn admit(&self, id: SessionId, length: Option<u64>) -> Result<(), Refusal> {
        self.with(|inner, now| inner.engine.admit(now, id, length))
    }

    fn received(&self, id: SessionId, bundle: Bytes) -> Result<(), Refusal> {
        self.with(|inner, now| {
            if inner.hop.is_direct() {
                inner.at_socket = now;
                let bundle = inner.engine.decoder().decode(&bundle);
                return inner.engine.receive(now, id, bundle);
            }
            inner.hop.arrive(now, Arrival::Bundle(id, bundle));
            Ok(())
        })
    }

    fn progress(&self, _id: SessionId, key: u64, acknowledged: u64) {
        lock(&self.inner)
            .engine
            .transfer_progress(key, acknowledged);
    }

    fn finished(&self, _id: SessionId, key: u64, outcome: Outcome) {
        self.with(|inner, now| inner.engine.transfer_finished(now, key, outcome));
    }

    fn session_down(&self, id: SessionId, _reason: Down) {
        self.with(|inner, now| inner.hop.arrive(now, Arrival::Down(id)));
        self.take_arrivals();
    }
}

/// The terminal as its beacons see it.
struct Hearer(Weak<Shell>);

impl underpass_beacon::Node for Hearer {
    fn signs(&self, _peer: PeerId) -> Signs {
        let heard = self.0.upgrade();
        Signs {
            heard: heard.and_then(|shell| lock(&shell.inner).engine.last_heard(HOP)),
            sent: None,
        }
    }

    fn heard(&self, _peer: PeerId, at: Instant) {
        if let Some(shell) = self.0.upgrade() {
            shell.with(|inner, now| inner.engine.heard(now, HOP, at, Sign::Beacon));
        }
    }

    fn key_unknown(&self, _peer: PeerId) {
        let Some(shell) = self.0.upgrade() else {
            return;
        };
        let sessions = lock(&shell.inner).hop.every_session();
        for session in sessions {
            session.abort("the hub does not know this session any more");
        }
    }
}
