//! Custody is conserved in a node of several agents, whatever the order of events on
//! links, between agents, on disk, in routes, and of crashes.
//!
//! Two terminals send to each other and to a node behind two neighbours of the hub; the
//! hub's route to that node changes between these two. Every bundle is in some node's
//! custody until it has arrived, and in the end nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use underpass_bundle::wire::{
    ACCEPTED, CodePoints, Cteb, CustodyDialect, DecodeLimits, Disposition, Sequence, SequenceName,
    decode, encode_signal,
};
use underpass_bundle::{Agent, BundleId, Event, NeighbourId, Reject, Route};
use underpass_cla::{Class, Outcome};

use super::disk::Disk;
use super::hub::{Hub, by, direct, to_send};
use super::terminals::{HUB, raw};
use crate::net::{BULK, node, record_bundle};

const TERMINALS: [u64; 2] = [10, 11];
const FACES: [u64; 2] = [20, 27];
const BEHIND: u64 = 500;

/// A small random generator, so that a schedule is one number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // Steele, Lea and Flood 2014, SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }

    fn percent(&mut self, chance: usize) -> bool {
        self.roll(100) < chance
    }
}

struct World {
    hub: Hub,
    terminals: BTreeMap<u64, Agent>,
    dice: Dice,
    /// Percent of transfers that break, before or after they have arrived.
    breaks: usize,
    /// Percent of the possible route changes that happen.
    changes: usize,
    /// Percent of steps at which the hub's process ends.
    crashes: usize,
    sent: BTreeSet<u64>,
    arrived: BTreeMap<u64, u32>,
    /// What the hub's own service has sent, and what it was told.
    own: BTreeSet<BundleId>,
    released: Vec<BundleId>,
}

fn routes(via: u64) -> Vec<Route> {
    let mut routes = direct(&[TERMINALS, FACES].concat());
    routes.push(by(BEHIND, via));
    routes
}

impl World {
    fn new(seed: u64, shards: usize, disk: bool, store_bundles: usize) -> World {
        let mut config = node(HUB);
        config.routes = routes(FACES[0]);
        config.store_bundles = store_bundles;
        let disk = disk.then(Disk::default);
        let terminals = TERMINALS.map(|number| {
            let mut config = node(number);
            config.store_bundles = store_bundles;
            let others = [TERMINALS[0], TERMINALS[1], BEHIND, HUB];
            let others = others.iter().filter(|other| **other != number);
            config.routes = others.map(|other| by(*other, HUB)).collect();
            (number, Agent::new(config))
        });
        World {
            hub: Hub::new(config, shards, disk, &[TERMINALS, FACES].concat()),
            terminals: terminals.into(),
            dice: Dice(seed),
            breaks: 0,
            changes: 0,
            crashes: 0,
            sent: BTreeSet::new(),
            arrived: BTreeMap::new(),
            own: BTreeSet::new(),
            released: Vec::new(),
        }
    }

    fn send(&mut self) {
        let number = self.dice.0;
        let send = |to| to_send(to, &number.to_be_bytes());
        let now = self.hub.now;
        let outcome = match self.dice.roll(if self.crashes == 0 { 5 } else { 4 }) {
            0 => self.terminal(10).send(now, send(11)),
            1 => self.terminal(11).send(now, send(10)),
            2 => self.terminal(10).send(now, send(BEHIND)),
            3 => self.terminal(11).send(now, send(BEHIND)),
            // Nobody upstream sends it again after a crash.
            _ => {
                let shard = self.hub.agents[0].shard_to(BEHIND, 0).unwrap();
                let outcome = self.hub.agents[shard].send(now, send(BEHIND));
                self.own.extend(outcome);
                outcome
            }
        };
        if outcome.is_ok() {
            self.sent.insert(number);
        }
    }

    fn terminal(&mut self, number: u64) -> &mut Agent {
        self.terminals.get_mut(&number).unwrap()
    }

    /// Whether a transfer arrives, and what its sender is told.
    fn fate(&mut self) -> (bool, Outcome) {
        let broken = self.dice.percent(self.breaks);
        let arrives = !broken || self.dice.percent(50);
        let outcome = match broken {
            true => Outcome::Broken { acknowledged: 0 },
            false => Outcome::Acknowledged,
        };
        (arrives, outcome)
    }

    fn finished(outcome: Outcome, received: Result<(), Reject>) -> Outcome {
        match received {
            Err(reject) if outcome == Outcome::Acknowledged => Outcome::Refused(reject.into()),
            _ => outcome,
        }
    }

    fn up(&mut self, from: u64, class: Class) {
        let now = self.hub.now;
        let hub = NeighbourId(HUB);
        let Some(offer) = self.terminal(from).next_for(now, hub, class, u64::MAX) else {
            return;
        };
        let (arrives, mut outcome) = self.fate();
        if arrives {
            outcome = World::finished(outcome, self.hub.receive(from, class, raw(&offer)));
        }
        self.terminal(from)
            .transfer_finished(now, offer.key, outcome);
    }

    fn down(&mut self, to: u64, class: Class) {
        let now = self.hub.now;
        let Some(offer) = self.hub.offer(to, class) else {
            return;
        };
        let (arrives, mut outcome) = self.fate();
        if arrives && FACES.contains(&to) {
            self.arrive_behind(to, &raw(&offer));
        } else if arrives {
            let hub = NeighbourId(HUB);
            let received = self.terminal(to).receive(now, hub, class, raw(&offer));
            outcome = World::finished(outcome, received);
        }
        self.hub.finish(to, &offer, outcome);
    }

    /// A neighbour of the hub has taken custody of a bundle.
    fn arrive_behind(&mut self, face: u64, raw: &Bytes) {
        let bundle = decode(raw, &DecodeLimits::default(), &CodePoints::default()).unwrap();
        self.arrives(&bundle.payload);
        let (_, cteb) = bundle.cteb.expect("under custody");
        if !self.dice.percent(self.breaks) {
            let class = Class::SIGNALLING;
            self.hub.receive(face, class, signal(face, &cteb)).unwrap();
        }
    }

    fn arrives(&mut self, payload: &[u8]) {
        let number = u64::from_be_bytes(payload.try_into().unwrap());
        *self.arrived.entry(number).or_default() += 1;
    }

    fn step(&mut self) {
        let class = match self.dice.roll(2) {
            0 => BULK,
            _ => Class::SIGNALLING,
        };
        match self.dice.roll(9) {
            0 | 1 => {
                let from = TERMINALS[self.dice.roll(2)];
                self.up(from, class);
            }
            2 | 3 => {
                let to = [TERMINALS, FACES].concat()[self.dice.roll(4)];
                self.down(to, class);
            }
            4 | 5 => {
                let pairs = self.hub.pairs();
                if !pairs.is_empty() {
                    let (from, to) = pairs[self.dice.roll(pairs.len())];
                    self.hub.carry(from, to);
                }
            }
            6 => {
                if let Some(disk) = &self.hub.disk {
                    let _ = disk.commit() | disk.load();
                    self.hub.handle_store();
                }
            }
            7 => {
                let shard = self.dice.roll(self.hub.agents.len());
                let via = FACES[self.dice.roll(2)];
                if self.dice.percent(self.changes) {
                    self.hub.set_routes(shard, &routes(via));
                }
            }
            _ => self.pass(),
        }
        if self.hub.disk.is_some() && self.dice.percent(self.crashes) {
            let shards = 1 + self.dice.roll(4);
            self.hub.restart(shards);
        }
        self.take_events();
    }

    fn pass(&mut self) {
        let time = Duration::from_millis(self.dice.roll(1_500) as u64);
        self.hub.pass(time);
        for terminal in self.terminals.values_mut() {
            while terminal.next_timeout().is_some_and(|at| at <= self.hub.now) {
                terminal.handle_timeout(self.hub.now);
            }
        }
    }

    fn take_events(&mut self) {
        let mut payloads = Vec::new();
        for terminal in self.terminals.values_mut() {
            while let Some(event) = terminal.poll_event() {
                match event {
                    Event::Deliver(delivery) => payloads.push(delivery.payload),
                    Event::GivenUp { .. } | Event::Deleted { .. } => panic!("{event:?}"),
                    _ => {}
                }
            }
        }
        payloads.iter().for_each(|payload| self.arrives(payload));
        for event in std::mem::take(&mut self.hub.events) {
            match event {
                Event::Released { id, .. } => self.released.push(id),
                Event::Restored { .. } => {}
                event => panic!("{event:?}"),
            }
        }
    }

    /// Bundles that have not arrived and are in nobody's custody.
    fn lost(&self) -> u64 {
        let agents = self.hub.agents.iter().chain(self.terminals.values());
        let custody = |agent: &Agent| -> u64 {
            let figures = agent.custody(self.hub.now);
            figures.classes.values().map(|of| of.custody_bundles).sum()
        };
        let custodians: u64 = agents.map(custody).sum();
        let waiting = (self.sent.len() - self.arrived.len()) as u64;
        waiting.saturating_sub(custodians)
    }

    fn stored(&self) -> usize {
        let terminals = self.terminals.values();
        let stored = |agent: &Agent| agent.custody(self.hub.now).bundles;
        terminals.map(stored).sum::<usize>() + self.hub.stored().iter().sum::<usize>()
    }
}

/// What a neighbour signals to the hub: it has custody.
fn signal(from: u64, cteb: &Cteb) -> Bytes {
    let of = Sequence {
        name: SequenceName::Id(cteb.sequence),
        first: cteb.number,
        runs: vec![1],
    };
    let dispositions = [Disposition {
        code: ACCEPTED,
        sequences: vec![of],
    }];
    let codes = CodePoints::default();
    let record = encode_signal(codes.ccs_record, CustodyDialect::Ion, &dispositions).remove(0);
    record_bundle(from, HUB, record)
}

fn run(mut world: World, steps: usize) -> Result<(), TestCaseError> {
    for _ in 0..steps {
        if world.dice.percent(10) {
            world.send();
        }
        world.step();
        prop_assert_eq!(world.lost(), 0, "custody was lost");
    }
    // Losses, crashes and changes cease, so that the rest can drain.
    (world.breaks, world.crashes) = (0, 0);
    for shard in 0..world.hub.agents.len() {
        world.hub.set_routes(shard, &routes(FACES[1]));
    }
    let mut rounds = 0;
    while world.stored() > 0 || !world.hub.pairs().is_empty() {
        for class in [BULK, Class::SIGNALLING] {
            for number in [TERMINALS, FACES].concat() {
                world.down(number, class);
                if TERMINALS.contains(&number) {
                    world.up(number, class);
                }
            }
        }
        world.hub.work();
        world.pass();
        world.take_events();
        prop_assert_eq!(world.lost(), 0, "custody was lost");
        rounds += 1;
        prop_assert!(rounds < 5_000, "the stores do not drain");
    }
    let arrived: BTreeSet<u64> = world.arrived.keys().copied().collect();
    prop_assert_eq!(&arrived, &world.sent);
    let released: BTreeSet<BundleId> = world.released.iter().copied().collect();
    prop_assert_eq!(world.released.len(), world.own.len());
    prop_assert_eq!(released, world.own);
    if let Some(disk) = &world.hub.disk {
        prop_assert_eq!(disk.bundles(), 0);
    }
    world.hub.assert_settled();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(96)
    })]

    #[test]
    fn every_bundle_arrives_and_every_store_drains(
        seed in any::<u64>(),
        shards in 1usize..5,
        disk in any::<bool>(),
        breaks in 0usize..50,
        changes in prop_oneof![Just(0), Just(10), Just(100)],
        crashes in 0usize..3,
        store_bundles in prop_oneof![Just(1_000), 4usize..20],
    ) {
        let mut world = World::new(seed, shards, disk, store_bundles);
        (world.breaks, world.changes) = (breaks, changes);
        world.crashes = if disk { crashes } else { 0 };
        run(world, 1_500)?;
    }
}
