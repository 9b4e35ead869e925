//! Sessions that the node wants to replace.

use std::sync::Arc;
use std::time::Duration;

use underpass_cla::{Class, Session};
use underpass_tcpcl::{Dialer, Listener};

use super::{hub, terminal};
use underpass_cla_testing::node::{TestNode, transfer};

/// Long enough for a session on the loopback to come up.
const A_WHILE: Duration = Duration::from_millis(300);

/// A dialer of one class whose two sessions are up, and these sessions.
async fn two_up(
    listener: &Listener,
    at_terminal: &mut TestNode,
) -> (Dialer, Arc<dyn Session>, Arc<dyn Session>) {
    let mut config = terminal(listener.local_addr());
    config.classes = vec![Class(2)];
    config.standby = true;
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (_, _, active) = at_terminal.up().await;
    let (_, _, standby) = at_terminal.up().await;
    (dialer, active, standby)
}

#[tokio::test]
async fn a_session_goes_on_while_another_one_is_dialled_in_its_place() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let (_dialer, active, _) = two_up(&listener, &mut at_terminal).await;
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
    tokio::time::sleep(A_WHILE).await;
    assert!(at_terminal.never_up());
}

#[tokio::test]
async fn both_sessions_of_a_class_are_replaced_if_both_are_to_be() {
    let (at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let (_dialer, active, standby) = two_up(&listener, &mut at_terminal).await;
    active.renew();
    standby.renew();
    let (_, _, first) = at_terminal.up().await;
    at_terminal.up().await;
    for old in [active, standby] {
        old.abort("others go on");
        at_terminal.down().await;
    }
    tokio::time::sleep(A_WHILE).await;
    assert!(at_terminal.never_up());
    // The sessions that have replaced them are replaced too when they end.
    first.abort("the test breaks it");
    at_terminal.up().await;
}

#[tokio::test]
async fn the_side_that_was_dialled_has_nothing_to_dial() {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let (_dialer, ..) = two_up(&listener, &mut at_terminal).await;
    let (_, _, session) = at_hub.up().await;
    session.renew();
    tokio::time::sleep(A_WHILE).await;
    assert!(at_terminal.never_up());
}
