//! A week of virtual time: a hub and a hundred terminals that join and leave, renew their
//! sessions, restart and are blocked, with short streams in both directions. Whenever
//! everything has ended, entries, files and memory are as they were at the start.

mod fates;
mod nodes;
#[path = "../simulation/random.rs"]
mod random;
mod sessions;
mod streams;
mod world;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fates::Rates;
use world::World;

/// Counts the bytes that are allocated and not freed.
struct Counting;

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

const SEED: u64 = 1;
const TERMINALS: usize = 100;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Mean interval between streams of the whole network; the time that the run takes is
/// proportional to what is sent.
const EXCHANGE_EVERY: Duration = Duration::from_secs(25);

/// Memory may grow by this part (1/n), plus this many bytes: tables keep the capacity
/// that they had at their fullest.
const GROWTH_PART: i64 = 50;
const GROWTH_BYTES: i64 = 256 << 10;
/// Segments that the store leaves on disk when nothing is in custody: garbage of four
/// segments, the one that is being written, and one that is only needed since its records
/// void others.
const MOST_SEGMENTS: usize = 6;
/// Entries that may differ between two rests, by less than half and by one for each
/// terminal: the names of the last streams' bundles, the contents of the segments that
/// are being written, whose turn it would be after a repetition, and which streams have
/// continued with a peer's next run.
const VARYING: [&str; 16] = [
    "classes where bundles went again",
    "deleted segments",
    "epochs of opened streams",
    "ids in segments",
    "index bytes of the active segment",
    "neighbours with remembered names",
    "ranges of closed streams",
    "records voided",
    "remembered names",
    "remembered names by age",
    "remembered ranges",
    "segments",
    "segments by part",
    "segments that void",
    "segments voided",
    "unsynced releases",
];

/// The state when all streams have ended and nothing is in custody.
struct Rest {
    entries: BTreeMap<&'static str, usize>,
    /// Without the disks, which are in memory here.
    live_bytes: i64,
}

fn rest(world: &mut World) -> Rest {
    world.check_drained();
    let disks = world.check_disks(MOST_SEGMENTS);
    let live_bytes = LIVE_BYTES.load(Ordering::Relaxed) - disks as i64;
    Rest {
        entries: world.entries(),
        live_bytes,
    }
}

fn assert_same(what: &str, before: &Rest, after: &Rest) {
    let names = before.entries.keys().chain(after.entries.keys());
    let differ = names.filter_map(|name| {
        let of = |rest: &Rest| rest.entries.get(name).copied().unwrap_or(0);
        let (was, is) = (of(before), of(after));
        let most = match VARYING.contains(name) {
            true => was * 3 / 2 + TERMINALS,
            false => was,
        };
        (is > most).then(|| format!("{name}: {was}, then {is}"))
    });
    let differ: BTreeSet<String> = differ.collect();
    assert!(differ.is_empty(), "{what}: more entries: {differ:#?}");
}

#[test]
fn nothing_is_left_of_a_week_of_churn() {
    let mut world = World::new(SEED, TERMINALS);
    world.calm_until(HOUR / 2);
    world.exchange_with_all();
    world.calm_until(HOUR);
    let start = rest(&mut world);

    let rates = Rates {
        exchange: EXCHANGE_EVERY,
        ..Rates::default()
    };
    let mut days = Vec::new();
    for day in 1..=7 {
        world.churn_until(rates, DAY * day - 6 * HOUR);
        world.settle_until(DAY * day - HOUR / 2);
        world.exchange_with_all();
        world.calm_until(DAY * day);
        let rest = rest(&mut world);
        assert_same(&format!("day {day}"), &start, &rest);
        days.push(rest.live_bytes);
    }
    eprintln!("live bytes each day {days:?}; met {:?}", world.met);
    let most = days[0] + days[0] / GROWTH_PART + GROWTH_BYTES;
    assert!(days[6] <= most, "memory grows from day to day: {days:?}");
    for what in [
        "closed",
        "reset",
        "left",
        "joined",
        "restarted",
        "hub restarted",
        "renewed",
        "blocked",
        "broken",
    ] {
        assert!(world.met.contains_key(what), "no {what}: {:?}", world.met);
    }
}
