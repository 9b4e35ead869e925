//! No bundle under custody is lost or doubled, whatever the links do.
//!
//! Two or three agents run in virtual time over links that delay, reorder, duplicate,
//! lose and break. Every bundle under custody is delivered exactly once; until it is
//! delivered, some node has custody of it; and in the end every store is empty.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::net::{BULK, SERVICE, node};
use bytes::Bytes;
use proptest::prelude::*;
use underpass_bundle::wire::ipn;
use underpass_bundle::{Agent, Event, NeighbourId, Route, Send};
use underpass_cla::{Class, Outcome};

/// A small random generator, so that a schedule is one number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // Steele, Lea and Flood 2014, SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.roll(100) < chance
    }
}

enum Happening {
    Arrive {
        at: usize,
        from: u64,
        class: Class,
        raw: Bytes,
    },
    Finish {
        at: usize,
        key: u64,
        outcome: Outcome,
    },
}

struct World {
    agents: Vec<Agent>,
    now: Instant,
    dice: Dice,
    /// Percent of transfers that break, before or after they have arrived.
    breaks: u64,
    /// Future events, in order of time.
    agenda: BTreeMap<(Instant, u64), Happening>,
    serial: u64,
    sent: BTreeSet<u64>,
    delivered: BTreeMap<u64, u32>,
    expired: u32,
}

impl World {
    fn new(agents: Vec<Agent>, seed: u64, breaks: u64) -> World {
        World {
            agents,
            now: Instant::now(),
            dice: Dice(seed),
            breaks,
            agenda: BTreeMap::new(),
            serial: 0,
            sent: BTreeSet::new(),
            delivered: BTreeMap::new(),
            expired: 0,
        }
    }

    fn plan(&mut self, happening: Happening) {
        let at = self.now + Duration::from_millis(1 + self.dice.roll(600));
        self.agenda.insert((at, self.serial), happening);
        self.serial += 1;
    }

    fn send(&mut self, from: usize, to: u64) {
        let number = self.serial;
        self.serial += 1;
        let send = Send::new(
            ipn(to, SERVICE),
            SERVICE,
            BULK,
            vec![Bytes::copy_from_slice(&number.to_be_bytes())],
        );
        if self.agents[from].send(self.now, send).is_ok() {
            self.sent.insert(number);
        }
    }

    /// Each agent offers all it has to each other agent.
    fn transmit(&mut self) {
        for at in 0..self.agents.len() {
            for to in 0..self.agents.len() {
                for class in [Class::SIGNALLING, BULK] {
                    let via = NeighbourId(to as u64 + 1);
                    while let Some(offer) = self.agents[at].next_for(self.now, via, class, u64::MAX)
                    {
                        let raw: Bytes = offer.chunks.concat().into();
                        self.carry(at, to, class, offer.key, raw);
                    }
                }
            }
        }
    }

    fn carry(&mut self, at: usize, to: usize, class: Class, key: u64, raw: Bytes) {
        let from = at as u64 + 1;
        let broken = self.dice.percent(self.breaks);
        let arrives = !broken || self.dice.percent(50);
        let outcome = match broken {
            true => Outcome::Broken { acknowledged: 0 },
            false => Outcome::Acknowledged,
        };
        let copies = if self.dice.percent(10) { 2 } else { 1 };
        for _ in 0..if arrives { copies } else { 0 } {
            let raw = raw.clone();
            self.plan(Happening::Arrive {
                at: to,
                from,
                class,
                raw,
            });
        }
        self.plan(Happening::Finish { at, key, outcome });
    }

    fn step(&mut self) -> bool {
        self.transmit();
        let deadline = self.agents.iter().filter_map(Agent::next_timeout).min();
        let planned = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = deadline.into_iter().chain(planned).min() else {
            return false;
        };
        self.now = self.now.max(next);
        for agent in &mut self.agents {
            agent.handle_timeout(self.now);
        }
        while let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= self.now
        {
            match entry.remove() {
                Happening::Arrive {
                    at,
                    from,
                    class,
                    raw,
                } => {
                    // A CL that acknowledges a bundle which the node then loses is the
                    // worst case: only custody repairs it.
                    if !self.dice.percent(self.breaks) {
                        let from = NeighbourId(from);
                        let _ = self.agents[at].receive(self.now, from, class, raw);
                    }
                }
                Happening::Finish { at, key, outcome } => {
                    self.agents[at].transfer_finished(self.now, key, outcome);
                }
            }
        }
        self.take_events();
        true
    }

    fn take_events(&mut self) {
        for agent in &mut self.agents {
            while let Some(event) = agent.poll_event() {
                match event {
                    Event::Deliver(delivery) => {
                        let number = delivery.payload[..].try_into().unwrap();
                        let number = u64::from_be_bytes(number);
                        *self.delivered.entry(number).or_default() += 1;
                    }
                    Event::GivenUp { .. } | Event::Deleted { .. } => self.expired += 1,
                    _ => {}
                }
            }
        }
    }

    /// The number of custodians of all bundles.
    fn custodians(&self) -> u64 {
        let figures = self.agents.iter().map(|agent| agent.custody(self.now));
        let custody = |figures: underpass_bundle::CustodyFigures| -> u64 {
            figures
                .classes
                .values()
                .map(|class| class.custody_bundles)
                .sum()
        };
        figures.map(custody).sum()
    }
}

/// Agents 1 – 2 – 3 in a row; 2 is a relay, with or without custody.
fn row(take_custody: bool, store_bundles: usize) -> Vec<Agent> {
    let route = |to: u64, via: u64| Route {
        nodes: to..=to,
        neighbour: NeighbourId(via),
        take_custody,
    };
    let routes = [
        vec![route(2, 2), route(3, 2)],
        vec![route(1, 1), route(3, 3)],
        vec![route(1, 2), route(2, 2)],
    ];
    (1..=3)
        .zip(routes)
        .map(|(number, routes)| {
            let mut config = node(number);
            config.routes = routes;
            config.store_bundles = store_bundles;
            Agent::new(config)
        })
        .collect()
}

fn run(mut world: World, bundles: u64) -> Result<(), TestCaseError> {
    let ends = [(0, 3), (2, 1), (0, 2)];
    for number in 0..bundles {
        let (from, to) = ends[(number % 3) as usize];
        world.send(from, to);
        world.step();
        let undelivered = world.sent.len() - world.delivered.len();
        prop_assert!(world.custodians() >= undelivered as u64, "custody was lost");
    }
    // Losses cease, so that the rest can drain.
    world.breaks = 0;
    let mut steps = 0;
    while world
        .agents
        .iter()
        .any(|agent| agent.custody(world.now).bundles > 0)
    {
        let undelivered = world.sent.len() - world.delivered.len();
        prop_assert!(world.custodians() >= undelivered as u64, "custody was lost");
        prop_assert!(world.step(), "bundles are stored and nothing is due");
        prop_assert!(world.expired == 0, "a bundle ended by its lifetime");
        steps += 1;
        prop_assert!(steps < 100_000, "the stores do not drain");
    }
    let delivered: BTreeSet<u64> = world.delivered.keys().copied().collect();
    prop_assert_eq!(&delivered, &world.sent);
    prop_assert!(world.delivered.values().all(|times| *times == 1));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(96)
    })]

    #[test]
    fn every_bundle_is_delivered_once_and_every_store_drains(
        seed in any::<u64>(),
        relay_takes_custody in any::<bool>(),
        breaks in 0u64..60,
        bundles in 1u64..60,
    ) {
        let agents = row(relay_takes_custody, 1000);
        run(World::new(agents, seed, breaks), bundles)?;
    }

    #[test]
    fn small_stores_slow_but_lose_nothing(
        seed in any::<u64>(),
        relay_takes_custody in any::<bool>(),
        breaks in 0u64..40,
    ) {
        let agents = row(relay_takes_custody, 6);
        run(World::new(agents, seed, breaks), 40)?;
    }
}
