//! Transfers to the peer, which takes segments of 400 and bundles of 3000.

use underpass_cla::{Down, Outcome, Refusal};
use underpass_tcpcl::session::Event;

use crate::peer::{AgainstPeer, ack, refuse};

#[test]
fn segments_keep_to_the_peers_limit_and_the_first_tells_the_length() {
    let mut session = AgainstPeer::up();
    session.offer(1, 900);
    session.offer(2, 400);
    session.says(&[
        "SEG flags 2 id 0 extlen 13 00000100080000000000000384 len 400",
        "SEG flags 0 id 0 len 400",
        "SEG flags 1 id 0 len 100",
        "SEG flags 3 id 1 len 400",
    ]);
}

#[test]
fn the_next_bundle_is_wanted_when_all_bytes_are_out_not_when_acknowledged() {
    let mut session = AgainstPeer::up();
    assert!(session.core.can_take());
    session.offer(1, 900);
    assert!(!session.core.can_take());
    session.output();
    assert!(session.core.can_take());
}

#[test]
fn progress_and_end_follow_the_acknowledgements() {
    let mut session = AgainstPeer::up();
    session.offer(1, 900);
    session.output();
    session.hear(&ack(2, 0, 400));
    session.hear(&ack(0, 0, 800));
    session.hear(&ack(1, 0, 900));
    let progress = |acknowledged| Event::Progress {
        key: 1,
        acknowledged,
    };
    assert_eq!(session.events[..2], [progress(400), progress(800)]);
    assert_eq!(session.outcomes(), [(1, Outcome::Acknowledged)]);
}

#[test]
fn acknowledgements_without_flags_count() {
    let mut session = AgainstPeer::up();
    session.offer(1, 900);
    session.output();
    session.hear(&ack(0, 0, 400));
    session.hear(&ack(0, 0, 900));
    assert_eq!(session.outcomes(), [(1, Outcome::Acknowledged)]);
    assert!(session.sent().is_empty());
}

#[test]
fn acknowledgements_of_what_was_not_sent_are_rejected() {
    let mut session = AgainstPeer::up();
    session.offer(1, 300);
    session.output();
    for wrong in [ack(3, 9, 300), ack(3, 0, 301)] {
        session.hear(&wrong);
        session.says(&["MSG_REJECT reason 3 header 0x02"]);
    }
    session.hear(&ack(3, 0, 300));
    session.hear(&ack(3, 0, 300));
    session.says(&["MSG_REJECT reason 3 header 0x02"]);
    assert_eq!(session.outcomes(), [(1, Outcome::Acknowledged)]);
}

#[test]
fn refusals_tell_what_to_do_next() {
    let broken = Outcome::Broken { acknowledged: 0 };
    for (reason, outcome) in [
        (0, Outcome::Refused(Refusal::NoResources)),
        (1, Outcome::Refused(Refusal::Completed)),
        (2, Outcome::Refused(Refusal::NoResources)),
        (3, Outcome::Refused(Refusal::NoResources)),
        (4, Outcome::Refused(Refusal::NotAcceptable)),
        (5, Outcome::Refused(Refusal::NotAcceptable)),
        (6, broken),
        (99, Outcome::Refused(Refusal::NoResources)),
    ] {
        let mut session = AgainstPeer::up();
        session.offer(1, 300);
        session.output();
        session.hear(&refuse(reason, 0));
        assert_eq!(session.outcomes(), [(1, outcome)]);
    }
}

#[test]
fn a_refused_transfer_stops_at_the_end_of_its_segment() {
    let mut session = AgainstPeer::up();
    session.offer(1, 900);
    let mut output = session
        .core
        .poll_output(session.now)
        .expect("a head")
        .to_vec();
    session.hear(&refuse(2, 0));
    session.offer(2, 50);
    output.extend(session.output());
    let (said, left) = crate::describe::describe(&output, false);
    assert_eq!(
        said,
        [
            "SEG flags 2 id 0 extlen 13 00000100080000000000000384 len 400",
            "SEG flags 3 id 1 len 50"
        ]
    );
    assert_eq!(left, 0);
    session.hear(&ack(3, 1, 50));
    assert_eq!(session.outcomes()[1], (2, Outcome::Acknowledged));
}

#[test]
fn too_large_a_bundle_is_refused_without_being_sent() {
    let mut session = AgainstPeer::up();
    session.offer(1, 3001);
    assert_eq!(
        session.outcomes(),
        [(1, Outcome::Refused(Refusal::NotAcceptable))]
    );
    assert!(session.sent().is_empty());
}

#[test]
fn what_answers_the_peer_goes_between_segments() {
    let mut session = AgainstPeer::up();
    session.offer(1, 900);
    let mut output = session
        .core
        .poll_output(session.now)
        .expect("a head")
        .to_vec();
    session.hear(&crate::peer::segment(3, 5, &[], 10));
    output.extend(session.output());
    let (said, _) = crate::describe::describe(&output, false);
    assert_eq!(said[1], "ACK flags 3 id 5 len 10");
    assert_eq!(said[2], "SEG flags 0 id 0 len 400");
}

#[test]
fn a_lost_connection_tells_how_far_each_transfer_came() {
    let mut session = AgainstPeer::up();
    session.offer(1, 900);
    session.offer(2, 50);
    session.output();
    session.hear(&ack(2, 0, 400));
    session.core.connection_lost("reset");
    session.output();
    assert_eq!(
        session.outcomes(),
        [
            (1, Outcome::Broken { acknowledged: 400 }),
            (2, Outcome::Broken { acknowledged: 0 })
        ]
    );
    assert_eq!(session.closed(), Some(&Down::Broken("reset".into())));
}

#[test]
fn a_peer_that_rejects_segments_is_left() {
    let mut session = AgainstPeer::up();
    session.offer(1, 50);
    session.output();
    session.hear(&[6, 2, 1]);
    assert_eq!(
        session.outcomes(),
        [(1, Outcome::Broken { acknowledged: 0 })]
    );
    assert!(matches!(session.closed(), Some(Down::Protocol(_))));
    session.says(&["SESS_TERM flags 0 reason 0"]);
}

#[test]
fn other_rejections_change_nothing() {
    let mut session = AgainstPeer::up();
    session.hear(&[6, 3, 2]);
    session.hear(&[6, 2, 4]);
    assert!(session.events.is_empty());
}
