//! The cost of a call does not grow with what is stored: steps are counted, not timed.

use underpass_store::Limits;
use underpass_work::{assert_bounded, of};

use crate::bench::{Bench, LIMITS};

const SMALL: usize = 100;
const LARGE: usize = 10_000;
const ROUNDS: usize = 200;

/// A store with this many bundles in many segments, each of which has garbage too.
fn with(bundles: usize) -> Bench {
    let mut bench = Bench::new(Limits {
        memory_bytes: 1 << 20,
        ..LIMITS
    });
    for number in 0..bundles * 5 / 4 {
        let id = bench.put(300, true);
        if number % 16 == 15 {
            bench.settle();
        }
        if number % 5 == 4 {
            bench.remove(id);
        }
    }
    bench.settle();
    bench
}

/// The entries looked at and the calls to the disk, in all rounds of `act`.
fn cost(bundles: usize, act: impl Fn(&mut Bench, usize)) -> u64 {
    let mut bench = with(bundles);
    let calls = bench.disk.operations();
    let steps = of(|| (0..ROUNDS).for_each(|round| act(&mut bench, round)));
    steps + bench.disk.operations() - calls
}

fn compare(what: &str, act: impl Fn(&mut Bench, usize) + Copy) {
    assert_bounded(what, cost(SMALL, act), cost(LARGE, act));
}

#[test]
fn a_put_costs_the_same_whatever_is_stored() {
    compare("put", |bench, _| {
        bench.put(300, true);
        bench.step();
    });
}

#[test]
fn a_release_costs_the_same_whatever_is_stored() {
    compare("put and release", |bench, round| {
        let id = bench.put(300, true);
        bench.step();
        bench.remove(if round % 2 == 0 {
            id
        } else {
            *bench.kept.first().unwrap()
        });
        bench.step();
    });
}

#[test]
fn a_delivery_costs_the_same_whatever_is_stored() {
    compare("delivery", |bench, _| {
        bench.put(300, true);
        bench.step();
        let id = *bench.kept.first().unwrap();
        bench.load(id);
        bench.remove(id);
        bench.step();
    });
}

#[test]
fn a_release_costs_the_same_however_much_waits_to_be_written() {
    let cost = |waiting: usize| {
        let mut bench = Bench::new(Limits {
            memory_bytes: 64 << 20,
            ..LIMITS
        });
        bench.disk.set_broken(true);
        for _ in 0..waiting {
            bench.put(100, true);
        }
        bench.worker.step(true);
        of(|| {
            for _ in 0..50 {
                bench.remove(*bench.kept.last().unwrap());
                bench.worker.step(false);
            }
        })
    };
    let small = cost(SMALL);
    assert!(small >= 50, "releases are counted");
    assert_bounded("release", small, cost(LARGE));
}
