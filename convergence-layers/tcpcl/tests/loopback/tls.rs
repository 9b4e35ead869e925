//! Which peers are accepted.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use underpass_cla::{Class, Down, Outcome};
use underpass_identity::{IsRevoked, UriNodeIds};
use underpass_tcpcl::{Dialer, DialerConfig, Listener, ListenerConfig, SlotStatus};

use super::{hub, terminal};
use underpass_cla_testing::node::{TestNode, transfer};
use underpass_cla_testing::pki::{Ca, Naming, nothing_revoked};

/// A dialer's error for the hub's certificate.
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
    tokio::time::timeout(Duration::from_secs(60), failed)
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

/// Relays connections; passes on what the dialer sends only while there is `room`.
async fn relay(listener: TcpListener, to: SocketAddr, room: Arc<AtomicUsize>) {
    while let Ok((near, _)) = listener.accept().await {
        let far = TcpStream::connect(to).await.expect("the hub listens");
        let (mut from_near, mut to_near) = near.into_split();
        let (mut from_far, mut to_far) = far.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_far, &mut to_near).await });
        let room = room.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from_near.read(&mut buffer).await {
                let count = count.min(room.load(SeqCst));
                room.fetch_sub(count, SeqCst);
                if to_far.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
            }
        });
    }
}

#[tokio::test]
async fn the_rest_of_a_record_in_which_a_bundle_begins_is_waited_for() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let ca = Ca::new();
    let listener = Listener::bind(hub_with_tls(&ca, nothing_revoked()), at_hub.node.clone());
    let listener = listener.expect("a free port");
    let front = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let remote = front.local_addr().expect("it is bound");
    let room = Arc::new(AtomicUsize::new(usize::MAX));
    let relayed = tokio::spawn(relay(front, listener.local_addr(), room.clone()));
    let node = ca.node("ipn:1.0", TERMINAL, Naming::OtherName);
    let config = DialerConfig {
        tls: Some(ca.client(&node, nothing_revoked())),
        classes: vec![Class(1)],
        ..terminal(remote)
    };
    let _dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (_, _, session) = at_terminal.up().await;
    let (_, _, seen_by_hub) = at_hub.up().await;
    assert!(!seen_by_hub.figures().receiving);
    room.store(100, SeqCst);
    session.offer(transfer(0, 80_000).0);
    let receives = async {
        while !seen_by_hub.figures().receiving {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let received = tokio::time::timeout(Duration::from_secs(60), receives).await;
    received.expect("the hub sees that a record has begun");
    relayed.abort();
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
    // Test certificates are valid from 1975 to 4096.
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

/// A contact that has sent its header and waits for TLS; none if the listener closes it
/// at once.
async fn waiting(listener: &Listener) -> Option<TcpStream> {
    let tcp = TcpStream::connect(listener.local_addr()).await;
    let mut tcp = tcp.expect("it listens");
    // It may be closed by now.
    let _ = tcp.write_all(b"dtn!\x04\x01").await;
    let answered = tcp.read_exact(&mut [0; 6]).await;
    answered.is_ok().then_some(tcp)
}

#[tokio::test]
async fn an_address_that_a_terminal_has_come_from_has_more_contacts() {
    let ca = Ca::new();
    let (mut at_hub, at_terminal) = (TestNode::new(), TestNode::new());
    let config = ListenerConfig {
        max_half_open_per_source: 2,
        ..hub_with_tls(&ca, nothing_revoked())
    };
    let listener = Listener::bind(config, at_hub.node.clone()).expect("a free port");
    let first = waiting(&listener).await.expect("a place");
    let _second = waiting(&listener).await.expect("a place");
    assert!(waiting(&listener).await.is_none());
    drop(first);
    let dialling = terminal_with_tls(&listener, &ca, "ipn:1.0", Naming::OtherName);
    let _dialer = Dialer::spawn(dialling, at_terminal.node.clone());
    at_hub.up().await;
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(waiting(&listener).await.expect("a place"));
    }
}
