//! Which classes a terminal's debt holds up, and for how long.

use std::time::Duration;

use proptest::prelude::*;
use underpass_cla::Class;
use underpass_scheduler::TerminalId;

use crate::line::{Line, MBIT, leaf};

const SECOND: Duration = Duration::from_secs(1);
const ID: TerminalId = TerminalId(1);
const BULK: u8 = 4;

/// The line time of a bundle that suits the rate, with its headers.
const BUNDLE: Duration = Duration::from_millis(75);

/// A terminal with a backlog in a class, which has been sent at this rate for a second:
/// the last bundle has 20 ms left.
fn backlogged(class: u8, bps: u64) -> Line {
    let mut line = Line::new(None);
    line.busy(1, 1, Some(bps), &[class]);
    line.run(SECOND);
    line
}

/// How long a class waits for its next grant.
fn wait(line: &mut Line, class: u8) -> Duration {
    let asked = line.elapsed();
    line.ready(1, class, true);
    assert_eq!(line.granted(), leaf(1, class));
    line.elapsed() - asked
}

fn unsent(line: &mut Line, class: u8, bytes: u64) {
    let now = line.now();
    line.link.wait_for_unsent(now, ID, &[(Class(class), bytes)]);
}

fn make_up_for(line: &mut Line, bytes: u64) {
    let now = line.now();
    line.link.make_up_for(now, ID, bytes);
}

#[test]
fn a_step_down_makes_no_class_above_bulk_wait_longer() {
    for class in 0..BULK {
        let mut line = backlogged(BULK, 20 * MBIT);
        line.rate(1, Some(MBIT));
        assert_eq!(wait(&mut line, class), Duration::from_millis(20));
        line.ready(1, class, false);
        // The remaining 50 kB take 400 ms at the new rate.
        assert_eq!(wait(&mut line, BULK), Duration::from_millis(380));
    }
}

#[test]
fn what_bulk_has_not_sent_holds_up_bulk_alone() {
    let mut line = backlogged(BULK, 20 * MBIT);
    line.rate(1, Some(MBIT));
    let cut = line.elapsed();
    unsent(&mut line, BULK, 200_000);
    assert!(wait(&mut line, 1) <= BUNDLE);
    line.send(leaf(1, 1), 1_000);
    line.ready(1, 1, false);
    wait(&mut line, BULK);
    // The debt is paid except for a bundle's credit, and so is what went ahead.
    assert_eq!(line.elapsed() - cut, Duration::from_millis(1_540 + 8));
}

#[test]
fn what_a_class_has_not_sent_holds_up_those_below_it_too() {
    let most = Duration::from_millis(1_540);
    let cases: [(u8, &[u8], &[u8]); 3] = [
        (1, &[1, 2, 3, 4], &[0]),
        (3, &[2, 3, 4], &[0, 1]),
        // An unknown class.
        (200, &[0, 1, 2, 3, 4], &[]),
    ];
    for (of, held_up, free) in cases {
        let debtor = |line: &mut Line| {
            line.rate(1, Some(MBIT));
            line.ready(1, BULK, false);
            unsent(line, of, 200_000);
        };
        for &class in held_up {
            let mut line = backlogged(BULK, 20 * MBIT);
            debtor(&mut line);
            assert_eq!(wait(&mut line, class), most, "{of} holds up {class}");
        }
        for &class in free {
            let mut line = backlogged(BULK, 20 * MBIT);
            debtor(&mut line);
            assert!(wait(&mut line, class) <= BUNDLE, "{of} and {class}");
        }
    }
}

#[test]
fn who_has_sent_too_fast_makes_up_for_it() {
    for class in 1..=BULK {
        let mut line = backlogged(class, 20 * MBIT);
        make_up_for(&mut line, 2_500_000);
        let above = wait(&mut line, class.min(2) - 1);
        assert_eq!(above, Duration::from_millis(20));
        line.ready(1, class.min(2) - 1, false);
        assert_eq!(wait(&mut line, class), SECOND - above);
    }
    // If no class is known to have caused the debt, all have.
    let mut line = Line::new(None);
    line.terminal(1, 1, Some(MBIT));
    make_up_for(&mut line, 125_000);
    assert_eq!(wait(&mut line, 0), SECOND);
}

#[test]
fn what_is_sparse_waits_for_its_own_debt_alone() {
    let mut line = backlogged(BULK, 20 * MBIT);
    let bulk = leaf(1, BULK);
    make_up_for(&mut line, 2_500_000);
    line.link.set_sparse(bulk, true).unwrap();
    assert_eq!(wait(&mut line, BULK), Duration::from_millis(20));
    line.send(bulk, 2_500);
    assert_eq!(wait(&mut line, BULK), Duration::from_millis(1));
    // The rest of the class waits for the debt, and for what went ahead.
    line.link.set_sparse(bulk, false).unwrap();
    assert_eq!(wait(&mut line, BULK), Duration::from_millis(980));
    // If the sent bundles were sparse, sparse bundles pay for them.
    let mut line = Line::new(None);
    line.terminal(1, 1, Some(20 * MBIT));
    line.link.set_sparse(bulk, true).unwrap();
    line.ready(1, BULK, true);
    line.run(SECOND);
    make_up_for(&mut line, 2_500_000);
    assert_eq!(wait(&mut line, BULK), SECOND);
    assert_eq!(wait(&mut line, 1), Duration::ZERO);
}

#[test]
fn what_is_sparse_does_not_wait_for_the_turn_of_an_equal_class_in_debt() {
    let mut line = backlogged(2, 20 * MBIT);
    line.ready(1, 3, true);
    line.run(SECOND);
    // Classes 2 and 3 have equal priority.
    let first = line.granted();
    let other = leaf(1, 5 - first.class.0);
    make_up_for(&mut line, 2_500_000);
    let asked = line.elapsed();
    line.link.set_sparse(other, true).unwrap();
    assert_eq!(line.granted(), other);
    assert_eq!(line.elapsed(), asked);
    line.send(other, 2_500);
    line.link.set_sparse(other, false).unwrap();
    assert_eq!(line.granted(), first);
    assert_eq!(line.elapsed() - asked, Duration::from_millis(1_001));
}

#[test]
fn a_bundle_of_a_higher_rate_holds_up_its_class_alone() {
    let mut line = backlogged(BULK, MBIT);
    let bulk = line.granted();
    line.send(bulk, 1 << 20);
    assert!(wait(&mut line, 0) <= BUNDLE);
    line.ready(1, 0, false);
    assert!(wait(&mut line, BULK) > 8 * SECOND);
}

#[test]
fn a_class_that_goes_ahead_keeps_to_the_rate_and_lets_the_debt_be() {
    let mut line = backlogged(BULK, 20 * MBIT);
    line.rate(1, Some(MBIT));
    line.ready(1, 1, true);
    line.run(10 * SECOND);
    let of = |line: &Line, class| line.bytes(|sent| sent.leaf.class == Class(class));
    assert!(of(&line, 1).abs_diff(10 * MBIT / 8) <= 15_000);
    line.ready(1, 1, false);
    let bulk = wait(&mut line, BULK);
    let owed = Duration::from_millis(380);
    assert!((owed..=owed + BUNDLE).contains(&bulk), "{bulk:?}");
}

#[test]
fn signalling_of_a_terminal_in_debt_goes_before_the_bundles_of_others() {
    let mut line = Line::new(Some(10 * MBIT));
    line.terminal(1, 1, Some(MBIT));
    line.terminal(2, 1, None);
    line.ready(1, BULK, true);
    line.ready(2, BULK, true);
    line.run(SECOND);
    line.rate(1, Some(MBIT / 10));
    let asked = line.elapsed();
    line.ready(1, 0, true);
    loop {
        let granted = line.granted();
        if granted.terminal == ID {
            assert_eq!(granted, leaf(1, 0));
            break;
        }
        line.send(granted, 1_000);
    }
    assert!(line.elapsed() - asked <= BUNDLE);
    // Its bulk still waits, and holds up no other class.
    line.ready(1, 0, false);
    assert_eq!(line.granted(), leaf(2, BULK));
}

#[derive(Clone, Debug)]
struct Step {
    bps: u64,
    unsent: u64,
    drained: u64,
    pause: Duration,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![Just(0), 0..10_000_000_u64];
    (10_000..20_000_000_u64, bytes(), bytes(), 0..10_000_u64).prop_map(
        |(bps, unsent, drained, micros)| Step {
            bps,
            unsent,
            drained,
            pause: Duration::from_micros(micros),
        },
    )
}

proptest! {
    #[test]
    fn a_higher_class_waits_for_one_bundle_whatever_the_debt(
        bps in 10_000..20_000_000_u64,
        bundle in 100..=1_u64 << 20,
        steps in prop::collection::vec(step(), 1..8),
        class in 0..BULK,
    ) {
        let mut line = backlogged(BULK, bps);
        let bulk = line.granted();
        line.send(bulk, bundle);
        let sent = line.elapsed();
        line.ready(1, class, true);
        let pauses: Duration = steps.iter().map(|step| step.pause).sum();
        for step in steps {
            line.rate(1, Some(step.bps));
            unsent(&mut line, BULK, step.unsent);
            make_up_for(&mut line, step.drained);
            line.pass(step.pause);
        }
        prop_assert_eq!(line.granted(), leaf(1, class));
        let least = Duration::from_secs_f64(4_096.0 * 1.25 * 8.0 / bps as f64);
        // At each step, what is left of the wait is rounded to a nanosecond.
        let most = BUNDLE.max(least).max(pauses) + Duration::from_micros(1);
        prop_assert!(line.elapsed() - sent <= most);
    }

    #[test]
    fn what_goes_ahead_is_taken_from_who_carries_the_debt(
        bps in 10_000..20_000_000_u64,
        part in 2..50_u64,
        owed in 0..1_000_000_u64,
        bursts in prop::collection::vec((1..300_u64, 1..300_u64), 1..20),
    ) {
        let mut line = backlogged(BULK, bps);
        let lower = bps / part;
        line.rate(1, Some(lower));
        unsent(&mut line, BULK, owed);
        let (cut, logged) = (line.elapsed(), line.log.len());
        for (busy, idle) in bursts {
            for (ready, millis) in [(true, busy), (false, idle)] {
                line.ready(1, 1, ready);
                line.run(Duration::from_millis(millis));
            }
        }
        let credit = (lower as f64 * 0.060 / 8.0).max(4_096.0);
        let mut before = 0;
        for sent in &line.log[logged..] {
            let earned = lower as f64 * (sent.at - cut).as_secs_f64() / 8.0;
            if sent.leaf.class == Class(BULK) {
                let paid = (before + owed) as f64;
                prop_assert!(paid <= earned + credit + 1.0, "{sent:?}: {paid}, {earned}");
            }
            before += sent.bytes;
        }
    }
}
