//! The agent sends the bytes of the examples in `docs/custody.md`.

use std::time::Duration;

use crate::net::{BULK, Net, SERVICE};
use bytes::Bytes;
use underpass_bundle::{Agent, Config, NeighbourId};
use underpass_cla::{Class, Outcome};

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(" ")
}

fn documented(what: &str, bytes: &[u8]) {
    let page = include_str!("../../../../docs/custody.md");
    let words: Vec<&str> = page.split_whitespace().collect();
    let page = words.join(" ");
    let bytes = hex(bytes);
    assert!(page.contains(&bytes), "{what} is not in the page: {bytes}");
}

#[test]
fn the_examples_are_what_is_sent() {
    let agents = [1, 2].map(|node| {
        let mut config = Config::new(node, 0xA1B2_C3D4);
        config.services.insert(SERVICE);
        Agent::new(config)
    });
    let mut net = Net::new(agents.into());
    for agent in &mut net.agents {
        agent.set_clock(net.now, 848_523_100_000);
    }
    for _ in 0..3 {
        net.send(0, 2, b"hello").unwrap();
        let offer = net.offer(0, 2).unwrap();
        let raw: Bytes = offer.chunks.concat().into();
        net.agents[1]
            .receive(net.now, NeighbourId(1), BULK, raw.clone())
            .unwrap();
        if offer.key == 0 {
            documented("a bundle under custody", &raw);
        }
        net.finish(0, &offer, Outcome::Acknowledged);
    }
    net.pass(Duration::from_millis(100));
    let now = net.now;
    let signal = net.agents[1].next_for(now, NeighbourId(1), Class::SIGNALLING, u64::MAX);
    documented("a signal's record", &signal.unwrap().chunks[1]);
    let last = underpass_bundle::Send {
        last: true,
        ..underpass_bundle::Send::new(
            underpass_bundle::wire::ipn(2, SERVICE),
            SERVICE,
            BULK,
            vec![Bytes::from_static(b"last")],
        )
    };
    let settled = net.agents[1].next_for(now, NeighbourId(1), Class::SIGNALLING, u64::MAX);
    assert!(settled.is_none());
    for stored in net.agents[0].list(now, None, 10) {
        net.agents[0].cancel(now, stored.id);
    }
    net.agents[0].send(now, last).unwrap();
    let header = &net.offer(0, 2).unwrap().chunks[0];
    let at = header
        .windows(3)
        .position(|three| three == [0x85, 0x18, 0xD5]);
    let at = at.expect("an order block");
    documented("the order block", &header[at..at + 8]);
}
