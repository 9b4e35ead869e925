//! Nodes, links and applications in one virtual time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle as bundle;
use underpass_cla::{Class, Outcome, Refusal, SessionId};
use underpass_engine::{Action, Engine, HopId, StreamKey};
use underpass_streams::{Event, Open, Target};

use crate::apps::{End, Ended, StreamRun};
use crate::line::{Flow, Link, Moving, Pair};
use crate::nodes;
use crate::random::Random;
use crate::schedule::{CALM, CLASSES, Fault, Schedule};

/// A node of the network.
pub struct Node {
    /// `None` while it is stopped.
    pub engine: Option<Engine>,
    pub incarnation: u64,
    /// Sessions that have said that they are ready and got no bundle since.
    ready: BTreeSet<SessionId>,
    /// Sessions that are up, with their pair and end.
    sessions: BTreeMap<SessionId, (usize, usize)>,
    streams: HashMap<StreamKey, (usize, usize)>,
    /// Deadlines served at one moment.
    spun: (Duration, u32),
}

/// What happens at its time.
#[derive(Debug)]
pub enum Happening {
    Move(Moving),
    Ready { pair: usize, end: usize },
    Up { pair: usize, end: usize },
    Down { pair: usize, end: usize },
    Dial { link: usize, class: Option<Class> },
    Fault(Fault),
    Calm,
    OpenStream(usize),
    Work { stream: usize, end: usize },
}

/// Deadlines that a node may have at one moment; more is a busy loop.
const MOST_SPINS: u32 = 20;
/// Actions that may follow one call.
const MOST_ACTIONS: usize = 20_000;
const MOST_HAPPENINGS: u64 = 400_000;
/// With all faults over and custody timers of at most a minute, whatever has
/// not ended by then hangs.
const END: Duration = Duration::from_secs(3600);

pub struct World {
    pub schedule: Schedule,
    pub nodes: Vec<Node>,
    pub links: Vec<Link>,
    pub pairs: Vec<Pair>,
    pub streams: Vec<StreamRun>,
    pub now: Duration,
    pub random: Random,
    pub calm: bool,
    /// A digest of all that happened.
    pub trace: u64,
    pub bundles_offered: u64,
    start: Instant,
    queue: BTreeMap<(Duration, u64), Happening>,
    happened: u64,
    numbers: u64,
}

impl World {
    pub fn new(schedule: Schedule) -> World {
        let start = Instant::now();
        let nodes = (0..schedule.nodes.len()).map(|node| Node {
            engine: Some(nodes::engine(&schedule, node, 1, start)),
            incarnation: 1,
            ready: BTreeSet::new(),
            sessions: BTreeMap::new(),
            streams: HashMap::new(),
            spun: (Duration::ZERO, 0),
        });
        let mut world = World {
            nodes: nodes.collect(),
            links: schedule.links.iter().cloned().map(Link::new).collect(),
            pairs: Vec::new(),
            streams: schedule
                .streams
                .iter()
                .cloned()
                .map(StreamRun::new)
                .collect(),
            now: Duration::ZERO,
            random: Random::new(!schedule.seed),
            calm: false,
            trace: 0,
            bundles_offered: 0,
            start,
            queue: BTreeMap::new(),
            happened: 0,
            numbers: 0,
            schedule,
        };
        for (at, fault) in world.schedule.faults.clone() {
            world.at(at, Happening::Fault(fault));
        }
        for stream in 0..world.streams.len() {
            world.at(world.streams[stream].plan.at, Happening::OpenStream(stream));
        }
        world.at(CALM, Happening::Calm);
        for link in 0..world.links.len() {
            world.dial_missing(link);
        }
        world
    }

    /// Runs until nothing is left to happen.
    pub fn run(&mut self) {
        while let Some(at) = self.next_time() {
            assert!(at < END, "something goes on for ever: {}", self.describe());
            self.now = self.now.max(at);
            self.step();
            self.happened += 1;
            assert!(
                self.happened < MOST_HAPPENINGS,
                "endless: {}",
                self.describe()
            );
            if self.happened.is_multiple_of(16) {
                self.check();
            }
        }
        self.check();
        self.check_end();
    }

    pub fn instant(&self) -> Instant {
        self.start + self.now
    }

    fn next_time(&self) -> Option<Duration> {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let deadlines = self.nodes.iter().filter_map(|node| {
            let deadline = node.engine.as_ref()?.next_timeout()?;
            Some(deadline.saturating_duration_since(self.start))
        });
        queued.into_iter().chain(deadlines).min()
    }

    fn step(&mut self) {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        if queued.is_some_and(|at| at <= self.now)
            && let Some((_, happening)) = self.queue.pop_first()
        {
            return self.happen(happening);
        }
        let now = self.instant();
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            let deadline = node.engine.as_ref().and_then(Engine::next_timeout);
            if deadline.is_some_and(|at| at <= now) {
                let spins = if node.spun.0 == self.now {
                    node.spun.1 + 1
                } else {
                    0
                };
                assert!(
                    spins < MOST_SPINS,
                    "node {number} spins: {}",
                    self.describe()
                );
                self.nodes[number].spun = (self.now, spins);
                self.call(number, |engine, now| engine.handle_timeout(now));
            }
        }
    }

    fn at(&mut self, at: Duration, happening: Happening) {
        self.numbers += 1;
        self.queue
            .insert((at.max(self.now), self.numbers), happening);
    }

    fn note(&mut self, what: u64) {
        let mixed = self.trace ^ what ^ self.now.as_nanos() as u64;
        self.trace = Random::new(mixed).next();
    }

    /// Calls a node's engine, and does what it then wants done.
    pub fn call<R>(
        &mut self,
        node: usize,
        call: impl FnOnce(&mut Engine, Instant) -> R,
    ) -> Option<R> {
        let now = self.instant();
        let engine = self.nodes[node].engine.as_mut()?;
        let result = call(engine, now);
        let mut actions = 0;
        while let Some(action) = self.nodes[node]
            .engine
            .as_mut()
            .and_then(Engine::poll_action)
        {
            actions += 1;
            assert!(actions < MOST_ACTIONS, "node {node} never stops acting");
            self.act(node, action);
        }
        Some(result)
    }

    fn act(&mut self, node: usize, action: Action) {
        match action {
            Action::Offer { session, transfer } => self.offered(node, session, transfer),
            Action::SetRate { session, .. } | Action::Suspend { session, .. } => {
                assert!(self.nodes[node].sessions.contains_key(&session));
            }
            Action::Stream { peer, event } => self.stream_event(node, peer, &event),
            Action::Bundle(event) => self.bundle_event(node, &event),
            Action::BadPayload { peer, error } => panic!("node {node} from {peer}: {error}"),
        }
    }

    fn bundle_event(&mut self, node: usize, event: &bundle::Event) {
        panic!("node {node}: {event:?}");
    }

    fn offered(&mut self, node: usize, session: SessionId, transfer: underpass_cla::Transfer) {
        assert!(
            self.nodes[node].ready.remove(&session),
            "node {node} offers to {session:?}, which is not ready"
        );
        let (pair, end) = self.nodes[node].sessions[&session];
        let length = transfer.len();
        let link = &self.links[self.pairs[pair].link];
        assert!(length <= link.plan.mru_bytes, "a bundle beyond the MRU");
        let taken = link.transmission_time(length);
        let delay = link.plan.delay;
        let eager = link.plan.eager;
        let flow = &mut self.pairs[pair].flows[end];
        flow.unfinished.insert(transfer.key);
        let begins = flow.busy_until.max(self.now);
        flow.busy_until = begins + taken;
        flow.last_arrival = flow.last_arrival.max(flow.busy_until + delay);
        let (arrival, sent) = (flow.last_arrival, flow.busy_until);
        self.bundles_offered += 1;
        self.note(length);
        let raw = Bytes::from(transfer.chunks.concat());
        let key = transfer.key;
        self.at(
            arrival,
            Happening::Move(Moving::Bundle {
                pair,
                from: end,
                key,
                raw,
            }),
        );
        let ready = if eager { begins } else { sent };
        self.at(ready, Happening::Ready { pair, end });
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Move(moving) => self.arrive(moving),
            Happening::Ready { pair, end } => self.session_ready(pair, end),
            Happening::Up { pair, end } => self.session_up(pair, end),
            Happening::Down { pair, end } => self.session_down(pair, end),
            Happening::Dial { link, class } => self.dialled(link, class),
            Happening::Fault(fault) => self.fault(fault),
            Happening::Calm => self.become_calm(),
            Happening::OpenStream(stream) => self.open(stream),
            Happening::Work { stream, end } => self.work(stream, end),
        }
    }

    fn node_at(&self, pair: usize, end: usize) -> usize {
        self.links[self.pairs[pair].link].plan.ends[end]
    }

    // --- sessions

    /// Dials the sessions that a link lacks.
    fn dial_missing(&mut self, link: usize) {
        let wanted = self.links[link].wanted();
        let ends = self.links[link].plan.ends;
        let dead = ends.iter().any(|end| self.nodes[*end].engine.is_none());
        if self.links[link].blocked || dead {
            return;
        }
        for class in self.links[link].kinds(CLASSES) {
            let here = |pair: &&Pair| pair.link == link && pair.class == class && !pair.broken;
            let alive = self.pairs.iter().filter(here).count();
            let dialling = self.links[link].dialling.get(&class).copied().unwrap_or(0);
            for _ in alive + dialling..wanted {
                *self.links[link].dialling.entry(class).or_default() += 1;
                let round_trip = self.links[link].plan.delay * 2;
                let pause = self.random.ms(0, 500);
                self.at(
                    self.now + round_trip + pause,
                    Happening::Dial { link, class },
                );
            }
        }
    }

    fn dialled(&mut self, link: usize, class: Option<Class>) {
        if let Some(count) = self.links[link].dialling.get_mut(&class) {
            *count -= 1;
        }
        let ends = self.links[link].plan.ends;
        if self.links[link].blocked || ends.iter().any(|end| self.nodes[*end].engine.is_none()) {
            return;
        }
        self.numbers += 1;
        let id = SessionId(self.numbers);
        self.pairs.push(Pair {
            link,
            class,
            ids: [id, id],
            up: [false, false],
            broken: false,
            flows: [Flow::default(), Flow::default()],
        });
        let pair = self.pairs.len() - 1;
        let delay = self.links[link].plan.delay;
        self.at(self.now, Happening::Up { pair, end: 1 });
        self.at(self.now + delay, Happening::Up { pair, end: 0 });
    }

    fn session_up(&mut self, pair: usize, end: usize) {
        if self.pairs[pair].broken {
            return;
        }
        let node = self.node_at(pair, end);
        let other = self.node_at(pair, 1 - end);
        let Pair {
            link, class, ids, ..
        } = &self.pairs[pair];
        let (hop, id) = (HopId(*link as u64), ids[end]);
        let mru = self.links[*link].plan.mru_bytes;
        let incarnation = class.map(|_| self.nodes[other].incarnation);
        let number = self.schedule.nodes[other].number;
        let info = nodes::session_info(number, *class, mru, incarnation);
        self.pairs[pair].up[end] = true;
        self.nodes[node].sessions.insert(id, (pair, end));
        self.call(node, |engine, now| engine.session_up(now, id, hop, info));
        self.session_ready(pair, end);
    }

    fn session_ready(&mut self, pair: usize, end: usize) {
        if !self.pairs[pair].up[end] || self.pairs[pair].broken && self.random.chance(50) {
            return;
        }
        let node = self.node_at(pair, end);
        let id = self.pairs[pair].ids[end];
        self.nodes[node].ready.insert(id);
        self.call(node, |engine, now| engine.session_ready(now, id));
    }

    /// Breaks a session; each end notices in its own time.
    fn break_pair(&mut self, pair: usize) {
        if std::mem::replace(&mut self.pairs[pair].broken, true) {
            return;
        }
        for end in 0..2 {
            let late = self.random.ms(0, 1_500);
            self.at(self.now + late, Happening::Down { pair, end });
        }
    }

    fn session_down(&mut self, pair: usize, end: usize) {
        let link = self.pairs[pair].link;
        if std::mem::replace(&mut self.pairs[pair].up[end], false) {
            let node = self.node_at(pair, end);
            let id = self.pairs[pair].ids[end];
            // A bundle may still be offered while its fellows are reported.
            while let Some(key) = self.pairs[pair].flows[end].unfinished.pop_first() {
                let outcome = Outcome::Broken { acknowledged: 0 };
                self.call(node, |engine, now| {
                    engine.transfer_finished(now, key, outcome)
                });
            }
            self.nodes[node].ready.remove(&id);
            self.nodes[node].sessions.remove(&id);
            self.call(node, |engine, now| engine.session_down(now, id));
        }
        self.dial_missing(link);
    }

    fn arrive(&mut self, moving: Moving) {
        let number = moving.pair();
        let pair = &mut self.pairs[number];
        let link = &mut self.links[pair.link];
        if link.blocked && !pair.broken {
            link.stalled.push(moving);
            return;
        }
        match moving {
            Moving::Bundle {
                pair,
                from,
                key,
                raw,
            } => self.bundle_arrives(pair, from, key, raw),
            Moving::Answer {
                pair,
                to,
                key,
                outcome,
            } => {
                let pair = &mut self.pairs[pair];
                if !pair.broken && pair.flows[to].unfinished.remove(&key) {
                    let node = self.node_at(number, to);
                    self.call(node, |engine, now| {
                        engine.transfer_finished(now, key, outcome)
                    });
                }
            }
        }
    }

    fn bundle_arrives(&mut self, number: usize, from: usize, key: u64, raw: Bytes) {
        let to = 1 - from;
        let pair = &mut self.pairs[number];
        if pair.broken && (!pair.up[to] || pair.flows[from].cut || self.random.chance(50)) {
            pair.flows[from].cut = true;
            return;
        }
        let node = self.node_at(number, to);
        let link = self.pairs[number].link;
        let id = self.pairs[number].ids[to];
        let length = raw.len() as u64;
        let percent = self.links[link].refuse_percent[to];
        let outcome = if self.random.chance(percent) {
            Err(Refusal::NoResources)
        } else {
            let taken = self.call(node, |engine, now| {
                engine.admit(Some(length))?;
                engine.receive(now, id, raw)
            });
            taken.unwrap_or(Err(Refusal::NoResources))
        };
        assert_ne!(
            outcome,
            Err(Refusal::NotAcceptable),
            "a good bundle is refused"
        );
        self.note(length + u64::from(outcome.is_ok()));
        let outcome = outcome.map_or_else(Outcome::Refused, |()| Outcome::Acknowledged);
        let back = self.now + self.links[link].plan.delay;
        self.at(
            back,
            Happening::Move(Moving::Answer {
                pair: number,
                to: from,
                key,
                outcome,
            }),
        );
    }

    // --- faults

    fn fault(&mut self, fault: Fault) {
        if self.calm && !matches!(fault, Fault::Unblock { .. } | Fault::Start { .. }) {
            return;
        }
        match fault {
            Fault::Break { link, class, all } => {
                let class = self.links[link].plan.classes.then_some(Class(class));
                let of_class: Vec<usize> = (0..self.pairs.len())
                    .filter(|number| {
                        let pair = &self.pairs[*number];
                        pair.link == link && pair.class == class && !pair.broken
                    })
                    .collect();
                let count = if all { of_class.len() } else { 1 };
                for pair in of_class.into_iter().take(count) {
                    self.break_pair(pair);
                }
            }
            Fault::Block { link, told, breaks } => self.block(link, told, breaks),
            Fault::Unblock { link } => self.unblock(link),
            Fault::Refuse {
                link,
                side,
                percent,
            } => self.links[link].refuse_percent[side] = percent,
            Fault::Rate { link, rate_bps } => {
                self.links[link].plan.rate_bps = rate_bps;
                for node in self.links[link].plan.ends {
                    let hop = HopId(link as u64);
                    self.call(node, |engine, now| engine.set_rate(now, hop, rate_bps));
                }
            }
            Fault::Stop { node } => self.stop(node),
            Fault::Start { node } => self.start(node),
        }
    }

    fn block(&mut self, link: usize, told: bool, breaks: bool) {
        self.links[link].blocked = true;
        if told {
            for node in self.links[link].plan.ends {
                let hop = HopId(link as u64);
                self.call(node, |engine, now| engine.set_blocked(now, hop, true));
            }
        }
        if breaks {
            for pair in 0..self.pairs.len() {
                if self.pairs[pair].link == link && self.random.chance(70) {
                    self.break_pair(pair);
                }
            }
        }
    }

    fn unblock(&mut self, link: usize) {
        if !std::mem::replace(&mut self.links[link].blocked, false) {
            return;
        }
        // TCP sends again what was lost, in order.
        let delay = self.links[link].plan.delay;
        for moving in std::mem::take(&mut self.links[link].stalled) {
            self.at(self.now + delay, Happening::Move(moving));
        }
        for pair in self.pairs.iter_mut().filter(|pair| pair.link == link) {
            for flow in &mut pair.flows {
                flow.last_arrival = flow.last_arrival.max(self.now + delay);
            }
        }
        for node in self.links[link].plan.ends {
            let hop = HopId(link as u64);
            self.call(node, |engine, now| engine.set_blocked(now, hop, false));
        }
        self.dial_missing(link);
    }

    fn stop(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.engine = None;
        node.ready.clear();
        node.sessions.clear();
        node.streams.clear();
        for stream in &mut self.streams {
            for end in 0..2 {
                let here = stream.node_of(end) == number;
                let own = &mut stream.ends[end];
                if here && own.key.take().is_some() && own.ended.is_none() {
                    own.ended = Some(Ended::NodeStopped);
                    stream.interrupted = true;
                }
            }
        }
        for pair in 0..self.pairs.len() {
            let ends = self.links[self.pairs[pair].link].plan.ends;
            if let Some(end) = ends.iter().position(|end| *end == number) {
                self.pairs[pair].up[end] = false;
                self.break_pair(pair);
            }
        }
    }

    fn start(&mut self, number: usize) {
        let now = self.instant();
        self.nodes[number].incarnation += 1;
        let incarnation = self.nodes[number].incarnation;
        let engine = nodes::engine(&self.schedule, number, incarnation, now);
        self.nodes[number].engine = Some(engine);
        for link in 0..self.links.len() {
            let told_rate = self.links[link].plan.rate_bps;
            if self.links[link].plan.ends.contains(&number) {
                let hop = HopId(link as u64);
                self.call(number, |engine, now| engine.set_rate(now, hop, told_rate));
                self.dial_missing(link);
            }
        }
    }

    fn become_calm(&mut self) {
        self.calm = true;
        for link in 0..self.links.len() {
            self.links[link].refuse_percent = [0, 0];
            self.unblock(link);
        }
    }

    // --- streams

    fn open(&mut self, serial: usize) {
        let plan = self.streams[serial].plan.clone();
        let peer = self.schedule.nodes[plan.acceptor].number;
        let open = Open {
            class: plan.class,
            target: Target::Name {
                host: format!("s{serial}"),
                port: 80,
            },
            client: None,
            report_connected: plan.report_connected,
        };
        let key = self.call(plan.opener, |engine, now| engine.open(now, peer, open));
        match key {
            Some(Ok(key)) => {
                self.streams[serial].ends[0].key = Some(key);
                self.nodes[plan.opener].streams.insert(key, (serial, 0));
                let pause = self.random.ms(0, 4);
                self.at(
                    self.now + pause,
                    Happening::Work {
                        stream: serial,
                        end: 0,
                    },
                );
            }
            // Its node is stopped, or has as many as it may.
            refused => {
                assert!(
                    !matches!(refused, Some(Err(_))) || self.is_tight(serial),
                    "{refused:?}"
                );
                self.streams[serial].ends[0].ended = Some(Ended::Given);
            }
        }
    }

    /// Whether an end of the stream takes only few streams.
    pub fn is_tight(&self, serial: usize) -> bool {
        let stream = &self.streams[serial];
        let most = |end| self.schedule.nodes[stream.node_of(end)].max_streams;
        most(0).min(most(1)) <= self.streams.len()
    }

    fn stream_event(&mut self, node: usize, peer: u64, event: &Event) {
        let id = match event {
            Event::Opened { id, open } => {
                let key = StreamKey { peer, id: *id };
                return self.accept(node, key, open);
            }
            Event::Connected(id)
            | Event::Readable(id)
            | Event::Writable(id)
            | Event::PeerFinished(id)
            | Event::Stopped { id, .. }
            | Event::Reset { id, .. }
            | Event::Closed(id) => *id,
            Event::PeerRestarted { .. } | Event::AnnouncementChanged(_) => return,
            Event::IncarnationRaised { .. } => panic!("no node loses count here"),
        };
        let key = StreamKey { peer, id };
        let Some(&(serial, end)) = self.nodes[node].streams.get(&key) else {
            panic!("node {node}: {event:?} of a stream that is not here");
        };
        self.streams[serial].on_event(serial, end, event);
        self.work_at(self.now, serial, end);
    }

    fn accept(&mut self, node: usize, key: StreamKey, open: &Open) {
        let Target::Name { host, .. } = &open.target else {
            panic!("{open:?}");
        };
        let serial: usize = host[1..].parse().expect("a serial number");
        let stream = &mut self.streams[serial];
        assert_eq!(stream.plan.acceptor, node);
        // A node that was stopped may be asked again by an OPEN whose custody
        // signal was lost with it.
        assert!(
            matches!(stream.ends[1].ended, None | Some(Ended::NodeStopped)),
            "stream {serial} is opened twice"
        );
        assert!(
            stream.ends[1].key.is_none(),
            "stream {serial} is opened twice"
        );
        stream.ends[1] = End {
            key: Some(key),
            ..End::new()
        };
        self.nodes[node].streams.insert(key, (serial, 1));
        let connects = self.random.ms(0, 100);
        self.at(
            self.now + connects,
            Happening::Work {
                stream: serial,
                end: 1,
            },
        );
    }

    fn work_at(&mut self, at: Duration, stream: usize, end: usize) {
        let own = &mut self.streams[stream].ends[end];
        if own.due.is_none_or(|due| due > at) {
            own.due = Some(at);
            self.at(at, Happening::Work { stream, end });
        }
    }

    fn work(&mut self, serial: usize, end: usize) {
        let node = self.streams[serial].node_of(end);
        let mut stream = self.streams[serial].clone();
        stream.ends[end].due = None;
        let first = stream.ends[end].written + stream.ends[end].received == 0;
        // Events that follow find the stream as the application left it.
        let now = self.instant();
        let Some(engine) = self.nodes[node].engine.as_mut() else {
            return;
        };
        if let Some(key) = stream.ends[end].key.filter(|_| end == 1 && first) {
            let _ = engine.connected(now, key);
        }
        let again = stream.work(serial, end, engine, now);
        self.streams[serial] = stream;
        self.call(node, |_, _| ());
        if let Some(pause) = again {
            self.work_at(self.now + pause, serial, end);
        }
    }
}
