//! Checks that applications see nothing through a pair of gateways that they could not see over
//! plain TCP: the same scripts run over both.
//!
//! The relay, the conduit, the shell, the engine and the sessions of TCPCL are the real ones;
//! sockets, the disk and the clock are models. Each run is drawn from a seed. A failing run prints
//! its seed; [`seeds`] says how to run this seed again, or others.

mod application;
mod connection;
mod disk;
mod link;
mod node;
mod plan;
#[path = "../../../engine/tests/simulation/random.rs"]
mod random;
mod reference;
mod script;
#[path = "../../../engine/tests/simulation/seeds.rs"]
mod seeds;
mod session;
mod shared;
mod tcp;
mod verdict;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use application::{End, Seen};
use plan::{Kind, Plan};
use script::{Leave, Part, Script, Step};
use world::{Outcome, Report, World};

const SEEDS: u64 = 250;

/// A connection that ended in order this long before its node is killed is durable: the store
/// writes with a delay of a quarter of a second.
const DURABLE_AFTER: Duration = Duration::from_secs(1);

/// In virtual time, on a runtime of its own.
fn in_virtual_time<R>(run: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(run)
}

fn perform(plan: &Plan) -> Report {
    in_virtual_time(World::perform(Arc::new(plan.clone())))
}

/// Whether a killed node excuses what was seen of a connection. It does not if its custody is
/// durable and had all of the connection.
fn is_excused(plan: &Plan, outcome: &Outcome) -> bool {
    let lost = |kill: &plan::Kill| {
        let ended = outcome.ended[kill.place];
        ended.is_none_or(|at| at + DURABLE_AFTER > Duration::from_millis(kill.at))
    };
    plan.kills.iter().any(|kill| !plan.durable || lost(kill))
}

/// Runs a seed. Returns its faults.
fn faults(seed: u64) -> Vec<String> {
    let plan = Plan::of(seed);
    let report = perform(&plan);
    let plain = in_virtual_time(reference::perform(
        seed,
        &plan.scripts,
        &plan.link.blockages,
    ));
    let left = report.left.into_iter();
    let mut faults: Vec<String> = left.map(|what| format!("left: {what}")).collect();
    for (number, outcome) in report.outcomes.iter().enumerate() {
        let plain = &plain[number];
        let mut against = verdict::against(&outcome.seen, plain, is_excused(&plan, outcome));
        let hub_lives = plan.kills.iter().all(|kill| kill.place != node::HUB);
        if hub_lives && outcome.dialled > 1 {
            against.push(format!("dialled {} times", outcome.dialled));
        }
        if !against.is_empty() {
            faults.push(format!(
                "connection {number}: {}\n  {:?}\n  seen  {:?}\n{}",
                against.join("; "),
                plan.scripts[number],
                outcome.seen,
                table(plain)
            ));
        }
    }
    if !faults.is_empty() {
        let Plan {
            kind,
            durable,
            kills,
            link,
            ..
        } = &plan;
        faults.insert(
            0,
            format!("{kind:?}, durable {durable}, {kills:?}, {link:?}"),
        );
        faults.insert(0, format!("replay with UNDERPASS_SIM_SEED={seed}"));
    }
    faults
}

/// The outcomes over plain TCP, each once.
fn table(plain: &[[Seen; 2]]) -> String {
    let lines: BTreeSet<String> = plain
        .iter()
        .map(|both| format!("  plain {both:?}"))
        .collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

#[test]
fn applications_see_what_plain_tcp_shows() {
    let failed = AtomicU64::new(0);
    seeds::run_each(SEEDS, |seed| {
        let faults = faults(seed);
        if !faults.is_empty() {
            failed.fetch_add(1, Ordering::Relaxed);
            eprintln!("{}", faults.join("\n"));
        }
    });
    assert_eq!(failed.into_inner(), 0, "runs with faults");
}

#[test]
fn a_seed_runs_the_same_way_each_time() {
    for seed in 0..8 {
        let plan = Plan::of(seed);
        assert_eq!(perform(&plan), perform(&plan), "seed {seed}");
    }
}

#[test]
fn runs_meet_all_that_they_are_there_for() {
    let mut met = BTreeSet::new();
    for plan in (0..200).map(Plan::of) {
        if plan.seed > 24 && plan.kind != Kind::Killed {
            continue;
        }
        let report = perform(&plan);
        if report.between > 0 {
            met.insert("operation between effects");
        }
        for outcome in report.outcomes {
            met.extend(what_was_met(&plan, &outcome));
        }
    }
    for what in [
        "end in order",
        "reset",
        "reset after bytes",
        "write refused",
        "nothing read",
        "wait in vain",
        "no connection",
        "end in a blockage",
        "kill between end and delivery",
        "operation between effects",
    ] {
        assert!(met.contains(what), "no {what} in {met:?}");
    }
}

fn what_was_met(plan: &Plan, outcome: &Outcome) -> BTreeSet<&'static str> {
    let mut met = BTreeSet::new();
    let mut note = |what, is| {
        if is {
            met.insert(what);
        }
    };
    for seen in outcome.seen.iter().flatten() {
        note("end in order", seen.end == End::Finished);
        note("reset", seen.end == End::Reset);
        note("reset after bytes", seen.end == End::Reset && seen.read > 0);
        note("write refused", seen.refused);
        note("nothing read", seen.read == 0 && seen.end == End::NotSeen);
        note("wait in vain", seen.gave_up);
    }
    note("no connection", outcome.seen[1].is_none());
    let ms = |at: Duration| at.as_millis() as u64;
    let [near, far] = outcome.ended.map(|at| at.map(ms));
    let blocked = |at: u64| {
        let mut blockages = plan.link.blockages.iter();
        blockages.any(|blockage| (blockage.at..blockage.at + blockage.lasts).contains(&at))
    };
    note("end in a blockage", near.is_some_and(blocked));
    let excused = is_excused(plan, outcome);
    let between = |kill: &plan::Kill| {
        let [own, other] =
            [outcome.ended[kill.place], outcome.ended[1 - kill.place]].map(|at| at.map(ms));
        own < Some(kill.at) && other > Some(kill.at)
    };
    let killed = plan.kills.iter().any(between);
    note(
        "kill between end and delivery",
        killed && !excused && far.is_some(),
    );
    met
}

/// Clients send without end to origins that read nothing. The windows bound what the nodes take,
/// and it is freed with the connections. Sessions with the smallest buffers need two minutes to
/// fill the windows.
#[test]
fn readers_that_never_read_cost_their_windows_and_no_more() {
    const STREAMS: u64 = 100;
    const SENT: u64 = 4 << 20;
    let mut plan = Plan::of(0);
    assert_eq!(plan.kind, Kind::Idle);
    plan.window_bytes = 256 << 10;
    let script = Script {
        begins: 0,
        dial: 10,
        parts: [
            Part {
                steps: vec![Step::Send(SENT)],
                leave: Leave::Close,
            },
            Part {
                steps: vec![Step::Until(240_000)],
                leave: Leave::Close,
            },
        ],
    };
    plan.scripts = vec![script; STREAMS as usize];
    let report = perform(&plan);
    assert_eq!(report.left, [""; 0]);
    // Credit of the peer and a floor for each stream (docs/stream-protocol.md), and a quarter more
    // for overhead.
    let credit = (2 * plan.window_bytes + STREAMS * (64 << 10)) * 5 / 4;
    let peak = report.peak;
    assert!(peak.unread_bytes <= credit, "{peak:?}");
    assert!(peak.custody_bytes <= credit, "{peak:?}");
    let buffers = STREAMS * (64 << 10);
    assert!(peak.unsealed_bytes <= buffers, "{peak:?}");
    assert!(peak.unread_bytes > credit / 4, "{peak:?}");
}
