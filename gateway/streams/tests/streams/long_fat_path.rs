//! A bulk download at 140 Mbit/s and 600 ms in virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::pair::{CLASS, CONTROL, Pair, events, joined, open, sealed};
use bytes::Bytes;
use underpass_cla::Class;
use underpass_streams::{Config, Event, StreamId, Windows};

const RATE_BPS: u64 = 140_000_000;
const ONE_WAY: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(10);

struct Outcome {
    bytes: u64,
    idle_ticks: usize,
    credits: u64,
}

/// `streams` downloads for `seconds` on a warm path; readers read at once.
fn download(streams: usize, seconds: u64) -> Outcome {
    let config = Config {
        windows: Windows::of_path(RATE_BPS, 2 * ONE_WAY),
        ..Config::default()
    };
    let mut pair = Pair::acquainted(config);
    let ids: Vec<StreamId> = (0..streams)
        .map(|_| pair.terminal.open(pair.now, open()).unwrap().1)
        .collect();
    pair.exchange();
    events(&mut pair.hub);

    let per_tick = (RATE_BPS / 8 * TICK.as_millis() as u64 / 1000) as usize;
    let piece = Bytes::from(vec![0; 64 * 1024]);
    let mut down: VecDeque<(Duration, Class, Bytes)> = VecDeque::new();
    let mut up = down.clone();
    let (mut bytes, mut idle_ticks, mut time) = (0, 0, Duration::ZERO);
    while time < Duration::from_secs(seconds) {
        time += TICK;
        while up.front().is_some_and(|(at, ..)| *at <= time) {
            let (_, class, payload) = up.pop_front().unwrap();
            pair.hub.handle_payload(pair.now, class, payload).unwrap();
        }
        while pair.hub.poll_event().is_some() {}
        for id in &ids {
            loop {
                let capacity = pair.hub.current().send_capacity(*id).min(piece.len());
                if capacity == 0 {
                    break;
                }
                pair.hub
                    .current()
                    .write(*id, piece.slice(..capacity))
                    .unwrap();
            }
        }
        match sealed(&mut pair.hub, CLASS, per_tick) {
            Some(chunks) => down.push_back((time + ONE_WAY, CLASS, joined(chunks))),
            None => idle_ticks += 1,
        }
        while down.front().is_some_and(|(at, ..)| *at <= time) {
            let (_, class, payload) = down.pop_front().unwrap();
            pair.terminal
                .handle_payload(pair.now, class, payload)
                .unwrap();
        }
        while let Some((_, event)) = pair.terminal.poll_event() {
            if let Event::Readable(id) = event {
                while let Some(data) = pair.terminal.current().read(id, usize::MAX) {
                    bytes += data.len() as u64;
                }
            }
        }
        while let Some(chunks) = sealed(&mut pair.terminal, CONTROL, 4096) {
            up.push_back((time + ONE_WAY, CONTROL, joined(chunks)));
        }
    }
    Outcome {
        bytes,
        idle_ticks,
        credits: pair.terminal.counters().credits_sent,
    }
}

#[test]
fn one_bulk_stream_never_waits_for_credit_and_needs_few_credits() {
    let outcome = download(1, 20);
    assert_eq!(outcome.idle_ticks, 0);
    let line = RATE_BPS / 8 * 197 / 10;
    assert!(outcome.bytes > line * 999 / 1000, "{}", outcome.bytes);
    assert!(outcome.credits <= 10 * 20, "{} credits", outcome.credits);
}

#[test]
fn many_bulk_streams_fill_the_path_too() {
    let outcome = download(100, 20);
    assert_eq!(outcome.idle_ticks, 0);
    assert!(outcome.credits <= 500 * 20, "{} credits", outcome.credits);
}
