//! Blocks to and from an independent engine, the crate `licklider-core`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use licklider_core::{
    Config as TheirConfig, Engine, EngineId, Input, Notice, Output, PeerConfig, Timestamp,
    TransmissionRequest,
};
use underpass_ltp::{Config, Event, Span};

use crate::world::block;

const ONE_WAY: u64 = 300_000;

/// Runs both, with one segment in flight per millisecond in each direction; times in
/// microseconds.
struct Pair {
    start: Instant,
    now: u64,
    ours: Span,
    theirs: Engine,
    random: fastrand::Rng,
    loss: f64,
    to_us: VecDeque<(u64, Vec<u8>)>,
    to_them: VecDeque<(u64, Vec<u8>)>,
    received: [Vec<Bytes>; 2],
    sent: [usize; 2],
}

impl Pair {
    fn new(seed: u64, loss: f64) -> Pair {
        let start = Instant::now();
        let mut theirs = Engine::new(TheirConfig::new(EngineId(2), seed)).expect("a configuration");
        let mut peer = PeerConfig::new(EngineId(1));
        peer.owlt_out = licklider_core::Duration::from_micros(ONE_WAY);
        peer.owlt_in = licklider_core::Duration::from_micros(ONE_WAY);
        theirs.add_peer(peer).expect("the only peer");
        theirs.register_client_service(1);
        Pair {
            start,
            now: 0,
            ours: Span::new(Config::new(1, 2, seed), start),
            theirs,
            random: fastrand::Rng::with_seed(seed),
            loss,
            to_us: VecDeque::new(),
            to_them: VecDeque::new(),
            received: [Vec::new(), Vec::new()],
            sent: [0, 0],
        }
    }

    fn step(&mut self) {
        let now = self.start + Duration::from_micros(self.now);
        let their_now = Timestamp::from_micros(self.now);
        while self.to_us.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, datagram) = self.to_us.pop_front().expect("it is there");
            self.ours.handle_input(now, &datagram);
        }
        while self.to_them.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, datagram) = self.to_them.pop_front().expect("it is there");
            let input = Input::Segment {
                peer: EngineId(1),
                data: &datagram,
            };
            self.theirs.handle_input(their_now, input);
        }
        self.ours.handle_timeout(now);
        self.theirs.handle_timeout(their_now);
        while let Some(event) = self.ours.poll_event() {
            match event {
                Event::Received { session, block, .. } => {
                    self.received[0].push(block);
                    self.ours.answer(now, session, Ok(()));
                }
                Event::Sent { .. } => self.sent[0] += 1,
                Event::Progress { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let mut segment = Vec::new();
        if self.ours.poll_transmit(now, &mut segment) && self.random.f64() >= self.loss {
            self.to_them.push_back((self.now + ONE_WAY, segment));
        }
        while let Some(output) = self.theirs.poll_output(their_now) {
            match output {
                Output::Transmit { segment, .. } => {
                    if self.random.f64() >= self.loss {
                        self.to_us.push_back((self.now + ONE_WAY, segment));
                    }
                    break;
                }
                Output::Notice(Notice::RedPartReceived { data, .. }) => {
                    self.received[1].push(data.into());
                }
                Output::Notice(Notice::TransmissionSessionCompleted { .. }) => self.sent[1] += 1,
                Output::Notice(_) => {}
            }
        }
        self.now += 1_000;
    }
}

#[test]
fn blocks_go_both_ways_whatever_is_lost() {
    for (seed, loss) in [(1, 0.0), (2, 0.01), (3, 0.1), (4, 0.2), (5, 0.2)] {
        let mut pair = Pair::new(seed, loss);
        let blocks: Vec<_> = (0..8)
            .map(|key| block(key, 1 + 20_000 * key as usize))
            .collect();
        for (key, block) in (0..).zip(&blocks) {
            let sent = pair.ours.send(key, 1, vec![block.clone()], None);
            sent.expect("it is sent");
            let request = TransmissionRequest {
                destination: EngineId(1),
                client_service: 1,
                data: block.clone(),
                red_len: block.len() as u64,
            };
            let sent = pair
                .theirs
                .request_transmission(Timestamp::from_micros(0), request);
            sent.expect("it is sent");
        }
        while pair.sent != [8, 8] && pair.now < 600_000_000 {
            pair.step();
        }
        assert_eq!(pair.sent, [8, 8], "seed {seed}");
        for mut received in pair.received {
            received.sort_by_key(Bytes::len);
            assert!(received == blocks, "seed {seed}");
        }
    }
}
