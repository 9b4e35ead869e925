//! Whole networks of engines in virtual time: terminals, relay and hub, with
//! applications at both ends, over links whose sessions break, stall, refuse
//! and come back. Each run is drawn from a seed.
//!
//! A failing run prints its seed; `UNDERPASS_SIM_SEED=n` runs that one again,
//! `UNDERPASS_SIM_SEEDS=n` runs so many from 0 on.

mod apps;
mod beacons;
mod checks;
mod custody;
mod disk;
mod faults;
mod line;
mod messages;
mod nodes;
mod pattern;
mod plans;
mod random;
mod schedule;
mod sessions;
mod streams;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use schedule::Schedule;
use world::World;

const SEEDS: u64 = 10_000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

fn run(seed: u64) -> World {
    let mut world = World::new(Schedule::of(seed));
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = outcome {
        eprintln!("replay with UNDERPASS_SIM_SEED={seed} (at {:?})", world.now);
        resume_unwind(panic);
    }
    world
}

#[test]
fn streams_are_exact_or_reset_whatever_links_and_nodes_do() {
    if let Some(seed) = number("UNDERPASS_SIM_SEED") {
        run(seed);
        return;
    }
    let seeds = number("UNDERPASS_SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    run(seed);
                }
            });
        }
    });
}

#[test]
fn a_seed_runs_the_same_way_each_time() {
    for seed in 0..20 {
        assert_eq!(run(seed).trace, run(seed).trace, "seed {seed}");
    }
}

#[test]
fn schedules_meet_all_that_they_are_there_for() {
    let mut met = BTreeMap::<&str, u64>::new();
    for (what, times) in (0..200).flat_map(|seed| run(seed).met) {
        *met.entry(what).or_default() += times;
    }
    for what in [
        "operator",
        "plan",
        "probing",
        "contradiction",
        "return",
        "takeover",
        "resumption",
        "stall",
        "restored message",
        "plan pushed",
        "plan begun",
        "plan over",
        "passed",
        "duplicate",
        "reordered",
        "lost",
        "torn write",
        "flipped bit",
        "sector lost",
        "sector overtaken",
        "name lost",
    ] {
        let times = met.get(what).copied().unwrap_or(0);
        assert!(times > 0, "no {what} in {met:?}");
    }
}
