//! The beam's answers to shards that ask on their own.

use super::*;
use std::sync::{Arc, mpsc};

use crate::{ClassConfig, Decision, Leaf, LinkScheduler, TerminalId};
use underpass_cla::Class;
use underpass_work::of;

const BPS: u64 = 80_000_000;
const QUANTUM_BYTES: u64 = 20_000;

type Shards = (Instant, Vec<LinkScheduler>, Arc<Beam>);

/// Shards with `terminals` each; bulk of all of them is ready.
fn shards(count: u64, terminals: u64, rate_bps: Option<u64>) -> Shards {
    let classes = (0..2).map(|class| ClassConfig {
        class: Class(class),
        priority: class,
        weight: 1,
    });
    let config = Config {
        classes: classes.collect(),
        utilisation: 1.0,
    };
    let now = Instant::now();
    let beam = Arc::new(Beam::new(&config).unwrap());
    beam.set_rate(now, rate_bps);
    let shards = (0..count).map(|_| {
        let mut link = LinkScheduler::on(&config, beam.clone()).unwrap();
        for id in 0..terminals {
            link.add_terminal(now, TerminalId(id), 1, None);
            link.set_ready(leaf(id, 1), true).unwrap();
        }
        link
    });
    (now, shards.collect(), beam.clone())
}

fn leaf(id: u64, class: u8) -> Leaf {
    Leaf {
        terminal: TerminalId(id),
        class: Class(class),
    }
}

fn may_send(link: &mut LinkScheduler, now: Instant) -> bool {
    matches!(link.next(now), Decision::Send { .. })
}

#[test]
fn without_a_rate_nobody_takes_the_lock() {
    let (now, mut links, beam) = shards(1, 2, None);
    let (done, finished) = mpsc::channel();
    let guard = beam.lock();
    let thread = std::thread::spawn(move || {
        for _ in 0..100 {
            let Decision::Send { leaf, max_bytes } = links[0].next(now) else {
                panic!("nothing holds it back");
            };
            links[0].sent(now, leaf, max_bytes);
        }
        done.send(links).unwrap();
    });
    // It must not take for ever.
    let links = finished.recv_timeout(Duration::from_secs(60));
    drop(guard);
    thread.join().unwrap();
    assert!(links.is_ok());
}

#[test]
fn what_is_granted_to_one_is_not_granted_to_another() {
    let (now, mut links, _) = shards(3, 100, Some(BPS));
    // The first shard is alone, and gets one bundle; the second gets a quantum.
    assert!(may_send(&mut links[0], now));
    let waits_for_one_byte = Decision::Wait(now + Duration::from_nanos(100));
    assert_eq!(links[1].next(now), waits_for_one_byte);
    let now = now + Duration::from_nanos(100);
    assert!(may_send(&mut links[1], now));
    assert!(!may_send(&mut links[2], now));
    // It keeps to the quantum, also with bundles that are reported later.
    for bytes in [QUANTUM_BYTES / 2, QUANTUM_BYTES / 2 - 1] {
        assert!(may_send(&mut links[1], now));
        links[1].sent(now, leaf(0, 1), bytes);
    }
    assert!(may_send(&mut links[1], now));
    links[1].sent(now, leaf(1, 1), 1);
    assert!(!may_send(&mut links[1], now));
}

#[test]
fn a_shard_that_has_nothing_left_gives_back_its_quantum() {
    let (now, mut links, beam) = shards(3, 1, Some(BPS));
    assert!(may_send(&mut links[0], now));
    assert!(!may_send(&mut links[1], now));
    let now = now + Duration::from_micros(1);
    assert!(may_send(&mut links[1], now));
    assert!(!may_send(&mut links[2], now));
    for link in &mut links[..2] {
        link.set_ready(leaf(0, 1), false).unwrap();
        assert_eq!(link.next(now), Decision::Idle);
    }
    assert_eq!(beam.lock().reserved, 0);
    let now = now + QUANTUM;
    assert!(may_send(&mut links[2], now));
}

#[test]
fn a_shard_that_is_far_ahead_waits_for_one_that_sends_but_not_for_long() {
    let (now, mut links, _) = shards(2, 1, Some(BPS));
    assert!(may_send(&mut links[0], now));
    links[0].sent(now, leaf(0, 1), 1_000_000);
    for link in &mut links {
        assert!(!may_send(link, now));
    }
    let now = now + Duration::from_millis(100);
    assert!(may_send(&mut links[1], now));
    let now = now + Duration::from_millis(5);
    assert_eq!(links[0].next(now), Decision::Wait(now + QUANTUM));
    let now = now + GRACE;
    assert!(may_send(&mut links[0], now));
}

#[test]
fn signalling_does_not_wait_for_that_of_a_slow_shard() {
    let (now, mut links, _) = shards(2, 1, Some(BPS));
    // The second shard has had more, so its turn comes after the first.
    assert!(may_send(&mut links[1], now));
    links[1].sent(now, leaf(0, 1), 10_000);
    for link in &mut links {
        link.set_ready(leaf(0, 0), true).unwrap();
        assert!(!may_send(link, now));
    }
    let now = now + Duration::from_millis(1);
    assert!(may_send(&mut links[1], now));
}

/// The number of comparisons for one question, with this many shards that all wait.
fn comparisons_per_question(count: u64) -> u64 {
    let (mut now, mut links, _) = shards(count, 1, Some(BPS));
    let (mut asked, mut sent) = (0, 0);
    let steps = of(|| {
        while sent < 200 {
            for link in &mut links {
                asked += 1;
                if let Decision::Send { leaf, .. } = link.next(now) {
                    link.sent(now, leaf, QUANTUM_BYTES);
                    sent += 1;
                }
            }
            now += QUANTUM;
        }
    });
    steps / asked
}

#[test]
fn a_thousand_shards_cost_little_more_than_thirty() {
    let few = comparisons_per_question(30);
    let many = comparisons_per_question(1_000);
    // log₂ 1,000 / log₂ 30 is 2; scanning would give 33.
    assert!(few > 1 && many < 4 * few, "{many} against {few}");
}
