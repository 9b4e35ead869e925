//! Which node keeps a bundle, and until when.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::Send;
use underpass_bundle::wire::ipn;
use underpass_cla::{Class, Outcome, Refusal, SessionId};
use underpass_streams::{Event, ResetCode};

use crate::bench::{BULK, MRU, Node, config, exchange, live, pair, pair_of, route};

#[test]
fn a_relay_forwards_with_and_without_custody() {
    for custody in [true, false] {
        let now = Instant::now();
        let mut terminal = config(10, &[5]);
        terminal.routes.push(route(1, 5, custody));
        let mut relay = config(5, &[1, 10]);
        relay.edge = false;
        relay.routes = vec![route(1, 1, custody), route(10, 10, custody)];
        let mut hub = config(1, &[5]);
        hub.routes.push(route(10, 5, custody));
        let [mut terminal, mut relay, mut hub] =
            [terminal, relay, hub].map(|config| Node::new(now, config));
        terminal.up(0, 100);
        relay.up(1, 100);
        terminal.send(1, BULK, 5_000);
        live(&mut terminal, &mut relay, Duration::from_millis(300));
        // If the relay takes no custody, the terminal keeps its bundles until the hub
        // signals.
        assert_eq!(terminal.destinations().is_empty(), custody);
        relay.up(0, 200);
        hub.pass(relay.now);
        hub.up(0, 200);
        for _ in 0..100 {
            exchange_three(&mut terminal, &mut relay, &mut hub);
        }
        assert!(hub.has(|event| matches!(event, Event::Readable(_))));
        for node in [&terminal, &relay, &hub] {
            assert!(node.destinations().is_empty(), "custody {custody}");
        }
    }
}

fn exchange_three(terminal: &mut Node, relay: &mut Node, hub: &mut Node) {
    for (session, transfer) in relay.offers() {
        let to = if session.0 < 200 {
            &mut *terminal
        } else {
            &mut *hub
        };
        relay.carry((session, transfer), to);
    }
    for offered in terminal.offers() {
        terminal.carry(offered, relay);
    }
    for offered in hub.offers() {
        hub.carry(offered, relay);
    }
    let at = terminal.now + Duration::from_millis(10);
    for node in [terminal, relay, hub] {
        node.pass(at);
    }
}

#[test]
fn edge_nodes_behind_one_neighbour_take_turns() {
    let mut hub = config(1, &[5]);
    hub.routes = [10, 11, 12].map(|node| route(node, 5, true)).to_vec();
    let mut hub = Node::new(Instant::now(), hub);
    hub.session(0, 1, Some(BULK), 8_192);
    hub.engine.session_down(hub.now, SessionId(1));
    for peer in [10, 11, 12] {
        hub.send(peer, BULK, 60_000);
    }
    hub.session(0, 2, Some(BULK), 8_192);
    for _ in 0..8 {
        hub.ready(SessionId(2));
    }
    let turns = hub.destinations();
    assert_eq!(turns[..6], [10, 11, 12, 10, 11, 12]);
}

#[test]
fn very_many_bundles_for_a_node_without_room_hold_up_none_for_another() {
    let mut hub = config(1, &[5]);
    hub.routes = [10, 11].map(|node| route(node, 5, false)).to_vec();
    let mut hub = Node::new(Instant::now(), hub);
    let send = |hub: &mut Node, node| {
        let payload = vec![Bytes::from_static(b"data")];
        let send = Send::new(ipn(node, 99), 99, BULK, payload);
        let sent = hub.engine.send_for_application(hub.now, send, None);
        sent.expect("there is room");
    };
    for _ in 0..2_000 {
        send(&mut hub, 10);
    }
    send(&mut hub, 11);
    hub.session(0, 1, Some(BULK), MRU);
    let (session, full) = hub.offers().remove(0);
    hub.finish(full.key, Outcome::Refused(Refusal::NoResources));
    hub.ready(session);
    // It is too soon to ask again whether there is room.
    hub.pass(hub.now + Duration::from_millis(200));
    assert_eq!(hub.offers().len(), 1);
}

#[test]
fn a_bundle_that_expires_resets_its_streams_and_no_others() {
    let mut brief = config(10, &[1]);
    brief.lifetime = Duration::from_secs(5);
    let (mut terminal, mut hub) = pair_of(brief, config(1, &[10]));
    let lost = terminal.send(1, BULK, 100);
    let (session, transfer) = terminal.offers().remove(0);
    terminal.finish(transfer.key, Outcome::Broken { acknowledged: 0 });
    terminal.engine.session_down(terminal.now, session);
    terminal.pass(terminal.now + Duration::from_secs(4));
    hub.pass(terminal.now);
    let other = terminal.send(1, Class(1), 100);
    live(&mut terminal, &mut hub, Duration::from_secs(2));
    let expired = |event: &Event| match event {
        Event::Reset { id, code, .. } => *code == ResetCode::Expired && *id == lost.id,
        _ => false,
    };
    assert!(terminal.has(expired));
    assert!(!terminal.has(|event| matches!(event, Event::Reset { id, .. } if *id == other.id)));
    assert!(terminal.destinations().is_empty());
}

#[test]
fn a_standby_takes_over_and_what_was_in_flight_goes_again() {
    let (mut terminal, _hub) = pair();
    terminal.session(0, 200, Some(BULK), MRU);
    terminal.send(1, BULK, 10_000);
    let (session, transfer) = terminal.offers().remove(0);
    assert_eq!(session, SessionId(102));
    terminal.finish(
        transfer.key,
        Outcome::Broken {
            acknowledged: 4_000,
        },
    );
    terminal.engine.session_down(terminal.now, session);
    let again = terminal.offers();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].0, SessionId(200));
    assert_eq!(again[0].1.len(), transfer.len());
}

#[test]
fn two_full_stores_still_take_in_what_is_for_them() {
    let small = |node, neighbour| {
        let mut config = config(node, &[neighbour]);
        config.agent.store_bytes = 100_000;
        config
    };
    let (mut terminal, mut hub) = pair_of(small(10, 1), small(1, 10));
    terminal.send(1, BULK, 200_000);
    hub.send(10, BULK, 200_000);
    for node in [&mut terminal, &mut hub] {
        assert_eq!(node.destinations().len(), 1);
        assert!(node.engine.custody(node.now).used_bytes > 90_000);
        assert_eq!(
            node.engine.admit(node.now, SessionId(102), Some(60_000)),
            Ok(())
        );
    }
    live(&mut terminal, &mut hub, Duration::from_secs(2));
    assert!(terminal.destinations().is_empty() && hub.destinations().is_empty());
}

#[test]
fn a_malformed_bundle_hurts_nobody() {
    let (mut terminal, mut hub) = pair();
    terminal.send(1, BULK, 1_000);
    let (session, transfer) = terminal.offers().remove(0);
    let good = transfer.chunks.concat();
    let used = hub.engine.custody(hub.now).used_bytes;
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 0xFF;
        // Either outcome is right: a relay may renew the CRCs of some blocks.
        let _ = hub.receive(session, Bytes::from(bad));
        let cut = Bytes::copy_from_slice(&good[..place]);
        let outcome = hub.receive(session, cut);
        assert_eq!(outcome, Err(Refusal::NotAcceptable));
    }
    assert!(!hub.has(|event| matches!(event, Event::Reset { .. })));
    assert_eq!(hub.engine.custody(hub.now).used_bytes, used);
}

#[test]
fn a_node_speaks_in_no_name_but_its_own() {
    let now = Instant::now();
    let mut hub = Node::new(now, config(1, &[10, 11]));
    hub.up(0, 100);
    hub.up(1, 200);
    hub.offers();
    // Node 11's bundle arrives from node 10.
    let mut impostor = Node::new(now, config(11, &[1]));
    impostor.up(0, 100);
    impostor.send(1, BULK, 100);
    for (session, transfer) in impostor.offers() {
        let raw = Bytes::from(transfer.chunks.concat());
        let outcome = hub.receive(session, raw);
        assert_eq!(outcome, Err(Refusal::NotAcceptable));
    }
    assert!(!hub.has(|_| true));
    assert!(hub.forged > 0);
}

#[test]
fn a_stream_in_a_class_that_is_not_known_here_is_answered_in_the_default_class() {
    let mut rich = config(10, &[1]);
    let mut extra = rich.scheduler.classes[2];
    extra.class = Class(9);
    rich.scheduler.classes.push(extra);
    let (mut terminal, mut hub) = pair_of(rich, config(1, &[10]));
    terminal.session(0, 109, Some(Class(9)), MRU);
    hub.session(0, 109, Some(Class(9)), MRU);
    let key = terminal.send(1, Class(9), 100);
    exchange(&mut terminal, &mut hub);
    assert!(hub.has(|event| matches!(event, Event::Readable(_))));
    let answer = underpass_engine::StreamKey { peer: 10, ..key };
    hub.write(answer, 100);
    let offers = hub.offers();
    assert_eq!(offers[0].0, SessionId(100 + u64::from(BULK.0)));
}

/// A terminal, a relay that takes custody of this many bundles, and a hub behind it;
/// other nodes beside the hub are down.
fn relayed(lifetime: Duration, store_bundles: usize, beside: &[u64]) -> [Node; 3] {
    let now = Instant::now();
    let behind: Vec<u64> = [&[1], beside].concat();
    let mut terminal = config(10, &[5]);
    terminal.routes = behind.iter().map(|node| route(*node, 5, true)).collect();
    let neighbours = [&[1, 10], beside].concat();
    let mut relay = config(5, &neighbours);
    relay.edge = false;
    relay.agent.store_bundles = store_bundles;
    let itself = |node: &u64| route(*node, *node, true);
    relay.routes = neighbours.iter().map(itself).collect();
    let mut hub = config(1, &[5]);
    hub.routes.push(route(10, 5, true));
    for config in [&mut terminal, &mut relay, &mut hub] {
        config.lifetime = lifetime;
    }
    let [mut terminal, mut relay, mut hub] =
        [terminal, relay, hub].map(|config| Node::new(now, config));
    terminal.up(0, 100);
    relay.up(1, 100);
    relay.up(0, 200);
    hub.up(0, 200);
    for _ in 0..100 {
        exchange_three(&mut terminal, &mut relay, &mut hub);
    }
    [terminal, relay, hub]
}

#[test]
fn a_bundle_that_expires_at_a_relay_resets_its_stream_at_both_ends() {
    let lifetime = Duration::from_secs(10);
    for opened_before in [true, false] {
        let [mut terminal, mut relay, mut hub] = relayed(lifetime, 1_000, &[]);
        let early = opened_before.then(|| terminal.open(1, BULK));
        for _ in 0..100 {
            exchange_three(&mut terminal, &mut relay, &mut hub);
        }
        for session in 200..203 {
            relay.engine.session_down(relay.now, SessionId(session));
            hub.engine.session_down(hub.now, SessionId(session));
        }
        let key = early.unwrap_or_else(|| terminal.open(1, BULK));
        terminal.write(key, 5_000);
        live(&mut terminal, &mut relay, Duration::from_millis(500));
        assert!(terminal.destinations().is_empty(), "the relay has it");
        assert_eq!(relay.destinations().len(), 1);
        live(&mut terminal, &mut relay, lifetime);
        assert!(relay.destinations().is_empty(), "its lifetime is over");
        hub.pass(relay.now);
        relay.up(0, 300);
        hub.up(0, 300);
        for _ in 0..2_500 {
            exchange_three(&mut terminal, &mut relay, &mut hub);
        }
        let expired = |event: &Event| match event {
            Event::Reset { id, code, .. } => *id == key.id && *code == ResetCode::Expired,
            _ => false,
        };
        assert!(terminal.has(expired));
        assert_eq!(hub.has(expired), opened_before);
    }
}

#[test]
fn nothing_more_is_sealed_for_a_node_that_a_relay_has_no_room_for() {
    const BYTES: usize = 400;
    const WRITES: usize = 600;
    let [mut terminal, mut relay, mut hub] = relayed(Duration::from_secs(3600), 20, &[2]);
    for session in 200..203 {
        relay.engine.session_down(relay.now, SessionId(session));
        hub.engine.session_down(hub.now, SessionId(session));
    }
    let key = terminal.open(1, BULK);
    let mut written = 0;
    for _ in 0..2_000 {
        if written < WRITES && terminal.engine.send_capacity(key) >= BYTES {
            terminal.write(key, BYTES);
            written += 1;
        }
        exchange_three(&mut terminal, &mut relay, &mut hub);
    }
    // Bundles in flight when the first was refused, and a few that have asked since.
    let waiting = terminal.destinations().len();
    assert!((1..40).contains(&waiting), "{waiting}");

    // Bundles to other nodes go on.
    let other = terminal.open(2, BULK);
    terminal.write(other, BYTES);
    for _ in 0..50 {
        exchange_three(&mut terminal, &mut relay, &mut hub);
    }
    assert!(relay.destinations().contains(&2));
    assert!(!terminal.destinations().contains(&2));

    // Nothing is lost, and there is no delay once the relay has accepted a bundle.
    relay.up(0, 300);
    hub.up(0, 300);
    let mut read = 0;
    for _ in 0..3_000 {
        if written < WRITES && terminal.engine.send_capacity(key) >= BYTES {
            terminal.write(key, BYTES);
            written += 1;
        }
        exchange_three(&mut terminal, &mut relay, &mut hub);
        read += hub.read_all(10, key);
    }
    assert_eq!((written, read), (WRITES, WRITES * BYTES));
    assert!(!terminal.destinations().contains(&1));
}
