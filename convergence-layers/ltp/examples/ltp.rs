//! How much one core carries: two engines without sockets, in virtual time,
//! with a round trip of 600 ms and 1 % loss.
//!
//! `cargo run --release -p underpass-ltp --example ltp [BYTES] [BLOCK_BYTES]`
//! prints one line of JSON: `processor_bps` is the bits of blocks through both
//! engines per second of processor time of this one thread, `line_share` the
//! part of the simulated line that they fill.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_ltp::{Config, Event, Span};

const ONE_WAY: Duration = Duration::from_millis(300);
const LOSS: f64 = 0.01;
/// The simulated line.
const LINE_BPS: u64 = 1_000_000_000;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse());
    let mut number = |default: u64| numbers.next().map_or(Ok(default), |number| number);
    let (Ok(bytes), Ok(block_bytes)) = (number(2_000_000_000), number(1 << 20)) else {
        eprintln!("usage: ltp [BYTES] [BLOCK_BYTES]");
        std::process::exit(2);
    };
    let block = Bytes::from(vec![0x5a; block_bytes as usize]);
    let start = Instant::now();
    let config = |local, remote| {
        let mut config = Config::new(local, remote, local);
        config.receive_bytes = 512 << 20;
        config.block_bytes = block_bytes;
        config
    };
    let mut sender = Span::new(config(1, 2), start);
    let mut receiver = Span::new(config(2, 1), start);
    let mut random = fastrand::Rng::with_seed(1);
    let mut forward: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut back: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let blocks = bytes.div_ceil(block_bytes);
    let (mut begun, mut received, mut sent) = (0, 0, 0);
    let (mut now, mut free) = (start, start);
    while sent < blocks {
        while begun < blocks && sender.unsent_bytes() < 2 * block_bytes {
            if sender.send(begun, 1, vec![block.clone()], None).is_err() {
                break;
            }
            begun += 1;
        }
        sender.handle_timeout(now);
        receiver.handle_timeout(now);
        while free <= now {
            let mut segment = spare.pop().unwrap_or_default();
            segment.clear();
            if !sender.poll_transmit(now, &mut segment) {
                break;
            }
            let line = Duration::from_nanos(segment.len() as u64 * 8_000_000_000 / LINE_BPS);
            free = free.max(now) + line;
            if random.f64() >= LOSS {
                forward.push_back((now + ONE_WAY, segment));
            }
        }
        let mut segment = Vec::new();
        while receiver.poll_transmit(now, &mut segment) {
            if random.f64() >= LOSS {
                back.push_back((now + ONE_WAY, std::mem::take(&mut segment)));
            }
            segment.clear();
        }
        let fronts = [forward.front(), back.front()];
        let arrivals = fronts.into_iter().flatten().map(|(at, _)| *at);
        let timeouts = [sender.poll_timeout(), receiver.poll_timeout()];
        let line = sender.has_output().then_some(free);
        let next = arrivals.chain(timeouts.into_iter().flatten()).chain(line);
        now = next.min().map_or(now, |next| next.max(now));
        while forward.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, datagram)) = forward.pop_front() {
                receiver.handle_input(now, &datagram);
                spare.push(datagram);
            }
        }
        while back.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, datagram)) = back.pop_front() {
                sender.handle_input(now, &datagram);
            }
        }
        while let Some(event) = receiver.poll_event() {
            if let Event::Received { session, block, .. } = event {
                received += block.len() as u64;
                receiver.answer(now, session, Ok(()));
            }
        }
        while let Some(event) = sender.poll_event() {
            sent += u64::from(matches!(event, Event::Sent { .. }));
        }
    }
    assert_eq!(received, blocks * block_bytes, "each block arrives once");
    let (busy, simulated) = (start.elapsed().as_secs_f64(), (now - start).as_secs_f64());
    let bits = received as f64 * 8.0;
    let figures = sender.figures();
    println!(
        "{{\"bytes\": {received}, \"block_bytes\": {block_bytes}, \"processor_bps\": {:.0}, \
         \"simulated_s\": {simulated:.3}, \"line_share\": {:.4}, \"resent_bytes\": {}, \"segments\": {}}}",
        bits / busy,
        bits / simulated / LINE_BPS as f64,
        figures.resent_bytes,
        figures.sent_segments,
    );
}
