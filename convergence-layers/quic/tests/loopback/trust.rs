//! Who is let in.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use underpass_identity::IsRevoked;
use underpass_quic::{Dialer, Listener};

use crate::{Pair, hub, terminal};
use underpass_cla_testing::node::TestNode;
use underpass_cla_testing::pki::{Ca, Naming, nothing_revoked};

/// A terminal dials a hub that does not want it, or the other way round: the
/// reason that the terminal gives.
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
    for _ in 0..200 {
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

#[tokio::test]
async fn a_session_ends_when_its_peers_certificate_is_revoked() {
    let mut pair = Pair::new().await;
    assert_eq!(pair.listener.close_where(|serial| serial == [9]), 0);
    assert_eq!(pair.listener.close_where(|serial| serial == [1]), 1);
    pair.far.node.down().await;
    pair.near.node.down().await;
    assert!(pair.dialer.sessions() <= 1);
}
