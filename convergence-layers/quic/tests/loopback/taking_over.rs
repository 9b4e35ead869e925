//! Another process goes on with the socket of a listener.

use std::net::UdpSocket;

use underpass_cla::Down;
use underpass_quic::{Dialer, Listener, bind};

use crate::{hub, terminal};
use underpass_cla_testing::node::{TestNode, transfer};
use underpass_cla_testing::pki::Ca;

/// A terminal with a session to the first process of a hub, and the second process, which waits.
struct World {
    terminal: TestNode,
    processes: [TestNode; 2],
    listeners: [Listener; 2],
    _dialer: Dialer,
}

impl World {
    fn new() -> World {
        let ca = Ca::new();
        let (terminal_node, processes) = (TestNode::new(), [TestNode::new(), TestNode::new()]);
        let socket = bind(&hub(&ca)).expect("a free port");
        let again: UdpSocket = socket.try_clone().expect("a free descriptor");
        let [first, second] = [(socket, true), (again, false)];
        let listen = |(socket, reads), process: &TestNode| {
            let listener = Listener::accept_on(socket, hub(&ca), process.node.clone(), reads);
            listener.expect("a socket")
        };
        let listeners = [listen(first, &processes[0]), listen(second, &processes[1])];
        let dialling = terminal(&ca, listeners[0].local_addr());
        let dialer = Dialer::spawn(dialling, terminal_node.node.clone());
        World {
            terminal: terminal_node,
            processes,
            listeners,
            _dialer: dialer,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_whose_session_ends_dials_the_process_that_reads() {
    let mut world = World::new();
    let [first, second] = &mut world.processes;
    world.terminal.up().await;
    let (_, _, session) = first.up().await;
    world.listeners[0].read(false);
    session.abort("another process goes on");
    // It does not read, but it has told the peer.
    let (_, down) = world.terminal.down().await;
    assert!(matches!(&down, Down::Broken(reason) if reason.contains("goes on")));
    world.listeners[1].read(true);
    let (id, _, session) = world.terminal.up().await;
    world.terminal.ready(id).await;
    second.up().await;
    let (sent, whole) = transfer(1, 100_000);
    session.offer(sent);
    assert_eq!(second.received().await.1, whole);
    assert!(first.never_up());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_was_not_told_learns_it_with_the_first_packet_it_sends() {
    let mut world = World::new();
    let (id, _, session) = world.terminal.up().await;
    world.terminal.ready(id).await;
    world.processes[0].up().await;
    // As when the packet is lost that ends the connection.
    world.listeners[0].read(false);
    world.listeners[1].read(true);
    session.offer(transfer(1, 100_000).0);
    let (_, down) = world.terminal.down().await;
    assert!(
        matches!(&down, Down::Broken(reason) if reason.contains("reset")),
        "{down}"
    );
    let (id, _, session) = world.terminal.up().await;
    world.terminal.ready(id).await;
    let (sent, whole) = transfer(2, 100_000);
    session.offer(sent);
    assert_eq!(world.processes[1].received().await.1, whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stays_reads_again() {
    let mut world = World::new();
    world.terminal.up().await;
    let (_, _, session) = world.processes[0].up().await;
    world.listeners[0].read(false);
    session.abort("another process goes on");
    world.terminal.down().await;
    world.listeners[0].read(true);
    world.terminal.up().await;
    world.processes[0].up().await;
    assert!(world.processes[1].never_up());
}
