//! Who may talk to whom.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use underpass_cla::{Class, Down, Outcome};
use underpass_identity::{IsRevoked, UriNodeIds};
use underpass_tcpcl::{Dialer, DialerConfig, Listener, ListenerConfig, SlotStatus};

use super::{hub, terminal};
use underpass_cla_testing::node::{TestNode, transfer};
use underpass_cla_testing::pki::{Ca, Naming, nothing_revoked};

/// What a dialer says of the hub's certificate.
const REFUSED_HERE: &str = "certificate is refused";
/// The alert for a certificate path that is not valid (RFC 9174, 4.4.4).
const REFUSED_THERE: &str = "BadCertificate";

/// The serial number of the terminal's certificate.
const TERMINAL: u8 = 0x91;

fn hub_with_tls(ca: &Ca, is_revoked: IsRevoked) -> ListenerConfig {
    let node = ca.node("ipn:2.0", 2, Naming::OtherName);
    ListenerConfig {
        tls: Some(ca.server(&node, is_revoked)),
        ..hub()
    }
}

fn terminal_with_tls(listener: &Listener, ca: &Ca, named: &str, naming: Naming) -> DialerConfig {
    let node = ca.node(named, TERMINAL, naming);
    DialerConfig {
        tls: Some(ca.client(&node, nothing_revoked())),
        ..terminal(listener.local_addr())
    }
}

/// Waits until the dialer has failed, and gives the reason.
async fn failure(dialer: &Dialer) -> String {
    let failed = async {
        loop {
            let status = dialer.status();
            if let Some(why) = status
                .lanes
                .values()
                .find_map(|lane| lane.last_error.clone())
            {
                return why;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), failed)
        .await
        .expect("the contact fails")
}

#[tokio::test]
async fn certified_nodes_exchange_bundles() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let ca = Ca::new();
    let listener = Listener::bind(hub_with_tls(&ca, nothing_revoked()), at_hub.node.clone());
    let listener = listener.expect("a free port");
    let mut config = terminal_with_tls(&listener, &ca, "ipn:1.0", Naming::OtherName);
    config.classes = vec![Class(1)];
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (_, info, session) = at_terminal.up().await;
    assert!(info.tls);
    let (_, seen_by_hub, _) = at_hub.up().await;
    assert!(info.exported_key.is_some());
    assert_eq!(info.exported_key, seen_by_hub.exported_key);
    for (key, length) in [80, 3 << 20].into_iter().enumerate() {
        let (out, whole) = transfer(key as u64, length);
        session.offer(out);
        assert!(at_hub.received().await.1 == whole);
        let done = (key as u64, Outcome::Acknowledged);
        assert_eq!(at_terminal.finished().await, done);
    }
    dialer.shutdown().await;
    assert_eq!(at_terminal.down().await.1, Down::Closed);
}

#[tokio::test]
async fn a_certificate_for_another_node_is_a_contact_failure() {
    let (mut at_hub, at_terminal) = (TestNode::new(), TestNode::new());
    let ca = Ca::new();
    let listener = Listener::bind(hub_with_tls(&ca, nothing_revoked()), at_hub.node.clone());
    let listener = listener.expect("a free port");
    let config = terminal_with_tls(&listener, &ca, "ipn:7.0", Naming::OtherName);
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let why = failure(&dialer).await;
    assert!(why.contains("ContactFailure"), "{why}");
    assert!(at_hub.never_up());
}

#[tokio::test]
async fn a_node_id_in_a_uri_counts_only_where_configured() {
    let ca = Ca::new();
    for (uris, works) in [(UriNodeIds::Ignored, false), (UriNodeIds::Accepted, true)] {
        let (at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
        let mut config = hub_with_tls(&ca, nothing_revoked());
        if let Some(tls) = &mut config.tls {
            tls.uris = uris;
        }
        let listener = Listener::bind(config, at_hub.node.clone()).expect("a free port");
        let config = terminal_with_tls(&listener, &ca, "ipn:1.0", Naming::Uri);
        let dialer = Dialer::spawn(config, at_terminal.node.clone());
        if works {
            at_terminal.up().await;
        } else {
            assert!(failure(&dialer).await.contains("ContactFailure"));
        }
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_by_either_side() {
    let (ours, theirs) = (Ca::new(), Ca::named("second authority"));
    let (mut at_hub, at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub_with_tls(&ours, nothing_revoked()), at_hub.node.clone());
    let listener = listener.expect("a free port");
    let stranger = theirs.node("ipn:1.0", 5, Naming::OtherName);
    for trusting in [&ours, &theirs] {
        let mut config = terminal(listener.local_addr());
        config.tls = Some(trusting.client(&stranger, nothing_revoked()));
        let dialer = Dialer::spawn(config, at_terminal.node.clone());
        let why = failure(&dialer).await;
        assert!(
            why.contains(REFUSED_HERE) || why.contains(REFUSED_THERE),
            "{why}"
        );
        assert!(at_hub.never_up());
    }
}

#[tokio::test]
async fn a_revoked_certificate_is_refused() {
    let (at_hub, at_terminal) = (TestNode::new(), TestNode::new());
    let ca = Ca::new();
    let revoked: IsRevoked = Arc::new(|serial| serial == [TERMINAL]);
    let listener = Listener::bind(hub_with_tls(&ca, revoked), at_hub.node.clone());
    let listener = listener.expect("a free port");
    let config = terminal_with_tls(&listener, &ca, "ipn:1.0", Naming::OtherName);
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let why = failure(&dialer).await;
    assert!(why.contains(REFUSED_THERE), "{why}");
}

#[tokio::test]
async fn revocation_closes_live_sessions_and_keeps_them_closed() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let ca = Ca::new();
    let list: Arc<Mutex<HashSet<Vec<u8>>>> = Arc::default();
    let asked = list.clone();
    let is_revoked: IsRevoked =
        Arc::new(move |serial| asked.lock().expect("no panic").contains(serial));
    let listener = Listener::bind(hub_with_tls(&ca, is_revoked), at_hub.node.clone());
    let listener = listener.expect("a free port");
    let config = terminal_with_tls(&listener, &ca, "ipn:1.0", Naming::OtherName);
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (id, ..) = at_hub.up().await;
    let sessions = listener.registry();
    assert_eq!(sessions.close_where(&|serial| serial == [9]), 0);
    list.lock().expect("no panic").insert(vec![TERMINAL]);
    assert_eq!(sessions.close_where(&|serial| serial == [TERMINAL]), 1);
    let (down, why) = at_hub.down().await;
    assert_eq!(down, id);
    assert!(matches!(why, Down::Broken(why) if why.contains("revoked")));
    at_terminal.down().await;
    while !failure(&dialer).await.contains(REFUSED_THERE) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn sessions_end_with_the_certificate_of_either_side() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let ca = Ca::new();
    let listener = Listener::bind(hub_with_tls(&ca, nothing_revoked()), at_hub.node.clone());
    let listener = listener.expect("a free port");
    let config = terminal_with_tls(&listener, &ca, "ipn:1.0", Naming::OtherName);
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    at_hub.up().await;
    // Test certificates are good from 1975 to 4096.
    assert_eq!(listener.registry().close_ended(1_800_000_000), 0);
    assert_eq!(listener.registry().close_ended(67_100_000_000), 1);
    let (_, why) = at_hub.down().await;
    assert!(matches!(why, Down::Broken(why) if why.contains("peer's certificate has ended")));
    at_terminal.up().await;
    at_terminal.down().await;
    at_terminal.up().await;
    assert_eq!(dialer.registry().close_certified(), 1);
    let (_, why) = at_terminal.down().await;
    assert!(matches!(why, Down::Broken(why) if why.contains("this node's certificate has ended")));
}

#[tokio::test]
async fn plain_tcp_is_refused_where_tls_is_configured() {
    let (at_hub, at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(
        hub_with_tls(&Ca::new(), nothing_revoked()),
        at_hub.node.clone(),
    );
    let listener = listener.expect("a free port");
    let dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let why = failure(&dialer).await;
    assert!(why.contains("ContactFailure"), "{why}");
    let lane = &dialer.status().lanes[&None];
    assert_ne!(lane.active, SlotStatus::Up);
}

#[tokio::test]
async fn a_client_without_tls_hello_is_cut_off() {
    let mut at_hub = TestNode::new();
    let listener = Listener::bind(
        hub_with_tls(&Ca::new(), nothing_revoked()),
        at_hub.node.clone(),
    );
    let listener = listener.expect("a free port");
    let mut tcp = TcpStream::connect(listener.local_addr())
        .await
        .expect("it listens");
    tcp.write_all(b"dtn!\x04\x01").await.expect("taken");
    let mut header = [0; 6];
    tcp.read_exact(&mut header).await.expect("a contact header");
    assert_eq!(&header, b"dtn!\x04\x01");
    tcp.write_all(&[0; 64]).await.expect("taken");
    let mut rest = Vec::new();
    let _ = tcp.read_to_end(&mut rest).await;
    assert!(at_hub.never_up());
}
