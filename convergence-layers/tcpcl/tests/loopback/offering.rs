//! Peers that end a session because of its extension items.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use underpass_cla::Class;
use underpass_tcpcl::{Dialer, SlotStatus};

use super::terminal;
use underpass_cla_testing::node::TestNode;

const CONTACT: &[u8] = b"dtn!\x04\0";
const INIT: &[u8] = b"\x07\0\x1e\0\0\0\0\0\x10\0\0\0\0\0\0\0\x10\0\0\0\x07ipn:9.0\0\0\0\0";

/// Bytes of the dialer's SESS_INIT up to the length of its extension items,
/// which are its last four.
const INIT_BYTES: usize = 1 + 2 + 8 + 8 + 2 + 7 + 4;

/// Behaves as dtn7-rs: sends its own SESS_INIT first. Returns the connection if the peer
/// offers no items; otherwise ends it.
async fn accept(peer: &TcpListener) -> Option<TcpStream> {
    let (mut socket, _) = peer.accept().await.expect("a connection");
    let mut contact = [0; 6];
    socket.read_exact(&mut contact).await.expect("a header");
    socket.write_all(CONTACT).await.expect("sent");
    socket.write_all(INIT).await.expect("sent");
    let mut init = [0; INIT_BYTES];
    socket.read_exact(&mut init).await.expect("a SESS_INIT");
    let items = init.last_chunk::<4>().expect("long enough");
    (*items == [0; 4]).then_some(socket)
}

#[tokio::test]
async fn a_peer_that_ends_sessions_with_items_is_dialled_without() {
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let at_terminal = TestNode::new();
    let mut config = terminal(peer.local_addr().expect("bound"));
    config.classes = vec![Class(0), Class(3)];
    config.standby = true;
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let mut refused = 0;
    let _session = loop {
        match accept(&peer).await {
            Some(session) => break session,
            None => refused += 1,
        }
    };
    assert_eq!(refused, 2);
    let up = async {
        while dialer.status().lanes[&Some(Class(0))].active != SlotStatus::Up {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let up = tokio::time::timeout(Duration::from_secs(60), up).await;
    up.expect("the session without items does not come up");
    assert!(dialer.status().without_items);
    // It gets one session only.
    assert_eq!(
        dialer.status().lanes[&Some(Class(3))].active,
        SlotStatus::Down
    );
}
