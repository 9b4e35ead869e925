use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing::Level;
use underpass_cla::{Activity, Class, Down, Outcome, Refusal};
use underpass_tcpcl::{Dialer, Listener, ListenerConfig, SlotStatus};

use super::{hub, terminal};
use underpass_cla_testing::log::Log;
use underpass_cla_testing::node::{TestNode, transfer};

const CONTACT: &[u8] = b"dtn!\x04\0";
/// The first bytes of a peer without extensions.
pub(super) const CONTACT_AND_INIT: &[u8] = b"dtn!\x04\0\
    \x07\0\x1e\0\0\0\0\0\x10\0\0\0\0\0\0\0\x10\0\0\0\x07ipn:9.0\0\0\0\0";

#[tokio::test]
async fn bundles_of_all_sizes_arrive_whole_in_both_directions() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let (up, info, from_terminal) = at_terminal.up().await;
    let (hub_id, _, from_hub) = at_hub.up().await;
    assert_eq!(info.peer_node_id, "ipn:2.0");
    assert_eq!(info.class, None);
    assert_eq!(info.exported_key, None);
    at_terminal.ready(up).await;
    for (key, length) in [1, 70, 1448, 300_000, 5 << 20].into_iter().enumerate() {
        let (out, whole) = transfer(key as u64, length);
        from_terminal.offer(out);
        assert_eq!(at_hub.received().await, (hub_id, whole));
        let done = (key as u64, Outcome::Acknowledged);
        assert_eq!(at_terminal.finished().await, done);
        let (back, whole) = transfer(key as u64, length);
        from_hub.offer(back);
        assert_eq!(at_terminal.received().await.1, whole);
        assert_eq!(at_hub.finished().await, done);
    }
    assert!(from_terminal.figures().sent_bytes > 5 << 20);
    dialer.shutdown().await;
    assert_eq!(at_terminal.down().await, (up, Down::Closed));
    assert_eq!(at_hub.down().await, (hub_id, Down::Closed));
}

/// Supplies so many bundles at once, and checks that they and their acknowledgements move by fewer
/// writes and reads.
async fn assert_moved_together(bundles: u64, payload_bytes: usize) {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let _dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let (up, _, session) = at_terminal.up().await;
    at_terminal.ready(up).await;
    let moved = Arc::new(Activity::default());
    session.share(moved.clone());
    let (transfers, wholes): (Vec<_>, Vec<_>) =
        (0..bundles).map(|key| transfer(key, payload_bytes)).unzip();
    at_terminal.supply(transfers);
    for whole in wholes {
        assert!(at_hub.received().await.1 == whole);
    }
    let moves = moved.count();
    assert!(moves < bundles, "{moves} writes and reads");
}

#[tokio::test]
async fn small_bundles_are_written_together() {
    assert_moved_together(200, 1000).await;
}

#[tokio::test]
async fn larger_bundles_are_written_together_where_no_rate_is_set() {
    // Four at once.
    assert_moved_together(60, 40_000).await;
}

#[tokio::test]
async fn a_bundle_takes_one_write_and_its_acknowledgement_one_read() {
    let (at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let _dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let (up, _, session) = at_terminal.up().await;
    at_terminal.ready(up).await;
    let moved = Arc::new(Activity::default());
    session.share(moved.clone());
    let bundles = 20;
    for key in 0..bundles {
        session.offer(transfer(key, 1000).0);
        let done = (key, Outcome::Acknowledged);
        assert_eq!(at_terminal.finished().await, done);
    }
    let moves = moved.count();
    assert!(moves <= 2 * bundles, "{moves} writes and reads");
}

#[tokio::test]
async fn each_class_has_an_active_and_a_standby_session() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let mut config = terminal(listener.local_addr());
    config.classes = vec![Class(0), Class(3)];
    config.standby = true;
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (_, info, _) = at_hub.up().await;
        assert_eq!(info.incarnation, Some(1));
        seen.push((info.class, info.standby));
    }
    seen.sort();
    let classes = [Class(0), Class(3)].map(Some);
    let expected: Vec<_> = classes
        .into_iter()
        .flat_map(|class| [(class, false), (class, true)])
        .collect();
    assert_eq!(seen, expected);
    for _ in 0..4 {
        let (_, info, _) = at_terminal.up().await;
        assert_eq!(info.incarnation, Some(2));
    }
    dialer.shutdown().await;
}

#[tokio::test]
async fn a_refused_bundle_harms_no_other() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let _dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let (_, _, session) = at_terminal.up().await;
    *at_hub.verdict.lock().expect("free") = Err(Refusal::NoResources);
    session.offer(transfer(1, 2 << 20).0);
    let refused = Outcome::Refused(Refusal::NoResources);
    assert_eq!(at_terminal.finished().await, (1, refused));
    *at_hub.verdict.lock().expect("free") = Ok(());
    let (second, whole) = transfer(2, 100_000);
    session.offer(second);
    assert_eq!(at_hub.received().await.1, whole);
    assert_eq!(at_terminal.finished().await, (2, Outcome::Acknowledged));
}

#[tokio::test]
async fn the_standby_takes_over_and_a_new_one_is_dialled() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let mut config = terminal(listener.local_addr());
    config.classes = vec![Class(2)];
    config.standby = true;
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (active_id, info, active) = at_terminal.up().await;
    assert!(!info.standby);
    let (standby_id, info, standby) = at_terminal.up().await;
    assert!(info.standby);
    active.abort("the test breaks it");
    assert_eq!(at_terminal.down().await.0, active_id);
    let (out, whole) = transfer(1, 50_000);
    standby.offer(out);
    assert_eq!(at_terminal.finished().await, (1, Outcome::Acknowledged));
    assert!(at_hub.received().await.1 == whole);
    let (third_id, info, _) = at_terminal.up().await;
    assert!(info.standby);
    assert!(third_id != standby_id);
    let lane = &dialer.status().lanes[&Some(Class(2))];
    assert_eq!(
        (lane.active, lane.standby),
        (SlotStatus::Up, SlotStatus::Up)
    );
}

#[tokio::test]
async fn a_handshake_that_is_lost_does_not_hold_up_the_next() {
    let plain = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mut at_terminal = TestNode::new();
    let config = terminal(plain.local_addr().expect("bound"));
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(plain.accept().await.expect("the terminal dials"));
    }
    let (mut peer, _) = plain.accept().await.expect("it dials on");
    peer.write_all(CONTACT_AND_INIT).await.expect("taken");
    let (_, info, _) = at_terminal.up().await;
    assert_eq!(info.peer_node_id, "ipn:9.0");
    for (mut dropped, _) in silent {
        let mut said = Vec::new();
        let _ = dropped.read_to_end(&mut said).await;
    }
    drop(dialer);
}

/// A listener with room for two contacts of each source.
fn with_two_contacts_of_a_source() -> (TestNode, Listener) {
    let at_hub = TestNode::new();
    let config = ListenerConfig {
        max_half_open_per_source: 2,
        ..hub()
    };
    let listener = Listener::bind(config, at_hub.node.clone()).expect("a free port");
    (at_hub, listener)
}

#[tokio::test]
async fn one_source_cannot_take_all_contacts() {
    let (mut at_hub, listener) = with_two_contacts_of_a_source();
    let dial = || TcpStream::connect(listener.local_addr());
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut contact = dial().await.expect("it listens");
        contact.write_all(CONTACT).await.expect("taken");
        contact.read_exact(&mut [0; 6]).await.expect("an answer");
        idle.push(contact);
    }
    let mut third = dial().await.expect("it listens");
    let mut rest = Vec::new();
    let closed = third.read_to_end(&mut rest).await;
    assert_eq!(closed.unwrap_or(0), 0);
    drop(idle);
    let mut peer = dial().await.expect("it listens");
    while peer.write_all(CONTACT_AND_INIT).await.is_err() || at_hub_is_silent(&mut peer).await {
        peer = dial().await.expect("it listens");
    }
    at_hub.up().await;
}

#[tokio::test]
async fn contacts_that_say_nothing_keep_out_nobody_who_does() {
    let (mut at_hub, listener) = with_two_contacts_of_a_source();
    let dial = || TcpStream::connect(listener.local_addr());
    let mut first = dial().await.expect("it listens");
    let mut second = dial().await.expect("it listens");
    let mut peer = dial().await.expect("it listens");
    peer.write_all(CONTACT_AND_INIT).await.expect("taken");
    at_hub.up().await;
    let mut said = Vec::new();
    let closed = first.read_to_end(&mut said).await;
    assert_eq!(closed.expect("an end in order"), 0);
    let a_while = Duration::from_millis(300);
    let closed = tokio::time::timeout(a_while, second.read(&mut [0; 1])).await;
    assert!(closed.is_err(), "there is a place for it");
}

/// Whether the listener has closed a connection without sending anything.
async fn at_hub_is_silent(peer: &mut TcpStream) -> bool {
    !matches!(peer.read(&mut [0; 6]).await, Ok(1..))
}

#[tokio::test]
async fn a_peer_without_classes_gets_one_session_for_all() {
    let plain = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mut at_terminal = TestNode::new();
    let mut config = terminal(plain.local_addr().expect("bound"));
    config.classes = vec![Class(0), Class(1)];
    config.standby = true;
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (mut peer, _) = plain.accept().await.expect("the terminal dials");
    peer.write_all(CONTACT_AND_INIT).await.expect("taken");
    let (_, info, _) = at_terminal.up().await;
    assert_eq!((info.class, info.standby), (None, false));
    let second = tokio::time::timeout(Duration::from_millis(300), plain.accept());
    assert!(second.await.is_err(), "nothing else is dialled");
    let lane = &dialer.status().lanes[&Some(Class(1))];
    assert_eq!(lane.active, SlotStatus::Down);
}

#[tokio::test]
async fn a_lost_peer_is_dialled_until_it_is_back() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let local = listener.local_addr();
    let _dialer = Dialer::spawn(terminal(local), at_terminal.node.clone());
    at_terminal.up().await;
    at_hub.up().await;
    listener.shutdown();
    at_terminal.down().await;
    at_hub.down().await;
    listener.closed().await;
    let again = ListenerConfig { local, ..hub() };
    let _listener = loop {
        match Listener::bind(again.clone(), at_hub.node.clone()) {
            Ok(listener) => break listener,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    at_terminal.up().await;
}

#[tokio::test]
async fn a_silent_peer_is_cut_off_and_makes_room() {
    let mut at_hub = TestNode::new();
    let mut config = hub();
    config.max_half_open = 1;
    config.session.config.contact_timeout = Duration::from_millis(100);
    let listener = Listener::bind(config, at_hub.node.clone()).expect("a free port");
    let mut silent = TcpStream::connect(listener.local_addr())
        .await
        .expect("it listens");
    let mut at_terminal = TestNode::new();
    let _dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    at_hub.up().await;
    at_terminal.up().await;
}

#[tokio::test]
async fn another_protocol_gets_no_answer() {
    let at_hub = TestNode::new();
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let mut client = TcpStream::connect(listener.local_addr())
        .await
        .expect("it listens");
    client
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .await
        .expect("taken");
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
}

/// The levels at which the hub logs that a contact failed whose peer says this and no more.
async fn failed_contact_after(said: &[u8]) -> Vec<Level> {
    let log = Log::record();
    let at_hub = TestNode::new();
    let mut config = hub();
    config.session.config.contact_timeout = Duration::from_millis(100);
    let listener = Listener::bind(config, at_hub.node.clone()).expect("a free port");
    let mut peer = TcpStream::connect(listener.local_addr())
        .await
        .expect("it listens");
    peer.write_all(said).await.expect("taken");
    let _ = peer.read_to_end(&mut Vec::new()).await;
    log.levels_of("contact failed")
}

#[tokio::test]
async fn a_contact_that_a_blockage_may_have_ended_is_no_warning() {
    assert_eq!(failed_contact_after(b"").await, [Level::INFO]);
    assert_eq!(failed_contact_after(CONTACT).await, [Level::INFO]);
    assert_eq!(failed_contact_after(b"GET / HTTP/1.1").await, [Level::WARN]);
}

#[tokio::test]
async fn a_peer_that_does_not_read_slows_its_sender_only() {
    let plain = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mut at_terminal = TestNode::new();
    let mut config = terminal(plain.local_addr().expect("bound"));
    config.session.socket.send_buffer_bytes = Some(64 << 10);
    let _dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (mut peer, _) = plain.accept().await.expect("the terminal dials");
    peer.write_all(CONTACT_AND_INIT).await.expect("taken");
    let (id, _, session) = at_terminal.up().await;
    at_terminal.ready(id).await;
    session.offer(transfer(0, 900_000).0);
    let mut offered = 1u64;
    // The kernel takes some of it; then the session is no longer ready.
    while at_terminal.try_ready(id, Duration::from_millis(300)).await {
        session.offer(transfer(offered, 900_000).0);
        offered += 1;
        assert!(offered < 40, "a stalled peer does not stop the flow");
    }
    let answer = [&[1, 3][..], &[0; 12], &4u64.to_be_bytes(), b"free"].concat();
    peer.write_all(&answer).await.expect("taken");
    assert_eq!(&at_terminal.received().await.1[..], b"free");
    session.abort("enough");
    let mut broken = 0;
    while broken < offered {
        let (_, outcome) = at_terminal.finished().await;
        assert_eq!(outcome, Outcome::Broken { acknowledged: 0 });
        broken += 1;
    }
    at_terminal.down().await;
}

#[tokio::test]
async fn the_kernels_figures_follow_what_was_sent() {
    let (at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let _dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let (_, info, session) = at_terminal.up().await;
    assert!(!info.congestion_control.is_empty());
    session.set_rate(Some(8_000_000));
    session.offer(transfer(1, 400_000).0);
    assert_eq!(at_terminal.finished().await, (1, Outcome::Acknowledged));
    session.set_rate(None);
    session.offer(transfer(2, 400_000).0);
    assert_eq!(at_terminal.finished().await, (2, Outcome::Acknowledged));
    let figures = session.figures();
    assert!(figures.sent_bytes > 800_000);
    assert!(figures.cwnd_bytes > 0 && figures.rtt > Duration::ZERO);
    assert!(figures.segments_sent >= figures.data_segments_sent);
    assert_eq!(figures.in_flight_bytes, 0);
}
