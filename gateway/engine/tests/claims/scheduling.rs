//! Which bundles leave, and when.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use underpass_cla::{Class, EXPRESS_ROOM_BYTES, Outcome, Refusal, SessionId};
use underpass_engine::{EngineConfig, HopId};
use underpass_scheduler::ClassConfig;
use underpass_streams::Event;

use crate::bench::{BULK, CONTROL, Node, URGENT, config, exchange, live, pair, pair_of};

const HOP: HopId = HopId(0);
const BULK_SESSION: SessionId = SessionId(100 + BULK.0 as u64);
const URGENT_SESSION: SessionId = SessionId(100 + URGENT.0 as u64);

#[test]
fn an_open_leaves_within_5_ms_without_data() {
    let (mut terminal, mut hub) = pair();
    terminal.open(1, BULK);
    assert!(terminal.offers().is_empty());
    terminal.pass(terminal.now + Duration::from_millis(5));
    for offered in terminal.offers() {
        terminal.carry(offered, &mut hub);
    }
    assert!(hub.has(|event| matches!(event, Event::Opened { .. })));
}

#[test]
fn an_open_leaves_at_once_with_the_first_data() {
    let (mut terminal, mut hub) = pair();
    terminal.send(1, BULK, 100);
    let offers = terminal.offers();
    assert_eq!(offers.len(), 1);
    for offered in offers {
        terminal.carry(offered, &mut hub);
    }
    assert!(hub.has(|event| matches!(event, Event::Opened { .. })));
    assert!(hub.has(|event| matches!(event, Event::Readable(_))));
}

#[test]
fn a_higher_class_waits_for_one_bundle_of_bulk_at_most() {
    let (mut terminal, _hub) = pair();
    terminal.engine.set_rate(terminal.now, HOP, Some(1_000_000));
    terminal.send(1, BULK, 60_000);
    // Until the credit that was saved up in silence is used.
    while let Some((session, _)) = terminal.offers().first() {
        assert_eq!(*session, BULK_SESSION);
        terminal.ready(BULK_SESSION);
    }
    terminal.send(1, URGENT, 64);
    assert!(terminal.offers().is_empty());
    // A bundle is 60 ms of line time.
    terminal.pass(terminal.now + Duration::from_millis(65));
    assert_eq!(terminal.offers()[0].0, URGENT_SESSION);
}

#[test]
fn a_rate_that_is_set_takes_effect() {
    let (mut terminal, _hub) = pair();
    let key = terminal.open(1, BULK);
    for rate_bps in [1_000_000, 4_000_000] {
        terminal.engine.set_rate(terminal.now, HOP, Some(rate_bps));
        terminal.write(key, 1_500_000);
        terminal.bytes_in(Duration::from_millis(500));
        let bytes = terminal.bytes_in(Duration::from_secs(2));
        let expected = rate_bps / 4;
        assert!(
            bytes.abs_diff(expected) < expected / 8,
            "{bytes} bytes at {rate_bps} bit/s"
        );
    }
}

#[test]
fn what_is_unsent_counts_once_and_only_after_a_much_lower_rate() {
    let (mut terminal, _hub) = pair();
    let key = terminal.open(1, BULK);
    terminal.engine.set_rate(terminal.now, HOP, Some(4_000_000));
    let of_bulk = |unsent: u64| [(Some(BULK), unsent)];
    let now = terminal.now;
    terminal.engine.observe_unsent(now, HOP, of_bulk(0));
    terminal.write(key, 1_500_000);
    terminal.bytes_in(Duration::from_millis(500));
    let mut bytes_after = |rate_bps, unsent| {
        let now = terminal.now;
        terminal.engine.set_rate(now, HOP, Some(rate_bps));
        terminal.engine.observe_unsent(now, HOP, of_bulk(unsent));
        terminal.bytes_in(Duration::from_secs(1))
    };
    assert!(bytes_after(3_500_000, 1 << 20) > 350_000);
    // At this rate they take 1.6 s.
    assert_eq!(bytes_after(1_000_000, 200_000), 0);
    // The debt has 0.6 s left, and does not grow.
    let bytes = bytes_after(1_000_000, 1 << 20);
    assert!((35_000..75_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_step_down_of_the_rate_holds_up_bulk_alone() {
    let (mut terminal, _hub) = pair();
    terminal.engine.set_rate(terminal.now, HOP, Some(8_000_000));
    terminal.send(1, BULK, 4_000_000);
    terminal.bytes_in(Duration::from_millis(500));
    let now = terminal.now;
    terminal.engine.set_rate(now, HOP, Some(400_000));
    // At this rate they take 1.2 s.
    let unsent = [(Some(BULK), 60_000)];
    terminal.engine.observe_unsent(now, HOP, unsent);
    let sessions = terminal.turns_behind(URGENT, Duration::from_millis(75));
    assert_eq!(sessions, [URGENT_SESSION]);
    assert_eq!(terminal.bytes_in(Duration::from_secs(1)), 0);
    assert!(terminal.bytes_in(Duration::from_secs(1)) > 30_000);
}

#[test]
fn a_blocked_hop_sends_nothing_and_resumes_at_once() {
    let (mut terminal, mut hub) = pair();
    let key = terminal.open(1, BULK);
    terminal.engine.block(terminal.now, HOP, true);
    terminal.write(key, 50_000);
    terminal.pass(terminal.now + Duration::from_secs(30));
    hub.pass(terminal.now);
    assert!(terminal.offers().is_empty());
    // Bundles are sealed as late as possible: nothing is stored yet.
    assert!(terminal.destinations().is_empty());
    terminal.engine.block(terminal.now, HOP, false);
    assert_eq!(terminal.offers().len(), 1);
}

#[test]
fn nothing_is_sealed_for_a_neighbour_without_room_but_signalling() {
    let (mut terminal, mut hub) = pair();
    let key = terminal.send(1, BULK, 1_000);
    let (session, transfer) = terminal.offers().remove(0);
    terminal.ready(session);
    terminal.finish(transfer.key, Outcome::Refused(Refusal::NoResources));
    for _ in 0..100 {
        terminal.write(key, 100);
    }
    assert!(terminal.offers().is_empty());
    assert_eq!(terminal.destinations().len(), 1);
    terminal.send(1, CONTROL, 10);
    assert_eq!(terminal.offers()[0].0, SessionId(100));
    // When the pause is over, all of it goes.
    live(&mut terminal, &mut hub, Duration::from_secs(2));
    let totals = terminal.engine.stream_totals(&[1]);
    assert!(totals.iter().all(|(_, totals)| totals.backlog_bytes == 0));
}

#[test]
fn no_peer_has_its_streams_answered_in_the_class_of_signalling() {
    let (mut terminal, mut hub) = pair();
    let key = terminal.send(1, CONTROL, 10);
    exchange(&mut terminal, &mut hub);
    let there = hub.engine.key(10, key.id);
    let own = |event: &Event| matches!(event, Event::Opened { open, .. } if open.class == BULK);
    assert!(hub.has(own));
    hub.write(there, 1_000);
    assert_eq!(hub.offers()[0].0, BULK_SESSION);
}

#[test]
fn a_full_store_slows_the_writer_and_goes_on_when_custody_is_taken() {
    let mut small = config(10, &[1]);
    small.agent.store_bytes = 200_000;
    small.send_buffer_bytes = Some(64_000);
    let (mut terminal, mut hub) = pair_of(small, config(1, &[10]));
    let key = terminal.open(1, BULK);
    let mut offered = Vec::new();
    let mut written = 0;
    loop {
        let capacity = terminal.engine.send_capacity(key);
        if capacity == 0 {
            break;
        }
        terminal.write(key, capacity);
        written += capacity;
        for (session, transfer) in terminal.offers() {
            terminal.ready(session);
            offered.push((session, transfer));
        }
    }
    assert!((200_000..=264_000).contains(&written), "{written}");
    assert!(terminal.engine.custody(terminal.now).used_bytes <= 200_000);
    terminal.events.clear();
    for offered in offered {
        terminal.carry(offered, &mut hub);
    }
    live(&mut terminal, &mut hub, Duration::from_millis(300));
    assert!(terminal.has(|event| matches!(event, Event::Writable(_))));
    assert!(terminal.engine.send_capacity(key) > 0);
    assert!(terminal.destinations().is_empty());
}

#[test]
fn what_is_sealed_fits_the_smallest_mru() {
    for mru in [1_100, 4_096, 65_536] {
        let (mut terminal, _hub) = pair();
        terminal.engine.session_down(terminal.now, BULK_SESSION);
        terminal.session(0, 900, Some(BULK), mru);
        terminal.send(1, BULK, 200_000);
        let offers = terminal.offers();
        assert_eq!(offers.len(), 1, "an MRU of {mru}");
        assert!(offers[0].1.len() <= mru);
    }
}

#[test]
fn a_session_that_takes_next_to_nothing_fills_no_store() {
    let (mut terminal, _hub) = pair();
    terminal.engine.session_down(terminal.now, BULK_SESSION);
    terminal.session(0, 900, Some(BULK), 1);
    let key = terminal.open(1, BULK);
    for _ in 0..100 {
        terminal.write(key, 1_000);
    }
    assert!(terminal.offers().is_empty());
    assert!(terminal.destinations().is_empty());
}

#[test]
fn windows_rise_with_a_rate_above_the_ceiling_and_buffers_follow_the_present_one() {
    let of_2_mbps = |mut config: EngineConfig| {
        config.hops[0].send_rate_bps = Some(2_000_000);
        config.hops[0].receive_rate_bps = Some(2_000_000);
        config
    };
    let (mut terminal, mut hub) = pair_of(of_2_mbps(config(10, &[1])), of_2_mbps(config(1, &[10])));
    let key = terminal.send(1, BULK, 100);
    let least = terminal.engine.send_capacity(key);
    terminal.engine.set_rate(terminal.now, HOP, Some(1_000_000));
    terminal.engine.set_rate(terminal.now, HOP, Some(2_000_000));
    assert_eq!(terminal.engine.send_capacity(key), least);
    // 100 ms of line time; at 400 Mbit/s no more than the limit of a stream. A window
    // that was granted for a larger one stays.
    let buffers = [(400_000_000, 4 << 20), (64_000, 64 << 10)];
    for (rate_bps, buffer) in [buffers[0], buffers[1], buffers[0]] {
        terminal.engine.set_rate(terminal.now, HOP, Some(rate_bps));
        hub.engine.set_receive_rate(hub.now, HOP, Some(rate_bps));
        live(&mut terminal, &mut hub, Duration::from_secs(2));
        assert_eq!(terminal.engine.send_capacity(key), buffer, "{rate_bps}");
    }
}

#[test]
fn a_terminal_that_comes_by_ipv6_is_scheduled_with_its_headers() {
    // Headers count, so the same bytes take longer with larger headers.
    let time = |remote: &str| {
        let mut config = config(1, &[10]);
        config.hops[0].send_rate_bps = Some(200_000);
        let mut hub = Node::new(Instant::now(), config);
        let remote = remote.parse().expect("an address");
        hub.session_with(0, 102, Some(BULK), |info| info.remote = remote);
        let key = hub.open(10, BULK);
        // Until its peer has greeted it, a stream has a floor of credit only.
        hub.write(key, 60_000);
        let start = hub.now;
        while hub.engine.stream_totals(&hub.engine.peers())[2]
            .1
            .sent_bytes
            < 60_000
        {
            hub.bytes_in(Duration::from_millis(5));
        }
        hub.now - start
    };
    let (by_ipv4, by_ipv6) = (time("192.0.2.1:4556"), time("[2001:db8::1]:4556"));
    assert_eq!(by_ipv4, time("[::ffff:192.0.2.1]:4556"));
    assert!(by_ipv6 > by_ipv4, "{by_ipv6:?} {by_ipv4:?}");
}

#[test]
fn what_begins_is_not_held_up_by_what_bulk_has_in_flight() {
    let (mut terminal, mut hub) = pair();
    terminal.send(1, BULK, 200_000);
    let in_flight = terminal.offers();
    assert_eq!(in_flight[0].0, BULK_SESSION);
    // Its session could take another bundle, but a segment of it may be lost.
    terminal.ready(BULK_SESSION);
    let small = terminal.send(1, BULK, 900);
    terminal.pass(terminal.now + Duration::from_millis(5));
    let first = terminal.offers().remove(0);
    assert_eq!(first.0, URGENT_SESSION);
    terminal.carry(first, &mut hub);
    let read = hub.engine.streams(10).into_iter();
    let arrived: Vec<_> = read.map(|(.., info)| (info.id, info.class)).collect();
    assert_eq!(arrived, [(small.id, BULK)], "in its own class");
    terminal.send(1, BULK, 60_000);
    terminal.pass(terminal.now + Duration::from_millis(5));
    terminal.ready(BULK_SESSION);
    terminal.ready(URGENT_SESSION);
    let sessions: Vec<SessionId> = terminal.offers().iter().map(|(id, _)| *id).collect();
    assert_eq!(sessions, [BULK_SESSION]);
}

#[test]
fn what_begins_at_the_same_instant_shares_the_free_session() {
    let (mut terminal, _hub) = pair();
    terminal.send(1, BULK, 200_000);
    terminal.offers();
    terminal.ready(BULK_SESSION);
    let small: Vec<_> = (0..40).map(|_| terminal.open(1, BULK)).collect();
    for key in small {
        terminal.write(key, 900);
        terminal.pass(terminal.now + Duration::from_millis(1));
    }
    let mut by_session: BTreeMap<SessionId, u64> = BTreeMap::new();
    for (session, transfer) in terminal.offers() {
        *by_session.entry(session).or_default() += transfer.len();
    }
    let urgent = by_session[&URGENT_SESSION];
    assert!(
        (30_000..=EXPRESS_ROOM_BYTES).contains(&urgent),
        "{by_session:?}"
    );
}

#[test]
fn the_signalling_session_carries_all_until_another_is_up() {
    let mut terminal = Node::new(Instant::now(), config(10, &[1]));
    terminal.session(0, 7, Some(CONTROL), 1 << 20);
    terminal.offers();
    let carrier_of_new = |terminal: &mut Node| {
        terminal.ready(SessionId(7));
        terminal.send(1, BULK, 1_000);
        terminal.pass(terminal.now + Duration::from_millis(10));
        terminal.offers().last().map(|(session, _)| *session)
    };
    assert_eq!(carrier_of_new(&mut terminal), Some(SessionId(7)));
    terminal.session(0, 9, Some(BULK), 1 << 20);
    assert_eq!(carrier_of_new(&mut terminal), Some(SessionId(9)));
}

#[test]
fn what_begins_is_spread_over_the_sessions_without_long_bundles() {
    const BACKGROUND: Class = Class(3);
    const BACKGROUND_SESSION: SessionId = SessionId(103);
    let mut four = config(10, &[1]);
    four.scheduler.classes.push(ClassConfig {
        class: BACKGROUND,
        priority: 3,
        weight: 1,
    });
    let (mut terminal, _hub) = pair_of(four, config(1, &[10]));
    terminal.session(0, BACKGROUND_SESSION.0, Some(BACKGROUND), 1 << 20);
    terminal.send(1, BULK, 200_000);
    terminal.offers();
    let mut begin = || {
        for session in [BULK_SESSION, URGENT_SESSION, BACKGROUND_SESSION] {
            terminal.ready(session);
        }
        terminal.send(1, BULK, 900);
        terminal.pass(terminal.now + Duration::from_millis(5));
        terminal.offers().remove(0).0
    };
    let sessions = [begin(), begin(), begin(), begin()];
    let (one, other) = (URGENT_SESSION, BACKGROUND_SESSION);
    assert_eq!(sessions, [one, other, one, other]);
}
