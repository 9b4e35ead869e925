//! A disk that partly fails.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use underpass_bundle::{BundleId, DurableRecord, Store, StoreEvent};
use underpass_store::Limits;
use underpass_store::simulated::{Crash, Fault};

use crate::bench::{Bench, LIMITS};

const AFTER_POWER: [Crash; 2] = [Crash::PowerInOrder, Crash::PowerInAnyOrder];

/// Some segments with bundles and releases; the last one is not sealed.
fn filled() -> Bench {
    let mut bench = Bench::new(LIMITS);
    for number in 0..60 {
        bench.put(700 + number * 7, true);
        bench.settle();
        if number % 6 == 3 {
            bench.remove(bench.next_id - 2);
            bench.settle();
        }
    }
    bench
}

fn segments(bench: &Bench) -> BTreeSet<u64> {
    bench.disk.sectors().into_iter().map(|(n, _)| n).collect()
}

/// Reads all bundles in custody, so that the store finds those that it cannot read.
fn read_all(bench: &mut Bench) {
    for id in bench.kept.clone() {
        let loaded = bench.load_or_lose(id);
        if let Some(payload) = loaded {
            assert_eq!(payload, bench.put[&id].payload, "payload of {id}");
        }
    }
    bench.recover();
}

#[test]
fn an_unreadable_sector_found_at_the_start_costs_the_bundles_in_it() {
    let reference = filled();
    let sectors = reference.disk.sectors();
    assert!(sectors.len() >= 3, "{sectors:?}");
    let mut cost = 0;
    for (segment, sector) in sectors
        .iter()
        .flat_map(|(n, count)| (0..*count).map(|s| (*n, s)))
    {
        let mut bench = filled();
        let kept = bench.kept.clone();
        bench.disk.spoil(segment, sector);
        bench.crash(Crash::Kill, 0, Duration::ZERO);
        let place = format!("sector {sector} of segment {segment}");
        let restored = bench.restored_ids();
        let missing = kept.difference(&restored).count();
        // Bundles whose release was in it come back; the next custodian knows them.
        let again = restored.difference(&kept).count();
        assert!(again <= 2, "{place}: {again} released ones are back");
        bench.kept.extend(&restored);
        bench.kept.retain(|id| restored.contains(id));
        read_all(&mut bench);
        let lost = kept.intersection(&bench.lost).count();
        assert!(
            missing + lost <= 2,
            "{place}: {missing} missing, {lost} lost"
        );
        assert_eq!(
            bench.worker.figures().lost_bundles as usize,
            bench.lost.len()
        );
        assert!(
            missing == 0 || !bench.report.damaged.is_empty(),
            "{place} is not told"
        );
        cost += missing + lost;
        // The rest is moved to other segments.
        for _ in 0..5 {
            bench.put(900, true);
            bench.settle();
        }
        if missing + lost > 0 {
            assert!(
                !segments(&bench).contains(&segment),
                "{place} is still used"
            );
        }
        let left = bench.kept.clone();
        bench.crash(Crash::PowerInOrder, 1, Duration::ZERO);
        assert!(
            left.is_subset(&bench.restored_ids()),
            "{place}: evacuation has lost some"
        );
    }
    assert!(cost > sectors.len(), "nothing was ever in a sector");
}

#[test]
fn an_unreadable_sector_found_at_run_time_costs_the_bundles_in_it() {
    let mut bench = filled();
    let victim = 10;
    let middle = bench.put[&victim].payload.slice(300..340);
    let segment = bench.disk.spoil_in(&middle).expect("it is on the disk");
    let before = bench.kept.clone();
    read_all(&mut bench);
    assert_eq!(bench.lost, [victim].into());
    assert_eq!(bench.worker.figures().lost_bundles, 1);
    assert_eq!(bench.worker.figures().failed_segments, 1);
    assert!(!segments(&bench).contains(&segment), "evacuated");
    bench.crash(Crash::PowerInAnyOrder, 4, Duration::ZERO);
    let expected: BTreeSet<u64> = before.difference(&[victim].into()).copied().collect();
    assert_eq!(bench.restored_ids(), expected);
}

#[test]
fn a_loss_that_a_failed_step_of_compaction_has_found_is_told_all_the_same() {
    let mut bench = filled();
    let before = bench.kept.clone();
    // A bundle that cannot be read makes the store empty its segment, which also has a
    // bundle that is damaged.
    let (unreadable, damaged) = (10, 3);
    let middle = |bench: &Bench, id: u64| bench.put[&id].payload.slice(300..340);
    let segment = bench.disk.spoil_in(&middle(&bench, unreadable));
    assert!(segment.is_some() && bench.disk.flip_in(&middle(&bench, damaged)));
    bench.disk.fail(Fault::Sync, 2);
    let _ = bench.ask(unreadable);
    bench.recover();
    let lost = BTreeSet::from([unreadable, damaged]);
    assert_eq!(bench.lost, lost);
    assert_eq!(bench.worker.figures().lost_bundles, 2);
    bench.crash(Crash::PowerInAnyOrder, 4, Duration::ZERO);
    let expected: BTreeSet<u64> = before.difference(&lost).copied().collect();
    assert_eq!(bench.restored_ids(), expected);
}

#[test]
fn a_sector_that_fails_in_the_segment_that_is_written_ends_it() {
    let mut bench = Bench::new(LIMITS);
    let ids: Vec<u64> = (0..10).map(|_| bench.put(900, true)).collect();
    bench.settle();
    let active = *segments(&bench).last().unwrap();
    let last = bench.put[&ids[9]].payload.slice(..40);
    assert_eq!(bench.disk.spoil_in(&last), Some(active));
    // The newest payload leaves memory first.
    read_all(&mut bench);
    let next = bench.put(900, true);
    bench.settle();
    assert!(!segments(&bench).contains(&active));
    bench.crash(Crash::Kill, 0, Duration::ZERO);
    let restored = bench.restored_ids();
    assert!(restored.contains(&next));
    assert_eq!(restored.len() + bench.lost.len(), 11);
}

#[test]
fn a_read_that_fails_for_a_moment_costs_nothing() {
    let mut bench = filled();
    let victim = 10;
    let middle = bench.put[&victim].payload.slice(300..340);
    bench.disk.spoil_in(&middle).expect("it is on the disk");
    let _ = bench.stores[0].payload(BundleId(victim));
    bench.step();
    bench.disk.mend();
    bench.settle();
    assert_eq!(bench.load(victim), Some(bench.put[&victim].payload.clone()));
    assert!(bench.lost.is_empty());
}

#[test]
fn nothing_counts_as_lost_while_the_whole_disk_fails() {
    let mut bench = filled();
    let victim = 10;
    let middle = bench.put[&victim].payload.slice(300..340);
    bench.disk.spoil_in(&middle).expect("it is on the disk");
    bench.disk.set_broken(true);
    bench.put(100, true);
    let _ = bench.stores[0].payload(BundleId(victim));
    for _ in 0..20 {
        bench.step();
    }
    assert!(bench.lost.is_empty());
    bench.disk.set_broken(false);
    bench.disk.mend();
    bench.settle();
    assert_eq!(bench.load(victim), Some(bench.put[&victim].payload.clone()));
}

#[test]
fn what_a_failed_sync_may_have_lost_is_written_again_elsewhere() {
    for (seed, how) in AFTER_POWER.into_iter().cycle().enumerate().take(40) {
        let mut bench = Bench::new(LIMITS);
        let first = bench.put(500, true);
        bench.settle();
        let released = bench.put(500, true);
        bench.settle();
        bench.remove(released);
        bench.settle();
        let before = segments(&bench);
        bench.disk.fail(Fault::Sync, 1 + seed as u64 % 3);
        let late = bench.put(500, true);
        bench.step();
        assert!(!bench.committed.contains(&late));
        bench.recover();
        assert!(bench.committed.contains(&late));
        assert!(segments(&bench).len() > before.len(), "the same file");
        bench.crash(how, seed as u64, Duration::ZERO);
        assert_eq!(bench.restored_ids(), [first, late].into(), "{how:?} {seed}");
        assert!(bench.report.damaged.is_empty());
    }
}

#[test]
fn a_segment_whose_name_may_be_lost_is_made_under_another() {
    for fault in [Fault::SyncNames, Fault::Create] {
        for (seed, how) in AFTER_POWER.into_iter().cycle().enumerate().take(20) {
            let mut bench = Bench::new(LIMITS);
            bench.disk.fail(fault, 1 + seed as u64 % 4);
            let id = bench.put(500, true);
            bench.step();
            assert!(!bench.committed.contains(&id));
            bench.recover();
            assert!(
                bench.committed.contains(&id),
                "{fault:?}: it never works again"
            );
            bench.crash(how, seed as u64, Duration::ZERO);
            assert_eq!(
                bench.restored_ids(),
                [id].into(),
                "{fault:?} {how:?} {seed}"
            );
            assert!(bench.report.damaged.is_empty());
        }
    }
}

#[test]
fn what_is_released_stays_so_though_its_deletion_may_be_undone() {
    for fault in [Fault::SyncNames, Fault::Delete] {
        for (seed, how) in AFTER_POWER.into_iter().cycle().enumerate().take(40) {
            let mut bench = filled();
            let old: Vec<u64> = bench.kept.iter().copied().collect();
            bench.disk.fail(fault, 1 + seed as u64 % 3);
            for id in old {
                bench.remove(id);
                bench.step();
            }
            // The segments with the releases are deleted in the end.
            for _ in 0..40 {
                let id = bench.put(900, true);
                bench.step();
                bench.remove(id);
                bench.step();
            }
            let id = bench.put(900, true);
            bench.recover();
            bench.crash(how, seed as u64, Duration::ZERO);
            assert_eq!(
                bench.restored_ids(),
                [id].into(),
                "{fault:?} {how:?} {seed}"
            );
        }
    }
}

#[test]
fn moved_bundles_that_are_released_do_not_come_back() {
    // A copy in a segment that cannot be deleted yet survives the release of the bundle
    // that was moved out of it.
    for seed in 0..40 {
        let mut bench = Bench::new(LIMITS);
        let mut pinned = Vec::new();
        for number in 0..400u64 {
            let id = bench.put(1000, true);
            bench.step();
            match number % 12 {
                0 => pinned.push(id),
                _ => bench.remove(id),
            }
            if number == 100 {
                bench.disk.fail(Fault::Delete, 1 + seed % 5);
            }
        }
        bench.settle();
        for id in pinned {
            bench.remove(id);
            bench.step();
        }
        bench.put(10, true);
        bench.recover();
        bench.crash(Crash::PowerInAnyOrder, seed, Duration::ZERO);
        assert_eq!(
            bench.restored_ids(),
            [bench.next_id - 1].into(),
            "seed {seed}"
        );
    }
}

#[test]
fn a_write_that_stops_in_its_midst_is_repeated_whole() {
    for how in [Crash::Kill, Crash::PowerInOrder, Crash::PowerInAnyOrder] {
        for truncates in [true, false] {
            let mut bench = Bench::new(LIMITS);
            let first = bench.put(700, true);
            bench.settle();
            bench.disk.fail(Fault::Write, 2);
            if !truncates {
                bench.disk.fail(Fault::Truncate, 1);
            }
            let gone = bench.put(700, true);
            let late = bench.put(700, true);
            bench.step();
            bench.remove(gone);
            bench.recover();
            assert!(bench.committed.contains(&late));
            bench.crash(how, 5, Duration::ZERO);
            assert_eq!(
                bench.restored_ids(),
                [first, late].into(),
                "{how:?} {truncates}"
            );
        }
    }
}

#[test]
fn a_lost_head_is_passed_at_a_cost_that_its_payload_cannot_raise() {
    // The payload consists of heads, each of which asks for a checksum over a megabyte.
    let mut head = Vec::new();
    head.extend(0x5550_4352u32.to_be_bytes());
    head.extend([1, 0, 0, 0]);
    head.extend([0; 16]);
    head.extend((1u32 << 20).to_be_bytes());
    head.extend([0; 16]);
    head.resize(48, 7);
    let mut bench = Bench::new(Limits {
        segment_bytes: 8 << 20,
        memory_bytes: 16 << 20,
        ..LIMITS
    });
    let hostile = Bytes::from(head.repeat((2 << 20) / 48));
    let first = bench.put(1000, true);
    let durable = DurableRecord {
        record: Bytes::from_static(b"hostile"),
        urgent: true,
        file: None,
    };
    let (now, id) = (bench.now, BundleId(bench.next_id));
    bench.next_id += 1;
    bench.stores[0].put(now, id, Some(durable), vec![hostile]);
    let last = bench.put(1000, true);
    bench.settle();
    bench.disk.spoil_in(b"hostile").expect("it is written");
    let checked = underpass_work::of(|| bench.crash(Crash::Kill, 0, Duration::ZERO));
    let bytes = bench.disk.used_bytes();
    assert!(checked < 20 * bytes, "{checked} bytes checked for {bytes}");
    // At most, the bundle that shares its last sector is lost too.
    assert!(bench.restored_ids().contains(&last));
    assert!(bench.restored_ids().is_subset(&[first, last].into()));
}

#[test]
fn the_loss_of_a_sector_is_told_to_whoever_asks_for_the_bundle() {
    let mut bench = filled();
    let middle = bench.put[&10].payload.slice(300..340);
    bench.disk.spoil_in(&middle).expect("it is on the disk");
    read_all(&mut bench);
    let told = bench
        .events
        .iter()
        .filter(|event| matches!(event, StoreEvent::Lost { id, .. } if *id == BundleId(10)));
    assert_eq!(told.count(), 1);
}
