//! Sessions over MPTCP, and sessions where one side does not have it.

use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use underpass_cla::Outcome;
use underpass_cla_testing::node::{TestNode, transfer};
use underpass_tcpcl::{Dialer, DialerConfig, Listener, ListenerConfig};

use super::{hub, terminal};

/// Whether the kernel has MPTCP; otherwise the test is skipped.
fn has_mptcp() -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
    if let Err(error) = &socket {
        skipped::because(format!("this kernel has no MPTCP: {error}"));
    }
    socket.is_ok()
}

fn mptcp_hub() -> ListenerConfig {
    let mut config = hub();
    config.session.socket.mptcp = true;
    config
}

fn mptcp(mut config: DialerConfig) -> DialerConfig {
    config.session.socket.mptcp = true;
    config
}

#[tokio::test]
async fn bundles_go_over_mptcp_both_ways() {
    if !has_mptcp() {
        return;
    }
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(mptcp_hub(), at_hub.node.clone()).expect("a free port");
    let config = mptcp(terminal(listener.local_addr()));
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (up, _, from_terminal) = at_terminal.up().await;
    let (hub_id, _, from_hub) = at_hub.up().await;
    at_terminal.ready(up).await;
    let (out, whole) = transfer(1, 5 << 20);
    from_terminal.offer(out);
    assert_eq!(at_hub.received().await, (hub_id, whole));
    assert_eq!(at_terminal.finished().await, (1, Outcome::Acknowledged));
    let (back, whole) = transfer(1, 300_000);
    from_hub.offer(back);
    assert_eq!(at_terminal.received().await.1, whole);
    for (session, sent, received) in [
        (&from_terminal, 5 << 20, 300_000),
        (&from_hub, 300_000, 5 << 20),
    ] {
        let figures = session.figures();
        assert_eq!(figures.subflows, Some(1));
        assert!(figures.sent_bytes >= sent, "{figures:?}");
        assert!(figures.received_bytes >= received, "{figures:?}");
        assert!(
            figures.cwnd_bytes > 0 && !figures.rtt.is_zero(),
            "{figures:?}"
        );
    }
    dialer.shutdown().await;
}

#[tokio::test]
async fn without_mptcp_at_either_side_a_session_is_one_of_tcp() {
    if !has_mptcp() {
        return;
    }
    for dialler_has_it in [true, false] {
        let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
        let at = if dialler_has_it { hub() } else { mptcp_hub() };
        let listener = Listener::bind(at, at_hub.node.clone()).expect("a free port");
        let config = terminal(listener.local_addr());
        let config = if dialler_has_it {
            mptcp(config)
        } else {
            config
        };
        let dialer = Dialer::spawn(config, at_terminal.node.clone());
        let (up, _, from_terminal) = at_terminal.up().await;
        let (hub_id, _, from_hub) = at_hub.up().await;
        at_terminal.ready(up).await;
        from_terminal.set_rate(Some(400_000_000));
        let (out, whole) = transfer(1, 300_000);
        from_terminal.offer(out);
        assert_eq!(at_hub.received().await, (hub_id, whole));
        let fallen_back = |wanted: bool| wanted.then_some(0);
        assert_eq!(
            from_terminal.figures().subflows,
            fallen_back(dialler_has_it)
        );
        assert_eq!(from_hub.figures().subflows, fallen_back(!dialler_has_it));
        assert!(from_terminal.figures().sent_bytes >= 300_000);
        dialer.shutdown().await;
    }
}

/// The kernel does not pace MPTCP, so the session's writes have to keep to the rate.
#[tokio::test]
async fn of_a_rate_of_zero_nothing_is_sent_over_mptcp_until_it_is_lifted() {
    if !has_mptcp() {
        return;
    }
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(mptcp_hub(), at_hub.node.clone()).expect("a free port");
    let config = mptcp(terminal(listener.local_addr()));
    let _dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (up, _, session) = at_terminal.up().await;
    at_hub.up().await;
    at_terminal.ready(up).await;
    let before = session.figures().sent_bytes;
    session.set_rate(Some(0));
    let (out, whole) = transfer(1, 300_000);
    session.offer(out);
    let early = tokio::time::timeout(Duration::from_millis(300), at_hub.received());
    assert!(early.await.is_err(), "it was sent");
    // set_rate(0) leaves one byte per second of the path.
    assert!(session.figures().sent_bytes - before < 10);
    session.set_rate(Some(80_000_000));
    assert_eq!(at_hub.received().await.1, whole);
}
