//! Messages of services other than streams.

use std::time::Duration;

use bytes::Bytes;
use underpass_bundle::SendError;
use underpass_engine::{EngineConfig, Message};
use underpass_streams::Event;

use crate::bench::{Node, URGENT, config, live, pair_of};

const SERVICE: u64 = 99;
const HOUR: Duration = Duration::from_secs(3600);

fn with_service(node: u64, neighbour: u64) -> EngineConfig {
    let mut config = config(node, &[neighbour]);
    config.agent.services.insert(SERVICE);
    config
}

fn message(peer: u64, bytes: usize) -> Message {
    Message::new(peer, SERVICE, URGENT, Bytes::from(vec![7; bytes]))
}

fn linked() -> (Node, Node) {
    pair_of(with_service(10, 1), with_service(1, 10))
}

#[test]
fn a_message_reaches_the_same_service_and_is_held_until_then() {
    let (mut terminal, mut hub) = linked();
    let now = terminal.now;
    let sent = terminal.engine.send_message(now, message(1, 500), HOUR);
    let id = sent.expect("there is room");
    assert!(terminal.engine.has_bundle(id));
    live(&mut terminal, &mut hub, Duration::from_millis(300));
    assert!(!terminal.engine.has_bundle(id));
    assert_eq!(hub.messages, [message(10, 500)]);
    assert_eq!(hub.forged, 0);
}

#[test]
fn a_full_store_makes_the_service_wait() {
    let mut small = with_service(10, 1);
    small.agent.store_bytes = 8 << 10;
    let (mut terminal, mut hub) = pair_of(small, with_service(1, 10));
    terminal.engine.block(
        terminal.now,
        terminal.engine.hop_named("hop0").expect("there is one"),
        true,
    );
    let now = terminal.now;
    let first = terminal.engine.send_message(now, message(1, 5_000), HOUR);
    assert!(first.is_ok());
    let second = terminal.engine.send_message(now, message(1, 5_000), HOUR);
    assert_eq!(second, Err(SendError::NoRoom));
    let hop = terminal.engine.hop_named("hop0").expect("there is one");
    terminal.engine.block(now, hop, false);
    live(&mut terminal, &mut hub, Duration::from_millis(300));
    let now = terminal.now;
    let third = terminal.engine.send_message(now, message(1, 5_000), HOUR);
    assert!(third.is_ok());
}

#[test]
fn a_stream_that_begins_does_not_wait_for_all_messages_of_its_class() {
    let mut slow = with_service(10, 1);
    slow.hops[0].send_rate_bps = Some(400_000);
    let (mut terminal, mut hub) = pair_of(slow, with_service(1, 10));
    let now = terminal.now;
    for _ in 0..20 {
        let sent = terminal.engine.send_message(now, message(1, 10_000), HOUR);
        assert!(sent.is_ok());
    }
    terminal.send(1, URGENT, 100);
    // Two messages' time of 4 s.
    live(&mut terminal, &mut hub, Duration::from_millis(400));
    assert!(hub.has(|event| matches!(event, Event::Opened { .. })));
    assert!(hub.messages.len() < 4, "{} of 20", hub.messages.len());
    live(&mut terminal, &mut hub, Duration::from_secs(5));
    assert_eq!(hub.messages.len(), 20);
}

#[test]
fn a_message_without_way_is_refused() {
    let (mut terminal, _) = linked();
    let now = terminal.now;
    let nowhere = terminal.engine.send_message(now, message(77, 5), HOUR);
    assert_eq!(nowhere, Err(SendError::NoRoute));
}

#[test]
fn no_neighbour_speaks_for_another_node() {
    let mut hub = config(1, &[10, 11]);
    hub.agent.services.insert(SERVICE);
    let (mut terminal, mut hub) = pair_of(with_service(10, 1), hub);
    let now = terminal.now;
    let sent = terminal.engine.send_message(now, message(1, 500), HOUR);
    assert!(sent.is_ok());
    // The bundle of node 10 comes in on the session of node 11.
    hub.up(1, 300);
    for (session, transfer) in terminal.offers() {
        let raw = Bytes::from(transfer.chunks.concat());
        let other = underpass_cla::SessionId(session.0 + 200);
        let _ = hub.receive(other, raw);
    }
    assert!(!hub.has(|_| false));
    assert!(hub.messages.is_empty());
    assert_eq!(hub.forged, 1);
}
