//! Hops whose bytes cost money: which classes use them, and what happens when the budget
//! is spent.

use std::time::Duration;

use underpass_cla::Class;
use underpass_engine::{
    EngineConfig, HopId, LinkChange, MeterConfig, MeterSnapshot, MeteredUse, MigrateError, PathUse,
    Period, Policy, Sign, Source, Spent,
};
use underpass_streams::Event;

use crate::bench::{BULK, CONTROL, Node, Offered, URGENT, exchange, live, pair_by_two};
use crate::paths::{FAR, MS, NEAR, by_hop, drain, two_hops};

/// 2026-01-01T00:00:00Z.
const NEW_YEAR_MS: u64 = 1_767_225_600_000;
const DAY_MS: u64 = 86_400_000;
const USES: [PathUse; 4] = [
    PathUse::Bonded,
    PathUse::Failover,
    PathUse::Migrate,
    PathUse::MinFct,
];

/// A terminal whose near hop is metered from now on, and a hub, with both hops up; bulk
/// has this policy.
fn metered(
    budget_bytes: Option<u64>,
    beyond: &[Class],
    uses: PathUse,
    metered: MeteredUse,
) -> (Node, Node) {
    let with = |mut config: EngineConfig| {
        let policy = Policy {
            uses,
            metered,
            ..Policy::default()
        };
        config.policies.insert(BULK, policy);
        config
    };
    let (mut terminal, hub) = pair_by_two(with(two_hops(10, 1)), with(two_hops(1, 10)));
    let mut config = with(two_hops(10, 1));
    config.hops[0].meter = Some(MeterConfig {
        budget_bytes,
        period: Period::Day,
        beyond: beyond.to_vec(),
    });
    let now = terminal.now;
    terminal
        .engine
        .reconfigure(now, config)
        .expect("the same classes");
    (terminal, hub)
}

fn meter(node: &Node) -> MeterSnapshot {
    node.engine.meter(NEAR).expect("it is metered")
}

#[test]
fn a_metered_hop_carries_only_while_no_other_can_whatever_the_policy() {
    for uses in USES {
        let (mut terminal, _hub) = metered(None, &[], uses, MeteredUse::Last);
        terminal.send(1, BULK, 5_000);
        assert_eq!(by_hop(&drain(&mut terminal, 60 * MS)), [0, 1], "{uses:?}");
        terminal.engine.block(terminal.now, FAR, true);
        let [near, far] = by_hop(&drain(&mut terminal, 60 * MS));
        assert!(near > 0 && far == 0, "{uses:?}: {near} {far}");
    }
}

#[test]
fn a_class_that_never_pays_waits_and_one_that_pays_freely_takes_what_is_near() {
    for uses in USES {
        let (mut terminal, _hub) = metered(None, &[], uses, MeteredUse::Never);
        terminal.engine.block(terminal.now, FAR, true);
        terminal.send(1, BULK, 5_000);
        let sent = drain(&mut terminal, 500 * MS);
        let bulk = |id: u64| id < 200 && id % 100 == u64::from(BULK.0);
        let paid = sent.iter().filter(|(id, _)| bulk(id.0));
        assert_eq!(paid.count(), 0, "{uses:?}");
        let (mut terminal, _hub) = metered(None, &[], uses, MeteredUse::Freely);
        terminal.send(1, BULK, 5_000);
        assert_eq!(by_hop(&drain(&mut terminal, 60 * MS)), [1, 0], "{uses:?}");
    }
}

#[test]
fn above_the_budget_the_other_hop_carries_on() {
    for uses in USES {
        let (mut terminal, _hub) = metered(Some(300_000), &[], uses, MeteredUse::Freely);
        let key = terminal.open(1, BULK);
        let mut sent = [0, 0];
        for _ in 0..100 {
            let room = terminal.engine.send_capacity(key).min(100_000);
            terminal.write(key, room);
            for (session, transfer) in drain(&mut terminal, 20 * MS) {
                sent[usize::from(session.0 >= 200)] += transfer.len();
            }
        }
        // The last bundle that fits is sent whole, and a bundle of signalling may be in
        // flight beside it.
        assert!(sent[0] < 300_000 + 2 * 75_000, "{uses:?}: {sent:?}");
        assert!(sent[1] > 1_000_000, "{uses:?}: {sent:?}");
        assert!(meter(&terminal).exhausted, "{uses:?}");
    }
}

#[test]
fn alone_a_spent_hop_keeps_what_is_not_named_until_an_operator_adds_to_its_budget() {
    let (mut terminal, mut hub) = metered(
        Some(1_000),
        &[CONTROL, URGENT],
        PathUse::Bonded,
        MeteredUse::Last,
    );
    terminal.engine.block(terminal.now, FAR, true);
    let spent = Spent {
        spent_bytes: 1_000,
        ..Spent::default()
    };
    terminal.engine.restore_spent(terminal.now, NEAR, spent);
    assert!(meter(&terminal).exhausted);
    terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&drain(&mut terminal, 500 * MS)), [0, 0]);
    terminal.send(1, URGENT, 500);
    let offers = drain(&mut terminal, 60 * MS);
    assert_eq!(by_hop(&offers), [1, 0]);
    terminal.put_back(offers);
    let now = terminal.now;
    terminal.engine.add_to_budget(now, NEAR, 1_000_000);
    hub.pass(terminal.now);
    exchange(&mut terminal, &mut hub);
    live(&mut terminal, &mut hub, Duration::from_secs(1));
    assert!(terminal.destinations().is_empty(), "all has arrived");
    assert!(hub.has(|event| matches!(event, Event::Readable(_))));
}

#[test]
fn what_is_sent_and_what_is_received_are_spent() {
    let (mut terminal, mut hub) = metered(None, &[], PathUse::Bonded, MeteredUse::Last);
    for node in [&mut terminal, &mut hub] {
        node.engine.block(node.now, FAR, true);
    }
    let before = meter(&terminal).spent.spent_bytes;
    hub.send(10, BULK, 50_000);
    exchange(&mut terminal, &mut hub);
    live(&mut terminal, &mut hub, Duration::from_secs(1));
    let received = meter(&terminal).spent.spent_bytes - before;
    assert!((50_000..60_000).contains(&received), "{received}");
    let before = meter(&terminal).spent.spent_bytes;
    terminal.send(1, BULK, 5_000);
    drain(&mut terminal, 60 * MS);
    let sent = meter(&terminal).spent.spent_bytes - before;
    assert!((5_000..6_000).contains(&sent), "{sent}");
    assert_eq!(hub.engine.meter(NEAR), None);
}

#[test]
fn a_new_day_renews_the_budget_and_what_waited_goes() {
    let (mut terminal, _hub) = metered(Some(1_000), &[], PathUse::Bonded, MeteredUse::Last);
    let now = terminal.now;
    terminal.engine.set_utc(now, Some(NEW_YEAR_MS + DAY_MS / 2));
    terminal.engine.renew_budgets(now);
    let spent = Spent {
        spent_bytes: 2_000,
        added_bytes: 500,
        begun_ms: Some(NEW_YEAR_MS),
    };
    terminal.engine.restore_spent(now, NEAR, spent);
    terminal.engine.block(now, FAR, true);
    terminal.send(1, BULK, 5_000);
    terminal.engine.renew_budgets(terminal.now);
    assert_eq!(by_hop(&drain(&mut terminal, 500 * MS)), [0, 0]);
    let now = terminal.now;
    terminal.engine.set_utc(now, Some(NEW_YEAR_MS + DAY_MS));
    terminal.engine.renew_budgets(now);
    let [near, far] = by_hop(&drain(&mut terminal, 60 * MS));
    assert!(near > 0 && far == 0, "{near} {far}");
    assert_eq!(meter(&terminal).budget_bytes, Some(1_000));
}

#[test]
fn another_budget_keeps_what_was_spent() {
    let (mut terminal, _hub) = metered(Some(1_000), &[], PathUse::Bonded, MeteredUse::Last);
    let spent = Spent {
        spent_bytes: 5_000,
        ..Spent::default()
    };
    let now = terminal.now;
    terminal.engine.restore_spent(now, NEAR, spent);
    let before = meter(&terminal).spent.spent_bytes;
    let mut config = two_hops(10, 1);
    config.hops[0].meter = Some(MeterConfig {
        budget_bytes: Some(1_000_000),
        period: Period::Once,
        beyond: Vec::new(),
    });
    terminal
        .engine
        .reconfigure(now, config)
        .expect("it is valid");
    let after = meter(&terminal);
    assert_eq!((after.spent.spent_bytes, after.exhausted), (before, false));
    terminal.engine.reset_budget(now, NEAR);
    assert_eq!(meter(&terminal).spent.spent_bytes, 0);
}

#[test]
fn a_class_is_not_moved_to_a_hop_that_its_budget_forbids() {
    let (mut terminal, _hub) = metered(Some(0), &[], PathUse::Migrate, MeteredUse::Freely);
    let now = terminal.now;
    let moved = terminal.engine.migrate(now, BULK, NEAR, true);
    assert_eq!(moved, Err(MigrateError::CannotCarry));
}

#[test]
fn a_class_that_an_operator_keeps_on_a_hop_returns_there_with_the_next_budget() {
    let (mut terminal, _hub) = metered(Some(300_000), &[], PathUse::Migrate, MeteredUse::Freely);
    let by = |node: &Node| node.engine.tunnels()[0].path.clone();
    let now = terminal.now;
    let moved = terminal.engine.migrate(now, BULK, FAR, true);
    assert_eq!(moved, Ok(()));
    let moved = terminal.engine.migrate(now, BULK, NEAR, true);
    assert_eq!((moved, by(&terminal)), (Ok(()), "hop0".to_owned()));
    let spent = Spent {
        spent_bytes: 300_000,
        ..Spent::default()
    };
    terminal.engine.restore_spent(now, NEAR, spent);
    assert_eq!(by(&terminal), "hop1");
    assert_eq!(terminal.engine.kept_on(BULK, 1), Some(NEAR));
    // An operator has kept the class there before this run, and the budget is still
    // spent.
    assert_eq!(terminal.engine.keep_class(now, BULK, NEAR), Ok(()));
    terminal.pass(now + Duration::from_secs(60));
    assert_eq!(by(&terminal), "hop1");
    terminal.engine.reset_budget(terminal.now, NEAR);
    terminal.pass(terminal.now + Duration::from_secs(60));
    assert_eq!(by(&terminal), "hop0");
}

#[test]
fn copies_that_wait_do_not_go_by_a_hop_whose_budget_is_spent_meanwhile() {
    let (uses, when) = (PathUse::Duplicated, MeteredUse::Freely);
    let (mut terminal, _hub) = metered(Some(300_000), &[], uses, when);
    let key = terminal.send(1, BULK, 5_000);
    let first = drain_far(&mut terminal);
    assert_eq!(by_hop(&first)[0], 1, "the near hop takes one, and no more");
    // The far hop takes this bundle, and its copy is to go by the near one.
    terminal.write(key, 5_000);
    assert_eq!(by_hop(&drain_far(&mut terminal))[0], 0);
    assert!(terminal.engine.footprint()["copies"] > 0);
    let spent = Spent {
        spent_bytes: 300_000,
        ..Spent::default()
    };
    terminal.engine.restore_spent(terminal.now, NEAR, spent);
    let busy: Vec<_> = first.iter().map(|(session, _)| *session).collect();
    for session in busy.into_iter().filter(|session| session.0 < 200) {
        terminal.ready(session);
    }
    assert_eq!(by_hop(&drain(&mut terminal, 500 * MS))[0], 0);
}

#[test]
fn what_goes_beside_bundles_is_paid_for_too() {
    let (uses, when) = (PathUse::Failover, MeteredUse::Freely);
    let (mut terminal, _hub) = metered(Some(1_000_000), &[], uses, when);
    assert_eq!(terminal.engine.metered_hops(), [NEAR]);
    let now = terminal.now;
    let spent = |terminal: &Node| {
        let meter = terminal.engine.meter(NEAR).expect("it is metered");
        (meter.spent.spent_bytes, meter.exhausted)
    };
    let before = spent(&terminal).0;
    // Each datagram has 28 bytes of headers.
    terminal.engine.spend_beside(now, NEAR, 1_000, (10, 42));
    assert_eq!(spent(&terminal), (before + 1_700, false));
    terminal.engine.spend_beside(now, FAR, 1_000, (10, 42));
    assert_eq!(spent(&terminal), (before + 1_700, false));
    terminal.engine.spend_beside(now, NEAR, 1_000_000, (0, 42));
    assert!(spent(&terminal).1);
    terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&drain(&mut terminal, 60 * MS)), [0, 1]);
}

/// The offers of some time; only the far hop's sessions take more than one bundle.
fn drain_far(node: &mut Node) -> Vec<Offered> {
    let mut all = Vec::new();
    for _ in 0..40 {
        for offered in node.offers() {
            if offered.0.0 >= 200 {
                node.ready(offered.0);
            }
            all.push(offered);
        }
        node.pass(node.now + 5 * MS);
    }
    all
}

/// Changes of which links may rest, after another look at both.
fn look_for_rest(node: &mut Node) -> Vec<(HopId, bool)> {
    for hop in [NEAR, FAR] {
        node.engine.let_rest(node.now, hop);
    }
    assert!(node.offers().is_empty());
    std::mem::take(&mut node.rests)
}

#[test]
fn a_metered_hop_may_rest_once_nothing_moves_on_it_until_the_next_bundle() {
    let (uses, when) = (PathUse::Failover, MeteredUse::Freely);
    let (mut terminal, _hub) = metered(None, &[], uses, when);
    let start = terminal.now;
    terminal.pass(start + 9_999 * MS);
    assert!(look_for_rest(&mut terminal).is_empty());
    terminal.pass(start + 10_000 * MS);
    assert_eq!(look_for_rest(&mut terminal), [(NEAR, true)]);
    terminal.pass(start + 20_000 * MS);
    assert!(look_for_rest(&mut terminal).is_empty());
    terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [1, 0]);
    assert_eq!(std::mem::take(&mut terminal.rests), [(NEAR, false)]);
    // It is in flight until it is acknowledged.
    terminal.pass(start + 40_000 * MS);
    terminal.engine.let_rest(terminal.now, NEAR);
    terminal.offers();
    assert!(terminal.rests.is_empty());
}

#[test]
fn a_link_that_rests_is_woken_by_a_planned_blockage_which_may_be_wrong() {
    let (uses, when) = (PathUse::Failover, MeteredUse::Freely);
    let (mut terminal, _hub) = metered(None, &[], uses, when);
    let start = terminal.now;
    terminal.expect_blockage(NEAR, 20_000, 60_000);
    terminal.pass(start + 19_999 * MS);
    assert_eq!(look_for_rest(&mut terminal), [(NEAR, true)]);
    terminal.pass(start + 20_000 * MS);
    terminal.offers();
    assert_eq!(terminal.changes, [LinkChange::Blocked(Source::Plan)]);
    assert_eq!(std::mem::take(&mut terminal.rests), [(NEAR, false)]);
    // The link does not rest while that lasts.
    terminal.pass(start + 59_999 * MS);
    terminal.engine.let_rest(terminal.now, NEAR);
    terminal.offers();
    assert!(terminal.rests.is_empty());
}

/// How long it takes to find that nothing is heard any more, from the first bundle on
/// that an idle hop gets.
fn missed_after(rests: bool) -> Duration {
    let (uses, when) = (PathUse::Failover, MeteredUse::Freely);
    let (mut terminal, _hub) = metered(None, &[], uses, when);
    for heard in 0..400 {
        // A resting link is last heard 20 s before.
        if heard < 200 || !rests {
            let now = terminal.now;
            terminal.engine.heard(now, NEAR, now, Sign::Resting);
        }
        if rests {
            terminal.engine.let_rest(terminal.now, NEAR);
        }
        terminal.pass(terminal.now + 100 * MS);
    }
    assert!(terminal.offers().is_empty());
    assert!(terminal.changes.is_empty(), "{:?}", terminal.changes);
    if !rests {
        let now = terminal.now;
        terminal.engine.heard(now, NEAR, now, Sign::Resting);
    }
    until_missed(&mut terminal)
}

/// Gives the near hop a bundle, and lets time pass until it is missed; returns that time.
fn until_missed(terminal: &mut Node) -> Duration {
    let given = terminal.now;
    terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [1, 0]);
    while terminal.changes.is_empty() {
        terminal.pass(terminal.now + MS);
        terminal.offers();
        assert!(
            terminal.now < given + Duration::from_secs(5),
            "it is never missed"
        );
    }
    assert_eq!(terminal.changes, [LinkChange::Blocked(Source::Probing)]);
    terminal.now - given
}

#[test]
fn what_a_hop_is_given_that_rested_is_missed_as_soon_as_on_any_other() {
    assert_eq!(missed_after(true), missed_after(false));
}

#[test]
fn silence_of_a_hop_that_rested_begins_with_the_bundle_that_it_is_given() {
    let (uses, when) = (PathUse::Failover, MeteredUse::Freely);
    let (mut terminal, _hub) = metered(None, &[], uses, when);
    terminal.pass(terminal.now + 10_000 * MS);
    let heard = terminal.now;
    terminal.engine.heard(heard, NEAR, heard, Sign::Resting);
    terminal.engine.let_rest(heard, NEAR);
    terminal.pass(heard + 5_000 * MS);
    let given = terminal.now;
    until_missed(&mut terminal);
    assert_eq!(terminal.engine.silent_since(NEAR), Some(given));
}
