//! The cost of a message does not depend on how many neighbours and streams a node has.
//! The test counts steps, see `underpass_work`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::MemoryStore;
use underpass_cla::{Outcome, SessionId};
use underpass_engine::{HopId, Sign, StreamKey};
use underpass_streams::{Event, ResetCode};
use underpass_work::{assert_bounded, of};

use crate::bench::{BULK, Node, Offered, URGENT, config, live};
use crate::durable::Durable;
use crate::reading_on::{block, next_run, pair_on, sources, write_on};

const MS: Duration = Duration::from_millis(1);
/// The hop of the neighbour whose messages are counted: neither the first nor
/// the last.
const HOP: u64 = 5;
/// Its node number.
const ONE: u64 = 10 + HOP;
const STREAMS_OF_EACH: usize = 10;

/// A hub, and one of its terminals.
struct World {
    hub: Node,
    one: Node,
    /// Streams from the hub to that terminal.
    keys: Vec<StreamKey>,
}

impl World {
    fn new(neighbours: u64) -> World {
        let now = Instant::now();
        let numbers: Vec<u64> = (0..neighbours).map(|number| 10 + number).collect();
        let mut hub = config(1, &numbers);
        hub.hold = Duration::from_secs(60);
        hub.max_streams = 5_000;
        hub.agent.store_bytes = 1 << 30;
        let store = Box::new(Durable(MemoryStore::default(), Arc::default()));
        let hub = Node::with_store(now, hub, store);
        let mut one = config(ONE, &[1]);
        one.hops[0].id = HopId(HOP);
        let one = Node::new(now, one);
        let keys = Vec::new();
        let mut world = World { hub, one, keys };
        for hop in 0..neighbours {
            world.hub.up(hop, 10 * hop);
        }
        world.one.up(HOP, 10 * HOP);
        for number in numbers {
            for _ in 0..STREAMS_OF_EACH {
                let key = world.hub.send(number, BULK, 100);
                if number == ONE {
                    world.keys.push(key);
                }
            }
        }
        // Bundles to the other terminals are not acknowledged, and are sent again after 3
        // s.
        world.live(500 * MS);
        world
    }

    /// 10 neighbours with 100 streams, and 1,000 with 10,000.
    fn small_and_large() -> [World; 2] {
        [World::new(10), World::new(1_000)]
    }

    /// What the hub offers the terminal; nothing reaches the other terminals, and their
    /// sessions stay ready.
    fn offers(&mut self) -> Vec<Offered> {
        let offers = self.hub.offers();
        let to_one = |offered: &Offered| offered.0.0 / 10 == HOP;
        let (to_one, others): (Vec<_>, Vec<_>) = offers.into_iter().partition(to_one);
        for (session, transfer) in others {
            self.hub.finish(transfer.key, Outcome::Acknowledged);
            self.hub.ready(session);
        }
        to_one
    }

    fn exchange(&mut self) {
        loop {
            let (there, back) = (self.offers(), self.one.offers());
            if there.is_empty() && back.is_empty() {
                return;
            }
            for offered in there {
                self.hub.carry(offered, &mut self.one);
            }
            for offered in back {
                self.one.carry(offered, &mut self.hub);
            }
        }
    }

    fn live(&mut self, time: Duration) {
        let end = self.hub.now + time;
        while self.hub.now < end {
            self.exchange();
            let at = self.hub.now + 10 * MS;
            self.hub.pass(at);
            self.one.pass(at);
        }
        self.exchange();
    }

    /// The terminal's next bundle, as the hub receives it.
    fn bundle_of_one(&mut self) -> (SessionId, Bytes) {
        let at = self.one.now + 500 * MS;
        self.one.pass(at);
        let (session, transfer) = self.one.offers().remove(0);
        self.one.finish(transfer.key, Outcome::Acknowledged);
        self.one.ready(session);
        (session, transfer.chunks.concat().into())
    }
}

/// Asserts that `call` costs about the same in both worlds; the cost of `make`, which
/// prepares its input, is not counted.
fn bounded<T>(what: &str, make: impl Fn(&mut World) -> T, call: impl Fn(&mut World, T)) {
    let [few, many] = World::small_and_large().map(|mut world| {
        let made = make(&mut world);
        of(|| call(&mut world, made))
    });
    assert_bounded(what, few, many);
}

#[test]
fn bundles_of_streams() {
    bounded(
        "a bundle that opens a stream",
        |world| {
            world.one.send(1, BULK, 3_000);
            world.bundle_of_one()
        },
        |world, (session, raw)| {
            let taken = world.hub.receive(session, raw);
            assert_eq!(taken, Ok(()));
            assert!(world.hub.has(|event| matches!(event, Event::Opened { .. })));
        },
    );
    bounded(
        "bytes on a stream",
        |world| world.keys[3],
        |world, key| {
            world.hub.write(key, 3_000);
            assert_eq!(world.hub.offers().len(), 1);
        },
    );
    bounded(
        "the end of a transfer, a custody signal, and time",
        |world| {
            let key = world.keys[3];
            world.hub.write(key, 3_000);
            let offered = world.offers().remove(0);
            world.hub.carry(offered, &mut world.one);
            world.bundle_of_one()
        },
        |world, (session, raw)| {
            let taken = world.hub.receive(session, raw);
            assert_eq!(taken, Ok(()));
            world.hub.engine.handle_timeout(world.hub.now);
        },
    );
}

#[test]
fn sessions_and_links() {
    let ids = |world: &mut World| {
        let hop = world.hub.engine.hop_named(&format!("hop{HOP}"));
        assert_eq!(hop, Some(HopId(HOP)));
        HopId(HOP)
    };
    bounded("a sign of the peer", ids, |world, hop| {
        let now = world.hub.now;
        world.hub.engine.heard(now, hop, now, Sign::Beacon);
    });
    bounded("a link that is blocked and free", ids, |world, hop| {
        world.hub.engine.block(world.hub.now, hop, true);
        world
            .hub
            .engine
            .heard(world.hub.now, hop, world.hub.now, Sign::Beacon);
        world.hub.engine.block(world.hub.now, hop, false);
    });
    bounded("a session that goes and comes", ids, |world, hop| {
        assert_eq!(world.hub.engine.hop_of(ONE, "hop5"), Some(hop));
        assert_eq!(world.hub.engine.hop_of(ONE, "listener"), Some(hop));
        for class in 0..3 {
            let id = SessionId(10 * HOP + class);
            world.hub.engine.session_down(world.hub.now, id);
        }
        world.hub.up(HOP, 10 * HOP + 5);
    });
    bounded("a rate", ids, |world, hop| {
        let now = world.hub.now;
        world
            .hub
            .engine
            .set_receive_rate(now, hop, Some(100_000_000));
        world.hub.engine.set_rate(now, hop, Some(1_000_000));
        world.hub.engine.subtract(now, hop, 1_000);
    });
}

#[test]
fn a_blocked_link_and_time() {
    let block = |world: &mut World| {
        world.hub.engine.block(world.hub.now, HopId(HOP), true);
        let key = world.keys[2];
        world.hub.write(key, 3_000);
    };
    bounded("reading on", block, |world, ()| {
        world.hub.pass(world.hub.now + 1_100 * MS);
        assert!(world.hub.engine.custody(world.hub.now).bundles > 0);
    });
    bounded(
        "streams held too long",
        |world| {
            block(world);
            world.hub.pass(world.hub.now + 59_000 * MS);
        },
        |world, ()| {
            world.hub.engine.handle_timeout(world.hub.now + 1_000 * MS);
            let reset = ResetCode::TimedOut;
            assert!(
                world
                    .hub
                    .has(|event| matches!(event, Event::Reset { code, .. } if *code == reset))
            );
        },
    );
}

#[test]
fn connections_held_too_long_end_at_their_time_and_no_other_is_looked_at() {
    // The streams begin one after the other while the link is blocked.
    let steps = |streams: u64| {
        let mut world = World::new(10);
        let began = world.hub.now;
        world.hub.engine.block(began, HopId(HOP), true);
        for _ in 0..streams {
            world.hub.open(ONE, URGENT);
            world.hub.now += 60_000 * MS / streams as u32;
        }
        world.hub.engine.handle_timeout(began + 60_000 * MS);
        let resets = |world: &mut World| {
            world.hub.has(|_| false);
            let ended = |(_, event): &&(u64, Event)| matches!(event, Event::Reset { .. });
            world.hub.events.iter().filter(ended).count()
        };
        assert_eq!(resets(&mut world), STREAMS_OF_EACH + 1);
        let mut most = 0;
        let end = began + 120_000 * MS;
        while let Some(at) = world.hub.engine.next_timeout().filter(|at| *at < end) {
            let steps = of(|| world.hub.engine.handle_timeout(at));
            world.hub.now = at;
            most = most.max(steps);
        }
        assert_eq!(resets(&mut world), STREAMS_OF_EACH + streams as usize);
        most
    };
    assert_bounded("the end of a connection", steps(50), steps(2_000));
}

#[test]
fn what_operators_ask() {
    bounded(
        "the sessions of a hop",
        |_| (),
        |world, ()| assert_eq!(world.hub.engine.sessions_of(HopId(HOP)).len(), 3),
    );
    bounded(
        "one hop",
        |_| (),
        |world, ()| {
            let hop = world.hub.engine.hop(HopId(HOP)).unwrap();
            assert_eq!((hop.neighbour, hop.sessions.len()), (ONE, 3));
        },
    );
    bounded(
        "the demand on a hop",
        |_| (),
        |world, ()| {
            let demand = world.hub.engine.demand(HopId(HOP));
            assert_eq!(demand.streams as usize, STREAMS_OF_EACH);
        },
    );
    bounded(
        "the largest streams with a node",
        |_| (),
        |world, ()| {
            let (open, largest) = world.hub.engine.largest_streams(ONE, 5);
            assert_eq!((open, largest.len()), (STREAMS_OF_EACH, 5));
            let paths = world.hub.engine.paths_to(world.hub.now, ONE, BULK);
            assert_eq!(paths.len(), 1);
        },
    );
    bounded(
        "custody",
        |_| (),
        |world, ()| {
            world.hub.engine.custody(world.hub.now);
            world.hub.engine.stored_bundles(world.hub.now, 10);
        },
    );
}

#[test]
fn a_delivery_beside_what_a_former_run_has_left() {
    let steps = |streams: usize| {
        let disk = Arc::default();
        let (mut terminal, mut hub) = pair_on(&disk, |config| config.max_streams = 1_000);
        let mut sources = sources(&mut terminal, streams);
        for source in &mut sources {
            source.write(&mut terminal, 1_000);
        }
        live(&mut terminal, &mut hub, 1_000 * MS);
        block(&mut terminal, true);
        write_on(&mut terminal, &mut sources, 3_000 * MS);
        let mut next = next_run(&terminal, &mut hub, disk);
        // The hub is asked for credit, and answers how much may leave: nobody reads
        // there.
        live(&mut next, &mut hub, 5_000 * MS);
        let left = next.engine.custody(next.now).bundles;
        assert!(left >= streams, "{left} bundles of {streams} streams");
        hub.send(10, URGENT, 1_000);
        let (session, transfer) = hub.offers().remove(0);
        let raw = Bytes::from(transfer.chunks.concat());
        of(|| assert_eq!(next.receive(session, raw), Ok(())))
    };
    assert_bounded("a delivery", steps(5), steps(80));
}
