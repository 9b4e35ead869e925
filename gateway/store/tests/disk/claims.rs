//! The behaviour of the store, one claim at a time.

use std::time::Duration;

use bytes::Bytes;
use underpass_bundle::{BundleId, DurableRecord, Payload, Store, StoreEvent};
use underpass_store::simulated::{Crash, SimulatedDisk};
use underpass_store::{Disk, Limits};

use crate::bench::{Bench, LIMITS};

/// Where the first record of a segment begins.
const RECORDS_AT: u64 = 4160;
const BEHIND: Duration = Duration::from_millis(250);

#[test]
fn what_is_released_before_its_time_is_never_written() {
    let mut bench = Bench::new(LIMITS);
    for _ in 0..50 {
        let id = bench.put(100, false);
        bench.pass(Duration::from_millis(100));
        bench.remove(id);
        bench.settle();
    }
    assert_eq!(bench.disk.written_bytes(), 0);
    assert_eq!(bench.stores[0].next_timeout(), None);
}

#[test]
fn what_waits_longer_is_written() {
    let mut bench = Bench::new(LIMITS);
    bench.put(100, false);
    assert_eq!(bench.stores[0].next_timeout(), Some(bench.now + BEHIND));
    bench.pass(BEHIND);
    bench.settle();
    bench.crash(Crash::PowerInOrder, 1, Duration::ZERO);
    assert_eq!(bench.restored.len(), 1);
}

#[test]
fn a_custodian_is_told_only_when_power_may_fail() {
    let mut bench = Bench::new(LIMITS);
    let id = bench.put(100, true);
    bench.listen();
    assert!(bench.committed.is_empty());
    bench.step();
    assert!(bench.committed.contains(&id));
    bench.crash(Crash::PowerInOrder, 1, Duration::ZERO);
    assert_eq!(bench.restored.len(), 1);
}

#[test]
fn payloads_leave_memory_and_come_back_in_time() {
    let mut bench = Bench::new(Limits {
        memory_bytes: 16 << 10,
        ..LIMITS
    });
    let ids: Vec<u64> = (0..40).map(|_| bench.put(1000, true)).collect();
    bench.settle();
    let here = |bench: &mut Bench, id: u64| {
        matches!(bench.stores[0].payload(BundleId(id)), Payload::Here(_))
    };
    // The oldest bundles are sent next.
    assert!(here(&mut bench, ids[0]));
    assert!(!here(&mut bench, ids[39]));
    bench.step();
    let loaded = |event: &StoreEvent| matches!(event, StoreEvent::Loaded(BundleId(39)));
    assert!(bench.events.iter().any(loaded));
    assert!(here(&mut bench, ids[39]));
    bench.stores[0].expect(BundleId(ids[38]));
    bench.settle();
    assert!(here(&mut bench, ids[38]));
}

#[test]
fn what_is_known_of_many_bundles_leaves_less_memory_to_payloads() {
    let mut bench = Bench::new(Limits {
        memory_bytes: 256 << 10,
        ..LIMITS
    });
    let residents_of = |bundles: usize, bench: &mut Bench| {
        for _ in 0..bundles {
            bench.put(4000, true);
            bench.settle();
        }
        let mut residents = 0;
        bench.stores[0].footprint(&mut |name, count| {
            if name == "resident payloads" {
                residents = count;
            }
        });
        residents
    };
    // A quarter of 256 KiB, less half a KiB for each of 16 bundles.
    assert_eq!(residents_of(16, &mut bench), 14);
    // At least a quarter of it.
    assert_eq!(residents_of(84, &mut bench), 4);
}

#[test]
fn what_is_written_takes_no_memory_in_the_end() {
    let mut bench = Bench::new(Limits {
        segment_bytes: 64 << 20,
        memory_bytes: 1 << 20,
        ..LIMITS
    });
    let (mut most, mut segments) = (0, 0);
    for _ in 0..8_000 {
        let id = bench.put(100, true);
        bench.settle();
        bench.remove(id);
        bench.worker.footprint(&mut |name, count| match name {
            "index bytes of the active segment" => most = most.max(count),
            "segments" => segments = segments.max(count),
            _ => {}
        });
    }
    // 256 KiB and one more record, however much is written.
    assert!((200 << 10..257 << 10).contains(&most), "{most}");
    // Segments that are no longer needed are deleted, even if they never fill a file.
    assert!(segments <= 6, "{segments}");
}

#[test]
fn memory_that_is_not_written_slows_sources() {
    let mut bench = Bench::new(LIMITS);
    for _ in 0..8 {
        bench.put(1000, true);
    }
    assert_eq!(bench.stores[0].free_bytes(), 192);
    bench.settle();
    assert_eq!(bench.stores[0].free_bytes(), u64::MAX);
}

#[test]
fn a_full_disk_slows_sources_loses_nothing_and_recovers() {
    let mut bench = Bench::new(LIMITS);
    let first: Vec<u64> = (0..5).map(|_| bench.put(1000, true)).collect();
    bench.settle();
    bench.disk.set_capacity(Some(bench.disk.used_bytes() + 600));
    let late: Vec<u64> = (0..5).map(|_| bench.put(1000, true)).collect();
    bench.settle();
    assert_eq!(bench.stores[0].free_bytes(), 0);
    let stalls = |event: &&StoreEvent| matches!(event, StoreEvent::Stalled(_));
    bench.settle();
    assert_eq!(bench.events.iter().filter(stalls).count(), 1);
    for id in &late {
        assert!(bench.load(*id).is_some(), "still in memory");
    }
    // Bundles that the next custodian takes make room.
    for id in first {
        bench.remove(id);
    }
    bench.settle();
    bench.settle();
    assert!(
        bench
            .events
            .iter()
            .any(|e| matches!(e, StoreEvent::Resumed))
    );
    assert!(late.iter().all(|id| bench.committed.contains(id)));
    assert_eq!(bench.stores[0].free_bytes(), u64::MAX);
}

#[test]
fn a_disk_that_fails_to_sync_is_not_believed() {
    let mut bench = Bench::new(LIMITS);
    let kept = bench.put(500, true);
    bench.settle();
    bench.disk.set_broken(true);
    let late = bench.put(500, true);
    bench.settle();
    assert!(!bench.committed.contains(&late));
    bench.disk.set_broken(false);
    bench.settle();
    assert!(bench.committed.contains(&late));
    bench.crash(Crash::PowerInOrder, 3, Duration::ZERO);
    assert_eq!(bench.restored_ids(), [kept, late].into());
}

#[test]
fn downtime_counts_within_a_boot_and_not_beyond() {
    let mut bench = Bench::new(LIMITS);
    bench.put(10, true);
    bench.settle();
    bench.pass(Duration::from_secs(7));
    bench.put(10, true);
    bench.settle();
    bench.crash(Crash::Kill, 1, Duration::from_secs(60));
    assert_eq!(bench.restored[0].stored_for, Duration::from_secs(67));
    // After another boot, only the time up to the last write is known.
    bench.put(10, true);
    bench.settle();
    bench.crash(Crash::PowerInOrder, 1, Duration::from_secs(600));
    assert_eq!(bench.restored[0].stored_for, Duration::from_secs(67));
    assert_eq!(bench.restored[2].stored_for, Duration::ZERO);
}

#[test]
fn what_a_later_boot_adds_to_a_segment_is_no_write_of_the_boot_before() {
    let mut bench = Bench::new(LIMITS);
    bench.put(10, true);
    bench.settle();
    // The next boot seals the segment, at a later time on its own clock.
    bench.crash(Crash::PowerInOrder, 1, Duration::ZERO);
    assert_eq!(bench.restored[0].stored_for, Duration::ZERO);
    // Without its trailer the segment is read as a whole, with its index.
    assert!(bench.disk.flip_in(b"UPCINDEX"));
    bench.crash(Crash::PowerInOrder, 1, Duration::ZERO);
    assert!(bench.report.damaged.is_empty());
    assert_eq!(bench.restored[0].stored_for, Duration::ZERO);
}

#[test]
fn a_log_does_not_outgrow_twice_what_is_kept() {
    let mut bench = Bench::new(LIMITS);
    let mut dice = 1u64;
    for round in 0..3000u64 {
        bench.put(300, true);
        bench.settle();
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // One bundle in ten stays for good, so segments are never quite empty.
        if bench.kept.len() > 100 {
            let kept: Vec<u64> = bench.kept.iter().copied().collect();
            bench.remove(kept[(dice >> 33) as usize % kept.len()]);
        }
        if round % 100 == 99 {
            for _ in 0..50 {
                bench.step();
            }
            let (used, live) = (bench.disk.used_bytes(), bench.kept_bytes);
            let bound = 2 * live + 6 * LIMITS.segment_bytes;
            assert!(used <= bound, "{used} bytes for {live}");
        }
    }
    bench.crash(Crash::Kill, 9, Duration::ZERO);
    assert_eq!(bench.restored_ids(), bench.kept);
}

#[test]
fn a_payload_that_looks_like_a_record_is_none() {
    let mut bench = Bench::new(Limits {
        segment_bytes: 1 << 20,
        ..LIMITS
    });
    bench.put(1000, true);
    bench.settle();
    // An attacker that knows the format, even a whole log, but not the nonce.
    let mut other = Bench::new(LIMITS);
    other.runs = 77;
    other.reopen(false, Duration::ZERO);
    other.put(200, true);
    other.settle();
    let mut disk = other.disk.clone();
    let forged = disk.read(1, RECORDS_AT, 4096).unwrap();
    assert!(forged.starts_with(b"UPCR"));
    let durable = DurableRecord {
        record: Bytes::from_static(b"carrier"),
        urgent: true,
        file: None,
    };
    let (now, id) = (bench.now, BundleId(bench.next_id));
    bench.stores[0].put(now, id, Some(durable), vec![forged]);
    bench.settle();
    // Whichever bit is flipped, nothing in the payload becomes a bundle.
    for seed in 0..300 {
        let saved = bench.disk.clone();
        bench.disk = bench.disk.copy();
        bench.disk.flip(seed);
        bench.crash(Crash::Kill, 0, Duration::ZERO);
        assert!(bench.restored.iter().all(|found| found.id.0 <= id.0));
        assert!(
            bench
                .restored
                .iter()
                .all(|found| found.payload_bytes != 200)
        );
        bench.disk = saved;
    }
}

#[test]
fn a_segment_of_an_earlier_version_is_taken_up() {
    let mut bench = Bench::new(LIMITS);
    for _ in 0..5 {
        bench.put(700, true);
    }
    bench.settle();
    // Segment 0 is the reserve.
    let content = bench.disk.read(1, 0, usize::MAX).unwrap();
    let mut header = content[..60].to_vec();
    header[12..16].fill(0);
    header.extend(crc32c::crc32c(&header).to_be_bytes());
    let earlier = [&header, &header, &content[RECORDS_AT as usize..]].concat();
    bench.disk = SimulatedDisk::default();
    bench.disk.create(1).unwrap();
    bench.disk.write(1, 0, &[earlier.into()]).unwrap();
    bench.reopen(false, Duration::ZERO);
    assert!(bench.report.damaged.is_empty(), "{:?}", bench.report);
    assert_eq!(bench.restored_ids(), bench.kept);
    // The second start reads its index.
    bench.reopen(false, Duration::ZERO);
    for id in bench.kept.clone() {
        assert_eq!(bench.load(id), Some(bench.put[&id].payload.clone()));
    }
}
