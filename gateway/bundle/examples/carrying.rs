//! What a bundle costs the processor: seal, offer, receive, signal, release.
//!
//! `cargo run --release -p underpass-bundle --example carrying`

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::wire::{CodePoints, DecodeLimits, decode, ipn};
use underpass_bundle::{Agent, Config, NeighbourId, Offer, Send};
use underpass_cla::{Class, Outcome};

const BULK: Class = Class(3);

fn main() {
    for (bytes, rounds) in [
        (64, 200_000),
        (4 << 10, 100_000),
        (64 << 10, 20_000),
        (1 << 20, 2_000),
    ] {
        measure(bytes, rounds);
    }
}

fn measure(bytes: usize, rounds: u32) {
    let now = Instant::now();
    let mut agents = [1, 2].map(|node| {
        let mut config = Config::new(node, node);
        config.services.insert(64);
        Agent::new(config)
    });
    agents[0].neighbour_up(now, NeighbourId(2));
    agents[1].neighbour_up(now, NeighbourId(1));
    let payload = Bytes::from(vec![0x5A; bytes]);
    let (mut seal, mut receive) = (Duration::ZERO, Duration::ZERO);
    let mut sample = Bytes::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let offer = send(&mut agents[0], now, &payload);
        seal += start.elapsed();
        // The copy stands for the transport and is not measured.
        sample = offer.chunks.concat().into();
        let start = Instant::now();
        agents[1]
            .receive(now, NeighbourId(1), BULK, sample.clone())
            .expect("the receiver has room");
        while agents[1].poll_event().is_some() {}
        agents[1].handle_timeout(now + Duration::from_millis(100));
        if let Some(signal) = agents[1].next_for(now, NeighbourId(1), Class::SIGNALLING, u64::MAX) {
            agents[1].transfer_finished(now, signal.key, Outcome::Acknowledged);
            let raw = signal.chunks.concat().into();
            agents[0]
                .receive(now, NeighbourId(2), Class::SIGNALLING, raw)
                .expect("signals need no room");
        }
        while agents[0].poll_event().is_some() {}
        receive += start.elapsed();
    }
    let start = Instant::now();
    for _ in 0..rounds {
        let decoded = decode(&sample, &DecodeLimits::default(), &CodePoints::default());
        assert_eq!(decoded.expect("sealed just now").payload.len(), bytes);
    }
    let decoding = start.elapsed();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(rounds);
    let rate = |time: Duration| bytes as f64 / (each(time) * 1e3);
    println!(
        "{bytes:>8} B: seal and offer {:.2} µs ({:.1} GB/s), receive, signal and release {:.2} µs \
         ({:.1} GB/s), decode alone {:.2} µs ({:.1} GB/s)",
        each(seal),
        rate(seal),
        each(receive),
        rate(receive),
        each(decoding),
        rate(decoding),
    );
}

fn send(agent: &mut Agent, now: Instant, payload: &Bytes) -> Offer {
    let send = Send::new(ipn(2, 64), 64, BULK, vec![payload.clone()]);
    agent.send(now, send).expect("the sender has room");
    let offer = agent.next_for(now, NeighbourId(2), BULK, u64::MAX);
    let offer = offer.expect("just queued");
    agent.transfer_finished(now, offer.key, Outcome::Acknowledged);
    offer
}
