//! Input from a GNSS receiver, real or not: NMEA 0183 and gpsd's JSON, whole, in pieces
//! and as datagrams.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use underpass_positions::{Event, Feed, MAX_SPEED_MPS, gpsd, nmea};

fuzz_target!(|data: &[u8]| {
    let now = Instant::now();
    let mut stream = nmea::Stream::new(now, 0);
    check(&stream.datagram(now, data));
    check(&signed(&mut stream, now, data));
    converse(&mut stream, now, data);
    converse(&mut gpsd::Client::new(now, None, 0), now, data);
});

/// A connection that sends pieces, and then nothing until it is given up.
fn converse(feed: &mut impl Feed, now: Instant, data: &[u8]) {
    feed.open(now);
    for piece in data.chunks(7) {
        match feed.receive(now, piece) {
            Ok(events) => check(&events),
            Err(_) => return,
        }
    }
    while feed.poll_transmit().is_some() {}
    for seconds in 1..60 {
        if feed.elapse(now + Duration::from_secs(seconds)).is_err() {
            return;
        }
    }
    panic!("a silent source is never given up");
}

/// The same with correct checksums, so that the fields are parsed.
fn signed(stream: &mut nmea::Stream, now: Instant, data: &[u8]) -> Vec<Event> {
    let mut events = vec![];
    for body in data.split(|byte| *byte == b'\n') {
        let sum = body.iter().fold(0, |sum, byte| sum ^ byte);
        let line = [b"$", body, format!("*{sum:02X}").as_bytes()].concat();
        events.extend(stream.datagram(now, &line));
    }
    events
}

fn check(events: &[Event]) {
    for event in events {
        if let Event::Fix(fix) = event {
            assert!(fix.longitude.abs() <= 180.0 && fix.latitude.abs() <= 90.0);
            assert!(
                fix.speed_mps
                    .is_none_or(|speed| (0.0..=MAX_SPEED_MPS).contains(&speed))
            );
        }
    }
}
