//! A light terminal: the project's engine, sessions and beacons as a real one
//! has them, and downloads in place of an edge.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thiserror::Error;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use underpass_beacon::{Endpoint, Key, PeerConfig, PeerId, Signs, SocketConfig, bind};
use underpass_cla::{
    Class, Down, Node, Outcome, Refusal, Session, SessionId, SessionInfo, Transfer,
};
use underpass_engine::{Action, Engine, EngineConfig, HopConfig, HopId, Sign, StreamKey};
use underpass_scheduler::ClassConfig;
use underpass_streams::{Announcement, Event, Open, Target};
use underpass_tcpcl::{Dialer, DialerConfig, SessionDefaults};

use crate::hop::{Arrival, DelayedBeacons, Hop};
use crate::identity::{self, IdentityError};

const HOP: HopId = HopId(0);
/// The class of downloads.
const NORMAL: Class = Class(2);
/// What is read from a stream at once, bytes.
const READ_BYTES: usize = 1 << 20;

/// What a terminal is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the hub listens.
    pub hub: SocketAddr,
    /// The hub's node number.
    pub hub_node: u64,
    /// The folder of the authority.
    pub pki: std::path::PathBuf,
    /// Round-trip time of the hop, as the terminal is told.
    pub rtt: Duration,
    /// How much later than at the sockets everything happens, one way.
    pub delay: Duration,
    /// Rate from the hub, bit/s.
    pub receive_rate_bps: Option<u64>,
    /// Rate to the hub, bit/s.
    pub send_rate_bps: Option<u64>,
    /// This process' incarnation.
    pub run: u64,
}

/// Why a terminal cannot be made.
#[derive(Debug, Error)]
pub enum TerminalError {
    /// It has no certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The engine does not want its configuration.
    #[error(transparent)]
    Engine(#[from] underpass_engine::EngineError),
    /// There is no socket for beacons.
    #[error("beacons: {0}")]
    Beacons(#[from] std::io::Error),
}

/// What a terminal has done and seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Sessions up at present.
    pub sessions: usize,
    /// Blockages of its link that were seen.
    pub blockages: u64,
    /// Whether it is blocked at present.
    pub blocked: bool,
    /// Payload received, HTTP heads included, bytes.
    pub received_bytes: u64,
    /// Downloads that ended in order with every byte.
    pub complete: u64,
    /// Downloads that did not.
    pub broken: u64,
    /// Bundles that the engine did not want although their session had taken
    /// them: a delayed answer cannot be given any more.
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
    downloads: HashMap<StreamKey, u64>,
    armed: Option<Instant>,
    figures: Figures,
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
        let beacons = DelayedBeacons::new(endpoint(config, now, node), config.delay);
        let shell = Arc::new(Shell {
            hub_node: config.hub_node,
            inner: Mutex::new(Inner {
                engine: Engine::new(now, engine(config, node))?,
                hop: Hop::new(config.delay),
                downloads: HashMap::new(),
                armed: None,
                figures: Figures::default(),
            }),
            timer: Notify::new(),
            beacons: beacons.clone(),
        });
        let hearer = Hearer(Arc::downgrade(&shell));
        let beacons = tokio::spawn(beacons.run(socket(config)?, hearer));
        let dialer = Dialer::spawn(dialer(config, node, &config.pki)?, shell.clone());
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

    /// Begins a download of `bytes` from an origin by HTTP.
    pub fn download(&self, origin: SocketAddr, bytes: u64) {
        let hub = self.shell.hub_node;
        self.shell.with(|inner, now| {
            let open = Open {
                class: NORMAL,
                target: Target::Address(origin),
                client: None,
                report_connected: false,
            };
            let Ok(key) = inner.engine.open(now, hub, open) else {
                inner.figures.broken += 1;
                return;
            };
            let request = format!(
                "GET /bytes/{bytes} HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n"
            );
            // A new stream takes so little.
            let _ = inner.engine.write(now, key, Bytes::from(request));
            inner.downloads.insert(key, bytes);
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn engine(config: &Config, node: u64) -> EngineConfig {
    let class = |number, priority, weight| ClassConfig {
        class: Class(number),
        priority,
        weight,
    };
    EngineConfig {
        node,
        incarnation: config.run,
        agent: underpass_bundle::Config::new(node, config.run ^ node << 32),
        scheduler: underpass_scheduler::Config {
            classes: vec![
                class(0, 0, 1),
                class(1, 1, 1),
                class(2, 2, 4),
                class(3, 2, 1),
            ],
            utilisation: 0.994,
        },
        beam_rate_bps: None,
        hops: vec![HopConfig {
            id: HOP,
            name: "satellite".to_owned(),
            neighbour: config.hub_node,
            weight: 1,
            send_rate_bps: config.send_rate_bps,
            guaranteed_rate_bps: None,
            line: None,
            receive_rate_bps: config.receive_rate_bps,
            rtt: config.rtt,
            mtu_bytes: 1500,
            ipv6: config.hub.is_ipv6(),
            tls: true,
        }],
        routes: Vec::new(),
        max_streams: 1000,
        window_bytes: None,
        send_buffer_bytes: None,
        lifetime: Duration::from_secs(7200),
        hold: Duration::from_secs(3600),
        edge: true,
        reaches: Announcement::default(),
        default_class: NORMAL,
    }
}

fn dialer(config: &Config, node: u64, pki: &Path) -> Result<DialerConfig, IdentityError> {
    let ids = Arc::new(AtomicU64::new(0));
    let mut session = SessionDefaults::new("satellite", format!("ipn:{node}.0"), ids);
    session.incarnation = config.run;
    session.accepted_peers = Some([format!("ipn:{}.0", config.hub_node)].into());
    let mut dialer = DialerConfig::new(config.hub, session);
    dialer.tls = Some(identity::client(pki, node)?);
    dialer.classes = (0..4).map(Class).collect();
    dialer.standby = true;
    Ok(dialer)
}

fn socket(config: &Config) -> std::io::Result<UdpSocket> {
    let any = match config.hub {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    UdpSocket::from_std(bind(&SocketConfig {
        local: SocketAddr::new(any, 0),
        interface: None,
        mark: None,
    })?)
}

fn endpoint(config: &Config, now: Instant, node: u64) -> Endpoint {
    let number = |node| u32::try_from(node).unwrap_or(u32::MAX);
    let mut endpoint = Endpoint::new(number(node), config.run);
    let peer = PeerConfig {
        node: number(config.hub_node),
        rtt: config.rtt,
        address: Some(config.hub),
        patience: Duration::MAX,
    };
    endpoint.add_peer(now, PeerId(HOP.0), peer);
    endpoint
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
            () = due => now.with(|inner, at| {
                inner.engine.handle_timeout(at);
                inner.take_arrivals(at);
            }),
            () = now.timer.notified() => {}
        }
    }
}

impl Shell {
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

    /// What the hop has brought by now.
    fn take_arrivals(&mut self, now: Instant) {
        while let Some(arrival) = self.hop.next_arrival(now) {
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
        }
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
                    let left = self.downloads.get_mut(&key);
                    // The head of the answer counts as bytes of it, too.
                    if let Some(left) = left {
                        *left = left.saturating_sub(bytes.len() as u64);
                    }
                    self.figures.last_byte = Some(now);
                }
            }
            Event::PeerFinished(id) => {
                let key = key(id);
                match self.downloads.remove(&key) {
                    Some(0) => self.figures.complete += 1,
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
    fn session_up(&self, id: SessionId, info: SessionInfo, session: Arc<dyn Session>) {
        if let Some(key) = &info.exported_key {
            self.beacons.add_key(PeerId(HOP.0), Key::new(&key.0));
        }
        self.with(|inner, now| {
            inner.hop.up(id, session);
            inner.engine.session_up(now, id, HOP, info);
        });
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
        self.with(|inner, now| {
            inner.hop.arrive(now, Arrival::Down(id));
            inner.take_arrivals(now);
        });
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
