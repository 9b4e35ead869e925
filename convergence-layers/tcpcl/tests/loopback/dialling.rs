//! Connections that were begun one after the other.

use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use underpass_tcpcl::Dialer;

use super::terminal;
use underpass_cla_testing::node::TestNode;

const CONTACT: &[u8] = b"dtn!\x04\0";

/// A dialler with its listener, the first connection that it began, and the next one.
async fn two_begun(at_terminal: &TestNode) -> ((Dialer, TcpListener), TcpStream, TcpStream) {
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let config = terminal(peer.local_addr().expect("bound"));
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (old, _) = peer.accept().await.expect("a connection");
    let newer = timeout(Duration::from_secs(60), peer.accept()).await;
    let (newer, _) = newer.expect("nothing more is begun").expect("a connection");
    ((dialer, peer), old, newer)
}

/// Checks that the dialler goes on with a connection once it has seen the end of another.
async fn goes_on(mut newer: TcpStream) {
    // Long enough for the dialler to see the end.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut contact = [0; 6];
    newer.read_exact(&mut contact).await.expect("a header");
    newer.write_all(CONTACT).await.expect("sent");
    let mut kind = [0; 1];
    newer.read_exact(&mut kind).await.expect("it was given up");
    assert_eq!(kind, [7], "SESS_INIT");
}

#[tokio::test]
async fn the_end_of_an_old_connection_does_not_take_a_newer_one_with_it() {
    let at_terminal = TestNode::new();
    let (_dials, old, newer) = two_begun(&at_terminal).await;
    drop(old);
    goes_on(newer).await;
}

#[tokio::test]
async fn the_last_answer_of_a_dead_peer_does_not_take_a_newer_connection_with_it() {
    let at_terminal = TestNode::new();
    let (_dials, mut old, newer) = two_begun(&at_terminal).await;
    // As the kernel sends it for a peer that was killed: answer and end arrive together.
    SockRef::from(&old).set_tcp_cork(true).expect("corked");
    let mut contact = [0; 6];
    old.read_exact(&mut contact).await.expect("a header");
    old.write_all(CONTACT).await.expect("sent");
    drop(old);
    goes_on(newer).await;
}
