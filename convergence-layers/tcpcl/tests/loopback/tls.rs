use underpass_cla::{Class, Outcome};
use underpass_tcpcl::{Dialer, DialerConfig, Listener, ListenerConfig};

use super::node::{TestNode, transfer};
use super::pki::{Ca, Naming, nothing_revoked};
use super::{hub, terminal};

fn with_tls(ca: &Ca) -> (ListenerConfig, DialerConfig) {
    let mut listener = hub();
    let node = ca.node("ipn:2.0", 2, Naming::OtherName);
    listener.tls = Some(ca.server(&node, nothing_revoked()));
    let mut dialer = terminal(listener.local);
    let node = ca.node("ipn:1.0", 1, Naming::OtherName);
    dialer.tls = Some(ca.client(&node, nothing_revoked()));
    (listener, dialer)
}

#[tokio::test]
async fn certified_nodes_exchange_bundles() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let (listener, mut dialer) = with_tls(&Ca::new());
    let listener = Listener::bind(listener, at_hub.node.clone()).expect("a free port");
    dialer.remote = listener.local_addr();
    dialer.classes = vec![Class(1)];
    let dialer = Dialer::spawn(dialer, at_terminal.node.clone());
    let (_, info, session) = at_terminal.up().await;
    assert!(info.tls);
    for (key, length) in [80, 3 << 20].into_iter().enumerate() {
        let (out, whole) = transfer(key as u64, length);
        session.offer(out);
        assert_eq!(at_hub.received().await.1, whole);
        let done = (key as u64, Outcome::Acknowledged);
        assert_eq!(at_terminal.finished().await, done);
    }
    dialer.shutdown().await;
}
