//! Connections that are begun while the link is blocked.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use underpass_cla::Session;
use underpass_tcpcl::Dialer;

use super::terminal;
use underpass_cla_testing::node::TestNode;

const CONTACT: &[u8] = b"dtn!\x04\0";
const INIT: &[u8] = b"\x07\0\x1e\0\0\0\0\0\x10\0\0\0\0\0\0\0\x10\0\0\0\x07ipn:9.0\0\0\0\0";

/// Long enough for a connection on the loopback and what follows on it.
const A_WHILE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(60);

async fn accept(peer: &TcpListener) -> TcpStream {
    let accepted = timeout(PATIENCE, peer.accept()).await;
    accepted.expect("nothing is begun").expect("a connection").0
}

/// Answers as a peer without extensions, and reads the dialer's first message.
async fn answer(socket: &mut TcpStream) {
    let mut contact = [0; 6];
    socket.read_exact(&mut contact).await.expect("a header");
    assert_eq!(contact, CONTACT);
    socket.write_all(CONTACT).await.expect("sent");
    socket.write_all(INIT).await.expect("sent");
}

/// Whether no connection is begun for a while.
async fn is_quiet(peer: &TcpListener) -> bool {
    timeout(A_WHILE, peer.accept()).await.is_err()
}

/// A dialer, the peer's end of its session, and its own end.
async fn begun(
    peer: &TcpListener,
    at_terminal: &mut TestNode,
) -> (Dialer, TcpStream, Arc<dyn Session>) {
    let mut config = terminal(peer.local_addr().expect("bound"));
    // Far longer than a connection on the loopback takes, so one is complete before the
    // next.
    config.backoff.base = Duration::from_millis(200);
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let mut socket = accept(peer).await;
    answer(&mut socket).await;
    let (_, _, session) = at_terminal.up().await;
    // The dialer may have begun another one while it waited for the answer.
    while !is_quiet(peer).await {}
    (dialer, socket, session)
}

#[tokio::test]
async fn a_connection_begun_in_a_blockage_carries_the_next_session() {
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mut at_terminal = TestNode::new();
    let (_dialer, _first, session) = begun(&peer, &mut at_terminal).await;
    session.suspend(true);
    let mut spare = accept(&peer).await;
    let said = timeout(A_WHILE, spare.read(&mut [0; 1])).await;
    assert!(said.is_err(), "it says nothing and stays");
    assert!(is_quiet(&peer).await, "one is enough");
    assert!(at_terminal.never_up());

    session.abort("the peer does not know this session any more");
    at_terminal.down().await;
    answer(&mut spare).await;
    let (_, info, _) = at_terminal.up().await;
    assert_eq!(info.peer_node_id, "ipn:9.0");
    let mut kind = [0; 1];
    spare
        .read_exact(&mut kind)
        .await
        .expect("it is the session");
    assert_eq!(kind, [7], "SESS_INIT");
}

#[tokio::test]
async fn a_link_that_is_back_with_its_session_has_no_use_for_it() {
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mut at_terminal = TestNode::new();
    let (_dialer, _first, session) = begun(&peer, &mut at_terminal).await;
    session.suspend(true);
    let mut spare = accept(&peer).await;
    session.suspend(false);
    let mut said = Vec::new();
    let ended = timeout(PATIENCE, spare.read_to_end(&mut said)).await;
    assert_eq!(ended.expect("it stays").expect("an end in order"), 0);
    assert!(is_quiet(&peer).await);
    // The next blockage gets another connection.
    session.suspend(true);
    accept(&peer).await;
}

#[tokio::test]
async fn one_that_the_peer_has_closed_is_replaced() {
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mut at_terminal = TestNode::new();
    let (_dialer, _first, session) = begun(&peer, &mut at_terminal).await;
    session.suspend(true);
    drop(accept(&peer).await);
    session.abort("the peer does not know this session any more");
    at_terminal.down().await;
    let mut fresh = accept(&peer).await;
    answer(&mut fresh).await;
    at_terminal.up().await;
}

#[tokio::test]
async fn a_dialer_that_is_held_keeps_none() {
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mut at_terminal = TestNode::new();
    let (dialer, _first, session) = begun(&peer, &mut at_terminal).await;
    session.suspend(true);
    let mut spare = accept(&peer).await;
    dialer.hold(true);
    let mut said = Vec::new();
    // This is sooner than for a connection that is never needed.
    let ended = timeout(Duration::from_secs(2), spare.read_to_end(&mut said)).await;
    assert_eq!(ended.expect("it stays").expect("an end in order"), 0);
    assert!(is_quiet(&peer).await);
}
