//! Bundles both ways, and sessions that end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use underpass_cla::{Class, Down, Outcome, Refusal, Session};
use underpass_quic::{Dialer, Listener};

use crate::{End, Pair, hub, terminal};
use underpass_cla_testing::node::{TestNode, transfer};
use underpass_cla_testing::pki::Ca;

/// The most attempts at something that must take no longer than some time.
const ATTEMPTS: u64 = 20;

#[tokio::test]
async fn a_bundle_each_way_arrives_and_is_acknowledged() {
    let mut pair = Pair::new().await;
    let (from, to) = (&mut pair.near, &mut pair.far);
    from.node.ready(from.id).await;
    to.node.ready(to.id).await;
    let (offered, whole) = transfer(7, 300_000);
    from.session.offer(offered);
    assert_eq!(to.node.received().await.1, whole);
    assert!(from.node.progress().await >= 65_536);
    assert_eq!(from.node.finished().await, (7, Outcome::Acknowledged));
    let (from, to) = (&mut pair.far, &mut pair.near);
    let (offered, whole) = transfer(8, 1);
    from.session.offer(offered);
    assert_eq!(to.node.received().await.1, whole);
    assert_eq!(from.node.finished().await, (8, Outcome::Acknowledged));
    let figures = pair.near.session.figures();
    assert!(figures.sent_bytes > 300_000 && figures.delivered_bytes > 250_000);
    assert!(figures.heard_ago.is_some() && figures.min_rtt > Duration::ZERO);
}

#[tokio::test]
async fn a_hundred_bundles_at_once_arrive_each_once() {
    let mut pair = Pair::new().await;
    pair.near.node.ready(pair.near.id).await;
    for key in 0..100 {
        pair.near.session.offer(transfer(key, 20_000).0);
    }
    let mut finished = BTreeSet::new();
    while finished.len() < 100 {
        let (key, outcome) = pair.near.node.finished().await;
        assert_eq!(outcome, Outcome::Acknowledged);
        assert!(finished.insert(key));
    }
    for _ in 0..100 {
        assert_eq!(pair.far.node.received().await.1.len(), 20_000);
    }
}

#[tokio::test]
async fn a_refused_bundle_is_reported_and_the_session_goes_on() {
    let mut pair = Pair::new().await;
    *pair.far.node.verdict.lock().expect("no panic") = Err(Refusal::NoResources);
    pair.near.node.ready(pair.near.id).await;
    pair.near.session.offer(transfer(1, 500_000).0);
    let refused = Outcome::Refused(Refusal::NoResources);
    assert_eq!(pair.near.node.finished().await, (1, refused));
    *pair.far.node.verdict.lock().expect("no panic") = Ok(());
    pair.near.session.offer(transfer(2, 500_000).0);
    assert_eq!(pair.near.node.finished().await, (2, Outcome::Acknowledged));
}

#[tokio::test]
async fn a_bundle_above_the_peers_limit_is_refused() {
    let mut pair = Pair::new().await;
    pair.near.node.ready(pair.near.id).await;
    pair.near.session.offer(transfer(1, (4 << 20) + 1).0);
    let refused = Outcome::Refused(Refusal::NotAcceptable);
    assert_eq!(pair.near.node.finished().await, (1, refused));
    pair.near.session.offer(transfer(2, 10).0);
    assert_eq!(pair.near.node.finished().await, (2, Outcome::Acknowledged));
}

#[tokio::test]
async fn a_session_that_ends_in_order_finishes_what_is_under_way() {
    let mut pair = Pair::new().await;
    pair.near.node.ready(pair.near.id).await;
    pair.near.session.offer(transfer(1, 200_000).0);
    pair.near.session.close();
    assert_eq!(pair.near.node.finished().await, (1, Outcome::Acknowledged));
    assert_eq!(pair.near.node.down().await.1, Down::Closed);
    assert_eq!(pair.far.node.down().await.1, Down::Closed);
}

#[tokio::test]
async fn a_peer_that_goes_in_mid_bundle_breaks_the_transfer() {
    let mut pair = Pair::new().await;
    pair.near.node.ready(pair.near.id).await;
    pair.near.session.set_rate(Some(4_000_000));
    pair.near.session.offer(transfer(1, 2_000_000).0);
    let acknowledged = pair.near.node.progress().await;
    pair.far.session.abort("as if killed");
    let (key, outcome) = pair.near.node.finished().await;
    assert_eq!(key, 1);
    assert!(matches!(outcome, Outcome::Broken { acknowledged: told } if told >= acknowledged));
    assert!(matches!(pair.near.node.down().await.1, Down::Broken(_)));
    // The terminal dials it again.
    pair.near.node.up().await;
    pair.far.node.up().await;
    assert_eq!(pair.listener.registry().len(), 1);
}

#[tokio::test]
async fn the_rate_is_kept() {
    let mut pair = Pair::new().await;
    pair.near.node.ready(pair.near.id).await;
    pair.near.session.set_rate(Some(8_000_000));
    // The rate is never exceeded. Other programs may delay this one, so reaching it once
    // is enough.
    let mut took = f64::INFINITY;
    for key in 1..=ATTEMPTS {
        let begun = Instant::now();
        pair.near.session.offer(transfer(key, 1_000_000).0);
        pair.near.node.finished().await;
        took = begun.elapsed().as_secs_f64();
        assert!(took >= 0.95, "{took}");
        if took < 2.0 {
            return;
        }
    }
    panic!("{took} s for what takes one");
}

#[tokio::test]
async fn a_blockage_stops_sending_and_its_end_starts_it_at_once() {
    let mut pair = Pair::new().await;
    pair.near.node.ready(pair.near.id).await;
    // Other programs may delay this one, so one prompt start is enough.
    let mut took = Duration::MAX;
    for key in 1..=ATTEMPTS {
        pair.near.session.suspend(true);
        pair.near.session.offer(transfer(key, 100_000).0);
        nothing_leaves(&pair.near).await;
        assert_eq!(pair.near.session.figures().unsent_bytes, 100_000);
        let resumed = Instant::now();
        pair.near.session.suspend(false);
        let finished = pair.near.node.finished().await;
        took = resumed.elapsed();
        assert_eq!(finished, (key, Outcome::Acknowledged));
        if took < Duration::from_secs(1) {
            return;
        }
    }
    panic!("it took {took:?}");
}

#[tokio::test]
async fn an_idle_session_shows_life_seldom_while_its_link_rests_and_whenever_it_is_asked() {
    let ca = Ca::new();
    let (mut near, mut far) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(&ca), far.node.clone()).expect("a free port");
    let mut dialling = terminal(&ca, listener.local_addr());
    // A peer that is silent for twice this time counts as gone, even while other programs
    // delay this one.
    dialling.session.keepalive_s = 3;
    dialling.session.resting_keepalive_s = 600;
    let _dialer = Dialer::spawn(dialling, near.node.clone());
    let (_, _, session) = near.up().await;
    let (_, _, of_peer) = far.up().await;
    shows_life(&*session, &*of_peer, 1).await;
    session.rest(true);
    // One keepalive may be about to leave.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = session.figures().keepalives_sent;
    tokio::time::sleep(Duration::from_millis(4_000)).await;
    assert_eq!(session.figures().keepalives_sent, before);
    session.ask();
    shows_life(&*session, &*of_peer, before + 1).await;
    session.rest(false);
    shows_life(&*session, &*of_peer, before + 2).await;
}

/// Waits until this many keepalives have left and have reached the peer.
async fn shows_life(session: &dyn Session, of_peer: &dyn Session, times: u64) {
    let shown = async {
        while session.figures().keepalives_sent < times
            || of_peer.figures().keepalives_received < times
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let shown = tokio::time::timeout(Duration::from_secs(60), shown).await;
    shown.expect("it shows life");
}

/// Waits until nothing has left for a while: other programs may delay acknowledgements of
/// earlier messages.
async fn nothing_leaves(end: &End) {
    for _ in 0..ATTEMPTS {
        let before = end.session.figures().sent_bytes;
        tokio::time::sleep(Duration::from_millis(300)).await;
        if end.session.figures().sent_bytes == before {
            return;
        }
    }
    panic!("bytes leave");
}

#[tokio::test]
async fn each_class_has_a_session_and_a_standby_behind_it() {
    let ca = Ca::new();
    let (mut near, mut far) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(&ca), far.node.clone()).expect("a free port");
    let mut dialling = terminal(&ca, listener.local_addr());
    dialling.classes = vec![Class(0), Class(1)];
    dialling.standby = true;
    let dialer = Dialer::spawn(dialling, near.node.clone());
    for node in [&mut near, &mut far] {
        let mut seen = BTreeSet::new();
        for _ in 0..4 {
            let (_, info, _) = node.up().await;
            seen.insert((info.class, info.standby));
        }
        assert_eq!(seen.len(), 4);
    }
    assert_eq!(dialer.registry().len(), 4);
    dialer.shutdown().await;
    listener.shutdown();
    listener.closed().await;
}
