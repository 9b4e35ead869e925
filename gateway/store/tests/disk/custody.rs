//! Bundle nodes over simulated disks: custody that survives the nodes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::wire::ipn;
use underpass_bundle::{
    Agent, Config, DeleteReason, Delivery, Event, NeighbourId, Offer, Route, Send,
};
use underpass_cla::{Class, Outcome};
use underpass_store::simulated::{Crash, SimulatedDisk};
use underpass_store::{DiskStore, Identity, Limits, Worker};

use crate::bench::LIMITS;

const BULK: Class = Class(3);
const SERVICE: u64 = 64;

/// A node with custody on a disk.
struct Node {
    number: u64,
    disk: SimulatedDisk,
    agent: Agent,
    worker: Worker<SimulatedDisk>,
    runs: u64,
    now: Instant,
}

fn config(number: u64, run: u64) -> Config {
    let mut config = Config::new(number, run << 40 | number << 34 | run);
    config.services.insert(SERVICE);
    config.lifetime = Duration::from_secs(600);
    config.routes = match number {
        // Terminal 10 and hub 1, with relay 5 between them.
        10 => vec![route(1, 5)],
        1 => vec![route(10, 5)],
        _ => vec![route(1, 1), route(10, 10)],
    };
    config
}

fn route(node: u64, via: u64) -> Route {
    Route {
        nodes: node..=node,
        neighbour: NeighbourId(via),
        take_custody: true,
    }
}

impl Node {
    fn new(number: u64, now: Instant) -> Node {
        let disk = SimulatedDisk::default();
        let (agent, worker) = start(number, 1, &disk, now);
        Node {
            number,
            disk,
            agent,
            worker,
            runs: 1,
            now,
        }
    }

    fn work(&mut self) {
        for _ in 0..20 {
            self.worker.step(true);
            self.agent.handle_store(self.now);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.agent.handle_timeout(self.now);
        self.work();
    }

    fn crash(&mut self, how: Crash) {
        self.runs += 1;
        self.disk.crash(how, self.runs);
        (self.agent, self.worker) = start(self.number, self.runs, &self.disk, self.now);
    }

    fn send(&mut self, to: u64, label: u64, payload: &'static [u8]) {
        let send = Send {
            label,
            ..Send::new(
                ipn(to, SERVICE),
                SERVICE,
                BULK,
                vec![Bytes::from_static(payload)],
            )
        };
        self.agent.send(self.now, send).expect("it has room");
    }

    fn next(&mut self, to: u64, class: Class) -> Option<Offer> {
        let to = NeighbourId(to);
        let offer = self.agent.next_for(self.now, to, class, u64::MAX);
        if offer.is_none() && self.agent.is_loading(to, class) {
            self.work();
            return self.agent.next_for(self.now, to, class, u64::MAX);
        }
        offer
    }

    /// Gives all bundles of a class to another node; returns their number.
    fn carry(&mut self, to: &mut Node, class: Class) -> usize {
        let mut count = 0;
        while let Some(offer) = self.next(to.number, class) {
            let raw = Bytes::from(offer.chunks.concat());
            let from = NeighbourId(self.number);
            to.agent.receive(to.now, from, class, raw).expect("taken");
            self.agent
                .transfer_finished(self.now, offer.key, Outcome::Acknowledged);
            count += 1;
        }
        count
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.agent.poll_event())
            .filter(|event| !matches!(event, Event::Woken { .. }))
            .collect()
    }

    fn deliveries(&mut self) -> Vec<Delivery> {
        let delivery = |event| match event {
            Event::Deliver(delivery) => Some(delivery),
            _ => None,
        };
        self.events().into_iter().filter_map(delivery).collect()
    }

    fn holds(&self) -> usize {
        self.agent.custody(self.now).bundles
    }
}

fn start(
    number: u64,
    run: u64,
    disk: &SimulatedDisk,
    now: Instant,
) -> (Agent, Worker<SimulatedDisk>) {
    let identity = Identity {
        node: number,
        boot: [1; 16],
        boot_ms: 1000,
        seed: run,
    };
    let limits = Limits {
        memory_bytes: 1 << 20,
        ..LIMITS
    };
    let (store, worker, _) =
        DiskStore::over(disk.clone(), identity, limits, now, || {}).expect("it opens");
    let mut agent = Agent::with_store(config(number, run), Box::new(store));
    agent.restore(now);
    (agent, worker)
}

fn terminal_and_relay() -> (Node, Node) {
    let now = Instant::now();
    (Node::new(10, now), Node::new(5, now))
}

const SIGNALS: Duration = Duration::from_millis(150);

#[test]
fn a_relay_signals_custody_only_when_it_is_durable() {
    let (mut terminal, mut relay) = terminal_and_relay();
    terminal.send(1, 0, b"bulk");
    assert_eq!(terminal.carry(&mut relay, BULK), 1);
    relay.now += SIGNALS;
    relay.agent.handle_timeout(relay.now);
    assert_eq!(relay.carry(&mut terminal, Class::SIGNALLING), 0);
    // A node that is killed now has promised nothing.
    relay.disk.crash(Crash::PowerInOrder, 1);
    relay.work();
    relay.pass(SIGNALS);
    assert_eq!(relay.carry(&mut terminal, Class::SIGNALLING), 1);
    assert_eq!(terminal.holds(), 0);
}

#[test]
fn what_a_relay_has_signalled_reaches_its_destination_after_a_loss_of_power() {
    let (mut terminal, mut relay) = terminal_and_relay();
    let mut hub = Node::new(1, terminal.now);
    for text in [&b"one"[..], b"two", b"three"] {
        terminal.send(1, 0, text);
    }
    terminal.carry(&mut relay, BULK);
    relay.work();
    relay.pass(SIGNALS);
    relay.carry(&mut terminal, Class::SIGNALLING);
    assert_eq!(terminal.holds(), 0);
    relay.crash(Crash::PowerInAnyOrder);
    assert_eq!(relay.holds(), 3);
    relay.carry(&mut hub, BULK);
    let texts: Vec<Bytes> = hub.deliveries().into_iter().map(|d| d.payload).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    hub.pass(SIGNALS);
    hub.carry(&mut relay, Class::SIGNALLING);
    assert_eq!(relay.holds(), 0);
    // A released bundle stays released.
    relay.work();
    relay.crash(Crash::Kill);
    assert_eq!(relay.holds(), 0);
}

#[test]
fn a_bundle_sent_before_the_crash_and_after_it_is_delivered_once() {
    let (mut terminal, mut relay) = terminal_and_relay();
    let mut hub = Node::new(1, terminal.now);
    terminal.send(1, 0, b"once");
    terminal.carry(&mut relay, BULK);
    relay.work();
    relay.carry(&mut hub, BULK);
    // The hub's signal never reaches this run.
    relay.crash(Crash::Kill);
    relay.carry(&mut hub, BULK);
    assert_eq!(hub.deliveries().len(), 1);
    hub.pass(SIGNALS);
    hub.carry(&mut relay, Class::SIGNALLING);
    assert_eq!(relay.holds(), 0);
}

#[test]
fn a_restarted_source_tells_the_end_of_what_it_had_sent() {
    let (mut terminal, mut relay) = terminal_and_relay();
    terminal.send(1, 42, b"old");
    terminal.pass(Duration::from_millis(300));
    terminal.crash(Crash::PowerInOrder);
    let events = terminal.events();
    let [
        Event::Restored {
            id,
            label: 42,
            service: SERVICE,
            ..
        },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
    // New bundles have other names and numbers.
    terminal.send(1, 43, b"new");
    assert_eq!(terminal.carry(&mut relay, BULK), 2);
    relay.work();
    relay.pass(SIGNALS);
    relay.carry(&mut terminal, Class::SIGNALLING);
    let released: Vec<_> = terminal
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Released { id, .. } => Some(id),
            _ => None,
        })
        .collect();
    assert_eq!(released.len(), 2);
    assert!(released.contains(&id));
}

#[test]
fn what_expires_on_disk_is_told_with_its_payload() {
    let (mut terminal, _) = terminal_and_relay();
    terminal.send(1, 7, b"late");
    terminal.pass(Duration::from_millis(300));
    terminal.crash(Crash::Kill);
    terminal.events();
    terminal.pass(Duration::from_secs(601));
    let events = terminal.events();
    let [
        Event::GivenUp {
            reason: DeleteReason::LifetimeExpired,
            payload,
            ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(payload.concat(), b"late");
    assert_eq!(terminal.holds(), 0);
}

#[test]
fn a_cancelled_bundle_does_not_come_back() {
    let (mut terminal, _) = terminal_and_relay();
    terminal.send(1, 7, b"wrong");
    terminal.pass(Duration::from_millis(300));
    terminal.crash(Crash::Kill);
    let id = terminal.agent.list(terminal.now, None, 1)[0].id;
    assert!(terminal.agent.cancel(terminal.now, id));
    terminal.work();
    assert!(terminal.events().iter().any(|event| {
        matches!(
            event,
            Event::GivenUp {
                reason: DeleteReason::Cancelled,
                ..
            }
        )
    }));
    terminal.crash(Crash::Kill);
    assert_eq!(terminal.holds(), 0);
}

#[test]
fn a_damaged_payload_ends_its_bundle_alone() {
    let (mut terminal, mut relay) = terminal_and_relay();
    for text in [&b"a payload of some length"[..], b"another one"] {
        terminal.send(1, 0, text);
    }
    terminal.carry(&mut relay, BULK);
    relay.work();
    // It restarts twice: the second start reads only the index.
    relay.crash(Crash::Kill);
    relay.crash(Crash::Kill);
    assert!(relay.disk.flip_in(b"a payload of some"));
    relay.work();
    let events = relay.events();
    assert!(
        matches!(
            events[..],
            [Event::Deleted {
                reason: DeleteReason::DepletedStorage,
                ..
            }]
        ),
        "{events:?}"
    );
    assert_eq!(relay.holds(), 1);
}
