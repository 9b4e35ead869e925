//! Laws of the shards of a beam under arbitrary changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::line::{MBIT, config, leaf};
use crate::node::{Node, Random};
use underpass_scheduler::{Beam, Decision, LinkScheduler, TerminalId};

const MOST_BPS: u64 = 300 * MBIT;

/// Makes any change: terminals come, go, are blocked and get other rates and weights,
/// shards end, threads stand still, and the beam's rate changes.
fn change(node: &mut Node, shards: usize) {
    let draw = &mut node.random;
    let (id, class) = (draw.below(24), draw.below(5) as u8);
    let (shard, flag) = (draw.below(shards as u64) as usize, draw.below(3) > 0);
    let (kind, weight) = (draw.below(40), 1 + draw.below(1 << 20));
    let rate = Some(draw.below(20 * MBIT)).filter(|_| flag);
    let beam = 100_000 + draw.below(MOST_BPS);
    let stall = Duration::from_millis(draw.below(40));
    // Each terminal is at one shard only.
    let home = node.home(id);
    match (kind, home) {
        (0, _) => node.set_rate(beam),
        (1, _) if shard > 0 => node.stall(shard, stall),
        (2, _) if shard > 0 && !flag => node.end_shard(shard),
        (_, None) => node.terminal(shard, id, weight, rate),
        (3, Some(_)) => node.remove(id),
        (4..8, Some(home)) => node.change(home, |link, now| {
            link.set_rate(now, TerminalId(id), rate);
        }),
        (8..10, Some(home)) => node.change(home, |link, _| link.set_weight(TerminalId(id), weight)),
        (10..15, Some(home)) => {
            node.change(home, |link, _| link.set_blocked(TerminalId(id), !flag));
        }
        (15..17, Some(_)) => node.subtract(id, weight),
        _ => node.ready(id, class, flag),
    }
}

#[test]
fn beam_keeps_its_rate_and_is_full_under_any_changes() {
    for seed in 0..240 {
        let shards = [2, 3, 8][seed as usize % 3];
        let mut node = Node::new(shards, 50 * MBIT, seed);
        node.uneven = true;
        // This terminal always has something to send, and its thread is never late.
        node.terminal(0, 1_000, 1, None);
        node.ready(1_000, 4, true);
        for _ in 0..400 {
            change(&mut node, shards);
            let pause = Duration::from_micros(node.random.below(20_000));
            node.run(pause);
            node.assert_full();
        }
    }
}

/// Compares a scheduler with another one that gets the same calls.
struct Pair {
    own: LinkScheduler,
    shared: LinkScheduler,
}

impl Pair {
    fn both(&mut self, mut change: impl FnMut(&mut LinkScheduler)) {
        change(&mut self.own);
        change(&mut self.shared);
    }
}

#[test]
fn shards_without_anything_to_send_change_no_decision() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let mut draw = |bound| random.below(bound);
        let beam = Arc::new(Beam::new(&config()).unwrap());
        let shard = || LinkScheduler::on(&config(), beam.clone()).unwrap();
        let mut idle = [shard(), shard()];
        let own = LinkScheduler::new(&config()).unwrap();
        let mut now = Instant::now();
        // One of them had something to send for a moment.
        let first = &mut idle[0];
        beam.set_rate(now, Some(MBIT));
        first.add_terminal(now, TerminalId(9), 1, None);
        for ready in [true, false] {
            first.set_ready(leaf(9, 4), ready).unwrap();
            first.next(now);
        }
        let mut pair = Pair {
            own,
            shared: shard(),
        };
        pair.both(|link| link.set_root_rate(now, Some(MBIT)));
        for _ in 0..300 {
            let (id, class, flag) = (TerminalId(draw(4)), draw(5) as u8, draw(3) > 0);
            let leaf = leaf(id.0, class);
            let rate = Some(draw(20 * MBIT)).filter(|_| flag);
            let (bytes, weight) = (draw(200_000), 1 + draw(100));
            match draw(24) {
                0 => pair.both(|link| link.add_terminal(now, id, weight, rate)),
                1 => pair.both(|link| link.set_rate(now, id, rate)),
                2 => pair.both(|link| link.set_root_rate(now, rate.map(|bps| 2 * bps))),
                3 => pair.both(|link| link.set_weight(id, weight)),
                4 => pair.both(|link| link.set_blocked(id, !flag)),
                5 => pair.both(|link| link.subtract(now, id, bytes)),
                6 => pair.both(|link| link.sent(now, leaf, bytes)),
                7 if !flag => pair.both(|link| link.remove_terminal(now, id)),
                8..12 => pair.both(|link| {
                    // Not every terminal exists.
                    let _ = link.set_ready(leaf, flag);
                }),
                12 => now += Duration::from_micros(bytes),
                _ => {
                    let decision = pair.own.next(now);
                    assert_eq!(pair.shared.next(now), decision, "seed {seed}");
                    match decision {
                        Decision::Send { leaf, max_bytes } => {
                            pair.both(|link| link.sent(now, leaf, max_bytes));
                        }
                        Decision::Wait(until) => now = until,
                        Decision::Idle => {}
                    }
                }
            }
            let idle = &mut idle[draw(2) as usize];
            assert_eq!(idle.next(now), Decision::Idle);
            let size = pair.own.max_bundle_bytes(id);
            assert_eq!(pair.shared.max_bundle_bytes(id), size, "seed {seed}");
        }
    }
}

#[test]
fn threads_that_race_keep_the_rate_together() {
    const SHARDS: u64 = 4;
    const BUNDLES: u64 = 5_000;
    let start = Instant::now();
    let beam = Arc::new(Beam::new(&config()).unwrap());
    beam.set_rate(start, Some(100 * MBIT));
    // The time in nanoseconds, which threads advance when all of them wait.
    let clock = AtomicU64::new(0);
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for id in 0..SHARDS {
            let (beam, clock, sent) = (beam.clone(), &clock, &sent);
            scope.spawn(move || {
                let mut link = LinkScheduler::on(&config(), beam).unwrap();
                link.add_terminal(start, TerminalId(id), 1 + id, None);
                link.set_ready(leaf(id, 4), true).unwrap();
                let mut count = 0;
                while count < BUNDLES {
                    let now = start + Duration::from_nanos(clock.load(Ordering::SeqCst));
                    match link.next(now) {
                        Decision::Send { leaf, .. } => {
                            link.sent(now, leaf, 1_000);
                            sent.fetch_add(1_000, Ordering::SeqCst);
                            count += 1;
                        }
                        Decision::Wait(until) => {
                            let nanos = (until - start).as_nanos() as u64;
                            clock.fetch_max(nanos, Ordering::SeqCst);
                            std::thread::yield_now();
                        }
                        Decision::Idle => panic!("it is backlogged"),
                    }
                }
            });
        }
    });
    assert_eq!(sent.into_inner(), SHARDS * BUNDLES * 1_000);
    let seconds = Duration::from_nanos(clock.into_inner()).as_secs_f64();
    let allowed = 100e6 / 8.0 * (seconds + 0.060);
    assert!(((SHARDS * BUNDLES - SHARDS) * 1_000) as f64 <= allowed + 25_000.0 * SHARDS as f64);
}
