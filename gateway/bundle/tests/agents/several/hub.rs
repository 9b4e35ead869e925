//! A node of several agents; the test carries their messages to each other.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{
    Agent, Amount, Common, Config, Event, MemoryStore, NeighbourId, Offer, Passed, Reject,
    Relaying, Route, Routes, Send, Sharding, Store, destination_of,
};
use underpass_cla::{Class, Outcome};

use super::disk::Disk;
use crate::net::{BULK, SERVICE, payload, route};

pub struct Hub {
    pub agents: Vec<Agent>,
    pub now: Instant,
    pub common: Common,
    pub disk: Option<Disk>,
    /// Messages in flight from one agent to another.
    pub mail: BTreeMap<(usize, usize), VecDeque<Passed>>,
    /// The other events of the agents.
    pub events: Vec<Event>,
    config: Config,
    neighbours: Vec<u64>,
}

impl Hub {
    pub fn new(config: Config, shards: usize, disk: Option<Disk>, neighbours: &[u64]) -> Hub {
        let mut hub = Hub {
            agents: Vec::new(),
            now: Instant::now(),
            common: Common::new(&config, shards),
            disk,
            mail: BTreeMap::new(),
            events: Vec::new(),
            config,
            neighbours: neighbours.to_vec(),
        };
        hub.start(shards);
        hub
    }

    fn start(&mut self, shards: usize) {
        let restored = self.disk.as_ref().map(Disk::crash).unwrap_or_default();
        let routes = Routes::new(&self.config.routes);
        self.common = Common::new(&self.config, shards);
        self.agents = (0..shards)
            .map(|own| {
                let sharding = Sharding { own, count: shards };
                let shard_of = |record: &Bytes| {
                    destination_of(record).map_or(0, |node| sharding.shard_to(&routes, node))
                };
                let restored = restored.iter().cloned();
                let own_part = restored.filter(|bundle| shard_of(&bundle.record) == own);
                let store: Box<dyn Store> = match &self.disk {
                    Some(disk) => Box::new(disk.part(own, own_part.collect())),
                    None => Box::<MemoryStore>::default(),
                };
                Agent::in_shard(self.config.clone(), store, self.common.clone(), sharding)
            })
            .collect();
        for agent in &mut self.agents {
            agent.restore(self.now);
        }
        for number in self.neighbours.clone() {
            let now = self.now;
            self.of(number).neighbour_up(now, NeighbourId(number));
        }
        self.drain();
    }

    /// The node ends without warning, and starts again with this many agents.
    pub fn restart(&mut self, shards: usize) {
        self.config.run_nonce += 1 << 40 | 1 << 20;
        self.mail.clear();
        self.events.clear();
        self.agents.clear();
        self.assert_empty();
        self.start(shards);
    }

    pub fn shard_of(&self, neighbour: u64) -> usize {
        let count = self.agents.len();
        Sharding { own: 0, count }.shard_of(NeighbourId(neighbour))
    }

    pub fn of(&mut self, neighbour: u64) -> &mut Agent {
        let shard = self.shard_of(neighbour);
        &mut self.agents[shard]
    }

    /// Sorts the agents' events into mail and other events.
    pub fn drain(&mut self) {
        for (from, agent) in self.agents.iter_mut().enumerate() {
            while let Some(event) = agent.poll_event() {
                match event {
                    Event::Passed { shard, passed } => {
                        assert_ne!(shard, from, "passed to itself");
                        self.mail
                            .entry((from, shard))
                            .or_default()
                            .push_back(passed);
                    }
                    Event::Woken { .. } => {}
                    event => self.events.push(event),
                }
            }
        }
    }

    /// Carries the next message of a pair of agents.
    pub fn carry(&mut self, from: usize, to: usize) -> bool {
        let Some(passed) = self.mail.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        self.agents[to].take_passed(self.now, passed);
        self.drain();
        true
    }

    /// Pairs of agents with messages under way.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        let waiting = self.mail.iter().filter(|(_, mail)| !mail.is_empty());
        waiting.map(|(pair, _)| *pair).collect()
    }

    /// Carries all messages; leaves the disk alone.
    pub fn carry_all(&mut self) {
        self.handle_timeout();
        while let Some((from, to)) = self.pairs().first().copied() {
            self.carry(from, to);
            self.handle_timeout();
        }
    }

    /// Lets the disk do all its work, and carries the messages that follow.
    pub fn work(&mut self) {
        self.carry_all();
        while self
            .disk
            .as_ref()
            .is_some_and(|disk| disk.commit() || disk.load())
        {
            self.handle_store();
            self.carry_all();
        }
    }

    pub fn handle_store(&mut self) {
        for agent in &mut self.agents {
            agent.handle_store(self.now);
        }
        self.drain();
    }

    pub fn handle_timeout(&mut self) {
        for agent in &mut self.agents {
            while agent.next_timeout().is_some_and(|at| at <= self.now) {
                agent.handle_timeout(self.now);
            }
        }
        self.drain();
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.handle_timeout();
    }

    pub fn receive(&mut self, from: u64, class: Class, raw: Bytes) -> Result<(), Reject> {
        let now = self.now;
        let outcome = self.of(from).receive(now, NeighbourId(from), class, raw);
        self.drain();
        outcome
    }

    pub fn offer(&mut self, to: u64, class: Class) -> Option<Offer> {
        let now = self.now;
        self.of(to).next_for(now, NeighbourId(to), class, u64::MAX)
    }

    pub fn finish(&mut self, to: u64, offer: &Offer, outcome: Outcome) {
        let now = self.now;
        self.of(to).transfer_finished(now, offer.key, outcome);
        self.drain();
    }

    pub fn set_routes(&mut self, shard: usize, routes: &[Route]) {
        self.config.routes = routes.to_vec();
        self.agents[shard].set_routes(self.now, routes.to_vec(), Relaying::All);
        self.drain();
    }

    /// The number of bundles that each agent has stored.
    pub fn stored(&self) -> Vec<usize> {
        let stored = |agent: &Agent| agent.custody(self.now).bundles;
        self.agents.iter().map(stored).collect()
    }

    pub fn assert_empty(&self) {
        let nothing = Amount::default();
        assert_eq!(self.common.quota().stored(), nothing);
        assert_eq!(self.common.quota().undelivered(), nothing);
    }

    /// Asserts that nothing remains of the messages between agents.
    pub fn assert_settled(&self) {
        for agent in &self.agents {
            agent.footprint(&mut |name, count| {
                let settled = [
                    "bundles",
                    "bundles by name",
                    "bundles not committed",
                    "bundles to be passed on",
                    "bundles passed on",
                    "questions to other agents",
                    "custody timers",
                    "expiries",
                ];
                assert!(count == 0 || !settled.contains(&name), "{name}: {count}");
            });
        }
        assert!(self.pairs().is_empty());
        self.assert_empty();
    }
}

/// Routes straight to neighbours, with custody.
pub fn direct(neighbours: &[u64]) -> Vec<Route> {
    neighbours
        .iter()
        .map(|number| by(*number, *number))
        .collect()
}

pub fn by(node: u64, neighbour: u64) -> Route {
    route(node, neighbour)
}

/// Bytes to send to a node, under custody.
pub fn to_send(to: u64, bytes: &[u8]) -> Send {
    Send::new(
        underpass_bundle::wire::ipn(to, SERVICE),
        SERVICE,
        BULK,
        vec![payload(bytes)],
    )
}
