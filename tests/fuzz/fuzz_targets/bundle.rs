//! A node that receives any bundle: whole, or any blocks after a primary block
//! whose CRC is right, which chance would hardly find.
#![no_main]

use std::sync::LazyLock;
use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use underpass_bundle::wire::{CodePoints, DecodeLimits, decode, decode_record, ipn};
use underpass_bundle::{Agent, Config, NeighbourId, Route, Send};
use underpass_cla::Class;

const NODE: u64 = 1;
const PEER: NeighbourId = NeighbourId(2);
const CLASS: Class = Class(2);
const START_OF_BUNDLE: u8 = 0x9F;
const LARGEST_BUNDLE: u64 = 1 << 20;

/// The primary block of a bundle that the peer sends to this node.
static PRIMARY: LazyLock<Bytes> = LazyLock::new(|| {
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
        .next_for(now, NeighbourId(NODE), CLASS, LARGEST_BUNDLE)
        .expect("the bundle waits");
    let raw: Vec<u8> = offer.chunks.iter().flatten().copied().collect();
    let limits = DecodeLimits::default();
    let bundle = decode(&raw.into(), &limits, &CodePoints::default()).expect("our own bundle");
    bundle.primary_raw
});

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let raw = match choice % 3 {
        0 => Bytes::copy_from_slice(data),
        1 => [&[START_OF_BUNDLE], PRIMARY.as_ref(), data].concat().into(),
        _ => {
            let _ = decode_record(data, &CodePoints::default());
            return;
        }
    };
    let mut config = Config::new(NODE, 1);
    config.services.insert(100);
    let mut agent = Agent::new(config);
    let now = Instant::now();
    agent.neighbour_up(now, PEER);
    let _ = agent.receive(now, PEER, CLASS, raw);
    while agent.poll_event().is_some() {}
    for class in [Class::SIGNALLING, CLASS] {
        while agent.next_for(now, PEER, class, LARGEST_BUNDLE).is_some() {}
    }
    assert!(agent.custody(now).used_bytes <= LARGEST_BUNDLE * 2);
});
