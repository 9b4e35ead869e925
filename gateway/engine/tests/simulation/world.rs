//! Nodes, links and applications in one virtual time.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_beacon::{BEACON_BYTES, Endpoint};
use underpass_bundle::{self as bundle, Passed};
use underpass_cla::{Class, SessionId};
use underpass_engine::{Action, Engine, LinkChange, StreamKey};

use crate::apps::StreamRun;
use crate::custody::{Ledger, Name};
use crate::disk::{Disk, DiskWork};
use crate::line::{Link, Moving, Pair};
use crate::messages::MessageRun;
use crate::nodes;
use crate::plans::Watch;
use crate::random::Random;
use crate::schedule::{CALM, Fault, Schedule};

pub struct Node {
    /// By shard; none while it is stopped.
    pub engines: Vec<Engine>,
    /// When the first of them is due; `None` after a call of any, until it is asked for.
    pub deadline: Option<Option<Instant>>,
    pub incarnation: u64,
    /// The part that survives its process.
    pub disk: Option<Disk>,
    /// The worker that writes to the disk, in this run.
    pub work: Option<DiskWork>,
    /// For sessions that are ready: the bytes of short bundles that they still take.
    pub ready: BTreeMap<SessionId, u64>,
    /// Sessions that are up, with their pair and end.
    pub sessions: BTreeMap<SessionId, (usize, usize)>,
    /// Offered bundles, by shard and first transfer there, each with its name and
    /// destination.
    pub encoded: HashMap<(usize, u64), (Bytes, Name, u64)>,
    /// While it is stopped: the bundles that it had custody of.
    pub kept: BTreeSet<Name>,
    /// Its own bundles that are known to be on its disk, or were handed over.
    pub durable: BTreeSet<Name>,
    pub streams: HashMap<StreamKey, (usize, usize)>,
    /// By link.
    pub beacons: BTreeMap<usize, Endpoint>,
    /// The time and number of the deadlines served at one moment.
    pub spun: (Duration, u32),
    /// Messages between shards that are not taken yet: by sending and receiving shard, in
    /// order.
    pub mailboxes: BTreeMap<(usize, usize), VecDeque<Passed>>,
}

/// An event at its time.
#[derive(Debug)]
pub enum Happening {
    Move(Moving),
    Ready {
        pair: usize,
        end: usize,
    },
    Up {
        pair: usize,
        end: usize,
    },
    Down {
        pair: usize,
        end: usize,
    },
    Dial {
        link: usize,
        class: Option<Class>,
    },
    Fault(Fault),
    DiskWork(usize),
    /// A shard takes a message of another one.
    Passed {
        node: usize,
        from: usize,
        to: usize,
    },
    Datagram {
        link: usize,
        to: usize,
        datagram: [u8; BEACON_BYTES],
    },
    Calm,
    /// A plan arrives.
    Push(usize),
    OpenStream(usize),
    SendMessage(usize),
    Work {
        stream: usize,
        end: usize,
    },
    GiveUp {
        stream: usize,
        end: usize,
    },
}

/// The most deadlines of a node at one moment; more mean a busy loop.
const MOST_SPINS: u32 = 20;
/// The most actions that may follow one call.
const MOST_ACTIONS: usize = 20_000;
const MOST_HAPPENINGS: u64 = 400_000;
/// The end of a run in which all faults are over and custody timers are at most a minute:
/// whatever has not ended by then hangs.
const END: Duration = Duration::from_secs(300);
/// The end of a run in which applications must give up what cannot arrive.
const PATIENT_END: Duration = Duration::from_secs(1_800);

pub struct World {
    pub schedule: Schedule,
    pub nodes: Vec<Node>,
    pub links: Vec<Link>,
    pub pairs: Vec<Pair>,
    pub streams: Vec<StreamRun>,
    pub messages: Vec<MessageRun>,
    /// What may leave by plans: by node, and by link or for the whole node.
    pub watches: BTreeMap<(usize, Option<usize>), Watch>,
    pub ledger: Ledger,
    pub now: Duration,
    pub random: Random,
    /// Draws how much of broken transfers was acknowledged.
    pub parts: Random,
    pub calm: bool,
    /// A digest of all events.
    pub trace: u64,
    pub bundles_offered: u64,
    /// How often each of the events that the schedules must produce has occurred.
    pub met: BTreeMap<&'static str, u64>,
    pub start: Instant,
    pub queue: BTreeMap<(Duration, u64), Happening>,
    pub happened: u64,
    pub numbers: u64,
}

impl Node {
    pub fn is_up(&self) -> bool {
        !self.engines.is_empty()
    }

    /// Whether messages are in flight between its shards.
    pub fn is_passing(&self) -> bool {
        self.mailboxes.values().any(|passed| !passed.is_empty())
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        let engines = self.engines.iter();
        let first = || engines.filter_map(Engine::next_timeout).min();
        *self.deadline.get_or_insert_with(first)
    }
}

impl World {
    pub fn new(schedule: Schedule) -> World {
        let start = Instant::now();
        let nodes = (0..schedule.nodes.len()).map(|node| {
            let plan = &schedule.nodes[node];
            let disk = plan.disk.clone().map(Disk::new);
            let opened = disk
                .as_ref()
                .map(|disk| disk.open(&schedule, node, Duration::ZERO, start));
            let (stores, work) = opened.unzip();
            Node {
                engines: nodes::engines(&schedule, node, 1, stores, start),
                deadline: None,
                incarnation: 1,
                disk,
                work,
                ready: BTreeMap::new(),
                sessions: BTreeMap::new(),
                encoded: HashMap::new(),
                kept: BTreeSet::new(),
                durable: BTreeSet::new(),
                streams: HashMap::new(),
                beacons: BTreeMap::new(),
                spun: (Duration::ZERO, 0),
                mailboxes: BTreeMap::new(),
            }
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
            messages: Vec::new(),
            watches: BTreeMap::new(),
            ledger: Ledger::default(),
            now: Duration::ZERO,
            random: Random::new(!schedule.seed),
            parts: Random::new(schedule.seed.rotate_left(32)),
            calm: false,
            trace: 0,
            bundles_offered: 0,
            met: BTreeMap::new(),
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
        for (serial, plan) in world.schedule.messages.clone().into_iter().enumerate() {
            world.at(plan.at, Happening::SendMessage(serial));
            world.messages.push(MessageRun {
                plan,
                taken: None,
                arrived: 0,
            });
        }
        if world.schedule.flips() {
            world.expect_losses();
        }
        world.expect_pushes();
        world.at(CALM, Happening::Calm);
        for node in 0..world.nodes.len() {
            world.watch_links(node);
        }
        for link in 0..world.links.len() {
            world.dial_missing(link);
        }
        world
    }

    /// Runs until it is calm and everything has been carried.
    pub fn run(&mut self) {
        while !self.is_drained()
            && let Some(at) = self.next_time()
        {
            let end = match self.schedule.flips() || self.streams.iter().any(|run| run.unheard) {
                true => PATIENT_END,
                false => END,
            };
            assert!(at < end, "something goes on for ever: {}", self.describe());
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

    pub fn next_time(&mut self) -> Option<Duration> {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let (beacon, start) = (self.next_beacon(), self.start);
        let deadlines = self.nodes.iter_mut().filter_map(|node| {
            let deadline = node.next_timeout()?;
            Some(deadline.saturating_duration_since(start))
        });
        queued.into_iter().chain(deadlines).chain(beacon).min()
    }

    pub fn step(&mut self) {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        if queued.is_some_and(|at| at <= self.now)
            && let Some((_, happening)) = self.queue.pop_first()
        {
            return self.happen(happening);
        }
        self.beacons_due();
        let now = self.instant();
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            let deadline = node.next_timeout();
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
                for shard in 0..self.nodes[number].engines.len() {
                    let deadline = self.nodes[number].engines[shard].next_timeout();
                    if deadline.is_some_and(|at| at <= now) {
                        self.call(number, shard, |engine, now| engine.handle_timeout(now));
                    }
                }
            }
        }
    }

    pub fn at(&mut self, at: Duration, happening: Happening) {
        self.numbers += 1;
        self.queue
            .insert((at.max(self.now), self.numbers), happening);
    }

    pub fn count(&mut self, what: &'static str, times: u64) {
        *self.met.entry(what).or_default() += times;
    }

    pub fn note(&mut self, what: u64) {
        let mixed = self.trace ^ what ^ self.now.as_nanos() as u64;
        self.trace = Random::new(mixed).next();
    }

    pub fn call_all(&mut self, node: usize, call: impl Fn(&mut Engine, Instant)) {
        for shard in 0..self.nodes[node].engines.len() {
            self.call(node, shard, &call);
        }
    }

    /// Calls the engine of a node that has a link.
    pub fn call_at<R>(
        &mut self,
        node: usize,
        link: usize,
        call: impl FnOnce(&mut Engine, Instant) -> R,
    ) -> Option<R> {
        let shard = nodes::shard_of_link(&self.schedule, node, link);
        self.call(node, shard, call)
    }

    /// Calls the engine of a node that owns the streams with a peer.
    pub fn call_for<R>(
        &mut self,
        node: usize,
        peer: u64,
        call: impl FnOnce(&mut Engine, Instant) -> R,
    ) -> Option<R> {
        let shard = nodes::shard_to(&self.schedule, node, peer);
        self.call(node, shard, call)
    }

    /// Calls an engine of a node, and carries out the actions that it then wants.
    pub fn call<R>(
        &mut self,
        node: usize,
        shard: usize,
        call: impl FnOnce(&mut Engine, Instant) -> R,
    ) -> Option<R> {
        let now = self.instant();
        self.nodes[node].deadline = None;
        let engine = self.nodes[node].engines.get_mut(shard)?;
        let result = call(engine, now);
        let mut actions = 0;
        while let Some(action) = self.nodes[node]
            .engines
            .get_mut(shard)
            .and_then(Engine::poll_action)
        {
            actions += 1;
            assert!(actions < MOST_ACTIONS, "node {node} never stops acting");
            self.act(node, shard, action);
        }
        self.wake_disk(node);
        Some(result)
    }

    /// Another thread takes the message when its turn comes.
    fn pass(&mut self, node: usize, from: usize, to: usize, passed: Passed) {
        self.count("passed", 1);
        let mailboxes = &mut self.nodes[node].mailboxes;
        mailboxes.entry((from, to)).or_default().push_back(passed);
        let late = self.random.ms(0, 3);
        self.at(self.now + late, Happening::Passed { node, from, to });
    }

    pub fn take_passed(&mut self, node: usize, from: usize, to: usize) {
        let mailbox = self.nodes[node].mailboxes.get_mut(&(from, to));
        if let Some(passed) = mailbox.and_then(VecDeque::pop_front) {
            self.call(node, to, |engine, now| engine.take_passed(now, passed));
        }
    }

    pub fn act(&mut self, node: usize, own: usize, action: Action) {
        match action {
            Action::Passed { shard, passed } => {
                assert_ne!(own, shard);
                self.pass(node, own, shard, passed);
            }
            Action::Offer { session, transfer } => self.offered(node, own, session, transfer),
            Action::SetRate { session, .. }
            | Action::Suspend { session, .. }
            | Action::Ask { session } => {
                assert!(self.nodes[node].sessions.contains_key(&session));
            }
            Action::Abort { session, .. } => {
                self.count("takeover", 1);
                let (pair, _) = self.nodes[node].sessions[&session];
                self.break_pair(pair);
            }
            Action::Stream { peer, epoch, event } => self.stream_event(node, peer, epoch, &event),
            Action::Message(message) => self.message_arrives(node, &message),
            Action::Bundle(event) => self.bundle_event(node, &event),
            Action::Link { change, .. } => {
                let what = match change {
                    LinkChange::Blocked(source) | LinkChange::Source(source) => source.name(),
                    LinkChange::PlanContradicted(_) => "contradiction",
                    LinkChange::Free(_) => "return",
                };
                self.count(what, 1);
            }
            Action::Renew { session } => panic!("nobody looks at the transport of {session:?}"),
            Action::Rest { hop, .. } => panic!("node {node} has no metered path: {hop:?}"),
            Action::Path { change, .. } => panic!("node {node} has no path on demand: {change:?}"),
            Action::Migrated(migration) => self.count(migration.reason.name(), 1),
            Action::Plan(change) => {
                let what = match change.over {
                    true => "plan over",
                    false => "plan begun",
                };
                self.count(what, 1);
            }
            Action::Application(delivery) => {
                panic!("node {node} has no applications: {delivery:?}")
            }
            Action::Discarded {
                source,
                created,
                outlived,
            } => self.discarded(node, &source, created, outlived),
            Action::BadPayload { peer, error } => panic!("node {node} from {peer}: {error}"),
        }
    }

    pub fn bundle_event(&mut self, node: usize, event: &bundle::Event) {
        let what = match event {
            bundle::Event::StoreStalled(_) => "stall",
            bundle::Event::Restored { .. } => "restored message",
            _ => "other",
        };
        self.count(what, 1);
        let disk = self.nodes[node].disk.as_ref();
        let expected = match event {
            bundle::Event::StoreStalled(_)
            | bundle::Event::StoreResumed
            | bundle::Event::Restored { .. } => disk.is_some(),
            // The bundle was damaged by a flipped bit; or it was passed to a shard whose
            // store has filled meanwhile: its custodian still has it.
            bundle::Event::Deleted { id, reason, .. } => {
                let passed = id.is_none() && self.schedule.nodes[node].shards > 1;
                *reason == bundle::DeleteReason::DepletedStorage
                    && disk.is_some_and(|disk| disk.flipped > 0 || passed)
            }
            _ => false,
        };
        assert!(expected, "node {node}: {event:?}");
    }

    pub fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Move(moving) => self.arrive(moving),
            Happening::Ready { pair, end } => self.session_ready(pair, end),
            Happening::Up { pair, end } => self.session_up(pair, end),
            Happening::Down { pair, end } => self.session_down(pair, end),
            Happening::Dial { link, class } => self.dialled(link, class),
            Happening::Fault(fault) => self.fault(fault),
            Happening::DiskWork(node) => self.work_disk(node),
            Happening::Passed { node, from, to } => self.take_passed(node, from, to),
            Happening::Datagram { link, to, datagram } => {
                self.datagram_arrives(link, to, &datagram);
            }
            Happening::Push(place) => self.push(place),
            Happening::Calm => self.become_calm(),
            Happening::OpenStream(stream) => self.open(stream),
            Happening::SendMessage(message) => self.send_message(message),
            Happening::Work { stream, end } => self.work(stream, end),
            Happening::GiveUp { stream, end } => self.give_up(stream, end),
        }
    }
}
