//! A hop with late answers, beside another hop that could carry its bundles.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::{Outcome, SessionId};
use underpass_engine::{
    HopId, LinkChange, Message, MeterConfig, MeteredUse, ON_DEMAND_SERVICE, PathUse, Period,
    Policy, SILENCE, Sign, Source,
};
use underpass_streams::Event;

use crate::bench::{BULK, CONTROL, MRU, Node, Offered, URGENT, pair};
use crate::lines::Lines;
use crate::paths::{FAR, MS, NEAR, both_lines, by_hop, longest_gap, two_hops, two_paths};

const SECOND: Duration = Duration::from_secs(1);

fn hear(node: &mut Node, hop: HopId) {
    node.engine.heard(node.now, hop, node.now, Sign::Beacon);
}

/// A terminal that has just sent a bundle by the near hop, of 5 ms and a round trip of 30 ms.
fn sent_by_near() -> (Node, Node) {
    let (mut terminal, hub) = two_paths(&[]);
    for hop in [NEAR, FAR] {
        hear(&mut terminal, hop);
    }
    terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [1, 0]);
    (terminal, hub)
}

/// The number of bundles that each hop is offered within this time.
fn offered_in(node: &mut Node, time: Duration) -> [usize; 2] {
    node.pass(node.now + time);
    by_hop(&node.offers())
}

#[test]
fn what_is_late_goes_by_another_hop_too_and_sessions_stay() {
    let (mut terminal, _hub) = sent_by_near();
    assert_eq!(offered_in(&mut terminal, 125 * MS), [0, 0]);
    assert_eq!(offered_in(&mut terminal, 20 * MS), [0, 1]);
    // New bundles go there, though the near hop would deliver them sooner.
    let urgent = terminal.send(1, URGENT, 500);
    assert_eq!(offered_in(&mut terminal, 40 * MS), [0, 1]);
    assert_eq!(terminal.changes, []);
    assert_eq!(terminal.aborted, []);
    hear(&mut terminal, NEAR);
    terminal.write(urgent, 500);
    assert_eq!(offered_in(&mut terminal, 20 * MS), [1, 0]);
}

#[test]
fn a_false_alarm_makes_the_next_doubt_later() {
    let (mut terminal, _hub) = sent_by_near();
    for (hop, until) in [([0, 1], 145 * MS), ([0, 0], 190 * MS), ([0, 1], 25 * MS)] {
        assert_eq!(offered_in(&mut terminal, until), hop);
        if until == 145 * MS {
            hear(&mut terminal, NEAR);
            for session in [201, 202] {
                terminal.ready(SessionId(session));
            }
        }
    }
    assert_eq!(terminal.changes, []);
}

#[test]
fn a_blockage_behind_a_false_alarm_makes_the_next_doubt_as_soon_as_the_first() {
    let (mut terminal, _hub) = sent_by_near();
    assert_eq!(offered_in(&mut terminal, 145 * MS), [0, 1]);
    hear(&mut terminal, NEAR);
    // First a doubt, 200 ms later a blockage; the far hop takes nothing more.
    assert_eq!(offered_in(&mut terminal, 250 * MS), [0, 0]);
    assert_eq!(terminal.changes, [LinkChange::Blocked(Source::Probing)]);
    hear(&mut terminal, NEAR);
    terminal.session(0, 112, Some(BULK), MRU);
    assert_eq!(by_hop(&terminal.offers()), [1, 0]);
    terminal.ready(SessionId(202));
    assert_eq!(offered_in(&mut terminal, 125 * MS), [0, 0]);
    assert_eq!(offered_in(&mut terminal, 20 * MS), [0, 1]);
}

/// A terminal with one bundle on each hop, the near one in doubt: the copy waits for the
/// far hop, which takes nothing more.
fn copy_waits() -> (Node, Node) {
    let (mut terminal, hub) = two_paths(&[]);
    for hop in [NEAR, FAR] {
        hear(&mut terminal, hop);
    }
    let key = terminal.open(1, BULK);
    terminal.engine.block(terminal.now, NEAR, true);
    terminal.write(key, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [0, 1]);
    terminal.engine.block(terminal.now, NEAR, false);
    terminal.write(key, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [1, 0]);
    assert_eq!(offered_in(&mut terminal, 145 * MS), [0, 0]);
    assert_eq!(terminal.engine.footprint()["copies"], 1);
    (terminal, hub)
}

#[test]
fn copies_that_have_not_left_are_forgotten_at_the_first_sign() {
    let (mut terminal, _hub) = copy_waits();
    hear(&mut terminal, NEAR);
    assert_eq!(terminal.engine.footprint()["copies"], 0);
}

#[test]
fn what_comes_back_from_a_session_that_breaks_in_doubt_goes_once() {
    let (mut terminal, _hub) = copy_waits();
    terminal.engine.session_down(terminal.now, SessionId(102));
    for offered in [[0, 1], [0, 0]] {
        terminal.ready(SessionId(202));
        assert_eq!(offered_in(&mut terminal, 20 * MS), offered);
    }
}

#[test]
fn a_bundle_too_long_to_be_copied_leaves_the_room_to_those_behind_it() {
    let (mut terminal, _hub) = two_paths(&[]);
    for hop in [NEAR, FAR] {
        hear(&mut terminal, hop);
    }
    terminal.engine.block(terminal.now, NEAR, true);
    let long = Bytes::from(vec![7; 5 << 20]);
    let message = Message::new(1, ON_DEMAND_SERVICE, BULK, long);
    let sent = terminal
        .engine
        .send_message(terminal.now, message, 60 * SECOND);
    sent.expect("there is room");
    assert_eq!(by_hop(&terminal.offers()), [0, 1]);
    terminal.send(1, URGENT, 500);
    let is_by = |node: &mut Node, session| {
        let offers = node.offers();
        offers.iter().any(|(of, _)| *of == SessionId(session))
    };
    let mut looks = 0;
    while !is_by(&mut terminal, 201) {
        assert!(looks < 100, "it goes behind the long one");
        looks += 1;
        hear(&mut terminal, FAR);
        terminal.pass(terminal.now + 20 * MS);
    }
    terminal.engine.block(terminal.now, NEAR, false);
    terminal.engine.misses(terminal.now, FAR, 150 * MS);
    assert!(is_by(&mut terminal, 101));
}

#[test]
fn a_hop_that_is_silent_for_long_is_blocked_as_ever() {
    let (mut terminal, _hub) = sent_by_near();
    terminal.pass(terminal.now + 225 * MS);
    terminal.offers();
    assert_eq!(terminal.changes, []);
    terminal.pass(terminal.now + 20 * MS);
    terminal.offers();
    assert_eq!(terminal.changes, [LinkChange::Blocked(Source::Probing)]);
    // The last hop gets all its time.
    terminal.pass(terminal.now + SILENCE);
    assert_eq!(terminal.changes.len(), 1);
}

#[test]
fn bytes_are_paid_for_only_where_they_are_lost_for_sure() {
    for (use_of_metered, expected) in [(MeteredUse::Last, [0, 0]), (MeteredUse::Freely, [0, 1])] {
        let (mut terminal, _hub) = sent_by_near();
        let mut config = two_hops(10, 1);
        config.hops[1].meter = Some(MeterConfig {
            budget_bytes: None,
            period: Period::Day,
            beyond: Vec::new(),
        });
        let policy = Policy {
            metered: use_of_metered,
            ..Policy::default()
        };
        config.policies.insert(BULK, policy);
        let now = terminal.now;
        let taken = terminal.engine.reconfigure(now, config);
        taken.expect("the same classes");
        assert_eq!(offered_in(&mut terminal, 190 * MS), expected);
        terminal.pass(terminal.now + 100 * MS);
        terminal.offers();
        assert_eq!(terminal.changes, [LinkChange::Blocked(Source::Probing)]);
    }
}

#[test]
fn a_node_is_told_of_a_silence_by_the_other_hop_or_not_at_all() {
    let pinned: [&[&str]; 2] = [&[], &["hop0"]];
    for (paths, told) in pinned.into_iter().zip([[0, 1], [0, 0]]) {
        let (_terminal, mut hub) = two_paths(&[(CONTROL, PathUse::Pinned, paths)]);
        for hop in [NEAR, FAR] {
            hear(&mut hub, hop);
        }
        hub.engine.misses(hub.now, NEAR, 150 * MS);
        assert_eq!(offered_in(&mut hub, 20 * MS), told, "{paths:?}");
    }
}

#[test]
fn sessions_are_asked_as_soon_as_the_rest_of_a_bundle_is_late() {
    let (_terminal, mut hub) = two_paths(&[]);
    for hop in [NEAR, FAR] {
        hear(&mut hub, hop);
    }
    let (engine, now) = (&mut hub.engine, hub.now);
    engine.misses(now, FAR, 30 * MS);
    assert_eq!(engine.links_due(now + 69 * MS), []);
    assert_eq!(engine.links_due(now + 70 * MS), [FAR]);
    assert!(engine.next_timeout().is_some_and(|at| at <= now + 70 * MS));
    // The sessions have heard the peer meanwhile.
    engine.misses(now + 70 * MS, FAR, 10 * MS);
    assert_eq!(offered_in(&mut hub, 100 * MS), [0, 0]);
    assert_eq!(hub.engine.links_due(hub.now), []);
    assert_eq!(hub.engine.links_due(hub.now + 60 * MS), [FAR]);
    // There is no other hop that could carry what this one owes.
    let (mut terminal, _hub) = pair();
    let now = terminal.now;
    hear(&mut terminal, HopId(0));
    terminal.engine.misses(now, HopId(0), 30 * MS);
    assert_eq!(terminal.engine.links_due(now + 100 * MS), []);
}

#[test]
fn a_hop_of_which_the_peer_hears_nothing_is_in_doubt_though_it_carries_copies_alone() {
    let (mut terminal, mut hub) = two_paths(&[(BULK, PathUse::Duplicated, &[])]);
    for node in [&mut terminal, &mut hub] {
        for hop in [NEAR, FAR] {
            hear(node, hop);
        }
    }
    let key = terminal.send(1, BULK, 5_000);
    assert_eq!(offered_in(&mut terminal, 20 * MS), [1, 1]);
    hub.pass(terminal.now);
    hub.engine.misses(hub.now, FAR, 150 * MS);
    for word in hub.offers() {
        hub.carry(word, &mut terminal);
    }
    // The acknowledgement of that message does not count.
    terminal.pass(terminal.now + 20 * MS);
    terminal.offers();
    for session in [102, 202] {
        terminal.ready(SessionId(session));
    }
    terminal.write(key, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [1, 0]);
}

/// A terminal that has sent a bundle by the near hop, and was told by the far one that
/// the hub has heard nothing there for 150 ms. Returns also the bundle's transfer.
fn said_to_be_unheard() -> (Node, Node, u64) {
    let (mut terminal, mut hub, sent) = sent_by_near_and_heard();
    say_missing(&mut hub, &mut terminal, 150);
    let copied = terminal.offers();
    assert!(copied.iter().any(|(of, _)| *of == SessionId(202)));
    (terminal, hub, sent)
}

/// A terminal that has sent a bundle by the near hop, and its hub: they have heard each
/// other by both hops, and report silence of a hop by the far one. Returns also the
/// bundle's transfer.
fn sent_by_near_and_heard() -> (Node, Node, u64) {
    let (mut terminal, mut hub) = two_paths(&[(CONTROL, PathUse::Pinned, &["hop1"])]);
    for node in [&mut terminal, &mut hub] {
        for hop in [NEAR, FAR] {
            hear(node, hop);
        }
    }
    terminal.send(1, BULK, 5_000);
    let sent = terminal.offers();
    assert_eq!(by_hop(&sent), [1, 0]);
    (terminal, hub, sent[0].1.key)
}

/// The hub reports by the far hop that nothing has come by the near one for `ms`.
fn say_missing(hub: &mut Node, terminal: &mut Node, ms: u16) {
    let [high, low] = ms.to_be_bytes();
    let word = Bytes::from(vec![2, high, low]);
    let word = Message::new(10, ON_DEMAND_SERVICE, CONTROL, word);
    let said = hub.engine.send_message(hub.now, word, SECOND);
    said.expect("there is room");
    for offered in hub.offers() {
        hub.carry(offered, terminal);
    }
}

/// The hop of a new bundle after the hub's beacons were heard on both hops for this time.
fn goes_behind_beacons(terminal: &mut Node, time: Duration) -> [usize; 2] {
    let end = terminal.now + time;
    while terminal.now < end {
        terminal.pass(terminal.now + 20 * MS);
        for hop in [NEAR, FAR] {
            hear(terminal, hop);
        }
    }
    terminal.offers();
    for session in [102, 202] {
        terminal.ready(SessionId(session));
    }
    terminal.send(1, BULK, 5_000);
    by_hop(&terminal.offers())
}

#[test]
fn a_neighbour_that_is_heard_and_says_that_it_hears_nothing_is_believed() {
    let (mut terminal, _hub, _) = said_to_be_unheard();
    // The hub's beacons would report silence only after a second of it, so they count only
    // after that.
    assert_eq!(goes_behind_beacons(&mut terminal, 500 * MS), [0, 1]);
    assert_eq!(goes_behind_beacons(&mut terminal, 500 * MS), [1, 0]);
    assert_eq!(terminal.changes, []);
}

#[test]
fn so_it_is_where_answers_were_late_before() {
    let (mut terminal, mut hub, _) = sent_by_near_and_heard();
    assert_eq!(offered_in(&mut terminal, 145 * MS), [0, 1]);
    hub.pass(terminal.now);
    say_missing(&mut hub, &mut terminal, 150);
    assert_eq!(goes_behind_beacons(&mut terminal, 500 * MS), [0, 1]);
    assert_eq!(goes_behind_beacons(&mut terminal, 500 * MS), [1, 0]);
    assert_eq!(terminal.changes, []);
}

#[test]
fn what_it_acknowledges_of_that_silence_shows_that_it_hears() {
    let (mut terminal, _hub, sent) = said_to_be_unheard();
    terminal.finish(sent, Outcome::Acknowledged);
    assert_eq!(goes_behind_beacons(&mut terminal, 100 * MS), [1, 0]);
}

#[test]
fn a_word_that_is_taken_back_counts_no_more() {
    let (mut terminal, mut hub, _) = said_to_be_unheard();
    say_missing(&mut hub, &mut terminal, 0);
    assert_eq!(goes_behind_beacons(&mut terminal, 100 * MS), [1, 0]);
}

#[test]
fn the_first_session_after_none_shows_that_a_neighbour_hears() {
    let (mut terminal, _hub, _) = said_to_be_unheard();
    for session in 100..103 {
        let now = terminal.now;
        terminal.engine.session_down(now, SessionId(session));
    }
    terminal.pass(terminal.now + 60 * MS);
    terminal.up(0, 100);
    terminal.send(1, URGENT, 500);
    let offers = terminal.offers();
    assert!(offers.iter().any(|(of, _)| *of == SessionId(101)));
}

#[test]
fn a_node_takes_its_word_back_when_it_hears_again() {
    let (_terminal, mut hub) = two_paths(&[]);
    for hop in [NEAR, FAR] {
        hear(&mut hub, hop);
    }
    hub.engine.misses(hub.now, NEAR, 150 * MS);
    assert_eq!(offered_in(&mut hub, 60 * MS), [0, 1]);
    hear(&mut hub, NEAR);
    // The far hop's session of this class has the report in flight.
    assert_eq!(offered_in(&mut hub, 20 * MS), [1, 0]);
    hear(&mut hub, NEAR);
    assert_eq!(offered_in(&mut hub, 100 * MS), [0, 0]);
}

/// Carries bundles between both by the far hop; what goes by the near one is lost.
fn exchange_by_far(one: &mut Node, other: &mut Node) {
    let by_far = |offered: Vec<Offered>| offered.into_iter().filter(|(of, _)| of.0 >= 200);
    loop {
        let (there, back) = (one.offers(), other.offers());
        if there.is_empty() && back.is_empty() {
            return;
        }
        for offered in by_far(there) {
            one.carry(offered, other);
        }
        for offered in by_far(back) {
            other.carry(offered, one);
        }
    }
}

#[test]
fn two_nodes_that_missed_each_other_do_not_wait_for_each_other() {
    let (mut terminal, mut hub) = two_paths(&[(CONTROL, PathUse::Pinned, &["hop1"])]);
    for (node, peer) in [(&mut terminal, 1), (&mut hub, 10)] {
        for hop in [NEAR, FAR] {
            hear(node, hop);
        }
        node.send(peer, BULK, 5_000);
        assert_eq!(by_hop(&node.offers()), [1, 0]);
        node.pass(node.now + 145 * MS);
        node.engine.misses(node.now, NEAR, 145 * MS);
    }
    exchange_by_far(&mut terminal, &mut hub);
    for _ in 0..2 {
        for node in [&mut terminal, &mut hub] {
            node.pass(node.now + 20 * MS);
            hear(node, NEAR);
        }
        exchange_by_far(&mut terminal, &mut hub);
    }
    for (node, peer) in [(&mut terminal, 1), (&mut hub, 10)] {
        node.ready(SessionId(102));
        node.send(peer, BULK, 5_000);
        assert_eq!(by_hop(&node.offers()), [1, 0]);
        assert_eq!(node.changes, []);
    }
}

#[test]
fn a_word_that_is_said_again_and_again_is_heeded_ever_more_seldom() {
    let (mut terminal, mut hub) = two_paths(&[(CONTROL, PathUse::Pinned, &["hop1"])]);
    let key = terminal.open(1, URGENT);
    let mut sent = [0, 0];
    for _ in 0..1_500 {
        for hop in [NEAR, FAR] {
            hear(&mut terminal, hop);
            hear(&mut hub, hop);
        }
        terminal.write(key, 10);
        let offers = terminal.offers();
        for (session, _) in &offers {
            if session.0 % 100 == u64::from(URGENT.0) {
                sent[usize::from(session.0 >= 200)] += 1;
            }
        }
        let word = Bytes::from_static(&[2, 0xFF, 0xFF]);
        let word = Message::new(10, ON_DEMAND_SERVICE, CONTROL, word);
        let said = hub.engine.send_message(hub.now, word, SECOND);
        said.expect("there is room");
        for offered in hub.offers() {
            hub.carry(offered, &mut terminal);
        }
        for offered in offers {
            terminal.carry(offered, &mut hub);
        }
        for node in [&mut terminal, &mut hub] {
            node.pass(node.now + 20 * MS);
        }
    }
    assert!(sent[1] > 0, "the first one is");
    assert!(sent[1] < sent[0] / 10, "{sent:?}");
}

#[test]
fn a_word_of_a_silence_in_which_answers_were_late_was_not_in_vain() {
    let (mut terminal, mut hub, _) = sent_by_near_and_heard();
    for _ in 0..2 {
        say_missing(&mut hub, &mut terminal, u16::MAX);
        let offers = terminal.offers();
        assert!(offers.iter().any(|(of, _)| *of == SessionId(202)));
        for _ in 0..9 {
            for node in [&mut terminal, &mut hub] {
                node.pass(node.now + 20 * MS);
                hear(node, FAR);
            }
        }
        terminal.offers();
        hear(&mut terminal, NEAR);
        terminal.ready(SessionId(202));
    }
    assert_eq!(terminal.changes, []);
}

#[test]
fn a_word_of_a_silence_that_has_not_left_before_its_end_does_not_go() {
    let (_terminal, mut hub) = two_paths(&[]);
    for hop in [NEAR, FAR] {
        hear(&mut hub, hop);
    }
    hub.engine.block(hub.now, NEAR, true);
    let message = Message::new(10, ON_DEMAND_SERVICE, CONTROL, Bytes::from_static(&[0]));
    let sent = hub.engine.send_message(hub.now, message, SECOND);
    sent.expect("there is room");
    // The far hop's session takes nothing more.
    assert_eq!(by_hop(&hub.offers()), [0, 1]);
    hub.engine.block(hub.now, NEAR, false);
    hub.engine.misses(hub.now, NEAR, 150 * MS);
    assert_eq!(offered_in(&mut hub, 60 * MS), [0, 0]);
    hear(&mut hub, NEAR);
    assert_eq!(offered_in(&mut hub, 20 * MS), [0, 0]);
}

/// A long transfer by both hops from one node to the other. 12 s after its start the far
/// hop is blocked at the terminal's antenna, or only in the direction to the terminal.
/// Returns the longest gap around that time.
fn gap_of_transfer(from: usize, receiver_tells: bool, one_way: bool) -> Duration {
    let (mut terminal, hub) = two_paths(&[]);
    let mut config = two_hops(10, 1);
    for hop in &mut config.hops {
        hop.dials = true;
    }
    let now = terminal.now;
    let taken = terminal.engine.reconfigure(now, config);
    taken.expect("the same classes");
    let mut lines = both_lines(terminal, hub);
    lines.tells_signs = true;
    for node in &mut lines.nodes {
        for hop in [NEAR, FAR] {
            hear(node, hop);
        }
    }
    let (there, back) = (1 - from, [1, 10]);
    let key = lines.nodes[from].open(back[from], BULK);
    let begin = lines.now();
    let mut readable = Vec::new();
    let mut flow = |lines: &mut Lines, time: Duration, tells: bool, unheard: Option<Instant>| {
        let mut beacon = unheard;
        lines.live(time, |nodes| {
            // The transport acknowledges each segment.
            for node in nodes.iter_mut() {
                hear(node, NEAR);
            }
            let now = nodes[from].now;
            if let (Some(since), Some(at)) = (unheard, beacon)
                && at <= now
            {
                // Its sender has then heard no beacon for a second.
                let says_so = now >= since + SECOND + 265 * MS;
                let sign = if says_so { Sign::Deaf } else { Sign::Beacon };
                nodes[from].engine.heard(now, FAR, now, sign);
                beacon = Some(at + 150 * MS);
            }
            let room = nodes[from].engine.send_capacity(key);
            if room > 0 {
                nodes[from].write(key, room);
            }
            let receiver = &mut nodes[there];
            if receiver.has(|event| matches!(event, Event::Opened { .. })) {
                let opened = receiver.engine.key(back[there], key.id);
                let _ = receiver.engine.connected(receiver.now, opened);
                let read = || receiver.engine.read(receiver.now, opened, usize::MAX);
                if std::iter::from_fn(read).count() > 0 {
                    readable.push(receiver.now - begin);
                }
            }
            if tells {
                let (now, heard) = (receiver.now, receiver.engine.last_heard(FAR));
                let silent = heard.map_or(Duration::ZERO, |at| now - at);
                if silent >= 100 * MS {
                    receiver.engine.misses(now, FAR, silent);
                }
            }
        });
    };
    flow(&mut lines, 12 * SECOND, false, None);
    match one_way {
        true => lines.deafen(1, 0),
        false => lines.block(1, 0),
    }
    let unheard = one_way.then_some(lines.now());
    flow(&mut lines, 3 * SECOND, receiver_tells, unheard);
    let blocked = |node: &Node| {
        let changes = node.changes.iter();
        changes
            .filter(|change| matches!(change, LinkChange::Blocked(_)))
            .count()
    };
    assert_eq!(blocked(&lines.nodes[from]), 1, "only in the end");
    longest_gap(&readable, 11, 15)
}

/// A bundle sized for the far hop takes a quarter of a second on the near one.
#[test]
fn what_a_terminal_sends_goes_on_long_before_a_round_trip_of_the_silent_hop() {
    let gap = gap_of_transfer(0, false, false);
    assert!(gap < 600 * MS, "{gap:?}");
}

/// Acknowledgements still arrive for half a round trip, so the hub alone cannot know
/// earlier.
#[test]
fn what_a_hub_sends_goes_on_soon_after_the_terminal_misses_it() {
    let alone = gap_of_transfer(1, false, false);
    assert!(alone < 850 * MS, "{alone:?}");
    let told = gap_of_transfer(1, true, false);
    assert!(told < 600 * MS, "{told:?}");
    assert!(told + 100 * MS < alone, "{told:?} and {alone:?}");
}

/// The hub hears the terminal all the time.
#[test]
fn what_a_hub_sends_goes_on_where_only_the_direction_to_the_terminal_is_silent() {
    let told = gap_of_transfer(1, true, true);
    assert!(told < 600 * MS, "{told:?}");
}
