//! An LTP engine with blocks in progress, and a peer that sends arbitrary bytes, segments
//! of existing sessions, or nothing for a while.
#![no_main]

use std::time::{Duration, Instant};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use underpass_ltp::segment::Segment;
use underpass_ltp::{BUNDLE_PROTOCOL, Config, Event, Reason, SessionId, Span, sdnv};

const OWN: u64 = 1;
const PEER: u64 = 2;
const LARGEST_BLOCK: u64 = 64 << 10;
const MEMORY: usize = 4 * LARGEST_BLOCK as usize;
const SESSIONS: usize = 16;
/// The most segments that leave before more input is handled.
const SEGMENTS_AT_ONCE: usize = 256;

fuzz_target!(|data: &[u8]| {
    let mut now = Instant::now();
    let config = Config {
        sent_sessions: SESSIONS,
        received_sessions: SESSIONS,
        block_bytes: LARGEST_BLOCK,
        receive_bytes: MEMORY,
        in_memory_bytes: LARGEST_BLOCK as usize / 4,
        ..Config::new(OWN, PEER, 7)
    };
    let mut span = Span::new(config, now);
    let own = [(1, 10), (2, 5_000)].map(|(key, bytes)| {
        let block = vec![Bytes::from(vec![7; bytes])];
        let session = span.send(key, BUNDLE_PROTOCOL, block, None);
        session.expect("there is room")
    });
    let mut rest = data;
    while let [choice, number, length, next @ ..] = rest {
        let (said, next) = next.split_at(next.len().min(usize::from(*length)));
        rest = next;
        match choice % 4 {
            0 => span.handle_input(now, said),
            1 => {
                let session = SessionId {
                    originator: PEER,
                    number: u64::from(*number),
                };
                span.handle_input(now, &segment(choice >> 4, session, said));
            }
            2 => {
                let session = own[usize::from(*number) % own.len()];
                span.handle_input(now, &segment(choice >> 4, session, said));
            }
            _ => {
                now += Duration::from_millis(100 * u64::from(*number));
                span.block_link(now, choice & 0x80 != 0);
                span.handle_timeout(now);
            }
        }
        let mut out = Vec::new();
        for _ in 0..SEGMENTS_AT_ONCE {
            if !span.poll_transmit(now, &mut out) {
                break;
            }
            assert!(Segment::take(&mut &out[..]).is_ok(), "its own segment");
            out.clear();
        }
        while let Some(event) = span.poll_event() {
            let verdict = match number % 2 {
                0 => Ok(()),
                _ => Err(Reason::System),
            };
            match event {
                Event::Received { session, block, .. } => {
                    assert!(block.len() as u64 <= LARGEST_BLOCK);
                    span.answer(now, session, verdict);
                }
                Event::Keep { session, bytes, .. } => {
                    span.kept(session, (1, bytes.len()), verdict);
                }
                Event::ReceivedElsewhere { session, bytes, .. } => {
                    assert!(bytes <= LARGEST_BLOCK);
                    span.answer(now, session, verdict);
                }
                _ => {}
            }
        }
        assert!(span.receive_bytes() <= MEMORY);
        let (sending, receiving) = span.sessions();
        assert!(sending <= SESSIONS && receiving <= SESSIONS);
    }
});

/// A segment of a session, with arbitrary bytes after its header (RFC 5326, 3.1).
fn segment(kind: u8, session: SessionId, said: &[u8]) -> Vec<u8> {
    let mut out = vec![kind & 0x0f];
    sdnv::put(session.originator, &mut out);
    sdnv::put(session.number, &mut out);
    // No extensions.
    out.push(0);
    out.extend_from_slice(said);
    out
}
