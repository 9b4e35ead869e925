//! The common promises of the shards of a beam, whichever thread is late.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::line::{MBIT, config, leaf};
use crate::node::{LATENESS, MOST_IDLE, Node};
use underpass_cla::Class;
use underpass_scheduler::{Beam, Decision, LinkScheduler, TerminalId};

const SECOND: Duration = Duration::from_secs(1);
const QUANTUM: Duration = Duration::from_millis(2);

fn bytes_in(bps: u64, time: Duration) -> f64 {
    bps as f64 / 8.0 * time.as_secs_f64()
}

/// Terminals of class 4 that are always backlogged, each with its shard and weight.
fn backlogged(node: &mut Node, terminals: &[(usize, u64)]) {
    for (id, &(shard, weight)) in terminals.iter().enumerate() {
        node.terminal(shard, id as u64, weight, None);
        node.ready(id as u64, 4, true);
    }
}

/// This many terminals of weight 1 on each shard.
fn numbers(numbers: &[usize]) -> Vec<(usize, u64)> {
    let shards = numbers.iter().enumerate();
    shards
        .flat_map(|(shard, &number)| std::iter::repeat_n((shard, 1), number))
        .collect()
}

#[test]
fn beam_is_full_and_never_more_than_that() {
    for (shards, seed) in [(2, 1), (3, 2), (8, 3)] {
        for bps in [MBIT, 50 * MBIT, 2_000 * MBIT] {
            for uneven in [false, true] {
                let mut node = Node::new(shards, bps, seed);
                node.uneven = uneven;
                let equal = vec![3; shards];
                backlogged(&mut node, &numbers(&equal));
                node.run(5 * SECOND);
                node.assert_full();
                let sent = node.bytes(|_| true) as f64;
                let exact = bytes_in(bps, 5 * SECOND);
                let least = exact - bytes_in(bps, MOST_IDLE);
                let most = exact + shards as f64 * (1 << 20) as f64;
                assert!((least..most).contains(&sent), "{sent} of {exact} at {bps}");
            }
        }
    }
}

#[test]
fn equal_terminals_have_the_same_on_shards_of_unequal_numbers() {
    let cases: [&[usize]; 4] = [
        &[1, 7],
        &[1, 4, 16],
        &[1, 2, 3, 4, 5, 6, 7, 40],
        &[0, 0, 9, 0, 0, 1, 0, 300],
    ];
    for (seed, shards) in cases.iter().enumerate() {
        for uneven in [false, true] {
            let mut node = Node::new(shards.len(), 200 * MBIT, seed as u64);
            node.uneven = uneven;
            let terminals = numbers(shards);
            backlogged(&mut node, &terminals);
            node.run(30 * SECOND);
            node.assert_full();
            let bytes = (0..terminals.len() as u64).map(|id| node.bytes_of(id) as f64);
            let (sum, squares) =
                bytes.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
            let jain = sum * sum / (terminals.len() as f64 * squares);
            assert!(jain >= 0.99, "{jain} on {shards:?}");
        }
    }
}

#[test]
fn terminals_of_different_shards_share_by_weight_to_within_a_few_quanta() {
    for seed in 0..20 {
        let shards = [2, 3, 8][seed as usize % 3];
        let bps = 300 * MBIT;
        let mut node = Node::new(shards, bps, seed);
        let terminals: Vec<(usize, u64)> = (0..3 * shards)
            .map(|_| {
                let shard = node.random.below(shards as u64) as usize;
                (shard, 1 + node.random.below(20))
            })
            .collect();
        backlogged(&mut node, &terminals);
        let sum: u64 = terminals.iter().map(|(_, weight)| weight).sum();
        for _ in 0..20 {
            node.run(SECOND / 2);
            let exact = node.bytes(|_| true) as f64 / sum as f64;
            for (id, &(shard, weight)) in terminals.iter().enumerate() {
                // One bundle in each direction, and its part of rounds of a quantum each.
                let round = shards as f64 * bytes_in(bps, QUANTUM);
                let quanta = 3.0 * round * weight as f64 / sum as f64;
                let bundle = node.link(shard).max_bundle_bytes(TerminalId(id as u64)) as f64;
                let off = node.bytes_of(id as u64) as f64 - exact * weight as f64;
                assert!(off.abs() <= 2.0 * bundle + quanta, "{off} of {id}");
            }
        }
    }
}

#[test]
fn what_shaped_terminals_of_a_shard_leave_is_shared_by_all_shards() {
    let bps = 100 * MBIT;
    let mut node = Node::new(2, bps, 5);
    for id in 0..9 {
        node.terminal(0, id, 1, Some(2 * MBIT));
        node.ready(id, 4, true);
    }
    for (shard, id) in [(0, 100), (1, 101)] {
        node.terminal(shard, id, 1, None);
        node.ready(id, 4, true);
    }
    node.run(20 * SECOND);
    node.assert_full();
    let close = |id: u64, bps: u64| {
        let part = node.bytes_of(id) as f64 / bytes_in(bps, 20 * SECOND);
        assert!((0.99..1.01).contains(&part), "{part} of {id}");
    };
    (0..9).for_each(|id| close(id, 2 * MBIT));
    (100..102).for_each(|id| close(id, 41 * MBIT));
}

#[test]
fn a_shard_that_comes_back_has_saved_up_nothing() {
    let bps = 100 * MBIT;
    let mut node = Node::new(2, bps, 6);
    backlogged(&mut node, &[(0, 1), (1, 1)]);
    for _ in 0..20 {
        node.ready(1, 4, false);
        node.run(SECOND);
        let before = (node.bytes_of(0), node.bytes_of(1));
        node.ready(1, 4, true);
        node.run(SECOND);
        let sent = [node.bytes_of(0) - before.0, node.bytes_of(1) - before.1];
        let off = sent[0].abs_diff(sent[1]) as f64;
        // The bundle that filled the line before, and one for half of the line.
        assert!(off <= bytes_in(bps, Duration::from_millis(120)), "{sent:?}");
    }
    node.assert_full();
}

#[test]
fn silence_earns_nothing_beside_a_terminal_that_waits() {
    let bps = 100 * MBIT;
    let mut node = Node::new(2, bps, 11);
    node.most_bytes = 1_500;
    // The first shard always waits because of its light terminal.
    backlogged(&mut node, &[(0, 1), (0, 1_000), (1, 1_000)]);
    for _ in 0..20 {
        node.ready(1, 4, false);
        node.run(SECOND);
        let before = [node.bytes_of(1), node.bytes_of(2)];
        node.ready(1, 4, true);
        node.run(SECOND / 2);
        let sent = [node.bytes_of(1) - before[0], node.bytes_of(2) - before[1]];
        let off = sent[0].abs_diff(sent[1]) as f64;
        assert!(off <= 4.0 * bytes_in(bps, QUANTUM), "{sent:?}");
    }
}

#[test]
fn a_newcomer_is_not_put_behind_a_light_terminal_of_its_shard() {
    let bps = 100 * MBIT;
    for seed in 0..10 {
        let mut node = Node::new(2, bps, seed);
        node.most_bytes = 1_500;
        backlogged(&mut node, &[(0, 1), (0, 1), (1, 1_000), (0, 1_000)]);
        node.run(SECOND);
        for _ in 0..10 {
            node.ready(3, 4, false);
            node.run(SECOND / 10);
            // Only one of the light terminals waits, and its turn is far off.
            node.ready(1, 4, false);
            node.ready(1, 4, true);
            let before = node.bytes_of(3);
            node.ready(3, 4, true);
            node.run(SECOND / 10);
            let sent = (node.bytes_of(3) - before) as f64;
            let share = bytes_in(bps, SECOND / 10) / 2.0;
            assert!((0.9..1.1).contains(&(sent / share)), "{sent} of {share}");
        }
    }
}

#[test]
fn signalling_of_any_shard_goes_before_all_else_of_every_shard() {
    for shards in [2, 3, 8] {
        let bps = 200 * MBIT;
        let mut node = Node::new(shards, bps, 7);
        backlogged(&mut node, &numbers(&vec![20; shards]));
        let bundle = node.link(0).max_bundle_bytes(TerminalId(0)) as f64;
        for round in 0..200 {
            node.run(Duration::from_micros(3_777));
            let (asked, from) = (node.elapsed(), node.log.len());
            let id = round % (20 * shards as u64);
            node.ready(id, 0, true);
            while !node.log[from..].iter().any(|sent| sent.leaf == leaf(id, 0)) {
                node.run(Duration::from_micros(10));
            }
            node.ready(id, 0, false);
            let before = node.log[from..]
                .iter()
                .take_while(|sent| sent.leaf.class != Class::SIGNALLING);
            let before: u64 = before.map(|sent| sent.bytes).sum();
            // What was granted before it asked.
            let granted = shards as f64 * (bytes_in(bps, QUANTUM) + bundle);
            assert!(before as f64 <= granted, "{before} bytes before signalling");
            let waited = (node.elapsed() - asked).as_secs_f64();
            let most = bytes_in(bps, SECOND).recip() * granted + 2.0 * LATENESS.as_secs_f64();
            assert!(waited <= most, "{waited} s, not {most}");
        }
        node.assert_full();
    }
}

#[test]
fn a_slow_shard_takes_no_rate_from_the_others_and_little_when_it_comes() {
    let bps = 200 * MBIT;
    let mut node = Node::new(3, bps, 8);
    backlogged(&mut node, &numbers(&[5, 5, 5]));
    node.run(SECOND);
    for _ in 0..20 {
        let before = node.bytes(|_| true);
        node.stall(1, SECOND);
        node.run(SECOND);
        let sent = (node.bytes(|_| true) - before) as f64;
        let lost = bytes_in(bps, SECOND) - sent;
        assert!(lost <= bytes_in(bps, MOST_IDLE) * 2.0, "{lost} bytes");
        // Of the second in which it is back, the others have two thirds but for
        // what it makes up for.
        let own = |node: &Node| node.bytes(|sent| (5..10).contains(&sent.leaf.terminal.0));
        let before = own(&node);
        node.run(SECOND);
        let sent = (own(&node) - before) as f64;
        let share = bytes_in(bps, SECOND) / 3.0;
        let lead = sent - share;
        assert!(
            lead <= bytes_in(bps, Duration::from_millis(100)),
            "{lead} bytes"
        );
    }
    node.assert_full();
}

#[test]
fn a_shard_that_never_asks_again_is_not_waited_for() {
    let bps = 100 * MBIT;
    let mut node = Node::new(3, bps, 9);
    backlogged(&mut node, &numbers(&[10, 1, 10]));
    node.run(SECOND);
    node.stall(1, 1_000 * SECOND);
    node.run(SECOND);
    let from = node.log.len();
    node.run(10 * SECOND);
    node.assert_full();
    let of = |ids: std::ops::Range<u64>| {
        let sent = node.log[from..].iter();
        let own = sent.filter(|sent| ids.contains(&sent.leaf.terminal.0));
        own.map(|sent| sent.bytes).sum::<u64>() as f64
    };
    let ratio = of(0..10) / of(11..21);
    assert!((0.98..1.02).contains(&ratio), "{ratio}");
}

#[test]
fn a_shard_that_ends_leaves_the_beam_as_if_it_had_never_been() {
    let bps = 100 * MBIT;
    let mut node = Node::new(2, bps, 10);
    backlogged(&mut node, &numbers(&[2, 6]));
    node.change(1, |link, now| link.subtract(now, TerminalId(3), 50 * MBIT));
    node.run(SECOND);
    let size = |node: &Node| node.link(0).max_bundle_bytes(TerminalId(0));
    assert_eq!(size(&node), 50 * MBIT / 8 * 60 / 1_000 / 8);
    node.end_shard(1);
    assert_eq!(size(&node), 100 * MBIT / 8 * 60 / 1_000 / 2);
    let before = node.bytes(|_| true);
    node.run(10 * SECOND);
    let sent = (node.bytes(|_| true) - before) as f64;
    let exact = bytes_in(bps, 10 * SECOND);
    assert!((sent / exact - 1.0).abs() < 0.01, "{sent} of {exact}");
}

#[test]
fn rate_of_the_beam_is_one_for_all_shards() {
    let now = Instant::now();
    let beam = Arc::new(Beam::new(&config()).unwrap());
    let shard = || LinkScheduler::on(&config(), beam.clone()).unwrap();
    let mut shards = [shard(), shard()];
    for (id, link) in shards.iter_mut().enumerate() {
        let id = id as u64;
        link.add_terminal(now, TerminalId(id), 1 + id, None);
        link.set_ready(leaf(id, 4), true).unwrap();
        assert!(matches!(link.next(now), Decision::Send { .. }));
    }
    let [first, second] = &mut shards;
    first.set_root_rate(now, Some(0));
    assert_eq!(second.next(now), Decision::Idle);
    second.set_root_rate(now, Some(MBIT));
    assert_eq!(first.max_bundle_bytes(TerminalId(0)), 4_096);
    second.set_root_rate(now, Some(30 * MBIT));
    assert_eq!(first.max_bundle_bytes(TerminalId(0)), 75_000);
    assert_eq!(second.max_bundle_bytes(TerminalId(1)), 150_000);
    first.sent(now, leaf(0, 4), 37_500);
    let until = now + Duration::from_millis(10);
    assert_eq!(second.next(now), Decision::Wait(until));
    // Setting the same rate again changes nothing.
    second.set_root_rate(now, Some(30 * MBIT));
    assert_eq!(second.next(now), Decision::Wait(until));
}
