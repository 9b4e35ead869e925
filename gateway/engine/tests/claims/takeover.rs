//! What happens to transfers in flight when the link comes back.

use std::time::Duration;

use bytes::Bytes;
use underpass_cla::{Class, Outcome, Resume, SessionId};
use underpass_engine::{EngineConfig, HopId, LinkChange, MeasuredLink, PlanLine, Sign, Source};
use underpass_plans::Direction;
use underpass_streams::Event;

use crate::bench::{BULK, MRU, Node, Offered, URGENT, config, exchange, pair, pair_of};

const HOP: HopId = HopId(0);
const ACTIVE: SessionId = SessionId(102);
const STANDBY: SessionId = SessionId(202);

/// A terminal and a hub with an active and a standby session in each class.
fn with_standby() -> (Node, Node) {
    let (mut terminal, mut hub) = pair();
    terminal.up(0, 200);
    hub.up(0, 200);
    exchange(&mut terminal, &mut hub);
    (terminal, hub)
}

fn whole(offered: &Offered) -> Bytes {
    offered.1.chunks.concat().into()
}

/// A bundle in flight on the active session, with this many bytes acknowledged, when the
/// link is lost.
fn lost(node: &mut Node, peer: u64, acknowledged: u64) -> Offered {
    node.send(peer, BULK, 20_000);
    let offered = node.offers().remove(0);
    assert_eq!(offered.0, ACTIVE);
    node.engine.transfer_progress(offered.1.key, acknowledged);
    node.engine.block(node.now, HOP, true);
    offered
}

fn unblock(node: &mut Node) {
    node.engine.block(node.now, HOP, false);
}

#[test]
fn both_directions_go_on_on_the_standby_the_moment_the_link_is_back() {
    let (mut terminal, mut hub) = with_standby();
    let up = lost(&mut terminal, 1, 4_000);
    let down = lost(&mut hub, 10, 7_000);
    for node in [&mut terminal, &mut hub] {
        node.pass(node.now + Duration::from_secs(20));
        assert!(node.offers().is_empty(), "nothing goes into the void");
        unblock(node);
    }
    for (node, before, offset) in [(&mut terminal, &up, 4_000), (&mut hub, &down, 7_000)] {
        let mut offers = node.offers();
        assert_eq!(node.aborted, [ACTIVE]);
        let first = offers.iter().position(|(session, _)| *session == STANDBY);
        let goes_on = offers.remove(first.expect("the standby carries"));
        let key = before.1.key;
        assert_eq!(goes_on.1.resume, Some(Resume { key, offset }));
        assert!(whole(&goes_on) == whole(before), "the same bytes");
        let traffic = node.engine.hops()[0].traffic[2];
        assert_eq!(
            (traffic.resumed_bundles, traffic.resumed_bytes),
            (1, offset)
        );
        // Late events of the old session are ignored.
        node.finish(key, Outcome::Broken { acknowledged: 0 });
        node.engine.session_down(node.now, ACTIVE);
        offers.insert(0, goes_on);
        node.put_back(offers);
    }
    exchange(&mut terminal, &mut hub);
    for node in [&mut terminal, &mut hub] {
        assert!(node.has(|event| matches!(event, Event::Readable(_))));
        let carrying = |s: &&underpass_engine::SessionSnapshot| s.carrying && s.class == Some(2);
        let hop = node.engine.hops().remove(0);
        let ids: Vec<u64> = hop.sessions.iter().filter(carrying).map(|s| s.id).collect();
        assert_eq!(ids, [STANDBY.0]);
    }
}

#[test]
fn silence_of_a_short_hop_tells_sooner_where_a_standby_can_go_on() {
    const MS: Duration = Duration::from_millis(1);
    let in_flight = |node: &mut Node| {
        let rtt = Some(20 * MS);
        let link = MeasuredLink {
            base_rtt: rtt,
            queue: 5 * MS,
            ..MeasuredLink::default()
        };
        node.engine.heard(node.now, HOP, node.now, Sign::Beacon);
        node.engine.measured(node.now, HOP, link, 0);
        node.send(1, BULK, 5_000);
        assert_eq!(node.offers().len(), 1);
        node.now
    };
    let (mut alone, _) = pair();
    let sent = in_flight(&mut alone);
    alone.pass(sent + 300 * MS);
    alone.offers();
    assert_eq!(alone.changes, [], "nobody could go on");

    let (mut terminal, _) = with_standby();
    // The transport has nothing to wait for, since the peer takes nothing at present.
    let sent = in_flight(&mut terminal);
    terminal.pass(sent + 60 * MS);
    terminal.engine.nothing_unanswered(terminal.now, HOP);
    terminal.pass(sent + 149 * MS);
    terminal.offers();
    assert_eq!(terminal.changes, []);
    // Asked after one round trip, the peer has not answered within another one.
    terminal.pass(sent + 155 * MS);
    terminal.offers();
    assert_eq!(terminal.changes, [LinkChange::Blocked(Source::Probing)]);
    terminal.pass(sent + 400 * MS);
    let now = terminal.now;
    terminal.engine.heard(now, HOP, now, Sign::Beacon);
    let offers = terminal.offers();
    assert_eq!(terminal.aborted, [ACTIVE]);
    assert!(offers.iter().any(|(session, _)| *session == STANDBY));
}

#[test]
fn what_was_in_flight_goes_before_what_waits() {
    let (mut terminal, _hub) = with_standby();
    let before = lost(&mut terminal, 1, 0);
    terminal.send(1, BULK, 5_000);
    unblock(&mut terminal);
    let first = terminal.offers().remove(0);
    assert_eq!(first.0, STANDBY);
    assert_eq!(first.1.resume, None);
    assert_eq!(first.1.len(), before.1.len());
}

/// The blockage is at the terminal's antenna: what left the terminal while it heard the
/// hub has arrived, so nobody waits for it.
#[test]
fn what_a_terminal_sent_before_it_last_heard_the_hub_goes_last() {
    let lined = |mut config: EngineConfig, link| {
        config.hops[0].line = Some(PlanLine { link, terminal: 10 });
        config
    };
    let (mut terminal, mut hub) = pair_of(
        lined(config(10, &[1]), Direction::Return),
        lined(config(1, &[10]), Direction::Forward),
    );
    for (node, peer) in [(&mut terminal, 1), (&mut hub, 10)] {
        node.up(0, 200);
        let key = node.send(peer, BULK, 20_000);
        let before = node.offers().remove(0);
        node.ready(before.0);
        node.pass(node.now + Duration::from_millis(20));
        node.engine.heard(node.now, HOP, node.now, Sign::Beacon);
        node.pass(node.now + Duration::from_millis(20));
        node.write(key, 10_000);
        assert_eq!(node.offers().len(), 1);
        let silent = node.now + Duration::from_secs(3);
        node.pass(silent);
        assert!(node.engine.hops()[0].blocked);
        node.engine.heard(node.now, HOP, node.now, Sign::Beacon);
        let mut again = Vec::new();
        while let Some(offered) = node.offers().into_iter().next() {
            node.ready(offered.0);
            again.push(offered.1.len() > 15_000);
        }
        // The terminal's first bundle, which is longer, goes behind its second.
        assert_eq!(again, [peer != 1, peer == 1]);
    }
}

/// Otherwise nobody would send what the hub waits for, for a whole round trip.
#[test]
fn what_a_session_may_have_held_back_is_not_taken_for_arrived() {
    const ROUND_TRIP: Duration = Duration::from_millis(500);
    for late in [Duration::ZERO, Duration::from_millis(200)] {
        let mut lined = config(10, &[1]);
        lined.hops[0].rtt = ROUND_TRIP;
        let (link, terminal) = (Direction::Return, 10);
        lined.hops[0].line = Some(PlanLine { link, terminal });
        let (mut terminal, _hub) = pair_of(lined, config(1, &[10]));
        terminal.up(0, 200);
        let key = terminal.open(1, BULK);
        let hear = |terminal: &mut Node, time: Duration| {
            terminal.pass(terminal.now + time);
            let now = terminal.now;
            terminal.engine.heard(now, HOP, now, Sign::Beacon);
        };
        let send = |terminal: &mut Node, bytes: usize| {
            terminal.write(key, bytes);
            let mut offers = terminal.offers().into_iter();
            let long = offers.find(|(_, transfer)| transfer.len() > bytes as u64);
            long.expect("it is offered")
        };
        let (session, transfer) = send(&mut terminal, 1_000);
        hear(&mut terminal, ROUND_TRIP);
        hear(&mut terminal, late);
        terminal.finish(transfer.key, Outcome::Acknowledged);
        terminal.ready(session);
        for bytes in [40_000, 30_000, 20_000] {
            hear(&mut terminal, Duration::from_millis(20));
            terminal.pass(terminal.now + Duration::from_millis(20));
            let (session, _) = send(&mut terminal, bytes);
            terminal.ready(session);
        }
        terminal.pass(terminal.now + Duration::from_secs(3));
        assert!(terminal.engine.hops()[0].blocked);
        hear(&mut terminal, Duration::ZERO);
        let mut again = Vec::new();
        for _ in 0..10 {
            for (session, transfer) in terminal.offers() {
                terminal.ready(session);
                again.extend(Some(transfer.len() / 5_000).filter(|size| *size > 1));
            }
        }
        let as_sent = [8, 6, 4];
        let what_left_late_first = [4, 8, 6];
        let expected = match late.is_zero() {
            true => what_left_late_first,
            false => as_sent,
        };
        assert_eq!(again, expected);
    }
}

#[test]
fn sessions_with_nothing_in_flight_stay() {
    let (mut terminal, _hub) = with_standby();
    lost(&mut terminal, 1, 0);
    unblock(&mut terminal);
    terminal.offers();
    assert_eq!(terminal.aborted, [ACTIVE]);
    unblock(&mut terminal);
    terminal.engine.block(terminal.now, HOP, true);
    terminal.send(1, URGENT, 100);
    unblock(&mut terminal);
    assert!(terminal.offers().iter().any(|(s, _)| *s == SessionId(101)));
    assert_eq!(terminal.aborted, [ACTIVE]);
}

#[test]
fn a_peer_that_begins_on_a_younger_session_has_given_up_the_older() {
    let (mut terminal, _hub) = with_standby();
    terminal.send(1, BULK, 100);
    let before = terminal.offers().remove(0);
    let admitted = terminal.engine.admit(terminal.now, STANDBY, Some(100));
    assert_eq!(admitted, Ok(()));
    let again = terminal.offers().remove(0);
    assert_eq!((before.0, again.0), (ACTIVE, STANDBY));
    assert_eq!(terminal.aborted, [ACTIVE]);
    // A late transfer of the old session does not count as a change back.
    assert_eq!(
        terminal.engine.admit(terminal.now, ACTIVE, Some(100)),
        Ok(())
    );
    assert_eq!(terminal.aborted, [ACTIVE]);
}

#[test]
fn without_a_standby_the_next_session_takes_over_unless_the_old_one_moves() {
    for moves in [false, true] {
        let (mut terminal, _hub) = pair();
        let before = lost(&mut terminal, 1, 1_000);
        unblock(&mut terminal);
        assert!(terminal.offers().is_empty() && terminal.aborted.is_empty());
        if moves {
            terminal.engine.transfer_progress(before.1.key, 2_000);
        }
        terminal.session(0, STANDBY.0, Some(BULK), MRU);
        let offers = terminal.offers();
        assert_eq!(offers.is_empty(), moves);
        assert_eq!(terminal.aborted.is_empty(), moves);
    }
}

/// A session of the peer comes up from another address.
fn up_from(node: &mut Node, id: u64, address: u8) {
    node.session_with(0, id, Some(BULK), |info| {
        info.remote = ([192, 0, 2, address], 4556).into();
    });
}

#[test]
fn sessions_from_an_address_that_the_peer_has_left_are_given_up_unless_they_move() {
    for moves in [false, true] {
        let (_terminal, mut hub) = with_standby();
        hub.send(10, BULK, 20_000);
        let before = hub.offers().remove(0);
        assert_eq!(before.0, ACTIVE);
        up_from(&mut hub, 302, 2);
        // An address translator may give the peer several addresses.
        assert!(hub.offers().is_empty() && hub.aborted.is_empty());
        if moves {
            hub.engine.transfer_progress(before.1.key, 2_000);
        }
        up_from(&mut hub, 402, 2);
        let offers = hub.offers();
        if moves {
            assert!(offers.is_empty() && hub.aborted.is_empty());
        } else {
            assert_eq!(hub.aborted, [ACTIVE, STANDBY]);
            assert_eq!(offers[0].0, SessionId(302));
        }
    }
}

#[test]
fn what_a_session_going_down_was_offered_unseen_goes_to_the_next() {
    let (mut terminal, _hub) = pair();
    terminal.send(1, BULK, 20_000);
    let before = terminal.offers().remove(0);
    terminal.engine.transfer_progress(before.1.key, 1_000);
    terminal.engine.session_down(terminal.now, ACTIVE);
    terminal.session(0, STANDBY.0, Some(BULK), MRU);
    let again = terminal.offers().remove(0);
    assert_eq!(again.0, STANDBY);
    let offset = 1_000;
    let key = before.1.key;
    assert_eq!(again.1.resume, Some(Resume { key, offset }));
}

#[test]
fn sessions_of_a_peers_earlier_incarnation_are_not_used() {
    let (mut terminal, _hub) = pair();
    for (id, incarnation) in [(301, 7), (302, 8)] {
        terminal.session_with(0, id, Some(URGENT), |info| {
            info.incarnation = Some(incarnation);
        });
    }
    terminal.offers();
    assert_eq!(terminal.aborted, [SessionId(301)]);
}

#[test]
fn a_session_that_cannot_resume_gets_the_bundle_with_its_present_age() {
    let (mut terminal, _hub) = pair();
    terminal.session_with(0, STANDBY.0, Some(BULK), |info| info.resumes = false);
    let before = lost(&mut terminal, 1, 4_000);
    terminal.pass(terminal.now + Duration::from_secs(20));
    unblock(&mut terminal);
    let again = terminal.offers().remove(0);
    assert_eq!(again.1.resume, None);
    assert!(whole(&again) != whole(&before));
}

#[test]
fn what_a_session_keeps_no_part_of_goes_whole_to_one_that_resumes() {
    let other = SessionId(300);
    for tells_the_end in [false, true] {
        let (mut terminal, _hub) = pair();
        terminal.engine.session_down(terminal.now, ACTIVE);
        terminal.session_with(0, other.0, Some(BULK), |info| info.resumes = false);
        terminal.send(1, BULK, 20_000);
        let mut offers = terminal.offers().into_iter();
        let before = offers.find(|(session, _)| *session == other);
        let key = before.expect("it is offered").1.key;
        let acknowledged = 1_000;
        terminal.engine.transfer_progress(key, acknowledged);
        if tells_the_end {
            terminal.finish(key, Outcome::Broken { acknowledged });
        }
        terminal.engine.session_down(terminal.now, other);
        terminal.session(0, STANDBY.0, Some(BULK), MRU);
        let again = terminal.offers().remove(0);
        assert_eq!((again.0, again.1.resume), (STANDBY, None));
    }
}

#[test]
fn an_age_too_old_for_the_lifetime_is_not_sent_again() {
    let (mut terminal, _hub) = with_standby();
    let before = lost(&mut terminal, 1, 4_000);
    // An eighth of the lifetime passes, which is more than an eighth of the rest.
    terminal.pass(terminal.now + Duration::from_secs(3600 / 8));
    unblock(&mut terminal);
    let again = terminal.offers().remove(0);
    assert_eq!(again.1.resume, None);
    assert!(whole(&again) != whole(&before));
}

#[test]
fn a_peer_keeps_its_newest_sessions_and_no_more_than_its_share() {
    let (_, mut hub) = pair();
    for base in [200, 300, 400] {
        hub.up(0, base);
    }
    hub.offers();
    assert_eq!(hub.aborted, [], "those that may be dying beside fresh ones");
    hub.up(0, 500);
    hub.offers();
    assert_eq!(hub.aborted, [100, 101, 102].map(SessionId));
    // Also of unknown classes; whatever the sessions are, they end with the others.
    hub.aborted.clear();
    for id in 600..700 {
        hub.session(0, id, Some(Class(9)), MRU);
    }
    hub.offers();
    assert_eq!(hub.aborted.len(), 100);
    hub.aborted.clear();
    hub.engine.end_sessions(hub.now);
    hub.offers();
    assert_eq!(hub.aborted.len(), 12);
}
