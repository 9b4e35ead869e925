//! Whatever is done, and whenever it ends: bundles reported safe are there, and each
//! bundle is as it was put.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use underpass_store::simulated::{Crash, Fault};

use crate::bench::{Bench, LIMITS};

#[derive(Clone, Debug)]
enum Deed {
    Put { bytes: usize, urgent: bool },
    Remove(prop::sample::Index),
    Load(prop::sample::Index),
    Pass(u64),
    Step,
    Settle,
    Crash { how: Crash, seed: u64 },
    DieAfter(u64),
    Fill(bool),
    Fail(bool),
    FailOnce(Fault),
    Deaf(u64),
}

fn crash() -> impl Strategy<Value = Crash> {
    prop_oneof![
        Just(Crash::Kill),
        Just(Crash::PowerInOrder),
        Just(Crash::PowerInAnyOrder)
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Create),
        Just(Fault::Write),
        Just(Fault::Sync),
        Just(Fault::SyncNames),
        Just(Fault::Truncate),
        Just(Fault::Delete),
    ]
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => (0usize..2000, any::<bool>()).prop_map(|(bytes, urgent)| Deed::Put { bytes, urgent }),
        6 => any::<prop::sample::Index>().prop_map(Deed::Remove),
        2 => any::<prop::sample::Index>().prop_map(Deed::Load),
        2 => (0u64..400).prop_map(Deed::Pass),
        6 => Just(Deed::Step),
        2 => Just(Deed::Settle),
        1 => (crash(), any::<u64>()).prop_map(|(how, seed)| Deed::Crash { how, seed }),
        1 => (0u64..6000).prop_map(Deed::DieAfter),
        1 => any::<bool>().prop_map(Deed::Fill),
        1 => any::<bool>().prop_map(Deed::Fail),
        2 => fault().prop_map(Deed::FailOnce),
    ]
}

/// Operations by several shards, some of which do not listen for a while.
fn deed_of_shards() -> impl Strategy<Value = Deed> {
    prop_oneof![
        16 => deed(),
        1 => (0u64..16).prop_map(Deed::Deaf),
    ]
}

fn choose(bench: &Bench, index: &prop::sample::Index) -> Option<u64> {
    let kept: Vec<u64> = bench.kept.iter().copied().collect();
    (!kept.is_empty()).then(|| *index.get(&kept))
}

fn perform(bench: &mut Bench, deed: &Deed) {
    match deed {
        Deed::Put { bytes, urgent } => drop(bench.put(*bytes, *urgent)),
        Deed::Remove(index) => {
            if let Some(id) = choose(bench, index) {
                bench.remove(id);
            }
        }
        Deed::Load(index) => {
            if let Some(id) = choose(bench, index) {
                let payload = bench.load(id);
                assert_eq!(payload.as_ref(), Some(&bench.put[&id].payload));
            }
        }
        Deed::Pass(ms) => bench.pass(Duration::from_millis(*ms)),
        Deed::Step => drop(bench.step()),
        Deed::Settle => bench.settle(),
        Deed::Crash { how, seed } => end(bench, *how, *seed),
        Deed::DieAfter(bytes) => bench.disk.die_after(*bytes),
        Deed::Fill(full) => {
            let used = bench.disk.used_bytes();
            bench.disk.set_capacity(full.then_some(used + 500));
        }
        Deed::Fail(broken) => bench.disk.set_broken(*broken),
        Deed::FailOnce(fault) => bench.disk.fail(*fault, 1),
        Deed::Deaf(shards) => bench.deaf = *shards,
    }
}

/// The node ends and starts again, with any number of shards if it had several; checks
/// what it restores.
fn end(bench: &mut Bench, how: Crash, seed: u64) {
    bench.disk.set_capacity(None);
    bench.disk.set_broken(false);
    let safe = bench.committed.clone();
    let shards = bench.stores.len();
    let owner: BTreeMap<u64, usize> = bench
        .kept
        .iter()
        .map(|id| (*id, bench.owner(*id)))
        .collect();
    if bench.changes_shards {
        bench.shards = 1 + seed as usize % 4;
    }
    bench.crash(how, seed, Duration::from_secs(3));
    let restored = bench.restored_ids();
    for id in &safe {
        assert!(restored.contains(id), "{id} was safe");
    }
    if how != Crash::PowerInAnyOrder {
        // The durable part of this node's own bundles is a prefix of what a shard sealed,
        // except for released ones.
        for shard in 0..shards {
            let own = bench.kept.iter().filter(|id| !bench.put[id].urgent);
            let own: Vec<u64> = own.copied().filter(|id| owner[id] == shard).collect();
            let durable = own.iter().take_while(|id| restored.contains(id)).count();
            assert!(own[durable..].iter().all(|id| !restored.contains(id)));
        }
    }
    for found in bench.restored.clone() {
        let id = found.id.0;
        let put = bench.put[&id].clone();
        assert_eq!(found.record, put.record);
        assert_eq!(found.payload_bytes, put.payload.len() as u64);
        assert_eq!(bench.load(id), Some(put.payload), "payload of {id}");
        bench.kept.insert(id);
        bench.committed.insert(id);
    }
    bench.kept.retain(|id| restored.contains(id));
}

/// A store that has written bundles of these sizes, urgent or not, and then has released
/// some.
fn written(mut bench: Bench, sizes: Vec<(usize, bool)>, released: &[prop::sample::Index]) -> Bench {
    for (bytes, urgent) in sizes {
        bench.put(bytes, urgent);
        bench.step();
    }
    for index in released {
        if let Some(id) = choose(&bench, index) {
            bench.remove(id);
        }
    }
    bench.pass(Duration::from_secs(1));
    bench.settle();
    bench
}

/// Three shards of a node that starts again with another number of shards.
fn three_shards() -> Bench {
    let mut bench = Bench::sharded(LIMITS, 3);
    bench.changes_shards = true;
    bench
}

fn survives_any_end(mut bench: Bench, deeds: &[Deed], how: Crash, seed: u64) {
    for deed in deeds {
        perform(&mut bench, deed);
    }
    end(&mut bench, how, seed);
    assert!(bench.lost.is_empty());
    // Released bundles free their room.
    for id in bench.kept.clone() {
        bench.remove(id);
    }
    bench.settle();
    let left = bench.disk.used_bytes();
    assert!(left <= 2 * LIMITS.segment_bytes, "{left} bytes of nothing");
}

fn stays_released(mut bench: Bench, deeds: &[Deed], how: Crash, seed: u64) {
    for deed in deeds {
        perform(&mut bench, deed);
    }
    if bench.disk.is_dying() {
        end(&mut bench, Crash::Kill, seed);
    }
    bench.disk.set_capacity(None);
    bench.disk.set_broken(false);
    bench.recover();
    bench.put(10, true);
    bench.pass(LIMITS.write_behind);
    bench.recover();
    bench.crash(how, seed, Duration::ZERO);
    assert_eq!(bench.restored_ids(), bench.kept);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_was_told_to_be_safe_survives_any_end(
        deeds in prop::collection::vec(deed(), 1..120),
        how in crash(),
        seed in any::<u64>(),
    ) {
        survives_any_end(Bench::new(LIMITS), &deeds, how, seed);
    }

    #[test]
    fn what_shards_were_told_to_be_safe_survives_any_end(
        deeds in prop::collection::vec(deed_of_shards(), 1..120),
        how in crash(),
        seed in any::<u64>(),
    ) {
        survives_any_end(three_shards(), &deeds, how, seed);
    }

    #[test]
    fn what_is_released_stays_so_once_a_later_bundle_is_safe(
        deeds in prop::collection::vec(deed(), 1..120),
        how in crash(),
        seed in any::<u64>(),
    ) {
        stays_released(Bench::new(LIMITS), &deeds, how, seed);
    }

    #[test]
    fn what_shards_release_stays_so_once_a_later_bundle_is_safe(
        deeds in prop::collection::vec(deed_of_shards(), 1..120),
        how in crash(),
        seed in any::<u64>(),
    ) {
        stays_released(three_shards(), &deeds, how, seed);
    }

    #[test]
    fn an_unreadable_sector_costs_what_is_in_it_and_is_found(
        sizes in prop::collection::vec((600usize..1500, any::<bool>()), 1..60),
        released in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        place in any::<prop::sample::Index>(),
        how in prop::option::of(crash()),
        seed in any::<u64>(),
        shards in 1usize..4,
    ) {
        let mut bench = written(Bench::sharded(LIMITS, shards), sizes, &released);
        let sectors = bench.disk.sectors();
        let sectors = sectors.iter().flat_map(|(n, count)| (0..*count).map(|s| (*n, s)));
        let sectors: Vec<(u64, usize)> = sectors.collect();
        prop_assume!(!sectors.is_empty());
        let (segment, sector) = *place.get(&sectors);
        bench.disk.spoil(segment, sector);
        let kept = bench.kept.clone();
        if let Some(how) = how {
            bench.crash(how, seed, Duration::ZERO);
            bench.kept = bench.restored_ids();
        }
        let missing = kept.difference(&bench.kept).count();
        for id in bench.kept.clone() {
            let expected = bench.put[&id].payload.clone();
            let loaded = bench.load_or_lose(id);
            prop_assert!(loaded.is_none_or(|payload| payload == expected));
        }
        // Segments are emptied in the background.
        for _ in 0..200 {
            bench.step();
        }
        let lost = bench.lost.len();
        prop_assert!(missing + lost <= 2, "{missing} missing, {lost} lost");
        prop_assert!(missing == 0 || !bench.report.damaged.is_empty());
        // No bundle remains in a segment that could not be read.
        let left = bench.disk.sectors();
        let emptied = left.iter().all(|(number, _)| *number != segment);
        prop_assert!(emptied || missing + lost == 0);
        let kept = bench.kept.clone();
        bench.crash(Crash::Kill, seed, Duration::ZERO);
        // Payloads that were in memory all the time have not been read before.
        let late = kept.difference(&bench.restored_ids()).count();
        prop_assert!(missing + lost + late <= 2, "and {late} later");
    }

    #[test]
    fn a_flipped_bit_costs_one_bundle_at_most_and_is_found(
        sizes in prop::collection::vec((0usize..1500, any::<bool>()), 1..40),
        released in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        seed in any::<u64>(),
        kill in any::<bool>(),
        shards in 1usize..4,
    ) {
        let mut bench = written(Bench::sharded(LIMITS, shards), sizes, &released);
        let kept = bench.kept.clone();
        prop_assume!(bench.disk.flip(seed));
        let how = if kill { Crash::Kill } else { Crash::PowerInOrder };
        bench.crash(how, seed, Duration::ZERO);
        let restored = bench.restored_ids();
        bench.kept.extend(&restored);
        // The background reader finds what the start has not read.
        for _ in 0..100 {
            bench.step();
        }
        let missing = kept.difference(&restored).count();
        let lost = kept.intersection(&bench.lost).count();
        prop_assert!(missing + lost <= 1, "{missing} missing, {lost} lost");
        prop_assert!(missing == 0 || !bench.report.damaged.is_empty());
        for id in restored.difference(&bench.lost.clone()) {
            let expected = bench.put[id].payload.clone();
            prop_assert_eq!(bench.load(*id), Some(expected));
        }
        // The loss is reported only once.
        bench.crash(Crash::Kill, seed, Duration::ZERO);
        let again: Vec<_> = bench.report.damaged.iter().filter(|d| d.at > 0).collect();
        prop_assert!(again.is_empty(), "{again:?}");
    }
}
