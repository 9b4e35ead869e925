//! Whole networks of engines in virtual time: terminals, a relay and a hub, with
//! applications at both ends, over links whose sessions break, stall, refuse and come
//! back. Each run is drawn from a seed.
//!
//! A failing run prints its seed; [`seeds`] says how to run it again, or others.

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
mod seeds;
mod sessions;
mod streams;
mod upgrades;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use schedule::Schedule;
use world::World;

const SEEDS: u64 = 10_000;

fn run(seed: u64) -> World {
    let mut world = World::new(Schedule::of(seed));
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = outcome {
        eprintln!("replay with UNDERPASS_SIM_SEED={seed} (at {:?})", world.now);
        resume_unwind(panic);
    }
    world
}

/// Events that the schedules must produce.
const TO_MEET: &[&str] = &[
    "operator",
    "plan",
    "probing",
    "contradiction",
    "return",
    "takeover",
    "resumption",
    "stall",
    "restored message",
    "upgrade",
    "upgrade put off",
    "plan pushed",
    "plan begun",
    "plan over",
    "passed",
    "outlived",
    "duplicate",
    "reordered",
    "lost",
    "torn write",
    "flipped bit",
    "sector lost",
    "sector overtaken",
    "name lost",
];

#[test]
fn streams_are_exact_or_reset_whatever_links_and_nodes_do() {
    let met = Mutex::new(BTreeMap::<&str, u64>::new());
    let all = seeds::run_each(SEEDS, |seed| {
        let of_run = run(seed).met;
        let mut met = met.lock().unwrap();
        for (what, times) in of_run {
            *met.entry(what).or_default() += times;
        }
    });
    let met = met.into_inner().unwrap();
    println!("met {met:?}");
    for what in TO_MEET {
        let times = met.get(what).copied().unwrap_or(0);
        assert!(times > 0 || !all, "no {what} in {met:?}");
    }
}

#[test]
fn a_seed_runs_the_same_way_each_time() {
    for seed in 0..20 {
        assert_eq!(run(seed).trace, run(seed).trace, "seed {seed}");
    }
}
