//! A class that moves between paths as one: by rule, by an operator's command, or away
//! from a path that dies.

use std::time::Duration;

use underpass_engine::{HopId, MeasuredLink, MigrateError, MoveReason, PathUse, StreamKey};
use underpass_streams::Event;

use crate::bench::{BULK, MRU, Node, URGENT};
use crate::lines::Lines;
use crate::paths::{
    FAR, MS, NEAR, both_lines, by_hop, drain, longest_gap, transfer, two_hops, two_paths,
};

/// The bytes of bundles that each hop of the terminal has sent.
fn sent_by(lines: &Lines) -> [u64; 2] {
    let hops = lines.nodes[0].engine.hops();
    [0, 1].map(|hop| hops[hop].traffic.iter().map(|of| of.sent_bytes).sum())
}

/// Both hops as lines, with a class that moves from the near hop to the far one.
fn moving() -> Lines {
    let (terminal, hub) = two_paths(&[(BULK, PathUse::Migrate, &["hop0", "hop1"])]);
    both_lines(terminal, hub)
}

#[test]
fn a_class_that_fills_its_path_moves_by_rule_and_stays_where_there_is_room() {
    let mut lines = moving();
    let readable = transfer(&mut lines, Duration::from_secs(40));
    let moves = &lines.nodes[0].migrations;
    let [only] = moves[..] else {
        panic!("{moves:?}");
    };
    assert_eq!((only.from, only.to), (NEAR, FAR));
    assert_eq!(only.reason, MoveReason::Delay);
    let [tunnel] = &lines.nodes[0].engine.tunnels()[..] else {
        panic!("one class moves");
    };
    assert_eq!((tunnel.path.as_str(), tunnel.held), ("hop1", false));
    // No new bytes arrive for the difference of the delays, and no longer.
    let gap = longest_gap(&readable, 4, 40);
    assert!(gap < 330 * MS, "{gap:?}");
}

#[test]
fn what_waits_of_a_class_that_moves_is_told() {
    let (mut terminal, _) = two_paths(&[(BULK, PathUse::Migrate, &["hop0", "hop1"])]);
    for hop in [NEAR, FAR] {
        terminal.engine.block(terminal.now, hop, true);
    }
    terminal.send(1, BULK, 5_000);
    let [tunnel] = &terminal.engine.tunnels()[..] else {
        panic!("one class moves");
    };
    let waits = (tunnel.backlog_bytes, tunnel.backlogged_streams);
    assert_eq!(waits, (5_000, 1));
}

#[test]
fn what_was_measured_of_the_path_of_a_class_that_moves_is_told() {
    let (mut terminal, _) = two_paths(&[(BULK, PathUse::Migrate, &["hop0", "hop1"])]);
    let figures = |node: &Node| {
        let [tunnel] = &node.engine.tunnels()[..] else {
            panic!("one class moves");
        };
        (tunnel.rtt, tunnel.loss)
    };
    assert_eq!(figures(&terminal), (None, 0.0));
    let measured = MeasuredLink {
        base_rtt: Some(30 * MS),
        queue: 12 * MS,
        loss: 0.02,
        ..MeasuredLink::default()
    };
    terminal.engine.measured(terminal.now, NEAR, measured, 0);
    assert_eq!(figures(&terminal), (Some(42 * MS), 0.02));
}

#[test]
fn a_class_moves_by_an_operators_word_and_its_streams_live_on() {
    let mut lines = moving();
    transfer(&mut lines, Duration::from_secs(2));
    let [near, far] = sent_by(&lines);
    let now = lines.now();
    let order = |lines: &mut Lines, class, to| {
        let engine = &mut lines.nodes[0].engine;
        engine.migrate(now, class, to, true)
    };
    assert_eq!(order(&mut lines, URGENT, FAR), Err(MigrateError::Policy));
    assert_eq!(order(&mut lines, BULK, HopId(7)), Err(MigrateError::Path));
    assert_eq!(order(&mut lines, BULK, FAR), Ok(()));
    let readable = transfer(&mut lines, Duration::from_secs(5));
    assert!(readable.len() > 50, "{}", readable.len());
    let after = sent_by(&lines);
    assert!(after[0] - near < 200_000, "{after:?} {near}");
    assert!(after[1] - far > 10_000_000, "{after:?} {far}");
    lines.nodes[0].engine.block(lines.now(), NEAR, true);
    let now = lines.now();
    let dead = lines.nodes[0].engine.migrate(now, BULK, NEAR, true);
    assert_eq!(dead, Err(MigrateError::CannotCarry));
}

#[test]
fn what_an_operator_kept_before_a_restart_is_kept_before_any_session_is_up() {
    let (mut terminal, _) = two_paths(&[(BULK, PathUse::Migrate, &["hop0", "hop1"])]);
    let now = terminal.now;
    let engine = &mut terminal.engine;
    assert_eq!(
        engine.keep_class(now, URGENT, FAR),
        Err(MigrateError::Policy)
    );
    assert_eq!(
        engine.keep_class(now, BULK, HopId(7)),
        Err(MigrateError::Path)
    );
    // The path cannot carry anything now; the command is accepted all the same.
    engine.block(now, FAR, true);
    assert_eq!(engine.keep_class(now, BULK, FAR), Ok(()));
    assert_eq!(engine.kept_on(BULK, 1), Some(FAR));
    let key = terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&drain(&mut terminal, 60 * MS)), [1, 0]);
    terminal.engine.block(terminal.now, FAR, false);
    terminal.write(key, 5_000);
    assert_eq!(by_hop(&drain(&mut terminal, 600 * MS))[0], 0);
    let [tunnel] = &terminal.engine.tunnels()[..] else {
        panic!("one class moves");
    };
    assert_eq!((tunnel.path.as_str(), tunnel.held), ("hop1", true));
    terminal.engine.release_class(terminal.now, BULK, 1);
    assert_eq!(terminal.engine.kept_on(BULK, 1), None);
}

#[test]
fn a_class_leaves_a_path_that_dies_at_once_and_one_that_flaps_once() {
    let (mut terminal, _) = two_paths(&[(BULK, PathUse::Migrate, &["hop0", "hop1"])]);
    let key = terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&drain(&mut terminal, 60 * MS)), [1, 0]);
    for flap in 0..20 {
        terminal.engine.block(terminal.now, NEAR, true);
        let first = drain(&mut terminal, 500 * MS);
        assert_eq!(by_hop(&first)[0], 0);
        assert!(flap > 0 || by_hop(&first)[1] > 0);
        terminal.engine.block(terminal.now, NEAR, false);
        terminal.session(0, 1_000 + flap, Some(BULK), MRU);
        terminal.write(key, 5_000);
        drain(&mut terminal, 500 * MS);
    }
    let reasons: Vec<_> = terminal.migrations.iter().map(|one| one.reason).collect();
    assert_eq!(reasons, [MoveReason::Down]);
    // A path that stays up for long is used again.
    terminal.pass(terminal.now + Duration::from_secs(15));
    terminal.write(key, 5_000);
    assert_eq!(
        terminal.migrations.last().map(|one| one.reason),
        Some(MoveReason::Down)
    );
    drain(&mut terminal, Duration::from_secs(1));
    assert_eq!(
        terminal.migrations.last().map(|one| one.reason),
        Some(MoveReason::Back)
    );
}

#[test]
fn a_class_goes_back_to_a_path_that_has_lost_much_when_that_is_long_ago() {
    let mut lines = moving();
    transfer(&mut lines, Duration::from_secs(1));
    // Nothing is sent there afterwards, so nothing new is learned about it.
    let learned = lines.now();
    let lossy = MeasuredLink {
        loss: 0.15,
        loss_learned: Some(learned),
        ..MeasuredLink::default()
    };
    let [terminal, _] = &mut lines.nodes;
    terminal.engine.measured(learned, NEAR, lossy, 0);
    transfer(&mut lines, Duration::from_secs(10));
    let reasons = |lines: &Lines| -> Vec<MoveReason> {
        let moves = lines.nodes[0].migrations.iter();
        moves.map(|one| one.reason).collect()
    };
    assert_eq!(reasons(&lines), [MoveReason::Loss]);
    // The class sends little, and nothing by the near hop.
    let key = lines.nodes[0].open(1, BULK);
    let trickle = |lines: &mut Lines, seconds: u32| {
        for _ in 0..seconds {
            lines.nodes[0].write(key, 1_000);
            lines.live(Duration::from_secs(1), |_| ());
        }
    };
    trickle(&mut lines, 40);
    assert_eq!(reasons(&lines), [MoveReason::Loss]);
    trickle(&mut lines, 40);
    assert_eq!(reasons(&lines), [MoveReason::Loss, MoveReason::Back]);
}

/// Sends 4 Mbit/s for so many tenths of a second.
fn steady(lines: &mut Lines, key: StreamKey, tenths: u32) {
    for _ in 0..tenths {
        if lines.nodes[0].engine.send_capacity(key) >= 50_000 {
            lines.nodes[0].write(key, 50_000);
        }
        lines.live(100 * MS, |[_, hub]| {
            if hub.has(|event| matches!(event, Event::Opened { .. })) {
                let there = hub.engine.key(10, key.id);
                let _ = hub.engine.connected(hub.now, there);
                while hub.engine.read(hub.now, there, usize::MAX).is_some() {}
            }
        });
    }
}

#[test]
fn a_class_of_steady_demand_goes_back_to_a_path_of_which_nothing_shows_that_it_is_well() {
    let mut lines = moving();
    let carries = |lines: &mut Lines, bps: u64| {
        let now = lines.now();
        let link = MeasuredLink {
            rate_bps: Some(bps),
            capacity_bps: Some(bps),
            ..MeasuredLink::default()
        };
        lines.nodes[0].engine.measured(now, NEAR, link, 0);
    };
    let reasons = |lines: &Lines| -> Vec<MoveReason> {
        let moves = lines.nodes[0].migrations.iter();
        moves.map(|one| one.reason).collect()
    };
    let key = lines.nodes[0].open(1, BULK);
    carries(&mut lines, 10_000_000);
    steady(&mut lines, key, 20);
    assert_eq!(reasons(&lines), []);
    carries(&mut lines, 1_000_000);
    steady(&mut lines, key, 90);
    assert_eq!(reasons(&lines), [MoveReason::Delay]);
    // The path is tried, and soon left.
    let mut looks = 0;
    while reasons(&lines).len() < 2 && looks < 60 {
        steady(&mut lines, key, 5);
        looks += 1;
    }
    assert_eq!(reasons(&lines)[1..], [MoveReason::Back]);
    steady(&mut lines, key, 40);
    assert_eq!(reasons(&lines)[2..], [MoveReason::Delay]);
    // Then the path carries more, as the bytes sent show.
    while reasons(&lines).len() < 4 && looks < 180 {
        steady(&mut lines, key, 5);
        looks += 1;
    }
    carries(&mut lines, 10_000_000);
    steady(&mut lines, key, 300);
    assert_eq!(reasons(&lines)[3..], [MoveReason::Back]);
}

#[test]
fn another_policy_ends_what_was_known_of_the_moves() {
    let (mut terminal, _) = two_paths(&[(BULK, PathUse::Migrate, &["hop0", "hop1"])]);
    assert_eq!(terminal.engine.tunnels().len(), 1);
    let now = terminal.now;
    let bonded = two_hops(10, 1);
    terminal
        .engine
        .reconfigure(now, bonded)
        .expect("the same classes");
    assert_eq!(terminal.engine.tunnels(), []);
}
