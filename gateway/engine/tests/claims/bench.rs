//! Engines on a bench: the test carries each offer from one to the next.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle as bundle;
use underpass_cla::{Class, Outcome, Refusal, SessionId, SessionInfo, Transfer};
use underpass_engine::{
    Action, Engine, EngineConfig, HopConfig, HopId, LinkChange, Message, Migration, PathChange,
    PlannedBlockage, RouteEntry, StreamKey,
};
use underpass_scheduler::{self as scheduler, ClassConfig};
use underpass_streams::{Announcement, Event, Open, Target};

pub const CONTROL: Class = Class(0);
pub const URGENT: Class = Class(1);
pub const BULK: Class = Class(2);
pub const MRU: u64 = 1 << 30;

/// An engine's offer: the session, and the transfer.
pub type Offered = (SessionId, Transfer);

/// A node with three classes and a hop to each neighbour.
pub fn config(node: u64, neighbours: &[u64]) -> EngineConfig {
    let class = |class: u8| ClassConfig {
        class: Class(class),
        priority: class,
        weight: 1,
    };
    let hop = |(number, neighbour): (usize, &u64)| {
        HopConfig::new(HopId(number as u64), format!("hop{number}"), *neighbour)
    };
    EngineConfig {
        node,
        incarnation: 1,
        agent: bundle::Config::new(node, node << 40),
        scheduler: scheduler::Config {
            classes: (0..3).map(class).collect(),
            utilisation: 1.0,
        },
        beam_rate_bps: None,
        hops: neighbours.iter().enumerate().map(hop).collect(),
        routes: Vec::new(),
        max_streams: 100,
        window_bytes: None,
        send_buffer_bytes: None,
        lifetime: Duration::from_secs(3600),
        hold: Duration::from_secs(3600),
        edge: true,
        reaches: Announcement::default(),
        default_class: BULK,
        policies: Default::default(),
    }
}

pub fn route(node: u64, via: u64, custody: bool) -> RouteEntry {
    RouteEntry { node, via, custody }
}

/// An engine, its time, and its events and actions so far.
pub struct Node {
    pub engine: Engine,
    pub now: Instant,
    pub events: Vec<(u64, Event)>,
    /// The number of bundles that were refused as forged.
    pub forged: usize,
    pub messages: Vec<Message>,
    pub changes: Vec<LinkChange>,
    pub migrations: Vec<Migration>,
    pub paths: Vec<(HopId, PathChange)>,
    /// Hops whose links may rest, or may not any more.
    pub rests: Vec<(HopId, bool)>,
    /// The number of bundles for services that did not take them.
    pub unclaimed: usize,
    pub aborted: Vec<SessionId>,
    /// Sessions that were asked to send something, and sessions that are to be replaced.
    pub asked: Vec<SessionId>,
    pub renewed: Vec<SessionId>,
    offers: Vec<Offered>,
}

impl Node {
    pub fn new(now: Instant, config: EngineConfig) -> Node {
        Node::with_store(now, config, Box::<bundle::MemoryStore>::default())
    }

    pub fn with_store(now: Instant, config: EngineConfig, store: Box<dyn bundle::Store>) -> Node {
        Node {
            engine: Engine::with_store(now, config, store).expect("a valid configuration"),
            now,
            events: Vec::new(),
            forged: 0,
            messages: Vec::new(),
            changes: Vec::new(),
            migrations: Vec::new(),
            paths: Vec::new(),
            rests: Vec::new(),
            unclaimed: 0,
            aborted: Vec::new(),
            asked: Vec::new(),
            renewed: Vec::new(),
            offers: Vec::new(),
        }
    }

    /// Sets up one ready session per class on a hop; the session numbers are `base` +
    /// class.
    pub fn up(&mut self, hop: u64, base: u64) {
        for class in 0..3 {
            self.session(hop, base + class, Some(Class(class as u8)), MRU);
        }
    }

    pub fn session(&mut self, hop: u64, id: u64, class: Option<Class>, mru: u64) {
        self.session_with(hop, id, class, |info| info.transfer_mru_bytes = mru);
    }

    /// As [`Node::session`], with other session information.
    pub fn session_with(
        &mut self,
        hop: u64,
        id: u64,
        class: Option<Class>,
        change: impl FnOnce(&mut SessionInfo),
    ) {
        let mut info = SessionInfo {
            class,
            resumes: true,
            transfer_mru_bytes: MRU,
            tls: true,
            ..SessionInfo::new("tcpcl", SocketAddr::from((Ipv4Addr::LOCALHOST, 4556)))
        };
        change(&mut info);
        self.engine
            .session_up(self.now, SessionId(id), HopId(hop), info);
        self.ready(SessionId(id));
    }

    /// Tells of a blockage of a hop in advance, ms from now.
    pub fn expect_blockage(&mut self, hop: HopId, entry_ms: u64, exit_ms: u64) {
        let noon = 1_800_000_000_000;
        self.engine.set_utc(self.now, Some(noon));
        let blockage = PlannedBlockage {
            entry_ms: noon + entry_ms,
            exit_ms: noon + exit_ms,
        };
        self.engine.plan_blockages(self.now, hop, vec![blockage]);
    }

    pub fn ready(&mut self, id: SessionId) {
        self.engine.session_ready(self.now, id);
    }

    pub fn open(&mut self, peer: u64, class: Class) -> StreamKey {
        let target = Target::Name {
            host: "origin.example".to_owned(),
            port: 80,
        };
        let open = Open::new(class, target);
        self.engine.open(self.now, peer, open).expect("it opens")
    }

    pub fn write(&mut self, key: StreamKey, bytes: usize) {
        let data = Bytes::from(vec![b'x'; bytes]);
        self.engine.write(self.now, key, data).expect("it is taken");
    }

    /// Writes this many bytes to a new stream.
    pub fn send(&mut self, peer: u64, class: Class, bytes: usize) -> StreamKey {
        let key = self.open(peer, class);
        self.write(key, bytes);
        key
    }

    /// Writes as much as the stream takes.
    pub fn fill(&mut self, key: StreamKey) {
        let room = self.engine.send_capacity(key);
        if room > 0 {
            self.write(key, room);
        }
    }

    /// Reads all bytes that have come on a stream of `peer`, once this node knows the
    /// stream; returns their number.
    pub fn read_all(&mut self, peer: u64, key: StreamKey) -> usize {
        if !self.has(|event| matches!(event, Event::Opened { .. })) {
            return 0;
        }
        let here = self.engine.key(peer, key.id);
        let _ = self.engine.connected(self.now, here);
        let read = || self.engine.read(self.now, here, usize::MAX);
        std::iter::from_fn(read).map(|data| data.len()).sum()
    }

    /// Takes offers as a CL that forgets them, for this time; returns their bytes.
    pub fn bytes_in(&mut self, time: Duration) -> u64 {
        let end = self.now + time;
        let mut bytes = 0;
        while self.now < end {
            for (session, transfer) in self.offers() {
                bytes += transfer.len();
                self.ready(session);
            }
            self.pass(self.now + Duration::from_millis(5));
        }
        bytes
    }

    /// Takes the engine's events and actions.
    fn collect(&mut self) {
        while let Some(action) = self.engine.poll_action() {
            match action {
                Action::Offer { session, transfer } => self.offers.push((session, transfer)),
                Action::Stream { peer, event, .. } => self.events.push((peer, event)),
                Action::Bundle(bundle::Event::Forged { .. }) => self.forged += 1,
                Action::Bundle(bundle::Event::Deleted { .. }) | Action::Discarded { .. } => {}
                Action::Bundle(bundle::Event::Deliver(_)) => self.unclaimed += 1,
                Action::Path { hop, change } => self.paths.push((hop, change)),
                Action::Rest { hop, rests } => self.rests.push((hop, rests)),
                Action::Message(message) => self.messages.push(message),
                Action::Link { change, .. } => self.changes.push(change),
                Action::Migrated(migration) => self.migrations.push(migration),
                Action::Abort { session, .. } => self.aborted.push(session),
                Action::Ask { session } => self.asked.push(session),
                Action::Renew { session } => self.renewed.push(session),
                Action::SetRate { .. } | Action::Suspend { .. } | Action::Plan(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The offers that were not taken yet.
    pub fn offers(&mut self) -> Vec<Offered> {
        self.collect();
        std::mem::take(&mut self.offers)
    }

    /// Makes all sessions ready and writes to a class; the sessions with offers after
    /// `wait`.
    pub fn turns_behind(&mut self, class: Class, wait: Duration) -> Vec<SessionId> {
        for (session, _) in self.offers() {
            self.ready(session);
        }
        let stream = self.open(1, class);
        self.write(stream, 64);
        self.pass(self.now + wait);
        self.offers().iter().map(|(id, _)| *id).collect()
    }

    /// Puts offers back after a look at them.
    pub fn put_back(&mut self, offers: Vec<Offered>) {
        self.offers.splice(0..0, offers);
    }

    /// Lets time pass up to `at`, and serves all deadlines in between.
    pub fn pass(&mut self, at: Instant) {
        while let Some(due) = self.engine.next_timeout().filter(|due| *due <= at) {
            self.now = self.now.max(due);
            self.engine.handle_timeout(self.now);
        }
        self.now = at;
    }

    /// A bundle arrives on a session.
    pub fn receive(&mut self, session: SessionId, raw: Bytes) -> Result<(), Refusal> {
        let bundle = self.engine.decoder().decode(&raw);
        self.engine.receive(self.now, session, bundle)
    }

    /// Carries an offered bundle to another node, to its session of the same number, and
    /// acknowledges it.
    pub fn carry(&mut self, (session, transfer): Offered, to: &mut Node) {
        let raw = Bytes::from(transfer.chunks.concat());
        let outcome = to.receive(session, raw);
        assert_eq!(outcome, Ok(()));
        self.finish(transfer.key, Outcome::Acknowledged);
        self.ready(session);
    }

    pub fn finish(&mut self, key: u64, outcome: Outcome) {
        self.engine.transfer_finished(self.now, key, outcome);
    }

    pub fn has(&mut self, kind: impl Fn(&Event) -> bool) -> bool {
        self.collect();
        self.events.iter().any(|(_, event)| kind(event))
    }

    /// Destinations of the stored bundles of streams, oldest first.
    pub fn destinations(&self) -> Vec<u64> {
        let stored = self.engine.stored_bundles(self.now, usize::MAX);
        let node = |stored: bundle::BundleInfo| bundle::wire::ipn_parts(&stored.destination);
        stored
            .into_iter()
            .filter_map(node)
            .filter(|(_, service)| *service == 80)
            .map(|(node, _)| node)
            .collect()
    }
}

/// Carries bundles between two neighbours until both have none left.
pub fn exchange(one: &mut Node, other: &mut Node) {
    loop {
        let (there, back) = (one.offers(), other.offers());
        if there.is_empty() && back.is_empty() {
            return;
        }
        for offered in there {
            one.carry(offered, other);
        }
        for offered in back {
            other.carry(offered, one);
        }
    }
}

/// Lets both run for this time, in steps of 10 ms, over a line without delay.
pub fn live(one: &mut Node, other: &mut Node, time: Duration) {
    let end = one.now + time;
    while one.now < end {
        exchange(one, other);
        let at = one.now + Duration::from_millis(10);
        one.pass(at);
        other.pass(at);
    }
    exchange(one, other);
}

/// A terminal, 10, and a hub, 1, that have greeted each other.
pub fn pair() -> (Node, Node) {
    pair_of(config(10, &[1]), config(1, &[10]))
}

pub fn pair_of(terminal: EngineConfig, hub: EngineConfig) -> (Node, Node) {
    let now = Instant::now();
    let (mut terminal, mut hub) = (Node::new(now, terminal), Node::new(now, hub));
    terminal.up(0, 100);
    hub.up(0, 100);
    live(&mut terminal, &mut hub, Duration::from_millis(500));
    assert!(terminal.destinations().is_empty() && hub.destinations().is_empty());
    (terminal, hub)
}

/// The same with two hops, whose sessions are numbered from 100 and from 200.
pub fn pair_by_two(terminal: EngineConfig, hub: EngineConfig) -> (Node, Node) {
    let (mut terminal, mut hub) = pair_of(terminal, hub);
    for node in [&mut terminal, &mut hub] {
        node.up(1, 200);
    }
    live(&mut terminal, &mut hub, Duration::from_millis(500));
    (terminal, hub)
}
