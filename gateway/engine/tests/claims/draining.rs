//! The last bytes of streams that have ended, and whose turn it is behind a backlog in
//! custody.

use std::sync::Arc;
use std::time::Duration;

use underpass_cla::{Outcome, SessionId};
use underpass_engine::StreamKey;
use underpass_streams::{Event, StreamState};

use crate::bench::{BULK, Node, exchange, live};
use crate::reading_on::{
    SECOND, Source, block, next_run, pair, pair_on, read_all, sources, write_on,
};

/// Takes the terminal's bundles one by one, as a slow link would, until a stream has
/// finished at the hub; returns how many others went before.
fn bundles_until_finished(terminal: &mut Node, hub: &mut Node, key: StreamKey) -> usize {
    for before in 0.. {
        if hub.has(|event| matches!(event, Event::PeerFinished(id) if *id == key.id)) {
            return before;
        }
        let mut offers = terminal.offers();
        assert!(!offers.is_empty(), "nothing leaves after {before} bundles");
        let first = offers.remove(0);
        terminal.put_back(offers);
        terminal.carry(first, hub);
        for (peer, epoch, info) in hub.engine.streams(usize::MAX) {
            let id = info.id;
            let key = StreamKey { peer, epoch, id };
            while hub.engine.read(hub.now, key, usize::MAX).is_some() {}
        }
        for back in hub.offers() {
            hub.carry(back, terminal);
        }
    }
    unreachable!()
}

fn new_exchange(terminal: &mut Node, bytes: usize) -> StreamKey {
    let key = terminal.send(1, BULK, bytes);
    let finished = terminal.engine.finish(terminal.now, key);
    finished.expect("it is open");
    terminal.pass(terminal.now + Duration::from_millis(10));
    key
}

/// Twelve uploads are read for 30 s without a link.
fn behind_twelve_uploads() -> (Node, Node) {
    let (mut terminal, mut hub) = pair(|_| {});
    let mut uploads = sources(&mut terminal, 12);
    block(&mut terminal, true);
    write_on(&mut terminal, &mut uploads, 30 * SECOND);
    hub.pass(terminal.now);
    assert!(terminal.engine.custody(terminal.now).bundles > 12 * 20);
    block(&mut terminal, false);
    (terminal, hub)
}

#[test]
fn a_new_exchange_goes_before_what_was_read_on_in_the_blockage() {
    let (mut terminal, mut hub) = behind_twelve_uploads();
    for _ in 0..5 {
        let new = new_exchange(&mut terminal, 10_000);
        let before = bundles_until_finished(&mut terminal, &mut hub, new);
        assert!(before <= 4, "{before} bundles went before it");
    }
}

#[test]
fn streams_take_turns_with_what_they_have_in_custody() {
    let (mut terminal, mut hub) = behind_twelve_uploads();
    for _ in 0..30 {
        let mut offers = terminal.offers();
        let first = offers.remove(0);
        terminal.put_back(offers);
        terminal.carry(first, &mut hub);
    }
    let read = hub.engine.streams(usize::MAX).into_iter();
    let arrived: Vec<u64> = read.map(|(.., info)| info.unread_bytes).collect();
    let (least, most) = (arrived.iter().min(), arrived.iter().max());
    assert_eq!(arrived.len(), 12);
    assert!(
        most.unwrap() - least.unwrap() <= 2 * (64 << 10),
        "{arrived:?}"
    );
}

#[test]
fn a_new_exchange_goes_before_what_a_former_run_has_left() {
    let disk = Arc::default();
    let (mut terminal, mut hub) = pair_on(&disk, |_| {});
    let mut uploads = sources(&mut terminal, 12);
    live(&mut terminal, &mut hub, SECOND);
    block(&mut terminal, true);
    write_on(&mut terminal, &mut uploads, 30 * SECOND);
    let mut next = next_run(&terminal, &mut hub, disk);
    // The hub is asked for credit, and answers.
    for _ in 0..4 {
        for offered in next.offers().into_iter().filter(|(id, _)| id.0 == 200) {
            next.carry(offered, &mut hub);
        }
        for offered in hub.offers() {
            hub.carry(offered, &mut next);
        }
        let at = next.now + Duration::from_millis(200);
        next.pass(at);
        hub.pass(at);
    }
    assert!(next.engine.custody(next.now).bundles > 12 * 20);
    let new = new_exchange(&mut next, 10_000);
    let before = bundles_until_finished(&mut next, &mut hub, new);
    assert!(before <= 4, "{before} bundles went before it");
}

#[test]
fn a_new_exchange_takes_turns_with_bundles_that_go_again() {
    let (mut terminal, _hub) = pair(|_| {});
    let bulk = terminal.open(1, BULK);
    let mut source = Source {
        key: bulk,
        written: 0,
    };
    // Eight bundles are in flight when the link is lost.
    let mut in_flight = Vec::new();
    for _ in 0..8 {
        source.write(&mut terminal, 8_000);
        terminal.ready(SessionId(102));
        in_flight.extend(terminal.offers());
    }
    assert_eq!(in_flight.len(), 8);
    for (_, transfer) in in_flight {
        terminal.finish(transfer.key, Outcome::Broken { acknowledged: 0 });
    }
    terminal.send(1, BULK, 500);
    terminal.pass(terminal.now + Duration::from_millis(10));
    let mut sizes = Vec::new();
    for _ in 0..4 {
        terminal.ready(SessionId(102));
        sizes.extend(terminal.offers().iter().map(|(_, t)| t.len()));
    }
    let new_at = sizes.iter().position(|size| (500..1_000).contains(size));
    assert!(new_at <= Some(1) && new_at.is_some(), "{sizes:?}");
}

/// A stream that both applications have ended, with bytes that have not left the
/// terminal: the hub's side had ended before the blockage.
fn ended_in_a_blockage(terminal: &mut Node, hub: &mut Node) -> (StreamKey, usize) {
    let mut source = sources(terminal, 1).remove(0);
    source.write(terminal, 1_000);
    exchange(terminal, hub);
    live(terminal, hub, SECOND);
    let at_hub = StreamKey {
        peer: 10,
        ..source.key
    };
    hub.engine.finish(hub.now, at_hub).expect("it is open");
    live(terminal, hub, SECOND);
    block(terminal, true);
    source.write(terminal, 60_000);
    let finished = terminal.engine.finish(terminal.now, source.key);
    finished.expect("it is open");
    (source.key, source.written)
}

#[test]
fn the_rest_of_a_stream_that_has_ended_is_in_custody_at_once() {
    let (mut terminal, mut hub) = pair(|_| {});
    let before = terminal.engine.custody(terminal.now).used_bytes;
    let (key, _) = ended_in_a_blockage(&mut terminal, &mut hub);
    let after = terminal.engine.custody(terminal.now).used_bytes;
    assert!(after >= before + 60_000, "{before} {after}");
    // The stream counts until the hub has acknowledged its last byte.
    let state = |node: &Node| {
        let streams = node.engine.streams(usize::MAX).into_iter();
        let mut states = streams.map(|(.., info)| (info.id, info.state));
        states.find(|(id, _)| *id == key.id).map(|(_, state)| state)
    };
    assert_eq!(state(&terminal), Some(StreamState::Draining));
    hub.pass(terminal.now);
    block(&mut terminal, false);
    live(&mut terminal, &mut hub, 2 * SECOND);
    assert_eq!(state(&terminal), None);
    assert_eq!(terminal.engine.custody(terminal.now).bundles, 0);
}

#[test]
fn no_blockage_is_too_long_for_a_stream_that_has_ended() {
    for durable in [true, false] {
        let (mut terminal, mut hub) = pair(|config| config.lifetime = 7200 * SECOND);
        // The hub's custody is in memory only.
        let (one, other) = match durable {
            true => (&mut terminal, &mut hub),
            false => (&mut hub, &mut terminal),
        };
        let peers = if durable { (1, 10) } else { (10, 1) };
        let key = one.open(peers.0, BULK);
        one.write(key, 1_000);
        one.pass(one.now + Duration::from_millis(10));
        other.pass(one.now);
        live(one, other, SECOND);
        let there = StreamKey {
            peer: peers.1,
            ..key
        };
        other.engine.finish(other.now, there).expect("it is open");
        live(one, other, SECOND);
        block(one, true);
        one.write(key, 30_000);
        one.engine.finish(one.now, key).expect("it is open");
        // Streams that have not ended are given up after an hour.
        let open = one.open(peers.0, BULK);
        one.pass(one.now + 3660 * SECOND);
        let given_up = |event: &Event| matches!(event, Event::Reset { id, .. } if *id == open.id);
        assert!(one.has(given_up));
        let cut = |event: &Event| matches!(event, Event::Reset { id, .. } if *id == key.id);
        assert!(!one.has(cut));
        other.pass(one.now);
        block(one, false);
        let mut read = 0;
        for _ in 0..300 {
            live(one, other, Duration::from_millis(10));
            while let Some(bytes) = other.engine.read(other.now, there, usize::MAX) {
                read += bytes.len();
            }
        }
        assert_eq!(read, 31_000);
        let finished = |event: &Event| matches!(event, Event::PeerFinished(id) if *id == key.id);
        assert!(other.has(finished), "durable: {durable}");
    }
}

#[test]
fn the_rest_of_a_stream_that_has_ended_survives_its_node() {
    let disk = Arc::default();
    let (mut terminal, mut hub) = pair_on(&disk, |_| {});
    let (key, written) = ended_in_a_blockage(&mut terminal, &mut hub);
    let mut next = next_run(&terminal, &mut hub, disk);
    let (key, mut read) = (StreamKey { peer: 10, ..key }, 0);
    for _ in 0..500 {
        live(&mut next, &mut hub, Duration::from_millis(10));
        read_all(&mut hub, key, &mut read);
    }
    assert_eq!(read, written);
    assert!(hub.has(|event| matches!(event, Event::PeerFinished(id) if *id == key.id)));
    assert!(!hub.has(|event| matches!(event, Event::Reset { .. })));
    assert_eq!(next.engine.custody(next.now).bundles, 0);
}
