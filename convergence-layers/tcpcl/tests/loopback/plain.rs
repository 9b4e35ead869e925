use underpass_cla::{Class, Down, Outcome, Refusal};
use underpass_tcpcl::{Dialer, Listener};

use super::node::{TestNode, transfer};
use super::{hub, terminal};

#[tokio::test]
async fn bundles_of_all_sizes_arrive_whole_in_both_directions() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let (up, info, from_terminal) = at_terminal.up().await;
    let (hub_id, _, from_hub) = at_hub.up().await;
    assert_eq!(info.peer_node_id, "ipn:2.0");
    assert_eq!(info.class, None);
    at_terminal.ready(up).await;
    for (key, length) in [1, 70, 1448, 300_000, 5 << 20].into_iter().enumerate() {
        let (out, whole) = transfer(key as u64, length);
        from_terminal.offer(out);
        assert_eq!(at_hub.received().await, (hub_id, whole));
        let done = (key as u64, Outcome::Acknowledged);
        assert_eq!(at_terminal.finished().await, done);
        let (back, whole) = transfer(key as u64, length);
        from_hub.offer(back);
        assert_eq!(at_terminal.received().await.1, whole);
        assert_eq!(at_hub.finished().await, done);
    }
    assert!(from_terminal.figures().sent_bytes > 5 << 20);
    dialer.shutdown().await;
    assert_eq!(at_terminal.down().await, (up, Down::Closed));
    assert_eq!(at_hub.down().await, (hub_id, Down::Closed));
}

#[tokio::test]
async fn each_class_has_an_active_and_a_standby_session() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let mut config = terminal(listener.local_addr());
    config.classes = vec![Class(0), Class(3)];
    config.standby = true;
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (_, info, _) = at_hub.up().await;
        assert_eq!(info.incarnation, Some(1));
        seen.push((info.class, info.standby));
    }
    seen.sort();
    let classes = [Class(0), Class(3)].map(Some);
    let expected: Vec<_> = classes
        .into_iter()
        .flat_map(|class| [(class, false), (class, true)])
        .collect();
    assert_eq!(seen, expected);
    for _ in 0..4 {
        let (_, info, _) = at_terminal.up().await;
        assert_eq!(info.incarnation, Some(2));
    }
    dialer.shutdown().await;
}

#[tokio::test]
async fn a_refused_bundle_harms_no_other() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let _dialer = Dialer::spawn(terminal(listener.local_addr()), at_terminal.node.clone());
    let (_, _, session) = at_terminal.up().await;
    *at_hub.verdict.lock().expect("free") = Err(Refusal::NoResources);
    session.offer(transfer(1, 2 << 20).0);
    let refused = Outcome::Refused(Refusal::NoResources);
    assert_eq!(at_terminal.finished().await, (1, refused));
    *at_hub.verdict.lock().expect("free") = Ok(());
    let (second, whole) = transfer(2, 100_000);
    session.offer(second);
    assert_eq!(at_hub.received().await.1, whole);
    assert_eq!(at_terminal.finished().await, (2, Outcome::Acknowledged));
}
