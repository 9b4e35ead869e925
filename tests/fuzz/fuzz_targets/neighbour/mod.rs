//! The node that the fuzzer sends bundles to, and the neighbour that it plays.

use std::time::Instant;

use bytes::Bytes;
use underpass_bundle::wire::{Bundle, CodePoints, DecodeLimits, decode, ipn};
use underpass_bundle::{Agent, Config, NeighbourId, Route, Send};
use underpass_cla::Class;

pub const NODE: u64 = 1;
pub const PEER: NeighbourId = NeighbourId(2);
pub const CLASS: Class = Class(2);
pub const START_OF_BUNDLE: u8 = 0x9F;

/// A bundle that the peer sends to the node.
pub fn bundle() -> Bundle {
    let mut config = Config::new(PEER.0, 1);
    config.routes = vec![Route {
        nodes: NODE..=NODE,
        neighbour: NeighbourId(NODE),
        take_custody: true,
    }];
    let mut agent = Agent::new(config);
    let now = Instant::now();
    agent.neighbour_up(now, NeighbourId(NODE));
    let send = Send::new(
        ipn(NODE, 100),
        100,
        CLASS,
        vec![Bytes::from_static(b"payload")],
    );
    agent.send(now, send).expect("a route and room are there");
    let offer = agent
        .next_for(now, NeighbourId(NODE), CLASS, u64::MAX)
        .expect("the bundle waits");
    let raw: Vec<u8> = offer.chunks.iter().flatten().copied().collect();
    let limits = DecodeLimits::default();
    decode(&raw.into(), &limits, &CodePoints::default()).expect("our own bundle")
}
