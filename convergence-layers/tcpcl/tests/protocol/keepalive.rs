//! Keepalives: we offer 10 s and the peer 30 s, so 10 s is agreed.

use std::time::Duration;

use underpass_cla::{Class, Down};
use underpass_tcpcl::session::{KeepaliveCount, Label, Role, SessionConfig};
use underpass_tcpcl::wire::{ExtensionItem, SessInit, TermReason};

use crate::peer::{AgainstPeer, CONTACT, ack, bytes_of, config, peer_init, segment};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_idle_session_shows_life_before_each_interval_ends() {
    let mut session = AgainstPeer::up();
    let due = session.core.poll_timeout().expect("a deadline");
    assert!(due < session.now + 10 * SECOND);
    session.pass(7 * SECOND);
    assert!(session.sent().is_empty());
    session.pass(SECOND);
    session.says(&["KEEPALIVE"]);
    session.pass(7 * SECOND);
    assert!(session.sent().is_empty());
    session.pass(SECOND);
    session.says(&["KEEPALIVE"]);
}

#[test]
fn other_messages_are_life_enough() {
    let mut session = AgainstPeer::up();
    session.pass(7 * SECOND);
    session.offer(1, 10);
    session.sent();
    session.pass(7 * SECOND);
    assert!(session.sent().is_empty());
}

#[test]
fn a_sign_is_asked_for_at_once_by_a_keepalive() {
    let mut session = AgainstPeer::up();
    session.pass(5 * SECOND);
    session.core.ask(session.now);
    session.says(&["KEEPALIVE"]);
    // Any message counts as a keepalive.
    session.pass(7 * SECOND);
    assert!(session.sent().is_empty());
    session.core.close(session.now, TermReason::Unknown);
    session.core.ask(session.now);
    session.says(&["SESS_TERM flags 0 reason 0"]);
}

#[test]
fn keepalives_are_counted_and_what_stands_for_one_is_not() {
    let mut session = AgainstPeer::up();
    for _ in 0..3 {
        session.pass(8 * SECOND);
        session.hear(&[4, 4]);
        session.sent();
    }
    session.pass(7 * SECOND);
    session.offer(1, 10);
    session.sent();
    session.pass(2 * SECOND);
    assert!(session.sent().is_empty());
    let count = KeepaliveCount {
        sent: 3,
        received: 6,
    };
    assert_eq!(session.core.keepalives(), count);
}

#[test]
fn a_peer_silent_for_two_intervals_is_given_up() {
    let mut session = AgainstPeer::up();
    session.pass(10 * SECOND);
    session.sent();
    session.pass(9 * SECOND);
    assert_eq!(session.closed(), None);
    session.sent();
    session.pass(SECOND);
    session.says(&["SESS_TERM flags 0 reason 1"]);
    assert!(matches!(session.closed(), Some(Down::Broken(_))));
}

#[test]
fn part_of_a_long_segment_is_a_sign_of_life() {
    let mut session = AgainstPeer::up();
    let bytes = segment(3, 1, &[], 500);
    for piece in bytes.chunks(50) {
        session.pass(15 * SECOND);
        session.hear(piece);
    }
    assert_eq!(session.closed(), None);
    assert_eq!(session.bundles(), [(1, 500)]);
}

#[test]
fn a_peer_whose_bytes_are_not_taken_is_not_silent() {
    let mut session = AgainstPeer::up();
    let bytes = segment(3, 1, &[], 500);
    let taken = session.core.handle_input(session.now, &bytes);
    assert!(session.core.is_held_up(), "the node has not answered");
    for _ in 0..12 {
        session.now += 5 * SECOND;
        session.core.handle_timeout(session.now);
        assert!(session.core.poll_timeout() > Some(session.now));
    }
    // The peer's messages of the meantime are handled now.
    session.pass(Duration::ZERO);
    session.hear(&bytes[taken..]);
    assert_eq!(session.closed(), None);
    assert_eq!(session.bundles(), [(1, 500)]);
}

#[test]
fn a_blocked_link_suspends_keepalives() {
    let mut session = AgainstPeer::up();
    session.core.suspend(session.now, true);
    assert_eq!(session.core.poll_timeout(), None);
    session.pass(300 * SECOND);
    assert!(session.sent().is_empty());
    assert_eq!(session.closed(), None);
    session.core.suspend(session.now, false);
    session.pass(SECOND);
    session.says(&["KEEPALIVE"]);
    session.pass(18 * SECOND);
    assert_eq!(session.closed(), None);
    session.pass(SECOND);
    assert!(session.closed().is_some());
}

#[test]
fn an_interval_of_zero_on_either_side_switches_them_off() {
    let mut session = AgainstPeer::connected(SessionConfig {
        keepalive_s: 0,
        ..config(Role::Passive)
    });
    session.hear(CONTACT);
    session.hear(&bytes_of(&peer_init(Vec::new())));
    assert_eq!(session.core.poll_timeout(), None);
    session.sent_from_contact();
    session.core.ask(session.now);
    session.pass(10_000 * SECOND);
    assert!(session.sent().is_empty());
    assert_eq!(session.closed(), None);
}

/// A session that has agreed on 150 s, with a peer that has these extensions.
fn sparing(extensions: Vec<ExtensionItem>) -> AgainstPeer {
    let mut session = AgainstPeer::connected(SessionConfig {
        keepalive_s: 150,
        ..config(Role::Passive)
    });
    session.hear(CONTACT);
    session.hear(&bytes_of(&SessInit {
        keepalive_s: 150,
        ..peer_init(extensions)
    }));
    session.events.clear();
    session.sent_from_contact();
    session
}

/// The same with a peer that is also an Underpass node.
fn sparing_with_ours() -> AgainstPeer {
    let label = Label {
        class: Class(3),
        standby: false,
        incarnation: 7,
        resumes: false,
        alone_ms: None,
    };
    sparing(vec![label.to_item()])
}

#[test]
fn an_idle_session_shows_life_as_seldom_as_agreed() {
    let mut session = sparing_with_ours();
    for _ in 0..3 {
        session.hear(&[4]);
        session.pass(112 * SECOND);
        assert!(session.sent().is_empty());
        session.pass(SECOND);
        session.says(&["KEEPALIVE"]);
    }
    session.hear(&[4]);
    session.pass(299 * SECOND);
    assert_eq!(session.closed(), None);
    session.pass(SECOND);
    assert!(matches!(session.closed(), Some(Down::Broken(_))));
}

#[test]
fn an_answer_that_a_peer_owes_is_missed_after_a_minute() {
    let mut session = sparing_with_ours();
    session.pass(100 * SECOND);
    session.offer(1, 10);
    session.sent();
    session.pass(59 * SECOND);
    session.says(&["KEEPALIVE"]);
    assert_eq!(session.closed(), None);
    session.pass(SECOND);
    assert!(matches!(session.closed(), Some(Down::Broken(_))));
}

#[test]
fn a_peer_that_has_answered_may_be_silent_again() {
    let mut session = sparing_with_ours();
    session.offer(1, 10);
    session.sent();
    session.hear(&ack(3, 0, 10));
    session.pass(112 * SECOND);
    assert!(session.sent().is_empty());
    session.pass(187 * SECOND);
    assert_eq!(session.closed(), None);
}

#[test]
fn who_owes_an_answer_shows_life_in_each_half_minute() {
    let mut session = sparing_with_ours();
    session.pass(113 * SECOND);
    session.says(&["KEEPALIVE"]);
    let bytes = segment(3, 1, &[], 500);
    session.core.handle_input(session.now, &bytes);
    assert!(session.core.is_held_up(), "the node has not answered");
    for _ in 0..4 {
        session.now += 22 * SECOND;
        session.core.handle_timeout(session.now);
        assert!(session.core.poll_output(session.now).is_none());
        session.now += SECOND;
        session.core.handle_timeout(session.now);
        assert!(session.core.poll_output(session.now).is_some());
    }
}

#[test]
fn a_peer_that_is_not_ours_may_be_as_silent_as_agreed_whatever_it_owes() {
    let mut session = sparing(Vec::new());
    session.offer(1, 10);
    session.sent();
    session.pass(299 * SECOND);
    assert_eq!(session.closed(), None);
    session.pass(SECOND);
    assert!(matches!(session.closed(), Some(Down::Broken(_))));
}
