//! The behaviour of a node while a link is blocked, and when it is back.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::wire::ipn;
use underpass_cla::{Outcome, Refusal, SessionId, SessionInfo};
use underpass_engine::{HopId, LinkChange, Message, ON_DEMAND_SERVICE, SILENCE, Sign, Source};
use underpass_streams::{Event, ResetCode};

use crate::bench::{BULK, MRU, Node, URGENT, config, exchange, pair, pair_by_two, pair_of};
use crate::paths::two_hops;

const HOP: HopId = HopId(0);
const RTT: Duration = Duration::from_millis(600);
const MS: Duration = Duration::from_millis(1);

fn hear(node: &mut Node) {
    node.engine.heard(node.now, HOP, node.now, Sign::Beacon);
}

fn blocked(node: &Node) -> Option<Source> {
    let hop = node.engine.hops().remove(0);
    assert_eq!(hop.blocked, hop.link.blocked.is_some());
    hop.link.blocked.map(|(source, _)| source)
}

#[test]
fn a_silent_link_gets_nothing_and_takes_streams_in() {
    let (mut terminal, mut hub) = pair();
    hear(&mut terminal);
    terminal.pass(terminal.now + RTT + SILENCE - MS);
    assert_eq!(blocked(&terminal), None);
    terminal.pass(terminal.now + MS);
    assert_eq!(blocked(&terminal), Some(Source::Probing));
    terminal.send(1, URGENT, 5_000);
    terminal.pass(terminal.now + Duration::from_secs(60));
    assert!(terminal.offers().is_empty());

    hear(&mut terminal);
    assert_eq!(blocked(&terminal), None);
    hub.pass(terminal.now);
    exchange(&mut terminal, &mut hub);
    assert!(hub.has(|event| matches!(event, Event::Readable(_))));
    let changes = [
        LinkChange::Blocked(Source::Probing),
        LinkChange::Free(Duration::from_secs(60)),
    ];
    assert_eq!(terminal.changes, changes);
}

#[test]
fn at_a_planned_end_bundles_leave_without_a_sign_of_the_peer() {
    let (mut terminal, _) = pair();
    hear(&mut terminal);
    let now = terminal.now;
    terminal.expect_blockage(HOP, 100, 30_000);
    terminal.pass(now + 100 * MS);
    assert_eq!(blocked(&terminal), Some(Source::Plan));
    terminal.send(1, URGENT, 5_000);
    terminal.pass(now + 29_999 * MS);
    assert!(terminal.offers().is_empty());
    terminal.pass(now + 30_000 * MS);
    assert_eq!(terminal.offers().len(), 1);
}

#[test]
fn a_bundle_that_arrives_is_a_sign_that_the_link_is_there() {
    let (mut terminal, mut hub) = pair();
    hear(&mut terminal);
    terminal.pass(terminal.now + Duration::from_secs(5));
    assert_eq!(blocked(&terminal), Some(Source::Probing));
    hub.pass(terminal.now);
    hub.send(10, URGENT, 100);
    let offered = hub.offers().remove(0);
    hub.carry(offered, &mut terminal);
    assert_eq!(blocked(&terminal), None);
}

/// Another hop could carry the bundle, so a silence of a round trip and 200 ms would be
/// enough for a blockage.
#[test]
fn a_peer_that_acknowledges_what_was_sent_since_it_was_deaf_hears() {
    let deaf = |node: &mut Node| node.engine.heard(node.now, HOP, node.now, Sign::Deaf);
    for sent_since in [true, false] {
        let (mut terminal, _hub) = pair_by_two(two_hops(10, 1), two_hops(1, 10));
        hear(&mut terminal);
        let began = terminal.now;
        if sent_since {
            deaf(&mut terminal);
            terminal.pass(began + 10 * MS);
        }
        terminal.send(1, BULK, 5_000);
        let (session, transfer) = terminal.offers().remove(0);
        assert!(session.0 < 200, "{session:?}");
        terminal.pass(began + 20 * MS);
        deaf(&mut terminal);
        terminal.pass(began + 150 * MS);
        deaf(&mut terminal);
        // The rest of it is in flight.
        terminal.engine.transfer_progress(transfer.key, 1_000);
        terminal.pass(began + 300 * MS);
        let expected = (!sent_since).then_some(Source::Probing);
        assert_eq!(blocked(&terminal), expected);
    }
}

#[test]
fn a_link_is_free_for_a_peer_that_comes_back_without_beacons() {
    let (mut terminal, _) = pair();
    hear(&mut terminal);
    terminal.pass(terminal.now + Duration::from_secs(5));
    for session in 100..103 {
        let now = terminal.now;
        terminal.engine.session_down(now, SessionId(session));
    }
    assert_eq!(blocked(&terminal), Some(Source::Probing));
    terminal.up(0, 200);
    assert_eq!(blocked(&terminal), None);
    terminal.pass(terminal.now + Duration::from_secs(3600));
    assert_eq!(blocked(&terminal), None);
}

#[test]
fn connections_are_held_for_the_configured_time_of_a_blockage_and_no_longer() {
    let mut brief = config(10, &[1]);
    brief.hold = Duration::from_secs(100);
    let (mut terminal, _) = pair_of(brief, config(1, &[10]));
    let old = terminal.open(1, BULK);
    let now = terminal.now;
    terminal.engine.block(now, HOP, true);
    terminal.pass(now + Duration::from_secs(60));
    let young = terminal.open(1, BULK);
    let reset = |id| {
        move |event: &Event| {
            matches!(event, Event::Reset { id: reset, code, .. }
                if *reset == id && *code == ResetCode::TimedOut)
        }
    };
    terminal.pass(now + Duration::from_secs(99));
    assert!(!terminal.has(reset(old.id)));
    terminal.pass(now + Duration::from_secs(100));
    assert!(terminal.has(reset(old.id)));
    assert!(!terminal.has(reset(young.id)));
    terminal.pass(now + Duration::from_secs(160));
    assert!(terminal.has(reset(young.id)));
}

/// Bulk in flight at the entry; urgent and bulk bytes that came in since.
#[test]
fn after_a_blockage_the_higher_class_goes_first_and_then_the_older_bundle() {
    let (mut terminal, _) = pair();
    terminal.send(1, BULK, 30_000);
    let in_flight = terminal.offers();
    assert_eq!(in_flight.len(), 1);
    let now = terminal.now;
    terminal.engine.block(now, HOP, true);
    // Meanwhile the session is given up, and its class's standby is set up.
    for (session, transfer) in in_flight {
        let broken = Outcome::Broken { acknowledged: 0 };
        terminal.finish(transfer.key, broken);
        terminal.engine.session_down(now, session);
    }
    terminal.session(0, 202, Some(BULK), MRU);
    terminal.send(1, BULK, 40_000);
    terminal.send(1, URGENT, 300);
    terminal.pass(now + Duration::from_secs(20));
    assert!(terminal.offers().is_empty());

    terminal.engine.block(terminal.now, HOP, false);
    let mut offered = terminal.offers();
    terminal.ready(SessionId(202));
    offered.extend(terminal.offers());
    let sizes: Vec<u64> = offered.iter().map(|(_, t)| t.len() / 1_000).collect();
    let sessions: Vec<u64> = offered.iter().map(|(session, _)| session.0).collect();
    assert_eq!(sessions, [101, 202, 202]);
    assert_eq!(sizes, [0, 30, 40]);
}

fn only_receives(info: &mut SessionInfo) {
    info.receives_only = true;
    info.hears_refusals = false;
    info.acknowledges = false;
    info.resumes = false;
    info.transfer_mru_bytes = 1;
}

#[test]
fn a_neighbour_that_only_sends_is_heard_and_not_reached() {
    let now = Instant::now();
    let (mut node, mut sensor) = (
        Node::new(now, config(10, &[1])),
        Node::new(now, config(1, &[10])),
    );
    sensor.session(0, 100, None, MRU);
    // The test calls the session ready, which such a session never does itself.
    node.session_with(0, 100, None, only_receives);
    node.send(1, URGENT, 500);
    node.pass(node.now + Duration::from_secs(1));
    let hop = node.engine.hops().remove(0);
    assert!(!hop.up);
    assert_eq!(hop.link.heard, Some(now));
    let [session] = &hop.sessions[..] else {
        panic!("{:?}", hop.sessions);
    };
    assert!(session.receives_only && !session.carrying);

    // The bundles that it sends are accepted.
    sensor.send(10, URGENT, 500);
    for offered in sensor.offers() {
        sensor.carry(offered, &mut node);
    }
    let traffic = node.engine.hops().remove(0).traffic;
    assert!(traffic.iter().any(|traffic| traffic.received_bundles > 0));
    assert_eq!(node.engine.last_heard(HOP), Some(node.now));
    assert!(node.offers().is_empty());

    // Waiting bundles go only by a session that can carry them.
    node.session(0, 200, None, MRU);
    assert!(node.engine.hops().remove(0).up);
    node.pass(node.now + Duration::from_secs(1));
    let offers = node.offers();
    assert!(!offers.is_empty());
    assert!(offers.iter().all(|(id, _)| *id == SessionId(200)));

    // One session comes and goes, and the other stays.
    node.engine.session_down(node.now, SessionId(100));
    assert!(node.engine.hops().remove(0).up);
    node.session_with(0, 300, None, only_receives);
    node.offers();
    assert!(node.aborted.is_empty());
    node.engine.session_down(node.now, SessionId(200));
    let hop = node.engine.hops().remove(0);
    assert!(!hop.up);
    assert_eq!(hop.sessions.len(), 1);
}

#[test]
fn sessions_that_only_receive_end_no_other() {
    let mut node = Node::new(Instant::now(), config(10, &[1]));
    node.session(0, 100, None, MRU);
    for id in 101..130 {
        node.session_with(0, id, None, only_receives);
        assert!(node.offers().iter().all(|(id, _)| *id == SessionId(100)));
    }
    assert!(!node.aborted.is_empty());
    assert!(!node.aborted.contains(&SessionId(100)));
    // The sessions that were ended go down at last.
    for id in 101..130 {
        node.engine.session_down(node.now, SessionId(id));
    }
    let hop = node.engine.hops().remove(0);
    assert_eq!((hop.up, hop.sessions.len()), (true, 1));
}

#[test]
fn a_long_bundle_without_room_is_refused_only_to_one_that_hears_of_it() {
    let now = Instant::now();
    let mut of_hub = config(1, &[10, 20]);
    of_hub.agent.store_bundles = 10;
    let (mut hub, mut sensor) = (Node::new(now, of_hub), Node::new(now, config(10, &[1])));
    hub.session(0, 100, None, MRU);
    hub.session_with(0, 200, None, only_receives);
    hub.session(1, 300, None, MRU);
    // As over UDP, where both ends send.
    hub.session_with(0, 400, None, |info| info.hears_refusals = false);
    sensor.session(0, 100, None, MRU);
    sensor.send(1, URGENT, 500);
    let (_, transfer) = sensor.offers().remove(0);
    let mut decoder = hub.engine.decoder().long();
    let raw = Bytes::from(transfer.chunks.concat());
    decoder.take(raw).expect("a bundle");
    let (opened, _) = decoder.opened().expect("its payload has begun");
    let mut long = opened.clone();
    long.primary.destination = ipn(20, 40);
    let judge = |hub: &mut Node, session| {
        let (now, session) = (hub.now, SessionId(session));
        hub.engine.judge_long(now, session, &long)
    };
    assert_eq!(judge(&mut hub, 100), Ok(()));
    let fills = |hub: &mut Node| {
        let message = Message::new(20, ON_DEMAND_SERVICE, BULK, Bytes::from_static(&[0]));
        let sent = hub
            .engine
            .send_message(hub.now, message, Duration::from_secs(60));
        sent.is_ok()
    };
    while fills(&mut hub) {}
    assert_eq!(judge(&mut hub, 100), Err(Refusal::NoResources));
    assert_eq!(judge(&mut hub, 200), Ok(()));
    assert_eq!(judge(&mut hub, 400), Ok(()));
}
