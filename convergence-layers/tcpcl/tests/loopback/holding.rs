//! Dialling and accepting are held, and sessions wait until they are used.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use underpass_cla::{Class, Down, Outcome, Refusal};
use underpass_tcpcl::{Dialer, Listener};

use super::{hub, terminal};
use underpass_cla_testing::node::{TestNode, transfer};

/// Long enough for a session on the loopback to come up.
const A_WHILE: Duration = Duration::from_millis(300);

#[tokio::test]
async fn nothing_is_read_from_a_session_that_is_not_used_and_nothing_lost() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    at_hub.uses_sessions(false);
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let _dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let (hub_id, _, from_hub) = at_hub.up().await;
    let (_, _, from_terminal) = at_terminal.up().await;
    let (out, whole) = transfer(1, 8 << 20);
    from_terminal.offer(out);
    assert!(!at_hub.try_ready(hub_id, A_WHILE).await);
    at_hub.uses_sessions(true);
    at_hub.ready(hub_id).await;
    assert_eq!(at_hub.received().await, (hub_id, whole));
    assert_eq!(at_terminal.finished().await, (1, Outcome::Acknowledged));
    let (back, whole) = transfer(2, 300_000);
    from_hub.offer(back);
    assert_eq!(at_terminal.received().await.1, whole);
}

#[tokio::test]
async fn a_bundle_right_behind_sess_init_waits_until_the_session_is_used() {
    let init = b"\x07\0\x1e\0\0\0\0\0\x10\0\0\0\0\0\0\0\x10\0\0\0\x07ipn:9.0\0\0\0\0";
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mut at_terminal = TestNode::new();
    at_terminal.uses_sessions(false);
    *at_terminal.verdict.lock().expect("no panic") = Err(Refusal::NoResources);
    let config = terminal(peer.local_addr().expect("bound"));
    let _dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (mut socket, _) = peer.accept().await.expect("a connection");
    socket.write_all(b"dtn!\x04\0").await.expect("sent");
    let head = [&[1, 3][..], &[0; 8], &[0; 4], &3u64.to_be_bytes()].concat();
    let both = [&init[..], &head, b"new"].concat();
    socket.write_all(&both).await.expect("sent");
    at_terminal.up().await;
    tokio::time::sleep(A_WHILE).await;
    *at_terminal.verdict.lock().expect("no panic") = Ok(());
    at_terminal.uses_sessions(true);
    assert_eq!(&at_terminal.received().await.1[..], b"new");
}

#[tokio::test]
async fn a_session_that_is_not_used_can_be_ended() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    at_hub.uses_sessions(false);
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let _dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let (id, _, session) = at_hub.up().await;
    let (up, ..) = at_terminal.up().await;
    session.abort("the test ends it");
    assert_eq!(at_hub.down().await.0, id);
    let (gone, reason) = at_terminal.down().await;
    assert_eq!(gone, up);
    assert!(matches!(reason, Down::Broken(_)));
}

#[tokio::test]
async fn a_dialer_that_is_held_keeps_its_sessions_and_dials_no_other() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let mut config = terminal(listener.local_addr());
    config.classes = vec![Class(2)];
    config.standby = true;
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (_, _, active) = at_terminal.up().await;
    let (_, _, standby) = at_terminal.up().await;
    dialer.hold(true);
    standby.abort("the test breaks it");
    at_terminal.down().await;
    tokio::time::sleep(A_WHILE).await;
    assert!(at_terminal.never_up());
    let (out, whole) = transfer(1, 50_000);
    active.offer(out);
    assert_eq!(at_hub.received().await.1, whole);
    dialer.hold(false);
    let (_, info, _) = at_terminal.up().await;
    assert!(info.standby, "only what is missing is dialled");
    tokio::time::sleep(A_WHILE).await;
    assert!(at_terminal.never_up());
}

#[tokio::test]
async fn a_listener_that_is_held_leaves_connections_to_another_one() {
    let (mut at_hub, mut at_next, mut at_terminal) =
        (TestNode::new(), TestNode::new(), TestNode::new());
    let socket = underpass_tcpcl::listen(&hub()).expect("a free port");
    let again = socket.try_clone().expect("few open files");
    let listener = Listener::accept_on(socket, hub(), at_hub.node.clone()).expect("it listens");
    listener.hold(true);
    let dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    tokio::time::sleep(A_WHILE).await;
    assert!(at_hub.never_up());
    let next = Listener::accept_on(again, hub(), at_next.node.clone()).expect("it listens");
    at_next.up().await;
    let (_, _, session) = at_terminal.up().await;
    // The next one ends, and the first goes on.
    drop(next);
    listener.hold(false);
    session.abort("the test breaks it");
    at_hub.up().await;
    dialer.shutdown().await;
}
