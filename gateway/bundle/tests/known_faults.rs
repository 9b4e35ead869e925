//! Bundles from other implementations' issue trackers: they crashed, filled or confused
//! those implementations, and do none of that here.

#[path = "agents/net.rs"]
#[allow(dead_code, reason = "the agents' tests use it all")]
mod net;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Instant;

use bp7::dtntime::CreationTimestamp;
use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use net::{BULK, LIFETIME, SERVICE, bundle, node, primary};
use underpass_bundle::wire::{
    Bundle, CodePoints, DecodeLimits, Extension, MAX_BLOCKS, MAX_HEADER_BYTES, Malformed, Record,
    block_type, decode, decode_record, ipn,
};
use underpass_bundle::{Agent, Event, NeighbourId, Reject, Route};
use underpass_cla::Class;

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    /// Bytes that the thread has allocated, and of them those that it has not freed.
    static ALLOCATED: Cell<(usize, isize)> = const { Cell::new((0, 0)) };
}

fn count(allocated: usize, freed: usize) {
    // A thread that ends may free memory when its counter is already gone.
    let _ = ALLOCATED.try_with(|counter| {
        let (all, held) = counter.get();
        let held = held + allocated as isize - freed as isize;
        counter.set((all + allocated, held));
    });
}

// SAFETY: every call goes to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller fulfils the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that a call allocates, and how many of them it does not free.
fn memory<T>(call: impl FnOnce() -> T) -> (T, usize, isize) {
    let before = ALLOCATED.get();
    let value = call();
    let after = ALLOCATED.get();
    (value, after.0 - before.0, after.1 - before.1)
}

const SOURCE: u64 = 1;
const RELAY: u64 = 2;
const DESTINATION: u64 = 3;

const FRAGMENT: u64 = 0x1;
const ADMINISTRATIVE: u64 = 0x2;
const ALL_REPORTS: u64 = 0x7_4000;
const DELETION: u64 = 0x4_0000;

/// A node that relays between two others.
fn relay() -> (Agent, Instant) {
    let mut config = node(RELAY);
    config.status_reports_per_s = 100;
    let route = |nodes, neighbour| Route {
        nodes,
        neighbour: NeighbourId(neighbour),
        take_custody: true,
    };
    config.routes = vec![
        route(SOURCE..=SOURCE, SOURCE),
        // This includes node 0, which does not exist.
        route(0..=u64::MAX, DESTINATION),
    ];
    let (mut agent, now) = (Agent::new(config), Instant::now());
    for neighbour in [SOURCE, DESTINATION] {
        agent.neighbour_up(now, NeighbourId(neighbour));
    }
    (agent, now)
}

fn onward() -> PrimaryBlock {
    primary(0, SOURCE, ipn(DESTINATION, SERVICE))
}

fn decoded(raw: &[u8]) -> Result<Bundle, Malformed> {
    let raw = Bytes::copy_from_slice(raw);
    let decoded = decode(&raw, &DecodeLimits::default(), &CodePoints::default());
    decoded.map_err(|error| error.reason)
}

/// The next bundle that the relay sends to a neighbour.
fn next(agent: &mut Agent, now: Instant, to: u64, class: Class) -> Option<Bundle> {
    let offer = agent.next_for(now, NeighbourId(to), class, u64::MAX)?;
    Some(decoded(&offer.chunks.concat()).unwrap())
}

/// The number of status reports that wait for the source; nothing else waits for it.
fn reports(agent: &mut Agent, now: Instant) -> usize {
    let mut count = 0;
    for class in [BULK, Class::SIGNALLING] {
        while let Some(bundle) = next(agent, now, SOURCE, class) {
            let record = decode_record(&bundle.payload, &CodePoints::default());
            assert!(matches!(record, Ok(Record::Status(_))), "{record:?}");
            count += 1;
        }
    }
    count
}

/// Heads that announce far more than follows: byte strings, text strings, arrays and maps of
/// 2³², 2⁶³ and 2⁶⁴ − 1 elements.
fn lies() -> Vec<Vec<u8>> {
    let mut lies = Vec::new();
    for major in 2..=5u8 {
        for length in [1 << 32, 1 << 63, u64::MAX] {
            let mut head = vec![major << 5 | 27];
            head.extend(u64::to_be_bytes(length));
            lies.push(head);
        }
        // Without a length, and without an end.
        lies.push(vec![major << 5 | 31]);
    }
    lies
}

/// Known of ION-DTN: for an extension block whose content announces a length that does
/// not follow, it allocated that much, and did not free it.
#[test]
fn a_length_that_lies_takes_no_memory() {
    let (mut agent, now) = relay();
    // The bytes in front of the false head, at each place where a block has a head.
    let places: [(u64, &[u8]); 11] = [
        (block_type::PREVIOUS_NODE, &[]),
        (block_type::PREVIOUS_NODE, &[0x82, 0x01]),
        (block_type::BUNDLE_AGE, &[]),
        (block_type::HOP_COUNT, &[]),
        (block_type::HOP_COUNT, &[0x82]),
        (13, &[0x83, 0x00, 0x09, 0x82, 0x01]),
        (14, &[0x85, 0x00, 0x09, 0x01, 0x82, 0x01]),
        (block_type::BIB, &[]),
        (block_type::BCB, &[0x81, 0x01, 0x01]),
        (192, &[]),
        (213, &[]),
    ];
    let mut sent: usize = 0;
    let ((), allocated, held) = memory(|| {
        for (kind, before) in places {
            for lie in lies() {
                let content = [before, &lie].concat();
                let block = Extension::new(kind, 2, 0, &content);
                let mut named = onward();
                named.creation_timestamp = CreationTimestamp::with_time_and_seq(1_000, sent as u64);
                let raw = bundle(&named, &[block], b"x");
                sent += raw.len();
                // Some of these are forwarded as they came, since this node need not
                // judge the content of other block types. They leave at once.
                let _ = agent.receive(now, NeighbourId(SOURCE), BULK, raw);
                while let Some(offer) =
                    agent.next_for(now, NeighbourId(DESTINATION), BULK, u64::MAX)
                {
                    agent.transfer_finished(now, offer.key, underpass_cla::Outcome::Acknowledged);
                }
                while agent.poll_event().is_some() {}
            }
        }
    });
    assert!(allocated < 100 * sent, "{allocated} bytes for {sent}");
    assert!(held < 100 * sent as isize, "{held} bytes stay of {sent}");
}

/// The same for the content of administrative records, and for the blocks themselves.
#[test]
fn a_record_or_a_block_that_lies_takes_no_memory_and_is_an_error() {
    let (_, allocated, held) = memory(|| {
        let records: [&[u8]; 8] = [
            &[],
            &[0x82, 0x01],
            &[0x82, 0x01, 0x84],
            &[0x82, 0x01, 0x84, 0x84, 0x81],
            &[0x82, 0x0D],
            &[0x82, 0x0D, 0xA1, 0x01],
            &[0x82, 0x0D, 0xA1, 0x01, 0x81, 0x83, 0x01, 0x00],
            &[0x82, 0x0E, 0xA1, 0x02],
        ];
        for before in records {
            for lie in lies() {
                let raw = Bytes::from([before, &lie].concat());
                let record = decode_record(&raw, &CodePoints::default());
                assert!(
                    matches!(record, Err(_) | Ok(Record::Other(_))),
                    "{raw:02x?}"
                );
            }
        }
        let whole = bundle(&onward(), &[], b"x");
        for at in 0..whole.len() {
            for lie in lies() {
                // The false head replaces the rest of the bundle, at any offset.
                let _ = decoded(&[&whole[..at], &lie].concat()).unwrap_err();
            }
        }
    });
    assert!(allocated < 4 << 20, "{allocated}");
    assert_eq!(held, 0);
}

/// A bundle with this destination in its CBOR encoding, and these flags.
fn addressed(destination: &[u8], flags: u64) -> Vec<u8> {
    let fragment = flags & FRAGMENT != 0;
    let mut raw = vec![0x9F, if fragment { 0x8A } else { 0x88 }, 0x07, 0x1A];
    raw.extend((flags as u32).to_be_bytes());
    // No CRC.
    raw.push(0x00);
    raw.extend(destination);
    // Source, report-to, creation timestamp, lifetime (ms).
    raw.extend([0x82, 0x02, 0x82, SOURCE as u8, 0x18, SERVICE as u8]);
    raw.extend([0x82, 0x02, 0x82, SOURCE as u8, 0x00]);
    raw.extend([0x82, 0x18, 0x64, 0x07, 0x1A, 0x05, 0x26, 0x5C, 0x00]);
    if fragment {
        raw.extend([0x00, 0x0A]);
    }
    // A record of an unknown type, if the bundle is administrative.
    raw.extend([0x85, 0x01, 0x01, 0x00, 0x00, 0x44, 0x82, 0x18, 0x63, 0x00]);
    raw.push(0xFF);
    raw
}

/// Known of ION-DTN: a bundle to the null endpoint stopped a node. In the form `dtn:none`
/// it is refused; in the form of node 0 it goes nowhere, not even by a route for all
/// nodes.
#[test]
fn a_bundle_to_nobody_goes_nowhere() {
    let none = [0x82, 0x01, 0x00];
    for flags in [0, ALL_REPORTS, FRAGMENT | DELETION, ADMINISTRATIVE] {
        let (mut agent, now) = relay();
        let outcome = agent.receive(
            now,
            NeighbourId(SOURCE),
            BULK,
            addressed(&none, flags).into(),
        );
        let refused = Err(Reject::Malformed(Malformed::NoDestination));
        assert_eq!(outcome, refused, "{flags:#x}");
        goes_nowhere(&mut agent, now);
        assert_eq!(reports(&mut agent, now), 0);
    }
    // [0, 0], [0, 0, 0], and a service of node 0.
    let nulls: [&[u8]; 3] = [
        &[0x82, 0x02, 0x82, 0x00, 0x00],
        &[0x82, 0x02, 0x83, 0x00, 0x00, 0x00],
        &[0x82, 0x02, 0x82, 0x00, 0x18, 0x40],
    ];
    for null in nulls {
        for (flags, told) in [(0, 0), (DELETION, 1), (FRAGMENT | DELETION, 1)] {
            let (mut agent, now) = relay();
            let raw = addressed(null, flags);
            let outcome = agent.receive(now, NeighbourId(SOURCE), BULK, raw.into());
            assert_eq!(outcome, Ok(()), "{null:02x?} {flags:#x}");
            goes_nowhere(&mut agent, now);
            assert_eq!(reports(&mut agent, now), told, "{null:02x?} {flags:#x}");
        }
    }
}

/// Asserts that the relay neither sends on nor delivers anything.
fn goes_nowhere(agent: &mut Agent, now: Instant) {
    for class in [BULK, Class::SIGNALLING] {
        assert!(next(agent, now, DESTINATION, class).is_none());
    }
    let mut events = std::iter::from_fn(|| agent.poll_event());
    assert!(!events.any(|event| matches!(event, Event::Deliver(_))));
}

/// Known of ION-DTN: many extension blocks, some of them without content and some of them
/// security blocks, stopped a node. Here they are forwarded as they came, up to the
/// allowed number.
#[test]
fn many_blocks_and_empty_ones_go_on_as_they_came() {
    let kinds = [192, block_type::BIB, block_type::BCB, 193, 8, 250];
    // There must be room for the blocks that a forwarder adds: previous node and age.
    let most = MAX_BLOCKS - 4;
    for count in [1, most / 2, most] {
        let (mut agent, now) = relay();
        let blocks: Vec<Extension> = (0..count)
            .map(|at| {
                let content = vec![0x5A; at % 3 * 7];
                Extension::new(kinds[at % kinds.len()], at as u64 + 2, 1, &content)
            })
            .collect();
        let raw = bundle(&onward(), &blocks, b"x");
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        let passed = next(&mut agent, now, DESTINATION, BULK).unwrap();
        assert_eq!(passed.others, blocks);
        assert_eq!(passed.payload, b"x"[..]);
    }
}

/// A bundle that a relay forwards must be valid at the next node too, which has the same
/// limits: if it has no room for the blocks that a forwarder adds, it is deleted, and its
/// source is told.
#[test]
fn what_would_be_too_much_for_the_next_node_is_not_passed_on() {
    let many = |count| {
        (0..count)
            .map(|at| Extension::new(192, at + 2, 1, b""))
            .collect()
    };
    let large = |bytes| vec![Extension::new(192, 2, 1, &vec![0; bytes])];
    let cases: [(Vec<Extension>, bool); 5] = [
        (many(MAX_BLOCKS as u64 - 4), true),
        (many(MAX_BLOCKS as u64 - 3), false),
        (many(MAX_BLOCKS as u64 - 2), false),
        (large(MAX_HEADER_BYTES - 600), true),
        (large(MAX_HEADER_BYTES - 100), false),
    ];
    for (blocks, goes_on) in cases {
        let (mut agent, now) = relay();
        let asking = primary(DELETION, SOURCE, ipn(DESTINATION, SERVICE));
        let raw = bundle(&asking, &blocks, b"x");
        assert!(decoded(&raw).is_ok());
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        let passed = next(&mut agent, now, DESTINATION, BULK);
        assert_eq!(passed.is_some(), goes_on, "{} blocks", blocks.len());
        assert_eq!(reports(&mut agent, now), usize::from(!goes_on));
    }
}

/// Known of ION-DTN: a bundle whose lifetime ended was reported as deleted twice.
#[test]
fn a_deletion_is_reported_once() {
    let (mut agent, now) = relay();
    let dying = primary(DELETION, SOURCE, ipn(DESTINATION, SERVICE));
    let age = Extension::new(block_type::BUNDLE_AGE, 2, 0, &[0x00]);
    let raw = bundle(&dying, &[age], b"x");
    agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
    assert_eq!(reports(&mut agent, now), 0);
    let mut told = 0;
    let end = now + 2 * LIFETIME;
    while let Some(at) = agent.next_timeout().filter(|at| *at <= end) {
        agent.handle_timeout(at);
        told += reports(&mut agent, at);
    }
    assert_eq!(told, 1);
    assert!(next(&mut agent, end, DESTINATION, BULK).is_none());
}

/// Known of ION-DTN: a payload block that is not number 1 was taken, and a block of type 8, which
/// nothing defines, cost the bundle. Known of bp7-rs: a payload that is a text string was taken.
#[test]
fn blocks_are_what_they_say_and_have_their_number() {
    let raw = bundle(&onward(), &[], b"TEST").to_vec();
    let payload = [0x85, 1, 1, 0, 0, 0x44, b'T', b'E', b'S', b'T', 0xFF];
    let at = raw.len() - payload.len();
    assert_eq!(raw[at..], payload);
    let mut numbered = raw.clone();
    numbered.splice(at + 2..at + 3, [0x18, 33]);
    assert!(decoded(&numbered).is_err());
    let mut text = raw.clone();
    text[at + 5] = 0x64;
    assert!(decoded(&text).is_err());
    let (mut agent, now) = relay();
    let eight = Extension::new(8, 2, 1, &[0x00]);
    let raw = bundle(&onward(), std::slice::from_ref(&eight), b"x");
    agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
    let passed = next(&mut agent, now, DESTINATION, BULK).unwrap();
    assert_eq!(passed.others, [eight]);
}
