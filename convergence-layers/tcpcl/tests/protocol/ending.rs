//! SESS_TERM.

use std::time::Duration;

use underpass_cla::{Down, Outcome};
use underpass_tcpcl::wire::TermReason;

use crate::peer::{AgainstPeer, ack, segment};

const TERM: &[u8] = &[5, 0, 0];
const TERM_REPLY: &[u8] = &[5, 1, 0];

#[test]
fn the_peers_end_is_confirmed_with_its_reason() {
    let mut session = AgainstPeer::up();
    session.hear(&[5, 0, 3]);
    session.says(&["SESS_TERM flags 1 reason 3"]);
    assert_eq!(session.closed(), Some(&Down::Closed));
}

#[test]
fn an_end_that_crosses_ours_is_not_answered() {
    let mut session = AgainstPeer::up();
    session.core.close(session.now, TermReason::Unknown);
    session.says(&["SESS_TERM flags 0 reason 0"]);
    session.hear(TERM);
    assert!(session.sent().is_empty());
    assert_eq!(session.closed(), Some(&Down::Closed));
}

#[test]
fn while_ending_new_transfers_are_refused_and_old_ones_finish() {
    let mut session = AgainstPeer::up();
    session.hear(&segment(2, 3, &[], 20));
    session.offer(1, 50);
    session.output();
    session.core.close(session.now, TermReason::Unknown);
    session.hear(&segment(1, 3, &[], 20));
    session.hear(&segment(3, 4, &[], 20));
    session.says(&[
        "SESS_TERM flags 0 reason 0",
        "ACK flags 1 id 3 len 40",
        "REFUSE reason 6 id 4",
    ]);
    assert_eq!(session.bundles(), [(3, 40)]);
    session.hear(TERM_REPLY);
    session.sent();
    assert_eq!(session.closed(), None);
    session.hear(&ack(3, 0, 50));
    session.sent();
    assert_eq!(session.outcomes(), [(1, Outcome::Acknowledged)]);
    assert_eq!(session.closed(), Some(&Down::Closed));
}

#[test]
fn a_bundle_offered_while_ending_is_given_back() {
    let mut session = AgainstPeer::up();
    session.hear(TERM);
    session.offer(1, 50);
    assert_eq!(
        session.outcomes(),
        [(1, Outcome::Broken { acknowledged: 0 })]
    );
    assert!(!session.core.can_take());
}

#[test]
fn an_end_that_the_peer_never_confirms_is_bounded() {
    let mut session = AgainstPeer::up();
    session.core.close(session.now, TermReason::Unknown);
    session.output();
    session.pass(Duration::from_secs(19));
    session.hear(&[4]);
    session.pass(Duration::from_secs(19));
    assert_eq!(session.closed(), None);
    session.pass(Duration::from_secs(11));
    assert!(matches!(session.closed(), Some(Down::Broken(_))));
}

#[test]
fn a_rejected_acknowledgement_after_the_end_does_no_harm() {
    let mut session = AgainstPeer::up();
    session.core.close(session.now, TermReason::Unknown);
    session.output();
    session.hear(&[6, 3, 2]);
    session.hear(TERM_REPLY);
    session.output();
    assert_eq!(session.closed(), Some(&Down::Closed));
}

#[test]
fn a_connection_that_closes_without_an_end_is_broken() {
    let mut session = AgainstPeer::up();
    session.core.connection_lost("closed");
    session.output();
    assert!(matches!(session.closed(), Some(Down::Broken(_))));
}
