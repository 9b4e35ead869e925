//! Connections that were begun one after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, ServerConfig};
use tokio::time::{sleep, timeout};
use underpass_cla::{Class, Session};
use underpass_quic::wire::ALPN;
use underpass_quic::{Dialer, Listener};

use crate::{hub, terminal};
use underpass_cla_testing::node::{TestNode, transfer};
use underpass_cla_testing::pki::{Ca, Naming, nothing_revoked};

const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough for a session on the loopback to come up.
const A_WHILE: Duration = Duration::from_millis(300);

/// A dialer of one class whose two sessions are up, these sessions, and the listener.
async fn two_up(
    at_hub: &TestNode,
    at_terminal: &mut TestNode,
) -> (Dialer, [Arc<dyn Session>; 2], Listener) {
    let ca = Ca::new();
    let listener = Listener::bind(hub(&ca), at_hub.node.clone()).expect("a free port");
    let mut config = terminal(&ca, listener.local_addr());
    config.classes = vec![Class(2)];
    config.standby = true;
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (_, _, active) = at_terminal.up().await;
    let (_, _, standby) = at_terminal.up().await;
    (dialer, [active, standby], listener)
}

#[tokio::test]
async fn a_session_goes_on_while_another_one_is_dialled_in_its_place() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let (_dialer, [active, _], _listener) = two_up(&at_hub, &mut at_terminal).await;
    active.renew();
    let (_, info, _) = at_terminal.up().await;
    assert_eq!(info.class, Some(Class(2)));
    let (out, whole) = transfer(1, 50_000);
    active.offer(out);
    assert_eq!(at_hub.received().await.1, whole);
    // One is enough, and nothing is missing when the old one ends.
    active.renew();
    active.abort("another one goes on");
    at_terminal.down().await;
    sleep(A_WHILE).await;
    assert!(at_terminal.never_up());
}

#[tokio::test]
async fn both_sessions_of_a_class_are_replaced_if_both_are_to_be() {
    let (at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let (_dialer, both, _listener) = two_up(&at_hub, &mut at_terminal).await;
    both.iter().for_each(|session| session.renew());
    let (_, _, first) = at_terminal.up().await;
    at_terminal.up().await;
    for old in both {
        old.abort("others go on");
        at_terminal.down().await;
    }
    sleep(A_WHILE).await;
    assert!(at_terminal.never_up());
    // The sessions that have replaced them are replaced too when they end.
    first.abort("the test breaks it");
    at_terminal.up().await;
}

#[tokio::test]
async fn the_end_of_an_old_connection_does_not_take_a_newer_one_with_it() {
    let ca = Ca::new();
    let tls = ca.server(&ca.node("ipn:2.0", 2, Naming::OtherName), nothing_revoked());
    let mut config = (*(tls.source)()).clone();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::try_from(config).expect("TLS 1.3");
    let config = ServerConfig::with_crypto(Arc::new(crypto));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let peer = Endpoint::server(config, any).expect("a free port");
    let remote = peer.local_addr().expect("it is bound");
    let at_terminal = TestNode::new();
    let _dialer = Dialer::spawn(terminal(&ca, remote), at_terminal.node.clone());

    let old = timeout(PATIENCE, peer.accept()).await;
    let old = old.expect("nothing is begun").expect("it is open");
    let newer = timeout(PATIENCE, peer.accept()).await;
    let newer = newer.expect("nothing more is begun").expect("it is open");
    old.refuse();
    // Long enough for the dialler to see the end.
    sleep(Duration::from_millis(200)).await;
    let newer = newer.accept().expect("it can be taken");
    let newer = timeout(PATIENCE, newer).await;
    let newer = newer.expect("it was given up").expect("a connection");
    let hello = timeout(PATIENCE, newer.accept_bi()).await;
    assert!(matches!(hello, Ok(Ok(_))), "it was given up");
}
