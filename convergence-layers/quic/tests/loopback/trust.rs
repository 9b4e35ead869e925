//! Which peers are accepted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::BytesMut;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use rustls::client::Resumption;
use tokio::time::{sleep, timeout};
use underpass_identity::IsRevoked;
use underpass_quic::wire::{ALPN, Message};
use underpass_quic::{Dialer, Listener};

use crate::hostile::hello_of;
use crate::{Pair, hub, terminal};
use underpass_cla_testing::node::TestNode;
use underpass_cla_testing::pki::{Ca, Naming, nothing_revoked};

/// A terminal dials a hub, and one of them refuses the other; returns the reason that the
/// terminal gives.
async fn refused(
    change: impl FnOnce(&Ca, &mut underpass_quic::ListenerConfig, &mut underpass_quic::DialerConfig),
) -> String {
    let ca = Ca::new();
    let (mut near, far) = (TestNode::new(), TestNode::new());
    let mut hub = hub(&ca);
    let mut terminal = terminal(&ca, hub.local);
    change(&ca, &mut hub, &mut terminal);
    let listener = Listener::bind(hub, far.node.clone()).expect("a free port");
    terminal.remote = listener.local_addr();
    let dialer = Dialer::spawn(terminal, near.node.clone());
    let mut reason = None;
    for _ in 0..2_400 {
        sleep(Duration::from_millis(25)).await;
        reason = dialer.last_error(None);
        if reason.is_some() {
            break;
        }
    }
    assert!(near.never_up());
    reason.expect("the contact fails")
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let reason = refused(|_, _, terminal| {
        let other = Ca::named("another authority");
        terminal.tls = other.client(
            &other.node("ipn:1.0", 1, Naming::OtherName),
            nothing_revoked(),
        );
    });
    assert!(reason.await.contains("certificate"));
}

#[tokio::test]
async fn a_revoked_certificate_is_refused() {
    let reason = refused(|ca, hub, _| {
        let revoked: IsRevoked = Arc::new(|serial| serial == [1]);
        hub.tls = ca.server(&ca.node("ipn:2.0", 2, Naming::OtherName), revoked);
    });
    assert!(reason.await.contains("certificate"));
}

#[tokio::test]
async fn a_node_id_that_the_certificate_does_not_name_is_refused() {
    let reason = refused(|_, _, terminal| terminal.session.node_id = "ipn:9.0".into());
    let reason = reason.await;
    assert!(reason.contains("ipn:9.0"), "{reason}");
}

#[tokio::test]
async fn a_node_that_is_not_configured_is_refused() {
    let reason = refused(|_, hub, _| {
        hub.session.accepted_peers = Some(["ipn:7.0".to_owned()].into());
    });
    let reason = reason.await;
    assert!(reason.contains("not a peer that is wanted"), "{reason}");
}

#[tokio::test]
async fn a_hub_that_is_another_node_is_refused() {
    let reason = refused(|_, _, terminal| {
        terminal.session.accepted_peers = Some(["ipn:3.0".to_owned()].into());
    });
    let reason = reason.await;
    assert!(reason.contains("ipn:2.0"), "{reason}");
}

/// A peer that would send early data. The hub gives it no ticket for that: so nobody can
/// replay a recorded session into another one, and each handshake shows the peer's
/// certificate anew.
#[tokio::test]
async fn early_data_is_neither_offered_nor_taken() {
    let ca = Ca::new();
    let (mut far, revoked) = (TestNode::new(), Arc::new(AtomicBool::new(false)));
    let mut hub = hub(&ca);
    let is_revoked = revoked.clone();
    let judge: IsRevoked = Arc::new(move |serial| serial == [1] && is_revoked.load(Relaxed));
    hub.tls = ca.server(&ca.node("ipn:2.0", 2, Naming::OtherName), judge);
    let listener = Listener::bind(hub, far.node.clone()).expect("a free port");
    let tls = ca.client(&ca.node("ipn:1.0", 1, Naming::OtherName), nothing_revoked());
    let mut config = (*(tls.source)()).clone();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::in_memory_sessions(16);
    config.enable_early_data = true;
    let crypto = QuicClientConfig::try_from(config).expect("TLS 1.3");
    let config = ClientConfig::new(Arc::new(crypto));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let endpoint = Endpoint::client(any).expect("a free port");
    let connect = || {
        let connecting = endpoint.connect_with(config.clone(), listener.local_addr(), "127.0.0.1");
        connecting.expect("a usable configuration")
    };
    let first = connect().await.expect("a connection");
    let (mut control, _receive) = first.open_bi().await.expect("a stream");
    let mut hello = BytesMut::new();
    Message::Hello(hello_of("ipn:1.0")).encode(&mut hello);
    control.write_all(&hello).await.expect("a connection");
    far.up().await;
    // A ticket would have arrived with the hub's first messages.
    sleep(Duration::from_millis(200)).await;
    let Err(again) = connect().into_0rtt() else {
        panic!("there is a ticket for early data");
    };
    again.await.expect("a handshake in full");
    revoked.store(true, Relaxed);
    let Err(again) = connect().into_0rtt() else {
        panic!("there is a ticket for early data");
    };
    // The client learns of the refusal with the first bytes that it tries to send.
    let refused = match again.await {
        Err(_) => true,
        Ok(connection) => timeout(Duration::from_secs(15), connection.closed())
            .await
            .is_ok(),
    };
    assert!(refused, "the revoked certificate is judged again");
}

#[tokio::test]
async fn a_session_ends_when_its_peers_certificate_is_revoked() {
    let mut pair = Pair::new().await;
    let sessions = pair.listener.registry();
    assert_eq!(sessions.close_where(&|serial| serial == [9]), 0);
    assert_eq!(sessions.close_where(&|serial| serial == [1]), 1);
    pair.far.node.down().await;
    pair.near.node.down().await;
    assert!(pair.dialer.registry().len() <= 1);
}
