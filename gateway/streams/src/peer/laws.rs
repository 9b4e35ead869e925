//! Laws of two nodes over a channel that repeats, reorders, delays and gives
//! up payloads, while nodes restart and applications do whatever they like.
//!
//! The channel is custody: a sealed payload is in it until it arrives, or until the node restarts
//! without a durable store and it is lost. SETTLED leaves it after all other payloads of its
//! sender.

mod hostile;
mod world;

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;
use underpass_cla::Class;

use super::{Epoch, Peer};
use crate::mux::{Config, Windows, lane};
use crate::wire::StreamId;
use world::World;

/// A stream at one node.
type Key = (Epoch, StreamId);

const CONFIG: Config = Config {
    windows: Windows {
        stream_window_bytes: 200_000,
        peer_window_bytes: 300_000,
    },
    floor_bytes: 65_536,
    send_buffer_bytes: 100_000,
    send_buffer_total_bytes: 150_000,
    max_streams: 10,
    quantum_bytes: 10_000,
    many_payloads: 1,
    control_class: Class(0),
    bundle_lifetime: Duration::from_secs(1_000_000),
};

/// The queues of three classes, and two lanes of one.
const QUEUES: u8 = 5;

fn queue(number: u8) -> Class {
    match number {
        0..3 => Class(number),
        _ => lane(Class(1), usize::from(number - 3)).expect("a lane"),
    }
}

/// What happens next; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Open(usize, u8),
    Write(usize, usize, usize),
    Read(usize, usize, usize),
    Finish(usize, usize),
    Reset(usize, usize),
    Stop(usize, usize),
    SetClass(usize, usize, u8),
    BeginFlow(usize, usize, u8, u64),
    SetWindows(usize, u64),
    Seal(usize, u8, usize),
    SealAhead(usize, usize, usize),
    Deliver(usize, bool),
    Expire(usize, bool),
    Restart(usize, bool),
    Upgrade(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0usize..2;
    let which = 0usize..1000;
    let class = 0u8..3;
    prop_oneof![
        6 => (node.clone(), class.clone()).prop_map(|(n, c)| Step::Open(n, c)),
        10 => (node.clone(), which.clone(), 1usize..60_000).prop_map(|(n, s, l)| Step::Write(n, s, l)),
        10 => (node.clone(), which.clone(), 1usize..500).prop_map(|(n, s, l)| Step::Write(n, s, l)),
        20 => (node.clone(), which.clone(), 1usize..100_000).prop_map(|(n, s, l)| Step::Read(n, s, l)),
        5 => (node.clone(), which.clone()).prop_map(|(n, s)| Step::Finish(n, s)),
        1 => (node.clone(), which.clone()).prop_map(|(n, s)| Step::Reset(n, s)),
        1 => (node.clone(), which.clone()).prop_map(|(n, s)| Step::Stop(n, s)),
        2 => (node.clone(), which.clone(), class.clone()).prop_map(|(n, s, c)| Step::SetClass(n, s, c)),
        4 => (node.clone(), which.clone(), 0u8..QUEUES, any::<u64>())
            .prop_map(|(n, s, q, b)| Step::BeginFlow(n, s, q, b >> (b % 64))),
        1 => (node.clone(), 0u64..400_000).prop_map(|(n, w)| Step::SetWindows(n, w)),
        30 => (node.clone(), 0u8..QUEUES, 500usize..70_000).prop_map(|(n, c, m)| Step::Seal(n, c, m)),
        5 => (node.clone(), which.clone(), 1100usize..40_000).prop_map(|(n, s, m)| Step::SealAhead(n, s, m)),
        30 => (which.clone(), any::<bool>()).prop_map(|(p, twice)| Step::Deliver(p, twice)),
        1 => (which, any::<bool>()).prop_map(|(p, too)| Step::Expire(p, too)),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, durable)| Step::Restart(n, durable)),
        3 => node.prop_map(Step::Upgrade),
    ]
}

impl Peer {
    fn check(&mut self) {
        self.forget_empty_runs();
        self.current.check();
        for (incarnation, former) in &self.former_runs {
            former.mux.check();
            assert!(Some(*incarnation) < self.peer_incarnation());
        }
    }

    /// Streams of which nothing is sealed.
    fn unheard(&self) -> HashSet<Key> {
        let unheard = self.current.unheard();
        unheard.map(|id| (self.epoch_of(id), id)).collect()
    }
}

proptest! {
    #[test]
    fn what_arrives_is_a_prefix_and_all_comes_to_rest(
        steps in prop::collection::vec(step(), 1..200),
        seed in any::<usize>(),
        neighbours in any::<bool>(),
    ) {
        let mut world = World::new(neighbours);
        for step in steps {
            world.run(step);
        }
        world.drain(seed);
        for node in 0..2 {
            prop_assert!(world.ends[node].is_empty(), "{:?}", world.ends);
            let peer = &mut world.nodes[node];
            prop_assert_eq!(peer.streams().count(), 0);
            peer.check();
            prop_assert_eq!(peer.former_runs.len(), 0, "every former run is settled");
        }
        // Streams that ended in order at both ends are complete.
        for (node, end) in &world.past {
            for (other, there) in &world.past {
                if other != node && there.key == end.key && !end.reset && !there.reset {
                    prop_assert!(end.read == there.written || end.stopped || there.stopped);
                }
            }
        }
    }
}
