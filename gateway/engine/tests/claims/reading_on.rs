//! Bytes that are read into custody while nothing can be sent.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::MemoryStore;
use underpass_cla::SessionId;
use underpass_engine::{EngineConfig, HopId, StreamKey};
use underpass_streams::{Event, ResetCode};

use crate::bench::{BULK, Node, config, exchange, live};
use crate::durable::{Durable, Kept};

const HOP: HopId = HopId(0);
pub const SECOND: Duration = Duration::from_secs(1);

/// A byte of a stream, which depends on its place.
fn byte_at(place: usize) -> u8 {
    (place % 251) as u8
}

/// An unlimited source of a stream, and the count of bytes that it has given.
pub struct Source {
    pub key: StreamKey,
    pub written: usize,
}

impl Source {
    pub fn write(&mut self, node: &mut Node, most: usize) {
        let room = node.engine.send_capacity(self.key).min(most);
        if room > 0 {
            let bytes: Vec<u8> = (self.written..self.written + room).map(byte_at).collect();
            let taken = node.engine.write(node.now, self.key, Bytes::from(bytes));
            taken.expect("the room was told");
            self.written += room;
        }
    }
}

/// Runs a node for this time while its sources write.
pub fn write_on(node: &mut Node, sources: &mut [Source], time: Duration) {
    let end = node.now + time;
    while node.now < end {
        for source in &mut *sources {
            source.write(node, usize::MAX);
        }
        assert!(node.offers().is_empty());
        node.pass(node.now + Duration::from_millis(100));
    }
}

fn small(node: u64, neighbour: u64) -> EngineConfig {
    let mut config = config(node, &[neighbour]);
    config.window_bytes = Some(256 << 10);
    config.send_buffer_bytes = Some(64 << 10);
    config.agent.store_bytes = 1 << 30;
    config
}

/// A terminal with durable custody and a hub, with small windows.
pub fn pair(change: impl Fn(&mut EngineConfig)) -> (Node, Node) {
    pair_on(&Arc::default(), change)
}

pub fn pair_on(disk: &Arc<Mutex<Kept>>, change: impl Fn(&mut EngineConfig)) -> (Node, Node) {
    let now = Instant::now();
    let (mut terminal, mut hub) = (small(10, 1), small(1, 10));
    for config in [&mut terminal, &mut hub] {
        change(config);
    }
    let store = Box::new(Durable(MemoryStore::default(), disk.clone()));
    let mut terminal = Node::with_store(now, terminal, store);
    let mut hub = Node::new(now, hub);
    terminal.up(0, 100);
    hub.up(0, 100);
    live(&mut terminal, &mut hub, SECOND);
    (terminal, hub)
}

pub fn sources(node: &mut Node, count: usize) -> Vec<Source> {
    let open = |_| Source {
        key: node.open(1, BULK),
        written: 0,
    };
    (0..count).map(open).collect()
}

pub fn block(node: &mut Node, blocked: bool) {
    node.engine.block(node.now, HOP, blocked);
}

#[test]
fn a_blocked_stream_is_read_on_by_2_mb_in_each_45_s() {
    let (mut terminal, _) = pair(|_| {});
    let mut sources = sources(&mut terminal, 3);
    block(&mut terminal, true);
    for _ in 0..14 {
        let before: Vec<usize> = sources.iter().map(|source| source.written).collect();
        write_on(&mut terminal, &mut sources, 45 * SECOND);
        for (source, before) in sources.iter().zip(before) {
            let read = source.written - before;
            assert!((2_000_000..4_000_000).contains(&read), "{read}");
        }
    }
    let stored = terminal.engine.custody(terminal.now).used_bytes;
    assert!(stored > sources.iter().map(|source| source.written as u64).sum());
}

#[test]
fn no_bundle_read_on_is_larger_than_the_neighbour_takes() {
    let (mut terminal, _) = pair(|_| {});
    terminal.session(0, 202, Some(BULK), 10_000);
    let mut sources = sources(&mut terminal, 2);
    block(&mut terminal, true);
    write_on(&mut terminal, &mut sources, 10 * SECOND);
    let stored = terminal.engine.stored_bundles(terminal.now, usize::MAX);
    assert!(stored.iter().all(|stored| stored.bytes <= 10_000 - 100));
    assert!(stored.iter().map(|stored| stored.bytes).sum::<u64>() > 200_000);
}

#[test]
fn a_store_too_small_for_what_waits_slows_streams_and_ends_none() {
    let (mut terminal, _) = pair(|config| config.agent.store_bytes = 24 << 10);
    let mut sources = sources(&mut terminal, 3);
    block(&mut terminal, true);
    write_on(&mut terminal, &mut sources, 10 * SECOND);
    assert!(!terminal.has(|event| matches!(event, Event::Reset { .. })));
}

#[test]
fn with_custody_in_memory_no_more_is_read_than_the_send_buffer_holds() {
    let (mut terminal, mut hub) = pair(|_| {});
    let mut downloads = vec![Source {
        key: hub.open(10, BULK),
        written: 0,
    }];
    exchange(&mut terminal, &mut hub);
    block(&mut hub, true);
    write_on(&mut hub, &mut downloads, 120 * SECOND);
    assert_eq!(downloads[0].written, 64 << 10);
}

#[test]
fn streams_share_what_the_store_has_room_for() {
    let (mut terminal, _) = pair(|config| config.agent.store_bytes = 8 << 20);
    let mut sources = sources(&mut terminal, 10);
    block(&mut terminal, true);
    write_on(&mut terminal, &mut sources, 300 * SECOND);
    let written = sources.iter().map(|source| source.written);
    let (least, most) = (written.clone().min(), written.max());
    assert!(least > Some(400_000), "{least:?}");
    assert!(most < Some(1_000_000), "{most:?}");
}

/// Reads all that a node has of a stream; the bytes must match those written.
pub fn read_all(node: &mut Node, key: StreamKey, read: &mut usize) {
    while let Some(bytes) = node.engine.read(node.now, key, usize::MAX) {
        assert!(bytes.iter().zip(*read..).all(|(b, at)| *b == byte_at(at)));
        *read += bytes.len();
    }
}

#[test]
fn when_the_link_is_back_all_arrives_in_order_within_credit_and_then_the_end() {
    let (mut terminal, mut hub) = pair(|_| {});
    let mut sources = sources(&mut terminal, 4);
    block(&mut terminal, true);
    write_on(&mut terminal, &mut sources, 100 * SECOND);
    terminal
        .engine
        .finish(terminal.now, sources[0].key)
        .expect("it is open");
    terminal.pass(terminal.now + SECOND);
    hub.pass(terminal.now);
    block(&mut terminal, false);

    let mut read = vec![0; sources.len()];
    for _ in 0..20_000 {
        live(&mut terminal, &mut hub, Duration::from_millis(10));
        for (source, read) in sources.iter_mut().zip(&mut read) {
            let key = StreamKey {
                peer: 10,
                ..source.key
            };
            read_all(&mut hub, key, read);
        }
        if sources
            .iter()
            .zip(&read)
            .all(|(s, read)| s.written == *read)
        {
            break;
        }
    }
    for (source, read) in sources.iter().zip(&read) {
        assert_eq!(source.written, *read);
        assert!(source.written > 4_000_000);
    }
    assert!(!hub.has(|event| matches!(event, Event::Reset { .. })));
    let ended = sources[0].key.id;
    assert!(hub.has(|event| matches!(event, Event::PeerFinished(id) if *id == ended)));

    // And the streams then continue as before.
    let before = sources[1].written;
    sources[1].write(&mut terminal, 50_000);
    live(&mut terminal, &mut hub, SECOND);
    let key = StreamKey {
        peer: 10,
        ..sources[1].key
    };
    read_all(&mut hub, key, &mut read[1]);
    assert_eq!(read[1], before + 50_000);
    live(&mut terminal, &mut hub, 2 * SECOND);
    assert!(terminal.destinations().is_empty());
}

#[test]
fn what_was_read_on_arrives_though_its_reader_owes_credit() {
    let (mut terminal, mut hub) = pair(|config| config.window_bytes = Some(0));
    let mut sources = sources(&mut terminal, 1);
    // Consumption of less than half a floor is not reported.
    sources[0].write(&mut terminal, 30_000);
    live(&mut terminal, &mut hub, SECOND);
    let key = StreamKey {
        peer: 10,
        ..sources[0].key
    };
    let mut read = 0;
    read_all(&mut hub, key, &mut read);
    assert_eq!(read, 30_000);
    block(&mut terminal, true);
    terminal.pass(terminal.now + SECOND);
    write_on(&mut terminal, &mut sources, 10 * SECOND);
    hub.pass(terminal.now);
    block(&mut terminal, false);
    for _ in 0..1_000 {
        live(&mut terminal, &mut hub, Duration::from_millis(10));
        read_all(&mut hub, key, &mut read);
    }
    assert_eq!(read, sources[0].written);
}

#[test]
fn what_a_peer_wants_no_more_is_forgotten() {
    let (mut terminal, mut hub) = pair(|_| {});
    let mut sources = sources(&mut terminal, 1);
    live(&mut terminal, &mut hub, SECOND);
    block(&mut terminal, true);
    write_on(&mut terminal, &mut sources, 60 * SECOND);
    hub.pass(terminal.now);
    let key = StreamKey {
        peer: 10,
        ..sources[0].key
    };
    let reset = hub
        .engine
        .reset(hub.now, key, ResetCode::Cancelled, "enough");
    reset.expect("it is open");
    block(&mut terminal, false);
    live(&mut terminal, &mut hub, 3 * SECOND);
    assert!(terminal.destinations().is_empty());
    assert_eq!(terminal.engine.custody(terminal.now).bundles, 0);
}

#[test]
fn bytes_of_a_source_that_died_in_the_blockage_still_arrive_before_its_reset() {
    let (mut terminal, mut hub) = pair(|_| {});
    let mut sources = sources(&mut terminal, 1);
    live(&mut terminal, &mut hub, SECOND);
    block(&mut terminal, true);
    write_on(&mut terminal, &mut sources, 60 * SECOND);
    terminal.pass(terminal.now + SECOND);
    let died = terminal.engine.reset(
        terminal.now,
        sources[0].key,
        ResetCode::Aborted,
        "connection reset",
    );
    died.expect("it is open");
    hub.pass(terminal.now);
    block(&mut terminal, false);
    let (key, mut read) = (
        StreamKey {
            peer: 10,
            ..sources[0].key
        },
        0,
    );
    for _ in 0..5_000 {
        live(&mut terminal, &mut hub, Duration::from_millis(10));
        read_all(&mut hub, key, &mut read);
        if hub.has(|event| matches!(event, Event::Reset { .. })) {
            break;
        }
    }
    assert!(read >= sources[0].written - (64 << 10), "{read}");
    assert!(hub.has(|event| matches!(event, Event::Reset { .. })));
    live(&mut terminal, &mut hub, 3 * SECOND);
    assert!(terminal.destinations().is_empty());
}

/// A terminal that read for a minute without a link, with one stream to a hub, is killed;
/// returns its next run and the hub, the stream there, and the bytes written.
fn killed_while_blocked() -> (Node, Node, StreamKey, usize) {
    let disk = Arc::default();
    let (mut terminal, mut hub) = pair_on(&disk, |_| {});
    let mut sources = sources(&mut terminal, 1);
    sources[0].write(&mut terminal, 50_000);
    live(&mut terminal, &mut hub, SECOND);
    block(&mut terminal, true);
    write_on(&mut terminal, &mut sources, 60 * SECOND);
    let key = StreamKey {
        peer: 10,
        ..sources[0].key
    };
    let next = next_run(&terminal, &mut hub, disk);
    (next, hub, key, sources[0].written)
}

/// The terminal of a pair is killed; returns its next run, with sessions to the hub.
pub fn next_run(terminal: &Node, hub: &mut Node, disk: Arc<Mutex<Kept>>) -> Node {
    let mut config = small(10, 1);
    config.incarnation = 2;
    // No two runs give bundles the same names.
    config.agent.run_nonce += 1 << 30;
    let store = Box::new(Durable(MemoryStore::default(), disk));
    let mut next = Node::with_store(terminal.now, config, store);
    hub.pass(next.now);
    for session in 100..103 {
        hub.engine.session_down(hub.now, SessionId(session));
    }
    next.up(0, 200);
    hub.up(0, 200);
    next
}

#[test]
fn what_was_read_on_arrives_after_a_restart_though_its_reader_is_slow() {
    let (mut terminal, mut hub, key, written) = killed_while_blocked();
    let mut read = 0;
    for _ in 0..5_000 {
        live(&mut terminal, &mut hub, Duration::from_millis(10));
        if let Some(bytes) = hub.engine.read(hub.now, key, 2_000) {
            assert!(bytes.iter().zip(read..).all(|(b, at)| *b == byte_at(at)));
            read += bytes.len();
        }
        let streams = hub.engine.streams(usize::MAX).into_iter();
        let unread = streams.map(|(.., info)| info.unread_bytes).max();
        assert!(unread <= Some(256 << 10), "within the window");
    }
    // Bytes in the send buffer were lost with the process.
    assert!(read >= written - (64 << 10), "{read} of {written}");
    assert!(hub.has(|event| matches!(
        event,
        Event::Reset {
            code: ResetCode::Restarted,
            ..
        }
    )));
    live(&mut terminal, &mut hub, 3 * SECOND);
    assert_eq!(terminal.engine.custody(terminal.now).bundles, 0);
}

#[test]
fn what_a_former_run_read_on_is_forgotten_when_nobody_wants_it() {
    let (mut terminal, mut hub, key, _) = killed_while_blocked();
    let before = terminal.engine.custody(terminal.now).used_bytes;
    hub.engine
        .reset(hub.now, key, ResetCode::Cancelled, "enough")
        .expect("it is open");
    let mut carried = 0;
    for _ in 0..300 {
        let offers = terminal.offers();
        carried += offers
            .iter()
            .map(|(_, t)| t.chunks.concat().len())
            .sum::<usize>();
        terminal.put_back(offers);
        live(&mut terminal, &mut hub, Duration::from_millis(10));
    }
    assert_eq!(terminal.engine.custody(terminal.now).bundles, 0);
    assert!((carried as u64) < before / 10, "{carried} of {before}");
}

#[test]
fn what_was_read_on_for_a_run_of_the_peer_that_is_over_is_forgotten() {
    let (mut terminal, hub, _, _) = killed_while_blocked();
    let mut config = small(1, 10);
    config.incarnation = 2;
    config.agent.run_nonce += 1 << 30;
    let mut next = Node::new(hub.now, config);
    next.up(0, 200);
    live(&mut terminal, &mut next, 3 * SECOND);
    assert_eq!(terminal.engine.custody(terminal.now).bundles, 0);
}
