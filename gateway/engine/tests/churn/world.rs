//! Nodes, links and their events in one virtual time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::{Outcome, SessionId};
use underpass_engine::{Action, Engine, StreamKey};
use underpass_store::Next;

use crate::fates::{FATES, Rates};
use crate::nodes::{HUB, Node, SEGMENT_BYTES};
use crate::random::Random;
use crate::sessions::RENEWAL;
use crate::streams::Deed;

const DELAY: Duration = Duration::from_millis(300);
/// The most deadlines of a node at one moment; more mean a busy loop.
const MOST_SPINS: u32 = 50;

/// A terminal's link to the hub.
#[derive(Default)]
pub struct Link {
    pub joined: bool,
    /// Its number at the hub, never reused.
    pub hop: u64,
    /// Sessions that are up, the oldest first.
    pub sessions: Vec<u64>,
    pub dialling: bool,
    pub blocked: bool,
    pub blockages: u64,
    /// Events that wait until the link is free.
    pub held: Vec<Happening>,
}

pub struct Session {
    pub terminal: usize,
    /// The transfer in flight from the hub and from the terminal, with its bytes.
    pub in_flight: [Option<(u64, u64)>; 2],
}

#[derive(Debug)]
pub enum Happening {
    Fate(usize),
    Arrive {
        session: u64,
        from: usize,
        key: u64,
        raw: Bytes,
    },
    Answer {
        session: u64,
        to: usize,
        key: u64,
        outcome: Outcome,
    },
    Down {
        node: usize,
        session: u64,
    },
    Dial(usize),
    Renew(usize),
    RenewalOver(Vec<u64>),
    Start(usize),
    Join(usize),
    Break {
        terminal: usize,
        blockage: u64,
    },
    Unblock(usize),
    DiskWork {
        node: usize,
        run: u64,
    },
    Deed {
        node: usize,
        run: u64,
        key: StreamKey,
        deed: Deed,
    },
}

pub struct World {
    pub now: Duration,
    pub random: Random,
    pub nodes: Vec<Node>,
    /// By terminal; the hub's entry is not used.
    pub links: Vec<Link>,
    /// How often each kind of event occurred.
    pub met: BTreeMap<&'static str, u64>,
    pub sessions: HashMap<u64, Session>,
    queue: BTreeMap<(Duration, u64), Happening>,
    pub deadlines: BTreeSet<(Duration, usize)>,
    /// The last number that was given to a hop, a session or an event.
    last: u64,
    pub fates: Option<Rates>,
    pub start: Instant,
}

impl World {
    /// A hub and this many terminals, all joined.
    pub fn new(seed: u64, terminals: usize) -> World {
        let mut world = World {
            now: Duration::ZERO,
            random: Random::new(seed),
            nodes: (0..=terminals).map(|_| Node::stopped()).collect(),
            links: (0..=terminals).map(|_| Link::default()).collect(),
            met: BTreeMap::new(),
            sessions: HashMap::new(),
            queue: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            last: 0,
            fates: None,
            start: Instant::now(),
        };
        for terminal in 1..=terminals {
            world.links[terminal].joined = true;
            world.links[terminal].hop = world.next_number();
        }
        for node in 0..=terminals {
            world.start_node(node);
        }
        for terminal in 1..=terminals {
            let at = world.random.ms(0, RENEWAL.as_millis() as u64);
            world.at(at, Happening::Renew(terminal));
        }
        for fate in 0..FATES.len() {
            world.at(Duration::ZERO, Happening::Fate(fate));
        }
        world
    }

    /// Lets time pass with churn.
    pub fn churn_until(&mut self, rates: Rates, end: Duration) {
        self.fates = Some(rates);
        self.pass(end);
        self.fates = None;
    }

    /// Lets time pass until ongoing events are over and all terminals have joined again.
    pub fn settle_until(&mut self, end: Duration) {
        self.pass(end);
        for terminal in 1..self.links.len() {
            let link = &self.links[terminal];
            assert!(link.joined && !link.blocked && !link.sessions.is_empty());
        }
    }

    /// Lets time pass without churn.
    pub fn calm_until(&mut self, end: Duration) {
        self.pass(end);
    }

    fn pass(&mut self, end: Duration) {
        let mut spun = (Duration::ZERO, 0, 0);
        loop {
            let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
            let due = self.deadlines.first().copied();
            let at = queued.into_iter().chain(due.map(|(at, _)| at)).min();
            let Some(at) = at.filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            if queued == Some(at)
                && let Some((_, happening)) = self.queue.pop_first()
            {
                self.happen(happening);
            } else if let Some((at, node)) = due {
                let spins = if (spun.0, spun.1) == (at, node) {
                    spun.2 + 1
                } else {
                    0
                };
                spun = (at, node, spins);
                assert!(spins < MOST_SPINS, "node {node} spins at {at:?}");
                self.call(node, |engine, now| engine.handle_timeout(now));
            }
        }
        self.now = end;
    }

    pub fn at(&mut self, at: Duration, happening: Happening) {
        let number = self.next_number();
        self.queue.insert((at.max(self.now), number), happening);
    }

    pub fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_insert(0) += 1;
    }

    /// Calls a node's engine, and carries out the actions that it then wants.
    pub fn call<R>(
        &mut self,
        node: usize,
        call: impl FnOnce(&mut Engine, Instant) -> R,
    ) -> Option<R> {
        let now = self.start + self.now;
        let result = call(self.nodes[node].engine.as_mut()?, now);
        self.act_all(node);
        if self.work_disk(node) {
            self.act_all(node);
        }
        self.note_deadline(node);
        Some(result)
    }

    fn act_all(&mut self, node: usize) {
        while let Some(engine) = &mut self.nodes[node].engine
            && let Some(action) = engine.poll_action()
        {
            self.act(node, action);
        }
    }

    /// The disk does its work at once; returns whether there was any.
    fn work_disk(&mut self, number: usize) -> bool {
        let now = self.start + self.now;
        let node = &mut self.nodes[number];
        let (Some(engine), Some(worker)) = (&mut node.engine, &mut node.worker) else {
            return false;
        };
        let mut worked = false;
        loop {
            match worker.step(true) {
                Next::Step => worked = true,
                Next::Wait(Some(pause)) => {
                    let run = node.incarnation;
                    let happening = Happening::DiskWork { node: number, run };
                    if worked {
                        engine.store_moved(now);
                    }
                    self.at(self.now + pause, happening);
                    return worked;
                }
                Next::Wait(None) | Next::Stop => break,
            }
        }
        if worked {
            engine.store_moved(now);
        }
        worked
    }

    fn note_deadline(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let next = node.engine.as_ref().and_then(Engine::next_timeout);
        let due = next.map(|at| at.saturating_duration_since(self.start));
        if due != node.due {
            if let Some(before) = std::mem::replace(&mut node.due, due) {
                self.deadlines.remove(&(before, number));
            }
            if let Some(due) = due {
                self.deadlines.insert((due, number));
            }
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        match action {
            Action::Offer { session, transfer } => {
                let Some(state) = self.sessions.get_mut(&session.0) else {
                    return;
                };
                let (key, raw) = (transfer.key, Bytes::from(transfer.chunks.concat()));
                state.in_flight[usize::from(node != HUB)] = Some((key, raw.len() as u64));
                let arrive = Happening::Arrive {
                    session: session.0,
                    from: node,
                    key,
                    raw,
                };
                self.at(self.now + DELAY, arrive);
            }
            Action::Abort { session, .. } => {
                if let Some(terminal) = self.forget_session(session.0) {
                    let other = if node == HUB { terminal } else { HUB };
                    let down = Happening::Down {
                        node: other,
                        session: session.0,
                    };
                    self.at(self.now + DELAY, down);
                    self.dial(terminal);
                }
            }
            Action::Stream { peer, epoch, event } => self.stream_event(node, peer, epoch, event),
            Action::BadPayload { peer, error } => panic!("node {node} from {peer}: {error}"),
            _ => {}
        }
    }

    pub fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Fate(fate) => self.fate(fate),
            Happening::Arrive { session, .. } | Happening::Answer { session, .. } => {
                let Some(state) = self.sessions.get(&session) else {
                    return;
                };
                let link = &mut self.links[state.terminal];
                match link.blocked {
                    true => link.held.push(happening),
                    false => self.carry(happening),
                }
            }
            Happening::Down { node, session } => {
                self.call(node, |engine, now| {
                    engine.session_down(now, SessionId(session));
                });
            }
            Happening::Dial(terminal) => self.connect(terminal),
            Happening::Renew(terminal) => self.renew(terminal),
            Happening::RenewalOver(sessions) => self.end_sessions(&sessions),
            Happening::Start(node) => self.start_node(node),
            Happening::Join(terminal) => self.join(terminal),
            Happening::Break { terminal, blockage } => {
                let link = &self.links[terminal];
                if link.blocked && link.blockages == blockage {
                    self.meet("broken");
                    self.end_sessions(&self.links[terminal].sessions.clone());
                }
            }
            Happening::Unblock(terminal) => self.unblock(terminal),
            Happening::DiskWork { node, run } => {
                if self.nodes[node].incarnation == run {
                    self.call(node, |engine, now| engine.store_moved(now));
                }
            }
            Happening::Deed {
                node,
                run,
                key,
                deed,
            } => {
                if self.nodes[node].incarnation == run {
                    self.deed(node, key, deed);
                }
            }
        }
    }

    fn carry(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive {
                session,
                from,
                key,
                raw,
            } => {
                let Some(state) = self.sessions.get(&session) else {
                    return;
                };
                let to = if from == HUB { state.terminal } else { HUB };
                let id = SessionId(session);
                let taken = self.call(to, |engine, now| {
                    engine.receive(now, id, engine.decoder().decode(&raw))
                });
                let outcome = match taken {
                    Some(Ok(())) => Outcome::Acknowledged,
                    Some(Err(refusal)) => Outcome::Refused(refusal),
                    None => return,
                };
                let answer = Happening::Answer {
                    session,
                    to: from,
                    key,
                    outcome,
                };
                self.at(self.now + DELAY, answer);
            }
            Happening::Answer {
                session,
                to,
                key,
                outcome,
            } => {
                if let Some(state) = self.sessions.get_mut(&session) {
                    state.in_flight[usize::from(to != HUB)] = None;
                    self.call(to, |engine, now| {
                        engine.transfer_finished(now, key, outcome);
                        engine.session_ready(now, SessionId(session));
                    });
                }
            }
            _ => {}
        }
    }

    /// Checks that no stream and no custody is left.
    pub fn check_drained(&mut self) {
        let now = self.start + self.now;
        for (number, node) in self.nodes.iter().enumerate() {
            assert!(node.apps.is_empty(), "node {number}: {:?}", node.apps);
            let Some(engine) = &node.engine else {
                panic!("node {number} was not started again");
            };
            let streams = engine.streams(10);
            assert!(streams.is_empty(), "node {number}: {streams:?}");
            let stored = engine.stored_bundles(now, 10);
            assert!(stored.is_empty(), "node {number}: {stored:?}");
            let custody = engine.custody(now);
            let left = custody.used_bytes + custody.undelivered_bytes + custody.bundles as u64;
            assert_eq!(left, 0, "node {number}: {custody:?}");
        }
        assert!(self.links.iter().all(|link| link.held.is_empty()));
    }

    /// Checks that the disks keep to the store's bound; returns the memory that they
    /// take, bytes.
    pub fn check_disks(&self, most: usize) -> u64 {
        let mut bytes = 0;
        for (number, node) in self.nodes.iter().enumerate() {
            let (files, used) = (node.disk.sectors().len(), node.disk.used_bytes());
            assert!(files <= most, "node {number} has {files} segments");
            assert!(used <= most as u64 * SEGMENT_BYTES, "node {number}: {used}");
            bytes += node.disk.memory_bytes();
        }
        bytes
    }

    /// The number of entries of all nodes together, by name.
    pub fn entries(&self) -> BTreeMap<&'static str, usize> {
        let mut sums = BTreeMap::new();
        for node in &self.nodes {
            let mut tell = |name, entries| *sums.entry(name).or_insert(0) += entries;
            if let Some(engine) = &node.engine {
                for (name, entries) in engine.footprint() {
                    tell(name, entries);
                }
            }
            if let Some(worker) = &node.worker {
                worker.footprint(&mut tell);
            }
        }
        sums
    }
}
