//! What a call costs does not grow with what is stored: counted, not timed.

use underpass_store::Limits;
use underpass_store::simulated::counted;

use crate::bench::{Bench, LIMITS};

const SMALL: usize = 100;
const LARGE: usize = 10_000;
const ROUNDS: usize = 200;

/// A store with so many bundles in many segments, each of which has garbage
/// too.
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

/// Entries looked at and calls to the disk, for each round of `act`.
fn cost(bundles: usize, act: impl Fn(&mut Bench, usize)) -> f64 {
    let mut bench = with(bundles);
    let calls = bench.disk.operations();
    counted();
    for round in 0..ROUNDS {
        act(&mut bench, round);
    }
    let calls = bench.disk.operations() - calls;
    (counted() + calls) as f64 / ROUNDS as f64
}

fn compare(what: &str, act: impl Fn(&mut Bench, usize) + Copy) {
    let (small, large) = (cost(SMALL, act), cost(LARGE, act));
    assert!(small > 0.0, "{what}: nothing is counted");
    assert!(
        large <= 1.5 * small,
        "{what}: {large} with {LARGE} bundles, {small} with {SMALL}"
    );
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
        counted();
        for _ in 0..50 {
            bench.remove(*bench.kept.last().unwrap());
            bench.worker.step(false);
        }
        counted()
    };
    let (small, large) = (cost(SMALL), cost(LARGE));
    assert!(small > 0, "nothing is counted");
    assert!(2 * large <= 3 * small, "{large} against {small}");
}
