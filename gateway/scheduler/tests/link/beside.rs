//! Terminals beside the root: neither they nor those that share the root notice the others.

use std::time::Duration;

use crate::line::{Line, MBIT, Sent, leaf};
use proptest::prelude::*;
use underpass_scheduler::{Decision, TerminalId};

const SECOND: Duration = Duration::from_secs(1);
const BUNDLE: u64 = 1 << 20;
/// The terminal beside the root.
const BESIDE: u64 = 9;

#[test]
fn a_full_root_leaves_those_beside_it_their_own_rates() {
    let mut line = Line::new(Some(40 * MBIT));
    line.busy(1, 20_000_000, None, &[4]);
    line.busy(2, 20_000_000, None, &[4]);
    line.busy(BESIDE, 1, Some(10 * MBIT), &[4]);
    line.beside(BESIDE, true);
    assert_eq!(line.link.share_bps(TerminalId(1)), Some(20 * MBIT));
    assert_eq!(line.link.share_bps(TerminalId(BESIDE)), None);
    assert_eq!(line.link.present_bps(TerminalId(BESIDE)), Some(10 * MBIT));
    line.run(10 * SECOND);
    for (id, bps) in [(1, 20 * MBIT), (2, 20 * MBIT), (BESIDE, 10 * MBIT)] {
        let (sent, exact) = (line.bytes_of(id), bps * 10 / 8);
        assert!(sent.abs_diff(exact) <= BUNDLE, "{id}: {sent} of {exact}");
    }
}

#[test]
fn a_root_that_is_held_or_in_debt_does_not_hold_those_beside_it() {
    let mut line = Line::new(Some(0));
    line.busy(1, 1, None, &[4]);
    line.busy(BESIDE, 1, Some(8 * MBIT), &[4]);
    line.beside(BESIDE, true);
    line.run(SECOND);
    assert_eq!(line.bytes_of(1), 0);
    assert!(line.bytes_of(BESIDE).abs_diff(MBIT) <= BUNDLE / 8);
    let now = line.now();
    line.link.set_root_rate(now, Some(8 * MBIT));
    line.link.make_up_for_all(now, 2 * MBIT);
    line.run(SECOND);
    assert_eq!(line.bytes_of(1), 0);
    assert!(line.bytes_of(BESIDE).abs_diff(2 * MBIT) <= BUNDLE / 8);
}

#[test]
fn where_nothing_is_limited_both_sides_take_turns() {
    let mut line = Line::new(None);
    line.busy(1, 1, None, &[0, 4]);
    line.busy(2, 1_000, None, &[4]);
    line.busy(BESIDE, 1, None, &[4]);
    line.beside(BESIDE, true);
    for bundles in 1..100 {
        let Decision::Send { leaf, max_bytes } = line.next() else {
            panic!("nothing is limited");
        };
        let answer = line.next();
        assert_eq!(answer, Decision::Send { leaf, max_bytes });
        line.send(leaf, max_bytes);
        let beside = line.bytes(|sent| sent.leaf.terminal == TerminalId(BESIDE));
        assert_eq!(beside, bundles / 2 * BUNDLE);
    }
}

#[test]
fn a_terminal_that_moves_to_the_root_is_charged_to_it() {
    let mut line = Line::new(Some(8 * MBIT));
    line.busy(1, 1, None, &[4]);
    line.busy(BESIDE, 1, None, &[4]);
    line.blocked(BESIDE, true);
    line.beside(BESIDE, true);
    let now = line.now();
    line.link.subtract(now, TerminalId(BESIDE), 4 * MBIT);
    assert_eq!(line.link.share_bps(TerminalId(1)), Some(8 * MBIT));
    line.beside(BESIDE, false);
    assert_eq!(line.link.share_bps(TerminalId(1)), Some(4 * MBIT));
    line.run(SECOND);
    assert_eq!(line.bytes_of(BESIDE), 0, "it is still blocked");
    line.blocked(BESIDE, false);
    assert_eq!(line.link.share_bps(TerminalId(1)), Some(2 * MBIT));
    let before = line.bytes_of(1);
    line.run(10 * SECOND);
    let sent = [line.bytes_of(1) - before, line.bytes_of(BESIDE)];
    let exact = 2 * MBIT * 10 / 8;
    let near = sent.iter().all(|sent| sent.abs_diff(exact) <= BUNDLE / 8);
    assert!(near, "{sent:?}");
}

#[test]
fn a_terminal_beside_the_root_is_removed_and_its_place_is_taken() {
    let mut line = Line::new(Some(8 * MBIT));
    line.busy(BESIDE, 1, Some(MBIT), &[4]);
    line.beside(BESIDE, true);
    let now = line.now();
    line.link.remove_terminal(now, TerminalId(BESIDE));
    assert_eq!(line.next(), Decision::Idle);
    line.busy(1, 1, None, &[4]);
    assert_eq!(line.link.share_bps(TerminalId(1)), Some(8 * MBIT));
    line.run(SECOND);
    assert!(line.bytes_of(1).abs_diff(MBIT) <= BUNDLE / 8);
}

#[derive(Clone, Debug)]
enum Change {
    Ready(u64, u8, bool),
    Beside(u8, bool),
    Rate(Option<u64>),
    Run(u64),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..3_u64, 0..5_u8, any::<bool>())
            .prop_map(|(id, class, ready)| Change::Ready(id, class, ready)),
        3 => (0..5_u8, any::<bool>()).prop_map(|(class, ready)| Change::Beside(class, ready)),
        2 => prop_oneof![Just(0), 10_000..50_000_000_u64]
            .prop_map(|bps| Change::Rate(Some(bps))),
        4 => (1..300_u64).prop_map(Change::Run),
    ]
}

/// What leaves by the root, with or without a terminal beside it.
fn by_root(root_bps: u64, changes: &[Change], with_one_beside: bool) -> Vec<(Duration, u64, u8)> {
    let mut line = Line::new(Some(root_bps));
    for id in 0..3 {
        line.terminal(id, 1 + id, None);
    }
    if with_one_beside {
        line.terminal(BESIDE, 1, Some(MBIT));
        line.beside(BESIDE, true);
    }
    for change in changes {
        match *change {
            Change::Ready(id, class, ready) => line.ready(id, class, ready),
            Change::Beside(class, ready) if with_one_beside => line.ready(BESIDE, class, ready),
            Change::Rate(rate_bps) if with_one_beside => line.rate(BESIDE, rate_bps),
            Change::Run(millis) => line.run(Duration::from_millis(millis)),
            Change::Beside(..) | Change::Rate(_) => {}
        }
    }
    let shares = |sent: &&Sent| sent.leaf.terminal != TerminalId(BESIDE);
    let sent = line.log.iter().filter(shares);
    sent.map(|sent| (sent.at, sent.bytes, sent.leaf.class.0))
        .collect()
}

proptest! {
    #[test]
    fn what_leaves_by_the_root_is_the_same_whatever_leaves_beside_it(
        root_bps in 100_000..50_000_000_u64,
        changes in prop::collection::vec(change(), 1..60),
    ) {
        let alone = by_root(root_bps, &changes, false);
        prop_assert_eq!(alone, by_root(root_bps, &changes, true));
    }
}

#[test]
fn leaves_beside_the_root_go_by_priority() {
    let mut line = Line::new(Some(MBIT));
    line.busy(BESIDE, 1, Some(MBIT), &[1, 4]);
    line.beside(BESIDE, true);
    assert_eq!(line.granted(), leaf(BESIDE, 1));
    line.ready(BESIDE, 1, false);
    assert_eq!(line.granted(), leaf(BESIDE, 4));
}
