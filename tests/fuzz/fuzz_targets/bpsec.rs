//! Security blocks, and a node that takes nothing from its neighbour but what is
//! authenticated and encrypted, while the fuzzer has no key.
#![no_main]

mod neighbour;

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use underpass_bpsec::integrity::Hash;
use underpass_bpsec::{Guard, Key, Pattern, Rule, SecurityBlock, canonical};
use underpass_bundle::wire::{CrcKind, encode_primary};
use underpass_bundle::{Agent, Config, Event};

use crate::neighbour::{CLASS, NODE, PEER, START_OF_BUNDLE};

/// Without a CRC, as the primary block of an authenticated bundle has none.
static PRIMARY: LazyLock<Bytes> = LazyLock::new(|| {
    let bundle = neighbour::bundle();
    encode_primary(&bundle.primary, CrcKind::None)
});

fn rule() -> Rule {
    Rule {
        source: Pattern::Any,
        destination: Pattern::Any,
        integrity_keys: vec![Key::new(vec![1; 32])],
        hash: Hash::Sha256,
        confidentiality_keys: vec![Key::new(vec![2; 32])],
        verify_in_transit: true,
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let raw: Bytes = match choice % 3 {
        0 => {
            let _ = canonical(data);
            if let Ok(block) = SecurityBlock::parse(data) {
                let again = SecurityBlock::parse(&block.encode()).expect("what was written");
                assert_eq!(again.targets, block.targets);
            }
            return;
        }
        1 => [&[START_OF_BUNDLE], PRIMARY.as_ref(), data].concat().into(),
        _ => Bytes::copy_from_slice(data),
    };
    let guard = Guard::new(NODE, vec![rule()]).expect("an AES key");
    let mut config = Config::new(NODE, 1);
    config.services.insert(100);
    config.security = Some(Arc::new(guard));
    let mut agent = Agent::new(config);
    let now = Instant::now();
    agent.neighbour_up(now, PEER);
    let _ = agent.receive(now, PEER, CLASS, raw);
    while let Some(event) = agent.poll_event() {
        assert!(!matches!(event, Event::Deliver(_)), "forged: {event:?}");
    }
});
