//! Contact header and SESS_INIT.

use std::time::Duration;

use underpass_cla::{Class, Down};
use underpass_tcpcl::session::{Event, LABEL_EXTENSION, Role};

use crate::peer::{AgainstPeer, CONTACT, bytes_of, config, item, peer_init, segment};

fn is_protocol(down: Option<&Down>) -> bool {
    matches!(down, Some(Down::Protocol(_)))
}

#[test]
fn the_active_side_speaks_first() {
    let mut active = AgainstPeer::connected(config(Role::Active));
    assert_eq!(active.sent_from_contact(), ["contact v4 flags 0x0"]);
    let mut passive = AgainstPeer::connected(config(Role::Passive));
    assert!(passive.output().is_empty());
    passive.hear(CONTACT);
    assert_eq!(passive.sent_from_contact(), ["contact v4 flags 0x0"]);
    active.hear(CONTACT);
    active.says(&["SESS_INIT ka 10 segMRU 1000 xferMRU 4000 node ipn:1.0"]);
}

#[test]
fn nothing_is_said_to_another_protocol() {
    let mut session = AgainstPeer::connected(config(Role::Passive));
    session.hear(b"GE");
    assert!(is_protocol(session.closed()));
    assert!(session.output().is_empty());
}

#[test]
fn another_version_is_answered_with_ours_and_ended() {
    let mut session = AgainstPeer::connected(config(Role::Passive));
    session.hear(b"dtn!\x03\0");
    assert_eq!(
        session.sent_from_contact(),
        ["contact v4 flags 0x0", "SESS_TERM flags 0 reason 2"]
    );
    assert!(is_protocol(session.closed()));
}

#[test]
fn a_peer_without_tls_is_refused_where_tls_is_required() {
    let mut required = config(Role::Passive);
    required.tls = true;
    let mut session = AgainstPeer::connected(required);
    session.hear(CONTACT);
    assert_eq!(
        session.sent_from_contact(),
        ["contact v4 flags 0x1", "SESS_TERM flags 0 reason 4"]
    );
    assert!(is_protocol(session.closed()));
}

#[test]
fn a_peer_that_does_not_come_up_is_given_up_in_time() {
    for heard in [&b""[..], CONTACT] {
        let mut session = AgainstPeer::connected(config(Role::Passive));
        session.hear(heard);
        let timeout = config(Role::Passive).contact_timeout;
        session.pass(timeout - Duration::from_millis(1));
        assert_eq!(session.closed(), None);
        session.pass(Duration::from_millis(1));
        assert!(matches!(session.closed(), Some(Down::Broken(_))));
    }
}

#[test]
fn an_unknown_critical_extension_of_the_session_ends_it() {
    let mut session = AgainstPeer::connected(config(Role::Passive));
    session.hear(CONTACT);
    session.sent_from_contact();
    session.hear(&bytes_of(&peer_init(vec![item(1, 0x8123, b"x")])));
    session.says(&["SESS_TERM flags 0 reason 4"]);
    assert!(is_protocol(session.closed()));
}

#[test]
fn other_unknown_extensions_of_the_session_are_passed_over() {
    let mut session = AgainstPeer::connected(config(Role::Passive));
    session.hear(CONTACT);
    session.hear(&bytes_of(&peer_init(vec![item(0, 0x8123, b"x")])));
    assert!(matches!(session.events[..], [Event::Established(_)]));
}

#[test]
fn malformed_or_endless_extensions_of_the_session_end_it() {
    let good = bytes_of(&peer_init(vec![item(0, 0x8123, b"x")]));
    let mut overrun = good.clone();
    let value_length = overrun.len() - 2;
    overrun[value_length] = 9;
    let mut endless = good;
    let list_length = endless.len() - 10;
    endless[list_length..list_length + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    for (bytes, reason) in [(overrun, 4), (endless, 5)] {
        let mut session = AgainstPeer::connected(config(Role::Passive));
        session.hear(CONTACT);
        session.sent_from_contact();
        session.hear(&bytes);
        assert_eq!(
            session.sent(),
            [format!("SESS_TERM flags 0 reason {reason}")]
        );
        assert!(is_protocol(session.closed()));
    }
}

#[test]
fn a_peer_that_takes_hardly_anything_in_a_segment_is_refused() {
    for too_little in [0, 1, 63] {
        let mut init = peer_init(Vec::new());
        init.segment_mru_bytes = too_little;
        let mut session = AgainstPeer::connected(config(Role::Passive));
        session.hear(CONTACT);
        session.hear(&bytes_of(&init));
        assert!(is_protocol(session.closed()), "{too_little}");
    }
    let mut init = peer_init(Vec::new());
    init.segment_mru_bytes = 64;
    let mut session = AgainstPeer::connected(config(Role::Passive));
    session.hear(CONTACT);
    session.hear(&bytes_of(&init));
    let established = |event: &Event| matches!(event, Event::Established(_));
    assert!(session.events.iter().any(established));
}

#[test]
fn transfers_before_the_parameters_end_the_contact() {
    let mut session = AgainstPeer::connected(config(Role::Passive));
    session.hear(CONTACT);
    session.sent_from_contact();
    session.hear(&segment(3, 0, &[], 10));
    session.says(&[
        "MSG_REJECT reason 3 header 0x01",
        "SESS_TERM flags 0 reason 4",
    ]);
    assert!(is_protocol(session.closed()));
}

#[test]
fn parameters_sent_twice_are_rejected_and_change_nothing() {
    let mut session = AgainstPeer::up();
    session.hear(&bytes_of(&peer_init(Vec::new())));
    session.says(&["MSG_REJECT reason 3 header 0x07"]);
    assert!(session.events.is_empty());
}

#[test]
fn a_peer_that_answers_for_another_class_carries_all() {
    let label = [1, 6, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    for (asked, class) in [(Class(6), Some(Class(6))), (Class(2), None)] {
        let mut active = config(Role::Active);
        active.class = Some((asked, false));
        let mut session = AgainstPeer::connected(active);
        session.hear(CONTACT);
        session.hear(&bytes_of(&peer_init(vec![item(
            0,
            LABEL_EXTENSION,
            &label,
        )])));
        let Some(Event::Established(established)) = session.events.pop() else {
            panic!("the session comes up");
        };
        assert_eq!(established.class, class);
    }
}

#[test]
fn a_passive_side_answers_with_no_extension_to_a_peer_that_sent_none() {
    let mut session = AgainstPeer::connected(config(Role::Passive));
    session.hear(CONTACT);
    session.hear(&bytes_of(&peer_init(Vec::new())));
    assert_eq!(
        session.sent_from_contact(),
        [
            "contact v4 flags 0x0",
            "SESS_INIT ka 10 segMRU 1000 xferMRU 4000 node ipn:1.0"
        ]
    );
}
