//! Stores of several shards over one disk.

use std::time::Duration;

use proptest::prelude::*;
use underpass_bundle::{BundleId, Payload, Store};
use underpass_store::Limits;
use underpass_store::simulated::Crash;

use crate::bench::{Bench, LIMITS};

/// The most bytes that the worker writes or reads in one step.
const GROUP_BYTES: usize = 8 << 20;
const LARGE: Limits = Limits {
    segment_bytes: 64 << 20,
    memory_bytes: 256 << 20,
    ..LIMITS
};
/// The size of the largest bundle where memory is scarce.
const MOST_BYTES: usize = 2000;

#[test]
fn one_commit_makes_the_bundles_of_all_shards_durable() {
    let mut bench = Bench::sharded(LIMITS, 3);
    let ids: Vec<u64> = (0..9).map(|n| bench.put_in(n % 3, 300, true)).collect();
    bench.step();
    assert!(ids.iter().all(|id| bench.committed.contains(id)));
    assert_eq!(bench.worker.figures().commits, 1);
    assert_eq!(bench.worker.figures().committed_bundles, 9);
}

#[test]
fn only_the_shard_of_a_bundle_is_notified_of_it() {
    let mut bench = Bench::sharded(LIMITS, 3);
    let id = bench.put_in(1, 300, true);
    bench.settle();
    let notified: Vec<u64> = (0..3).map(|shard| bench.notified(shard)).collect();
    assert_eq!(notified, [0, 1, 0]);
    bench.reopen(false, Duration::ZERO);
    assert!(bench.load(id).is_some());
    let notified: Vec<u64> = (0..3).map(|shard| bench.notified(shard)).collect();
    assert_eq!(notified, [0, 1, 0]);
}

#[test]
fn an_urgent_put_waits_for_no_more_than_a_group_of_another_shard() {
    let mut bench = Bench::sharded(LARGE, 3);
    for _ in 0..300 {
        bench.put_in(0, 100 << 10, true);
    }
    bench.step();
    let urgent = bench.put_in(1, 1000, true);
    bench.step();
    assert!(bench.committed.contains(&urgent));
    assert!(bench.committed.len() * (100 << 10) < 3 * GROUP_BYTES);
    bench.settle();
    assert_eq!(bench.committed.len(), 301);
}

#[test]
fn a_read_waits_for_no_more_than_a_group_of_another_shard() {
    let mut bench = Bench::sharded(LARGE, 3);
    let many: Vec<u64> = (0..300).map(|_| bench.put_in(0, 100 << 10, true)).collect();
    let wanted = bench.put_in(2, 1000, true);
    bench.settle();
    bench.reopen(false, Duration::ZERO);
    for id in &many {
        assert!(matches!(bench.ask(*id), Payload::Coming));
    }
    bench.step();
    assert!(matches!(bench.ask(wanted), Payload::Coming));
    bench.step();
    assert!(matches!(bench.ask(wanted), Payload::Here(_)));
    let loaded = bench.worker.figures().loaded_bundles as usize;
    assert!(loaded * (100 << 10) < 3 * GROUP_BYTES, "{loaded} read");
    bench.settle();
    assert_eq!(bench.worker.figures().loaded_bundles, 301);
}

#[test]
fn reads_do_not_wait_for_a_disk_that_cannot_be_written() {
    let mut bench = Bench::sharded(LARGE, 2);
    let many: Vec<u64> = (0..300).map(|_| bench.put_in(0, 100 << 10, true)).collect();
    bench.settle();
    bench.reopen(false, Duration::ZERO);
    bench.disk.set_broken(true);
    bench.put_in(1, 1000, true);
    bench.step();
    for id in &many {
        assert!(matches!(bench.ask(*id), Payload::Coming));
    }
    bench.settle();
    assert_eq!(bench.worker.figures().loaded_bundles, 300);
}

#[test]
fn a_full_disk_stalls_all_shards_and_all_hear_when_it_resumes() {
    let mut bench = Bench::sharded(LIMITS, 3);
    let first: Vec<u64> = (0..5).map(|_| bench.put_in(0, 1000, true)).collect();
    bench.settle();
    bench.disk.set_capacity(Some(bench.disk.used_bytes() + 600));
    let late: Vec<u64> = (0..5).map(|_| bench.put_in(1, 1000, true)).collect();
    bench.settle();
    assert_eq!(bench.stalls, [[true], [true], [true]]);
    assert!(bench.stores.iter().all(|store| store.free_bytes() == 0));
    assert!(bench.worker.figures().stalled.is_some());
    for id in first {
        bench.remove(id);
    }
    bench.settle();
    bench.settle();
    assert_eq!(bench.stalls, [[true, false], [true, false], [true, false]]);
    assert!(
        bench
            .stores
            .iter()
            .all(|store| store.free_bytes() == u64::MAX)
    );
    assert!(late.iter().all(|id| bench.committed.contains(id)));
    assert_eq!(bench.worker.figures().stalled, None);
}

#[test]
fn damage_that_nobody_asked_for_is_told_to_the_shard_of_its_bundle() {
    for shard in 0..3 {
        let mut bench = Bench::sharded(LIMITS, 3);
        let ids: Vec<u64> = (0..12).map(|n| bench.put_in(n % 3, 900, true)).collect();
        bench.settle();
        // The first start seals the segment, the second reads its index.
        bench.crash(Crash::Kill, 0, Duration::ZERO);
        bench.crash(Crash::Kill, 0, Duration::ZERO);
        let victim = ids[3 + shard];
        assert!(
            bench
                .disk
                .flip_in(&bench.put[&victim].payload.slice(300..340))
        );
        for _ in 0..50 {
            bench.step();
        }
        // Wherever the bench listens, it checks that the bundle is the shard's own.
        assert_eq!(bench.lost, [victim].into());
    }
}

/// Puts as much into a shard as it has room for.
fn fill(bench: &mut Bench, shard: usize, urgent: bool) -> u64 {
    let mut filled = 0;
    loop {
        let free = usize::try_from(bench.stores[shard].free_bytes()).unwrap_or(usize::MAX);
        match free.min(100) {
            0 => return filled,
            bytes => {
                bench.put_in(shard, bytes, urgent);
                filled += bytes as u64;
            }
        }
    }
}

#[test]
fn a_lone_busy_shard_has_most_of_the_memory_and_leaves_the_others_their_part() {
    let mut bench = Bench::sharded(LIMITS, 4);
    let memory = LIMITS.memory_bytes;
    assert_eq!(fill(&mut bench, 0, true), memory / 4 * 3);
    for shard in 1..4 {
        assert_eq!(fill(&mut bench, shard, true), memory / 16);
        // This is enough for a caller that waits for an eighth of its burst.
        assert!(memory / 16 > bench.stores[shard].burst_bytes() / 8);
    }
    assert_eq!(bench.worker.figures().uncommitted_bytes, memory / 16 * 15);
    bench.settle();
    assert_eq!(bench.worker.figures().uncommitted_bytes, 0);
}

#[test]
fn memory_that_one_shard_gives_back_is_told_to_one_that_was_refused_some() {
    for removed in [true, false] {
        let mut bench = Bench::sharded(LIMITS, 3);
        fill(&mut bench, 0, true);
        fill(&mut bench, 1, true);
        assert_eq!(bench.stores[1].free_bytes(), 0);
        let before = bench.notified(1);
        let own = bench.kept.iter().filter(|id| bench.owner(**id) == 0);
        let ids: Vec<u64> = own.copied().collect();
        if removed {
            ids.iter().for_each(|id| bench.remove(*id));
        } else {
            // The second shard hears nothing about its own bundles.
            bench.deaf = 1 << 1;
            bench.worker.step(true);
            assert!(bench.notified(1) > before, "its bundles are written");
            let before = bench.notified(1);
            bench.listen();
            assert!(bench.notified(1) > before, "there is room");
            continue;
        }
        assert!(bench.notified(1) > before, "there is room");
        assert!(bench.stores[1].free_bytes() > 100);
    }
}

#[test]
fn what_many_shards_write_behind_goes_to_the_disk_before_memory_is_full() {
    let mut bench = Bench::sharded(LIMITS, 4);
    for round in 0..80 {
        bench.put_in(round % 4, 100, false);
        bench.step();
    }
    let figures = bench.worker.figures();
    assert!(figures.committed_bundles > 0, "{figures:?}");
    assert!(bench.stores.iter().all(|store| store.free_bytes() > 100));
}

#[test]
fn a_shard_whose_payloads_fill_memory_leaves_the_others_room_to_read_ahead() {
    let limits = Limits {
        memory_bytes: 1 << 20,
        ..LIMITS
    };
    let mut bench = Bench::sharded(limits, 4);
    let others: Vec<u64> = (0..4).map(|_| bench.put_in(1, 1000, true)).collect();
    bench.settle();
    bench.reopen(false, Duration::ZERO);
    for _ in 0..100 {
        bench.put_in(0, 4000, true);
        bench.settle();
    }
    for id in &others {
        bench.stores[1].expect(BundleId(*id));
    }
    bench.settle();
    let here = |id: &u64| matches!(bench.ask(*id), Payload::Here(_));
    assert!(others.iter().all(here));
}

#[test]
fn what_all_shards_know_of_bundles_leaves_less_memory_to_the_payloads_of_each() {
    let limits = Limits {
        memory_bytes: 1 << 20,
        ..LIMITS
    };
    let mut bench = Bench::sharded(limits, 2);
    for round in 0..256 {
        bench.put_in(round % 2, 4000, true);
        bench.settle();
    }
    // A quarter of 1 MiB, less half a KiB for each of 256 bundles.
    let resident = bench.worker.figures().resident_bytes;
    assert!((64 << 10..=128 << 10).contains(&resident), "{resident}");
}

#[derive(Clone, Debug)]
enum Deed {
    Put {
        shard: usize,
        bytes: usize,
        urgent: bool,
    },
    Remove(prop::sample::Index),
    Ask(prop::sample::Index),
    Expect(prop::sample::Index),
    Pass(u64),
    Step,
    Deaf(u64),
}

fn deed() -> impl Strategy<Value = Deed> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => (0usize..3, 0..MOST_BYTES, any::<bool>())
            .prop_map(|(shard, bytes, urgent)| Deed::Put { shard, bytes, urgent }),
        2 => index().prop_map(Deed::Remove),
        3 => index().prop_map(Deed::Ask),
        3 => index().prop_map(Deed::Expect),
        1 => (0u64..400).prop_map(Deed::Pass),
        3 => Just(Deed::Step),
        1 => (0u64..8).prop_map(Deed::Deaf),
    ]
}

fn perform(bench: &mut Bench, deed: &Deed) {
    let kept: Vec<u64> = bench.kept.iter().copied().collect();
    let choose = |index: &prop::sample::Index| (!kept.is_empty()).then(|| *index.get(&kept));
    match deed {
        Deed::Put {
            shard,
            bytes,
            urgent,
        } => {
            if bench.stores[*shard].free_bytes() >= *bytes as u64 {
                bench.put_in(*shard, *bytes, *urgent);
            }
        }
        Deed::Remove(index) => choose(index).into_iter().for_each(|id| bench.remove(id)),
        Deed::Ask(index) => choose(index).into_iter().for_each(|id| drop(bench.ask(id))),
        Deed::Expect(index) => {
            if let Some(id) = choose(index) {
                let shard = bench.owner(id);
                bench.stores[shard].expect(BundleId(id));
            }
        }
        Deed::Pass(ms) => bench.pass(Duration::from_millis(*ms)),
        Deed::Step => drop(bench.step()),
        Deed::Deaf(shards) => bench.deaf = *shards,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn memory_is_bounded_over_all_shards_together(
        deeds in prop::collection::vec(deed(), 1..200),
    ) {
        let mut bench = Bench::sharded(LIMITS, 3);
        for deed in &deeds {
            perform(&mut bench, deed);
            let figures = bench.worker.figures();
            prop_assert!(figures.uncommitted_bytes <= LIMITS.memory_bytes, "{figures:?}");
            // And the last payload of each shard, which stays.
            let most = LIMITS.memory_bytes / 4 + 3 * MOST_BYTES as u64;
            prop_assert!(figures.resident_bytes <= most, "{figures:?}");
        }
        bench.pass(Duration::from_secs(1));
        bench.settle();
        let own = |store: &dyn Store, name: &str| {
            let mut bytes = 0;
            store.footprint(&mut |found, count| {
                if found == name {
                    bytes += count;
                }
            });
            bytes
        };
        let bundles = bench.stores.iter().map(|store| own(store, "stored bundles"));
        prop_assert_eq!(bundles.sum::<usize>(), bench.kept.len());
        prop_assert_eq!(bench.worker.figures().uncommitted_bytes, 0);
        for store in &bench.stores {
            prop_assert_eq!(own(store, "bytes not committed"), 0);
            prop_assert_eq!(store.free_bytes(), u64::MAX);
        }
        // Room that all shards give back belongs to no shard.
        for id in bench.kept.clone() {
            bench.remove(id);
        }
        prop_assert_eq!(bench.worker.figures().resident_bytes, 0);
    }
}
