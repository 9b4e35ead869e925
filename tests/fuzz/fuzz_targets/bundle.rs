//! A node that receives any bundle: arbitrary bytes, or arbitrary blocks after a primary
//! block with a correct CRC, which random bytes would hardly ever have.
#![no_main]

mod neighbour;

use std::sync::LazyLock;
use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use underpass_bundle::wire::{CodePoints, decode_record};
use underpass_bundle::{Agent, Config};
use underpass_cla::Class;

use crate::neighbour::{CLASS, NODE, PEER, START_OF_BUNDLE};

const LARGEST_BUNDLE: u64 = 1 << 20;

/// The primary block of a bundle that the peer sends to this node.
static PRIMARY: LazyLock<Bytes> = LazyLock::new(|| neighbour::bundle().primary_raw);

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
