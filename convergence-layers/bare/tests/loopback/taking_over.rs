//! Another process goes on with the socket to which a neighbour sends.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::{Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::sleep;
use underpass_bare::{Config, Layer, Neighbour, Place};
use underpass_cla_testing::node::TestNode;

use super::{ONE, TWO, config, free, host, ltp, said_in_time};

const GLANCE: Duration = Duration::from_millis(10);

/// A place that two neighbours have in turn, as two processes would.
#[derive(Debug, Default)]
struct Shared(Mutex<Option<OwnedFd>>);

impl Place for Shared {
    fn bound(&self) -> io::Result<Option<OwnedFd>> {
        let kept = self.0.lock().expect("no test panics with it");
        kept.as_ref().map(OwnedFd::try_clone).transpose()
    }

    fn keep(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.try_clone_to_owned()?;
        *self.0.lock().expect("no test panics with it") = Some(socket);
        Ok(())
    }

    fn forget(&self) {
        *self.0.lock().expect("no test panics with it") = None;
    }
}

fn shared(layer: Layer) -> Config {
    Config {
        place: Some(Arc::<Shared>::default()),
        ..config(layer, free(ONE), free(TWO))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_comes_meanwhile_is_the_next_process_s() {
    let config = shared(Layer::Stcp);
    let (mut one, mut two) = (TestNode::new(), TestNode::new());
    let first = Neighbour::spawn(config.clone(), one.node.clone());
    let _before = said_in_time(host(TWO), config.listen, &[0, 0, 0, 1, 7]).await;
    assert_eq!(&one.received().await.1[..], [7]);
    first.hold(true);
    let next = Neighbour::spawn_early(config.clone(), two.node.clone());
    let _sensor = said_in_time(host(TWO), config.listen, &[0, 0, 0, 1, 8]).await;
    sleep(10 * GLANCE).await;
    assert!(one.never_up() && two.never_up());
    first.shutdown().await;
    next.hold(false);
    assert_eq!(&two.received().await.1[..], [8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stays_takes_what_came_meanwhile() {
    let config = shared(Layer::Stcp);
    let mut one = TestNode::new();
    let first = Neighbour::spawn(config.clone(), one.node.clone());
    first.hold(true);
    let _sensor = said_in_time(host(TWO), config.listen, &[0, 0, 0, 1, 7]).await;
    sleep(10 * GLANCE).await;
    assert!(one.never_up());
    first.hold(false);
    assert_eq!(&one.received().await.1[..], [7]);
}

/// The first process' session has ended, and it begins none any more.
async fn ended(neighbour: &Neighbour) -> Vec<u64> {
    loop {
        if let Some(unfinished) = neighbour.unfinished() {
            return unfinished;
        }
        sleep(GLANCE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datagram_that_comes_meanwhile_is_the_next_process_s() {
    let config = shared(Layer::Udp);
    let peer = UdpSocket::bind(config.remote).await.expect("free");
    let (mut one, mut two) = (TestNode::new(), TestNode::new());
    two.uses_sessions(false);
    let first = Neighbour::spawn(config.clone(), one.node.clone());
    let (_, _, session) = one.up().await;
    peer.send_to(&[1], config.listen).await.expect("it is sent");
    assert_eq!(&one.received().await.1[..], [1]);
    let _next = Neighbour::spawn_early(config.clone(), two.node.clone());
    two.up().await;
    // The first one reads as long as it has the node.
    peer.send_to(&[2], config.listen).await.expect("it is sent");
    assert_eq!(&one.received().await.1[..], [2]);
    assert_eq!(first.unfinished(), None);
    first.hold(true);
    session.abort("another process goes on");
    assert!(ended(&first).await.is_empty());
    peer.send_to(&[3], config.listen).await.expect("it is sent");
    two.uses_sessions(true);
    assert_eq!(&two.received().await.1[..], [3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_process_refuses_what_the_first_had_a_part_of() {
    let config = shared(ltp(1, 2));
    let peer = UdpSocket::bind(config.remote).await.expect("free");
    let (mut one, mut two) = (TestNode::new(), TestNode::new());
    two.uses_sessions(false);
    let first = Neighbour::spawn(config.clone(), one.node.clone());
    let (_, _, session) = one.up().await;
    // The first byte of block 9 of engine 2, and the second one with the end and a checkpoint.
    let (begin, end) = ([0, 2, 9, 0, 1, 0, 1, 7], [3, 2, 9, 0, 1, 1, 1, 5, 0, 8]);
    let sent = peer.send_to(&begin, config.listen).await;
    sent.expect("it is sent");
    while session.figures().ltp.receiving_blocks == 0 {
        sleep(GLANCE).await;
    }
    first.hold(true);
    session.abort("another process goes on");
    let unfinished = ended(&first).await;
    assert_eq!(unfinished, [9]);
    // The reason is that of the system (RFC 5326, 3.2.4).
    let (cancelled, mut segment) = ([14, 2, 9, 0, 4], [0; 1_500]);
    let count = peer.recv(&mut segment).await.expect("a segment");
    assert_eq!(segment[..count], cancelled);
    let next = Neighbour::spawn_early(config.clone(), two.node.clone());
    let (_, _, session) = two.up().await;
    next.refuse(unfinished);
    two.uses_sessions(true);
    // The peer may not have heard the first process.
    let count = peer.recv(&mut segment).await.expect("a segment");
    assert_eq!(segment[..count], cancelled);
    let sent = peer.send_to(&end, config.listen).await;
    sent.expect("it is sent");
    while session.figures().ltp.closed_segments == 0 {
        sleep(GLANCE).await;
    }
    // Nothing but that is ever said of the block.
    let count = peer.recv(&mut segment).await.expect("a segment");
    assert_eq!(segment[..count], cancelled);
}

#[test]
fn a_socket_of_another_protocol_is_not_used() {
    let (listen, place) = (free(ONE), Shared::default());
    let kind = |layer| {
        let socket = underpass_bare::bind(layer, listen, None, None, Some(&place));
        let socket = Socket::from(socket.expect("a free address"));
        socket.r#type().expect("a socket")
    };
    let before = kind(Layer::Stcp);
    assert_eq!([before, kind(Layer::Udp)], [Type::STREAM, Type::DGRAM]);
    // The last one stays, and nobody else gets its address.
    assert_eq!(kind(ltp(1, 2)), Type::DGRAM);
    let taken = underpass_bare::bind(Layer::Udp, listen, None, None, None);
    assert!(taken.is_err());
}
