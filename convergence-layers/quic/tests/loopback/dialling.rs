//! Connections that were begun one after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, ServerConfig};
use tokio::time::{sleep, timeout};
use underpass_quic::Dialer;
use underpass_quic::wire::ALPN;

use crate::terminal;
use underpass_cla_testing::node::TestNode;
use underpass_cla_testing::pki::{Ca, Naming, nothing_revoked};

const PATIENCE: Duration = Duration::from_secs(60);

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
