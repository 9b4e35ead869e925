//! A terminal, a hub, a bad network between them, and an origin; all from a
//! seed, in virtual time.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use underpass_deferred::wire::{Key, Message};
use underpass_deferred::{
    Answer, Dispatched, Id, JobKey, Limits, Node, Object, Order, Output, Owner, State, Submission,
};

use crate::memory::MemoryStore;

pub const TERMINAL: usize = 0;
pub const HUB: usize = 1;
pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PART: u32 = 1024;
const HEAD: u32 = 40;
pub const LIFETIME_MS: u64 = 7_200_000;

pub const LIMITS: Limits = Limits {
    request_bytes: 1 << 20,
    response_bytes: 1 << 20,
    quota_bytes: 64 << 20,
    requests: 1000,
    part_bytes: PART,
    lifetime_ms: LIFETIME_MS,
    keep_ms: 1 << 40,
    keep_fetched_ms: 1 << 40,
    exchanges: 8,
};

/// SplitMix64: any seed is as good as another.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

enum Event {
    Arrival {
        to: usize,
        message: Message,
    },
    /// From an exchange that this run of the hub has begun.
    Exchange {
        life: u64,
        job: JobKey,
        what: Exchange,
    },
}

enum Exchange {
    Connected,
    Unreachable,
    Ended,
    Aborted,
}

pub struct World {
    pub random: Random,
    pub now: u64,
    nodes: [Option<Node<MemoryStore>>; 2],
    life: u64,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    /// Percent of messages lost, and of messages duplicated.
    pub loss: u64,
    /// Percent of exchanges that fail.
    pub trouble: u64,
    /// How often the origin received the first byte of each attempt.
    pub sent: HashMap<Key, u32>,
    /// The requests that were answered 202, and whether each is repeatable.
    pub ids: Vec<(Id, bool)>,
}

pub fn body_of(id: Id, salt: u8, length: u64) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8) ^ id.0[0] ^ salt ^ ((at >> 8) as u8))
        .collect()
}

/// The length of the response to a request, its head included.
pub fn response_length(id: Id) -> u64 {
    u64::from(HEAD) + u64::from(u16::from_be_bytes([id.0[1] % 16, id.0[2]]))
}

impl World {
    pub fn new(seed: u64) -> World {
        let open = || Some(Node::open(0, LIMITS, MemoryStore::default()).unwrap());
        World {
            random: Random(seed),
            now: 0,
            nodes: [open(), open()],
            life: 0,
            events: BTreeMap::new(),
            count: 0,
            loss: 0,
            trouble: 0,
            sent: HashMap::new(),
            ids: Vec::new(),
        }
    }

    pub fn terminal(&mut self) -> &mut Node<MemoryStore> {
        self.nodes[TERMINAL].as_mut().unwrap()
    }

    pub fn hub(&mut self) -> &mut Node<MemoryStore> {
        self.nodes[HUB].as_mut().unwrap()
    }

    fn later(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    /// A client's request, answered 202 once it is committed.
    pub fn submit(&mut self, repeatable: bool) -> Id {
        let mut octets = [0; 16];
        for octet in &mut octets {
            *octet = self.random.below(256) as u8;
        }
        let id = Id(octets);
        let length = u64::from(HEAD) + self.random.below(6_000);
        let node = self.terminal();
        node.begin_upload(id, CLIENT).unwrap();
        for part in body_of(id, 0, length).chunks(PART as usize) {
            node.upload(id, part).unwrap().unwrap();
        }
        let submission = Submission {
            id,
            peer: 1,
            class: 2,
            repeatable,
            owner: Owner {
                client: CLIENT,
                user: None,
            },
            method: "POST".to_owned(),
            target: "http://origin/".to_owned(),
            head_bytes: HEAD,
        };
        let now = self.now;
        self.terminal().submit(now, submission).unwrap().unwrap();
        self.commit(TERMINAL, false);
        self.ids.push((id, repeatable));
        id
    }

    /// Ends a node's process and starts it again; uncommitted changes and pending actions
    /// are lost.
    pub fn crash(&mut self, place: usize) {
        let node = self.nodes[place].take().unwrap();
        self.nodes[place] = Some(node.reopen(self.now).unwrap());
        if place == HUB {
            self.life += 1;
        }
        self.commit(place, false);
    }

    /// Commits a node's changes and carries out its outputs, unless it crashes just
    /// before.
    pub fn commit(&mut self, place: usize, dies: bool) {
        let now = self.now;
        let outputs = self.nodes[place].as_mut().unwrap().commit(now).unwrap();
        if dies {
            return self.crash(place);
        }
        for output in outputs {
            match output {
                Output::Send {
                    peer,
                    name,
                    message,
                    ..
                } => {
                    if self.random.percent(2) {
                        let node = self.nodes[place].as_mut().unwrap();
                        node.unsent(now, peer, name);
                        continue;
                    }
                    let decoded = Message::decode(message.encode()).unwrap();
                    assert_eq!(decoded, message);
                    self.send(1 - place, message);
                }
                Output::Order(order) => self.order(order),
            }
        }
    }

    fn send(&mut self, to: usize, message: Message) {
        let copies = match self.random.below(100) {
            n if n < self.loss => 0,
            n if n < 2 * self.loss => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let at = self.now + 300 + self.random.below(100);
            let message = message.clone();
            self.later(at, Event::Arrival { to, message });
        }
    }

    fn order(&mut self, order: Order) {
        let (job, what) = match order {
            Order::Connect {
                job,
                head,
                body_bytes,
            } => {
                let whole = body_of(job.key.id, 0, u64::from(HEAD) + body_bytes);
                assert_eq!(head, whole[..HEAD as usize]);
                match self.random.percent(self.trouble) {
                    true => (job, Exchange::Unreachable),
                    false => (job, Exchange::Connected),
                }
            }
            Order::Transmit(job) => {
                let node = self.nodes[HUB].as_ref().unwrap();
                let object = node.job_object(job).unwrap();
                let parts = (0..object.parts()).map(|i| node.job_part(job, i).unwrap().unwrap());
                let whole = parts.collect::<Vec<Bytes>>().concat();
                assert_eq!(whole, body_of(job.key.id, 0, object.total_bytes));
                *self.sent.entry(job.key).or_default() += 1;
                (job, Exchange::Ended)
            }
            Order::Abort(job) => (job, Exchange::Aborted),
        };
        let at = self.now + 1 + self.random.below(2_000);
        let life = self.life;
        self.later(at, Event::Exchange { life, job, what });
    }

    fn exchange(&mut self, job: JobKey, what: &Exchange) {
        let broken = self.random.percent(self.trouble);
        let now = self.now;
        let node = self.nodes[HUB].as_mut().unwrap();
        let what = match what {
            Exchange::Connected => Dispatched::Connected,
            Exchange::Unreachable => Dispatched::Unreachable {
                answer: Answer::new(502, "connection_refused", "refused"),
                lasting: false,
            },
            Exchange::Aborted => Dispatched::Broken("given up".to_owned()),
            Exchange::Ended if broken => Dispatched::Broken("it broke".to_owned()),
            Exchange::Ended => {
                let id = job.key.id;
                let total_bytes = response_length(id);
                let mut wanted = true;
                for part in body_of(id, 77, total_bytes).chunks(PART as usize) {
                    wanted &= node.answer_part(job, part).unwrap().is_ok();
                }
                match wanted {
                    false => Dispatched::Broken("not wanted".to_owned()),
                    true => Dispatched::Answered(Object {
                        total_bytes,
                        head_bytes: HEAD,
                        part_bytes: PART,
                    }),
                }
            }
        };
        node.dispatched(now, job, what).unwrap();
    }

    /// Lets time pass up to `end`; nodes crash at `crashes` percent of their events,
    /// before or after the commit.
    pub fn pass(&mut self, end: u64, crashes: u64) {
        loop {
            let due = |node: &Option<Node<_>>| node.as_ref().and_then(Node::next_timeout);
            let timeout = self.nodes.iter().filter_map(due).min();
            let event = self.events.keys().next().map(|(at, _)| *at);
            let next = timeout.into_iter().chain(event).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = self.now.max(end);
                return;
            };
            self.now = self.now.max(next);
            let place = self.step(event);
            for place in place {
                let (before, after) = (self.random.percent(crashes), self.random.percent(crashes));
                match before {
                    true => self.crash(place),
                    false => self.commit(place, after),
                }
            }
        }
    }

    /// Does one step; returns the nodes that it affected.
    fn step(&mut self, event: Option<u64>) -> Vec<usize> {
        let now = self.now;
        if event.is_none_or(|at| at > now) {
            for node in self.nodes.iter_mut().flatten() {
                node.handle_timeout(now).unwrap();
            }
            return vec![TERMINAL, HUB];
        }
        match self.events.pop_first() {
            Some((_, Event::Arrival { to, message })) => {
                let from = if to == TERMINAL { 1 } else { 10 };
                let node = self.nodes[to].as_mut().unwrap();
                node.message(now, from, 2, message).unwrap();
                vec![to]
            }
            Some((_, Event::Exchange { life, job, what })) if life == self.life => {
                self.exchange(job, &what);
                vec![HUB]
            }
            _ => Vec::new(),
        }
    }

    pub fn state(&mut self, id: Id) -> State {
        self.terminal().request(id, None).unwrap().state
    }

    pub fn response(&mut self, id: Id) -> Vec<u8> {
        let object = self.terminal().request(id, None).unwrap().response.unwrap();
        let node = self.terminal();
        let parts = (0..object.parts()).map(|i| node.response_part(id, i).unwrap().unwrap());
        parts.collect::<Vec<Bytes>>().concat()
    }
}
