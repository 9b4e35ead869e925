//! Measures what securing costs the processor, against the same bundles unsecured: seal
//! and offer at the source; decode, verify and accept at the destination.
//!
//! `cargo run --release -p underpass-bpsec --example securing`

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bpsec::integrity::Hash;
use underpass_bpsec::{Guard, Key, Pattern, Rule};
use underpass_bundle::wire::ipn;
use underpass_bundle::{Agent, Config, NeighbourId, Send};
use underpass_cla::{Class, Outcome};

const BULK: Class = Class(3);

fn main() {
    println!(
        "{:>9}  {:<28} {:>10} {:>10}",
        "bytes", "secured", "send, us", "take, us"
    );
    for (bytes, rounds) in [(1 << 10, 50_000), (64 << 10, 5_000), (1 << 20, 500)] {
        for (name, rule) in rules() {
            let (send, take) = measure(rule, bytes, rounds);
            let us = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(rounds);
            println!(
                "{bytes:>9}  {name:<28} {:>10.2} {:>10.2}",
                us(send),
                us(take)
            );
        }
    }
}

fn rules() -> [(&'static str, Option<Rule>); 5] {
    let rule = |hash, integrity: bool, confidentiality: bool| {
        let key = |seed, used: bool| used.then(|| Key::new(vec![seed; 32]));
        Some(Rule {
            source: Pattern::Any,
            destination: Pattern::Any,
            integrity_keys: key(1, integrity).into_iter().collect(),
            hash,
            confidentiality_keys: key(2, confidentiality).into_iter().collect(),
            verify_in_transit: false,
        })
    };
    [
        ("no", None),
        ("HMAC 256", rule(Hash::Sha256, true, false)),
        ("HMAC 384", rule(Hash::Sha384, true, false)),
        ("AES-256-GCM", rule(Hash::Sha384, false, true)),
        ("HMAC 384 and AES-256-GCM", rule(Hash::Sha384, true, true)),
    ]
}

fn measure(rule: Option<Rule>, bytes: usize, rounds: u32) -> (Duration, Duration) {
    let now = Instant::now();
    let mut agents = [1, 2].map(|node| {
        let mut config = Config::new(node, node);
        config.services.insert(64);
        let guard = Guard::new(node, rule.clone().into_iter().collect());
        config.security = Some(Arc::new(guard.expect("an AES key")));
        Agent::new(config)
    });
    agents[0].neighbour_up(now, NeighbourId(2));
    agents[1].neighbour_up(now, NeighbourId(1));
    let payload = Bytes::from(vec![0x5A; bytes]);
    let (mut sent, mut taken) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        let start = Instant::now();
        let send = Send {
            custody: false,
            ..Send::new(ipn(2, 64), 64, BULK, vec![payload.clone()])
        };
        agents[0].send(now, send).expect("there is room");
        let offer = agents[0].next_for(now, NeighbourId(2), BULK, u64::MAX);
        let offer = offer.expect("it waits");
        sent += start.elapsed();
        let raw = Bytes::from(offer.chunks.concat());
        agents[0].transfer_finished(now, offer.key, Outcome::Acknowledged);
        let start = Instant::now();
        agents[1]
            .receive(now, NeighbourId(1), BULK, raw)
            .expect("it is right");
        taken += start.elapsed();
        for agent in &mut agents {
            while agent.poll_event().is_some() {}
        }
    }
    (sent, taken)
}
