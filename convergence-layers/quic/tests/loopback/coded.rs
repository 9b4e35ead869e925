//! Bundles as coded datagrams over real connections.

use std::sync::Arc;
use std::time::Duration;

use underpass_cla::{Class, Outcome, Refusal, Session};
use underpass_cla_testing::node::{TestNode, transfer};
use underpass_cla_testing::pki::Ca;
use underpass_quic::{Coding, Dialer, Listener};

use crate::{End, hub, terminal};

/// A session of one class, each side with its own coding.
struct Coded {
    near: End,
    far: End,
    _dialer: Dialer,
    _listener: Listener,
}

async fn coded(near_coding: Coding, far_coding: Coding) -> Coded {
    let ca = Ca::new();
    let (mut near, mut far) = (TestNode::new(), TestNode::new());
    let mut listening = hub(&ca);
    listening.session.coding = Arc::new([far_coding]);
    let listener = Listener::bind(listening, far.node.clone()).expect("a free port");
    let mut dialling = terminal(&ca, listener.local_addr());
    dialling.classes = vec![Class(0)];
    dialling.session.coding = Arc::new([near_coding]);
    let dialer = Dialer::spawn(dialling, near.node.clone());
    let (id, _, session) = near.up().await;
    let (far_id, _, far_session) = far.up().await;
    let end = |node, id, session| End { node, id, session };
    Coded {
        near: end(near, id, session),
        far: end(far, far_id, far_session),
        _dialer: dialer,
        _listener: listener,
    }
}

/// Sends until a bundle has gone as symbols: bundles that are offered before the peer has
/// said that it takes symbols go as streams.
async fn send_until_coded(from: &mut End, to: &mut End) {
    for key in 1000..1100 {
        from.session.offer(transfer(key, 5_000).0);
        assert_eq!(to.node.received().await.1, transfer(key, 5_000).1);
        assert_eq!(from.node.finished().await, (key, Outcome::Acknowledged));
        if symbols(&from.session) > 0 {
            return;
        }
    }
    panic!("nothing went as symbols");
}

fn symbols(session: &Arc<dyn Session>) -> u64 {
    session.figures().coded.symbols_sent
}

#[tokio::test]
async fn bundles_go_as_symbols_both_ways_and_arrive_whole() {
    let mut pair = coded(Coding::Always, Coding::Tail).await;
    send_until_coded(&mut pair.near, &mut pair.far).await;
    send_until_coded(&mut pair.far, &mut pair.near).await;
    let before = symbols(&pair.near.session);
    let (offered, whole) = transfer(1, 700_000);
    pair.near.session.offer(offered);
    assert_eq!(pair.far.node.received().await.1, whole);
    assert_eq!(pair.near.node.finished().await, (1, Outcome::Acknowledged));
    assert!(symbols(&pair.near.session) - before > 700_000 / 1_500);
}

#[tokio::test]
async fn a_class_that_is_not_coded_has_streams_and_still_takes_symbols() {
    let mut pair = coded(Coding::Always, Coding::Never).await;
    send_until_coded(&mut pair.near, &mut pair.far).await;
    pair.far.session.offer(transfer(2, 50_000).0);
    assert_eq!(pair.near.node.received().await.1.len(), 50_000);
    assert_eq!(pair.far.node.finished().await, (2, Outcome::Acknowledged));
    assert_eq!(symbols(&pair.far.session), 0);
}

#[tokio::test]
async fn a_refused_coded_bundle_is_reported_and_the_session_goes_on() {
    let mut pair = coded(Coding::Tail, Coding::Tail).await;
    send_until_coded(&mut pair.near, &mut pair.far).await;
    for refusal in [Refusal::NoResources, Refusal::NotAcceptable] {
        *pair.far.node.verdict.lock().expect("no panic") = Err(refusal);
        pair.near.session.offer(transfer(3, 90_000).0);
        let refused = Outcome::Refused(refusal);
        assert_eq!(pair.near.node.finished().await, (3, refused));
    }
    *pair.far.node.verdict.lock().expect("no panic") = Ok(());
    pair.near.session.offer(transfer(4, 90_000).0);
    assert_eq!(pair.near.node.finished().await, (4, Outcome::Acknowledged));
}

#[tokio::test]
async fn a_coded_bundle_that_is_refused_before_all_of_it_has_left_makes_room_for_the_next() {
    let mut pair = coded(Coding::Always, Coding::Always).await;
    send_until_coded(&mut pair.near, &mut pair.far).await;
    // The whole bundle would take half a minute.
    pair.near.session.set_rate(Some(200_000));
    *pair.far.node.verdict.lock().expect("no panic") = Err(Refusal::NoResources);
    pair.near.session.offer(transfer(6, 800_000).0);
    let refused = Outcome::Refused(Refusal::NoResources);
    assert_eq!(pair.near.node.finished().await, (6, refused));
    let near = &mut pair.near;
    assert!(near.node.try_ready(near.id, Duration::from_secs(15)).await);
    assert_eq!(near.session.figures().unsent_bytes, 0);
}

#[tokio::test]
async fn coded_bundles_under_way_end_with_the_session() {
    let mut pair = coded(Coding::Always, Coding::Always).await;
    send_until_coded(&mut pair.near, &mut pair.far).await;
    pair.near.session.set_rate(Some(1_000_000));
    pair.near.session.offer(transfer(5, 800_000).0);
    pair.near.node.ready(pair.near.id).await;
    pair.near.session.abort("as if killed");
    let (key, outcome) = pair.near.node.finished().await;
    assert_eq!(key, 5);
    assert!(matches!(outcome, Outcome::Broken { .. }), "{outcome:?}");
}
