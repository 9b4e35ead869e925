//! A path that is up only while it is needed: two nodes, a terrestrial line that is
//! always up, and a satellite link that has sessions only after it is brought up.

use std::time::Duration;

use underpass_cla::Class;
use underpass_engine::{
    MeasuredLink, Message, Need, ON_DEMAND_SERVICE, OnDemand, PathChange, PathUse, Policy, Released,
};

use crate::bench::{BULK, MRU, Node, URGENT, config, pair_of, route};
use crate::lines::Lines;
use crate::measured::FLIGHT;
use crate::paths::{FAR, MS, NEAR, both_lines, two_hops};

const SECOND: Duration = Duration::from_secs(1);

fn on_demand(dials: bool) -> OnDemand {
    OnDemand {
        path: "satellite".to_owned(),
        dials,
        neighbour_asks: true,
        within: 5 * SECOND,
        others_down: SECOND,
        idle: 10 * SECOND,
        least_up: 20 * SECOND,
        least_down: 10 * SECOND,
        connect: 30 * SECOND,
    }
}

/// A terminal, 10, whose far path is up on demand, and its hub, 1.
struct World {
    lines: Lines,
    /// When the far path's sessions will be up, once it is brought up.
    connects_at: Option<std::time::Instant>,
    next_session: u64,
    changes: Vec<(Duration, PathChange)>,
    begin: std::time::Instant,
}

impl World {
    fn new(policies: &[(Class, PathUse, &[&str])]) -> World {
        let config = |node, neighbour, dials| {
            let mut config = two_hops(node, neighbour);
            config.hops[1].on_demand = Some(on_demand(dials));
            for (class, uses, paths) in policies {
                let paths = paths.iter().map(|path| (*path).to_owned()).collect();
                let policy = Policy {
                    uses: *uses,
                    paths,
                    ..Policy::default()
                };
                config.policies.insert(*class, policy);
            }
            config
        };
        let (mut terminal, mut hub) = pair_of(config(10, 1, true), config(1, 10, false));
        // `pair_of` has set up the near hop's sessions.
        let begin = terminal.now;
        terminal.paths.clear();
        hub.paths.clear();
        let lines = both_lines(terminal, hub);
        World {
            lines,
            connects_at: None,
            next_session: 200,
            changes: Vec::new(),
            begin,
        }
    }

    /// Lets time pass; the far path has sessions three round trips after it is brought
    /// up, and none once it is released.
    fn live(&mut self, time: Duration, mut each: impl FnMut(&mut [Node; 2])) {
        let end = self.lines.now() + time;
        while self.lines.now() < end {
            self.lines.live(10 * MS, &mut each);
            let now = self.lines.now();
            for (hop, change) in std::mem::take(&mut self.lines.nodes[0].paths) {
                assert_eq!(hop, FAR);
                self.changes.push((now - self.begin, change));
                match change {
                    PathChange::BringUp(_) => self.connects_at = Some(now + 1590 * MS),
                    PathChange::Release(_) => {
                        self.connects_at = None;
                        let sessions = self.lines.nodes[0].engine.sessions_of(FAR);
                        for node in &mut self.lines.nodes {
                            for id in &sessions {
                                node.engine.session_down(now, *id);
                            }
                        }
                    }
                }
            }
            if self.connects_at.is_some_and(|at| at <= now) {
                self.connects_at = None;
                for node in &mut self.lines.nodes {
                    for class in 0..3 {
                        let id = self.next_session + class;
                        node.session(1, id, Some(Class(class as u8)), MRU);
                    }
                }
                self.next_session += 3;
            }
            assert!(
                self.lines.nodes[1].paths.is_empty(),
                "the hub dials nothing"
            );
        }
    }

    /// Transfers this many bytes from a node; returns the time until all were read.
    fn transfer(
        &mut self,
        from: usize,
        class: Class,
        bytes: u64,
        most: Duration,
    ) -> Option<Duration> {
        let peer = [1, 10][from];
        let key = self.lines.nodes[from].open(peer, class);
        let (mut left, mut read, begin) = (bytes, 0, self.lines.now());
        let mut done = None;
        let end = begin + most;
        while done.is_none() && self.lines.now() < end {
            self.live(100 * MS, |nodes| {
                let room = nodes[from].engine.send_capacity(key) as u64;
                let part = room.min(left);
                if part > 0 {
                    nodes[from].write(key, part as usize);
                    left -= part;
                }
                let receiver = &mut nodes[1 - from];
                read += receiver.read_all([10, 1][from], key) as u64;
                if read >= bytes {
                    done.get_or_insert(receiver.now - begin);
                }
            });
        }
        done
    }

    fn needs(&self) -> Vec<Need> {
        let ups = self.changes.iter().filter_map(|(_, change)| match change {
            PathChange::BringUp(need) => Some(*need),
            PathChange::Release(_) => None,
        });
        ups.collect()
    }
}

#[test]
fn what_is_small_goes_by_the_other_path_and_brings_nothing_up() {
    let mut world = World::new(&[]);
    for _ in 0..20 {
        for from in [0, 1] {
            let took = world.transfer(from, URGENT, 20_000, SECOND);
            assert!(took.is_some_and(|took| took < 300 * MS), "{took:?}");
        }
        world.live(SECOND, |_| ());
    }
    assert_eq!(world.changes, []);
    // While it is at rest nobody looks at it.
    world.live(10 * SECOND, |_| ());
    let engine = &world.lines.nodes[0].engine;
    assert_eq!(engine.footprint()["paths on demand by time"], 0);
}

#[test]
fn a_long_upload_brings_it_up_and_its_end_releases_it() {
    let mut world = World::new(&[]);
    let took = world.transfer(0, BULK, 100_000_000, 90 * SECOND);
    // 5 s until it is requested, 1.6 s until it is up, then 50 Mbit/s.
    let took = took.expect("it arrives");
    assert!(took > 19 * SECOND && took < 26 * SECOND, "{took:?}");
    assert_eq!(world.needs(), [Need::Backlog]);
    world.live(40 * SECOND, |_| ());
    let [(up, _), (down, PathChange::Release(Released::Idle))] = world.changes[..] else {
        panic!("{:?}", world.changes);
    };
    assert!(up > 4 * SECOND && up < 8 * SECOND, "{up:?}");
    assert!(
        down > took + 9 * SECOND && down < took + 16 * SECOND,
        "{down:?} {took:?}"
    );
    assert!(world.lines.nodes[0].engine.is_released(FAR));
}

#[test]
fn what_the_hub_has_to_send_brings_it_up_by_the_hubs_word() {
    let mut world = World::new(&[]);
    let took = world.transfer(1, BULK, 100_000_000, 90 * SECOND);
    let took = took.expect("it arrives");
    assert!(took > 19 * SECOND && took < 26 * SECOND, "{took:?}");
    assert_eq!(world.needs(), [Need::Neighbour]);
    world.live(60 * SECOND, |_| ());
    let [_, (down, PathChange::Release(Released::Idle))] = world.changes[..] else {
        panic!("{:?}", world.changes);
    };
    // The hub withdraws its request: the path is up no longer than for an upload.
    assert!(
        down > took + 9 * SECOND && down < took + 16 * SECOND,
        "{down:?} {took:?}"
    );
}

#[test]
fn a_size_that_is_told_brings_it_up_before_there_is_a_backlog() {
    let mut world = World::new(&[]);
    let key = world.lines.nodes[0].open(1, BULK);
    let now = world.lines.now();
    let engine = &mut world.lines.nodes[0].engine;
    engine.begin_flow(now, key, 1_000_000, false);
    world.live(100 * MS, |_| ());
    assert_eq!(world.needs(), []);
    let now = world.lines.now();
    let engine = &mut world.lines.nodes[0].engine;
    engine.begin_flow(now, key, 100_000_000, false);
    world.live(300 * MS, |_| ());
    assert_eq!(world.needs(), [Need::Backlog]);
}

/// Until that is acknowledged, little is sent by the other path, whatever its rate.
#[test]
fn what_begins_behind_the_other_paths_first_flight_does_not_bring_it_up() {
    let mut world = World::new(&[]);
    let terminal = &mut world.lines.nodes[0];
    let now = terminal.now;
    terminal.engine.set_rate(now, NEAR, None);
    let unknown = MeasuredLink {
        first: Some(FLIGHT),
        ..MeasuredLink::default()
    };
    terminal.engine.measured(now, NEAR, unknown, 0);
    let key = terminal.send(1, BULK, 200_000);
    world.live(300 * MS, |_| ());
    let now = world.lines.now();
    let engine = &mut world.lines.nodes[0].engine;
    engine.begin_flow(now, key, 1_000_000, false);
    world.live(300 * MS, |_| ());
    assert_eq!(world.needs(), []);
}

#[test]
fn a_class_that_is_pinned_to_it_brings_it_up_and_arrives() {
    let mut world = World::new(&[(BULK, PathUse::Pinned, &["hop1"])]);
    let took = world.transfer(0, BULK, 5_000, 10 * SECOND);
    let took = took.expect("it arrives");
    assert!(took > 1_500 * MS && took < 2_600 * MS, "{took:?}");
    assert_eq!(world.needs(), [Need::Pinned]);
    // And the hub's data, at the hub's request.
    world.live(60 * SECOND, |_| ());
    let took = world.transfer(1, BULK, 5_000, 30 * SECOND);
    assert!(took.is_some_and(|took| took < 3 * SECOND), "{took:?}");
    assert_eq!(world.needs(), [Need::Pinned, Need::Neighbour]);
}

#[test]
fn when_the_other_path_dies_it_is_brought_up_and_streams_go_on() {
    let mut world = World::new(&[]);
    world.lines.nodes[0].send(1, URGENT, 1_000);
    world.live(SECOND, |_| ());
    for node in &mut world.lines.nodes {
        let now = node.now;
        node.engine.block(now, NEAR, true);
    }
    world.live(500 * MS, |_| ());
    assert_eq!(world.needs(), []);
    world.live(SECOND, |_| ());
    assert_eq!(world.needs(), [Need::OthersDown]);
    let took = world.transfer(1, URGENT, 1_000, 5 * SECOND);
    assert!(took.is_some_and(|took| took < 3 * SECOND), "{took:?}");
    world.live(60 * SECOND, |_| ());
    assert_eq!(world.changes.len(), 1);
    for node in &mut world.lines.nodes {
        let now = node.now;
        node.engine.block(now, NEAR, false);
    }
    world.live(30 * SECOND, |_| ());
    assert_eq!(world.changes.len(), 2, "{:?}", world.changes);
}

#[test]
fn an_operator_brings_it_up_and_releases_it() {
    let mut world = World::new(&[]);
    let now = world.lines.now();
    let engine = &mut world.lines.nodes[0].engine;
    assert!(engine.hold_up(now, FAR, Some(true)));
    assert!(!engine.hold_up(now, NEAR, Some(true)));
    world.live(100 * SECOND, |_| ());
    assert_eq!(world.needs(), [Need::Operator]);
    let now = world.lines.now();
    let engine = &mut world.lines.nodes[0].engine;
    assert!(engine.hold_up(now, FAR, Some(false)));
    world
        .transfer(0, BULK, 20_000_000, 30 * SECOND)
        .expect("by the other");
    assert_eq!(world.changes.len(), 2);
}

#[test]
fn one_that_does_not_come_up_holds_nothing_that_may_go_elsewhere() {
    let mut world = World::new(&[]);
    let now = world.lines.now();
    world.lines.nodes[0].engine.hold_up(now, FAR, Some(true));
    world.live(20 * MS, |_| ());
    world.connects_at = None;
    let took = world
        .transfer(0, BULK, 1_000_000, 5 * SECOND)
        .expect("it arrives");
    assert!(took < 1_200 * MS, "{took:?}");
    let now = world.lines.now();
    let engine = &mut world.lines.nodes[0].engine;
    engine.hold_up(now, FAR, None);
    engine.bring_up_failed(now, FAR);
    world.live(SECOND, |_| ());
    let last = world.changes.last().map(|(_, change)| *change);
    assert_eq!(last, Some(PathChange::Release(Released::Failed)));
}

/// Gives the hub another configuration, in which it asks for the far path or does not.
fn reload_hub(world: &mut World, asks: bool) {
    let mut config = two_hops(1, 10);
    config.hops[1].on_demand = asks.then(|| on_demand(false));
    let policy = Policy {
        uses: PathUse::Pinned,
        paths: vec!["hop1".to_owned()],
        ..Policy::default()
    };
    config.policies.insert(BULK, policy);
    let hub = &mut world.lines.nodes[1];
    let now = hub.now;
    let taken = hub.engine.reconfigure(now, config);
    taken.expect("the same classes");
}

#[test]
fn a_hub_asks_for_it_as_its_present_configuration_says() {
    let mut world = World::new(&[(BULK, PathUse::Pinned, &["hop1"])]);
    reload_hub(&mut world, false);
    world.lines.nodes[1].send(10, BULK, 5_000);
    world.live(10 * SECOND, |_| ());
    assert_eq!(world.needs(), []);
    // What waits already is asked for at once.
    reload_hub(&mut world, true);
    world.live(2 * SECOND, |_| ());
    assert_eq!(world.needs(), [Need::Neighbour]);
}

fn ask(peer: u64, payload: &'static [u8]) -> Message {
    Message::new(peer, ON_DEMAND_SERVICE, Class::SIGNALLING, payload.into())
}

/// A node's message is about its own paths only; anything else is ignored.
#[test]
fn only_the_neighbour_may_ask_and_only_for_a_path_to_itself() {
    let say = |payload: &'static [u8], who: usize| {
        let mut world = World::new(&[]);
        world.live(100 * MS, |_| ());
        let node = &mut world.lines.nodes[who];
        let message = ask([1, 10][who], payload);
        let now = node.now;
        node.engine
            .send_message(now, message, SECOND)
            .expect("room");
        world.live(2 * SECOND, |_| ());
        world.needs()
    };
    assert_eq!(say(b"\x01satellite", 1), [Need::Neighbour]);
    for other in [
        &b"\x01lte"[..],
        b"\x02satellite",
        b"\x01",
        b"",
        b"\x01satellite\0",
    ] {
        assert_eq!(say(other, 1), [], "{other:?}");
    }
    // The hub does not dial, so nobody can make it dial.
    assert_eq!(say(b"\x01satellite", 0), []);
    // A node behind the hub speaks only for itself.
    let mut world = World::new(&[]);
    world.live(100 * MS, |_| ());
    let mut behind = config(7, &[1]);
    behind.routes.push(route(10, 1, true));
    let mut behind = Node::new(world.lines.now(), behind);
    behind.up(0, 100);
    let message = ask(10, b"\x01satellite");
    let now = behind.now;
    behind
        .engine
        .send_message(now, message, SECOND)
        .expect("room");
    let terminal = &mut world.lines.nodes[0];
    for (session, transfer) in behind.offers() {
        let _ = terminal.receive(session, transfer.chunks.concat().into());
    }
    world.live(2 * SECOND, |_| ());
    assert_eq!(world.needs(), []);
}
