//! Nodes of one agent around the node of several.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use underpass_bundle::{Agent, BundleId, Config, Event, NeighbourId, Offer, Reject, Sharding};
use underpass_cla::{Class, Outcome};

use super::disk::Disk;
use super::hub::{Hub, by, direct, to_send};
use crate::net::{BULK, node};

pub const HUB: u64 = 1;

/// A hub of two agents, and terminals that send to each other through it.
pub struct Star {
    pub hub: Hub,
    terminals: BTreeMap<u64, Agent>,
}

/// The first node numbers of agents 0 and 1 of two, `count` each.
pub fn numbers(count: usize) -> [Vec<u64>; 2] {
    let sharding = Sharding { own: 0, count: 2 };
    [0, 1].map(|shard| {
        let of_shard = |number: &u64| sharding.shard_of(NeighbourId(*number)) == shard;
        (10..).filter(of_shard).take(count).collect()
    })
}

/// A neighbour of agent 0 and one of agent 1.
pub fn ends() -> (u64, u64) {
    let [near, far] = numbers(1);
    (near[0], far[0])
}

pub fn hub_config() -> Config {
    let [near, far] = numbers(2);
    let mut config = node(HUB);
    config.routes = direct(&[near, far].concat());
    config
}

impl Star {
    pub fn new(config: Config, disk: Option<Disk>) -> Star {
        let all = numbers(2).concat();
        let terminals = all.iter().map(|number| {
            let mut config = node(*number);
            let others = all.iter().filter(|other| *other != number);
            config.routes = others.map(|other| by(*other, HUB)).collect();
            config.routes.push(by(HUB, HUB));
            (*number, Agent::new(config))
        });
        let terminals = terminals.collect();
        Star {
            hub: Hub::new(config, 2, disk, &all),
            terminals,
        }
    }

    pub fn with_disk() -> Star {
        Star::new(hub_config(), Some(Disk::default()))
    }

    pub fn terminal(&mut self, number: u64) -> &mut Agent {
        self.terminals.get_mut(&number).unwrap()
    }

    pub fn send(&mut self, from: u64, to: u64, bytes: &[u8]) -> BundleId {
        let now = self.hub.now;
        self.terminal(from).send(now, to_send(to, bytes)).unwrap()
    }

    pub fn next(&mut self, from: u64, class: Class) -> Option<Offer> {
        let now = self.hub.now;
        self.terminal(from)
            .next_for(now, NeighbourId(HUB), class, u64::MAX)
    }

    /// The hub receives a terminal's next bundle.
    pub fn up(&mut self, from: u64) -> Result<(), Reject> {
        self.up_if_any(from).expect("something to send")
    }

    /// The same, if the terminal has a bundle that need not wait for room.
    pub fn up_if_any(&mut self, from: u64) -> Option<Result<(), Reject>> {
        let offer = self.next(from, BULK)?;
        let outcome = self.hub.receive(from, BULK, raw(&offer));
        let (now, key) = (self.hub.now, offer.key);
        let finished = outcome.map_or_else(
            |reject| Outcome::Refused(reject.into()),
            |()| Outcome::Acknowledged,
        );
        self.terminal(from).transfer_finished(now, key, finished);
        Some(outcome)
    }

    /// A terminal receives all that the hub has for it in a class; returns the number.
    pub fn down(&mut self, to: u64, class: Class) -> usize {
        let mut count = 0;
        while let Some(offer) = self.hub.offer(to, class) {
            let now = self.hub.now;
            self.terminal(to)
                .receive(now, NeighbourId(HUB), class, raw(&offer))
                .unwrap();
            self.hub.finish(to, &offer, Outcome::Acknowledged);
            count += 1;
        }
        count
    }

    /// The hub receives a terminal's signals.
    pub fn signals_up(&mut self, from: u64) {
        while let Some(offer) = self.next(from, Class::SIGNALLING) {
            let class = Class::SIGNALLING;
            self.hub.receive(from, class, raw(&offer)).unwrap();
            let (now, key) = (self.hub.now, offer.key);
            self.terminal(from)
                .transfer_finished(now, key, Outcome::Acknowledged);
        }
    }

    pub fn pass(&mut self, time: Duration) {
        self.hub.pass(time);
        let now = self.hub.now;
        for terminal in self.terminals.values_mut() {
            while terminal.next_timeout().is_some_and(|at| at <= now) {
                terminal.handle_timeout(now);
            }
        }
    }

    /// Waits until signals are gathered; the terminal then receives the hub's.
    pub fn signalled(&mut self, to: u64) -> usize {
        self.pass(Duration::from_millis(100));
        self.down(to, Class::SIGNALLING)
    }

    pub fn events(&mut self, at: u64) -> Vec<Event> {
        std::iter::from_fn(|| self.terminal(at).poll_event()).collect()
    }

    pub fn released(&mut self, at: u64) -> Vec<BundleId> {
        let released = |event| match event {
            Event::Released { id, .. } => Some(id),
            _ => None,
        };
        self.events(at).into_iter().filter_map(released).collect()
    }

    pub fn delivered(&mut self, at: u64) -> Vec<Bytes> {
        let delivered = |event| match event {
            Event::Deliver(delivery) => Some(delivery.payload),
            _ => None,
        };
        self.events(at).into_iter().filter_map(delivered).collect()
    }

    /// Carries everything until nothing moves; then lets time pass for the rest.
    pub fn drain(&mut self) {
        let all = numbers(2).concat();
        for _ in 0..200 {
            self.hub.work();
            for number in all.clone() {
                while self.up_if_any(number).is_some() {
                    self.hub.work();
                }
                self.down(number, BULK);
                self.hub.work();
                self.down(number, BULK);
                self.signals_up(number);
                self.down(number, Class::SIGNALLING);
            }
            self.pass(Duration::from_millis(100));
            self.hub.work();
        }
    }
}

pub fn raw(offer: &Offer) -> Bytes {
    offer.chunks.concat().into()
}
