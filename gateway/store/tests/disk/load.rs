//! Puts without pause: the log keeps to its bound during writing.

use std::collections::VecDeque;
use std::time::Duration;

use underpass_bundle::{Store, StoreEvent};
use underpass_store::Limits;
use underpass_store::simulated::Crash;

use crate::bench::{self, Bench};

const LIMITS: Limits = Limits {
    segment_bytes: 64 << 10,
    memory_bytes: 64 << 10,
    write_behind: Duration::from_millis(250),
};
/// The interval between two puts.
const BETWEEN: Duration = Duration::from_millis(100);
/// How long the next custodian takes to signal.
const SIGNALLED_AFTER: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Bundles come without pause and are soon released, except for one in each segment.
struct Load {
    bench: Bench,
    elapsed: Duration,
    due: VecDeque<(Duration, u64)>,
    pinned: VecDeque<(Duration, u64)>,
    /// How long a pinned bundle stays.
    pinned_for: Duration,
    /// The bytes put since the last pinned bundle.
    since_pin: usize,
    /// The most bytes that were in custody at once.
    most_bytes: u64,
    dice: u64,
}

impl Load {
    fn new(pinned_for: Duration) -> Load {
        Load {
            bench: Bench::new(LIMITS),
            elapsed: Duration::ZERO,
            due: VecDeque::new(),
            pinned: VecDeque::new(),
            pinned_for,
            since_pin: 0,
            most_bytes: 0,
            dice: 1,
        }
    }

    /// One put, if the store takes any; releases what is due; one step of the worker,
    /// which always has work.
    fn beat(&mut self) {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let bytes = 1000 + (self.dice >> 33) as usize % 3000;
        if self.bench.stores[0].free_bytes() > bytes as u64 {
            let id = self.bench.put(bytes, true);
            self.since_pin += bytes;
            if self.since_pin > 60_000 {
                self.since_pin = 0;
                self.pinned.push_back((self.elapsed + self.pinned_for, id));
            } else {
                self.due.push_back((self.elapsed + SIGNALLED_AFTER, id));
            }
        }
        for queue in [&mut self.due, &mut self.pinned] {
            while let Some((due, id)) = queue.front().copied()
                && due <= self.elapsed
            {
                queue.pop_front();
                self.bench.remove(id);
            }
        }
        self.bench.step();
        self.bench.pass(BETWEEN);
        self.elapsed += BETWEEN;
        self.most_bytes = self.most_bytes.max(self.bench.kept_bytes);
    }

    /// The documented bound: see `docs/custody.md`.
    fn bound(&self) -> u64 {
        2 * self.most_bytes + 6 * LIMITS.segment_bytes
    }

    fn check(&self) {
        let (used, bound) = (self.bench.disk.used_bytes(), self.bound());
        let custody = self.bench.kept_bytes;
        let at = self.elapsed;
        assert!(
            used <= bound,
            "{used} bytes for {custody} after {at:?}, more than {bound}"
        );
    }

    fn run(&mut self, time: Duration) {
        let end = self.elapsed + time;
        while self.elapsed < end {
            self.beat();
            self.check();
        }
    }

    /// Checks that all bundles in custody are there after a restart, as they were put.
    fn verify(&mut self) {
        self.bench.settle();
        let kept = self.bench.kept.clone();
        self.bench.crash(Crash::PowerInAnyOrder, 7, Duration::ZERO);
        let restored = self.bench.restored_ids();
        assert!(kept.is_subset(&restored));
        // A loss of power may undo the last releases.
        assert!(restored.len() <= kept.len() + 20, "{}", restored.len());
        assert!(self.bench.lost.is_empty());
        for id in kept {
            let payload = self.bench.put[&id].payload.clone();
            assert_eq!(self.bench.load(id), Some(payload));
        }
    }
}

#[test]
fn an_hour_of_puts_without_pause_keeps_the_bound_with_a_bundle_pinned_in_each_segment() {
    let mut load = Load::new(Duration::from_secs(600));
    load.run(HOUR);
    // Nearly all bytes that were put are gone: the bound was needed.
    let put: usize = load.bench.put.values().map(|b| b.payload.len()).sum();
    assert!(put as u64 > 20 * load.bound(), "{put} bytes put");
    let written = load.bench.disk.written_bytes();
    assert!(written < 3 * put as u64, "{written} written for {put}");
    load.verify();
}

#[test]
fn bundles_pinned_for_the_whole_hour_cost_twice_their_size() {
    let mut load = Load::new(HOUR);
    load.run(HOUR);
    load.verify();
}

#[test]
fn the_bound_of_less_custody_is_soon_reached_again_while_puts_go_on() {
    let mut load = Load::new(HOUR);
    // Many bundles wait for a blocked link, and all but a few leave at once.
    for _ in 0..2000 {
        load.beat();
        while let Some((_, id)) = load.due.pop_front() {
            load.pinned.push_back((HOUR, id));
        }
        load.check();
    }
    let waiting: Vec<_> = load.pinned.drain(..).collect();
    for (place, (_, id)) in waiting.into_iter().enumerate() {
        match place % 20 {
            0 => load.pinned.push_back((HOUR, id)),
            _ => load.bench.remove(id),
        }
    }
    let put = load.bench.put.len();
    load.run(Duration::from_secs(400));
    assert!(load.bench.put.len() - put > 3900, "puts went on");
    // Forgets the earlier maximum.
    load.most_bytes = load.bench.kept_bytes;
    load.run(Duration::from_secs(400));
    load.verify();
}

#[test]
fn a_disk_full_of_what_is_released_makes_room_by_itself() {
    let mut load = Load::new(HOUR);
    let capacity = 20 * LIMITS.segment_bytes;
    load.bench.disk.set_capacity(Some(capacity));
    // The link is blocked: everything stays, until the disk is full.
    let mut beats = 0;
    while load.bench.stores[0].free_bytes() > 0 {
        load.beat();
        load.due.clear();
        beats += 1;
        assert!(beats < 10_000, "the disk is never full");
    }
    assert!(
        load.bench
            .events
            .iter()
            .any(|e| matches!(e, StoreEvent::Stalled(_)))
    );
    // The link opens, and all but one bundle in ten leave, so that no segment is empty.
    let kept: Vec<u64> = load.bench.kept.iter().copied().collect();
    for id in kept.into_iter().filter(|id| id % 10 != 0) {
        load.bench.remove(id);
        load.bench.step();
    }
    load.bench.settle();
    assert_eq!(load.bench.stores[0].free_bytes(), u64::MAX, "still full");
    let put = load.bench.put.len();
    load.most_bytes = load.bench.kept_bytes;
    for _ in 0..3000 {
        load.beat();
    }
    assert!(load.bench.put.len() - put > 2900, "puts go on");
    load.check();
    load.run(Duration::from_secs(60));
    load.verify();
}

#[test]
fn room_that_others_took_and_gave_back_changes_nothing() {
    let mut load = Load::new(Duration::from_secs(60));
    for round in 0..40u64 {
        load.run(Duration::from_secs(20));
        // The disk may be full at any point, even in the middle of compaction.
        let used = load.bench.disk.used_bytes();
        load.bench
            .disk
            .set_capacity(Some(used + round * 997 % 5000));
        load.run(Duration::from_secs(5));
        load.bench.disk.set_capacity(None);
        load.run(Duration::from_secs(5));
        assert!(load.bench.stores[0].free_bytes() > 0, "round {round}");
    }
    let stalls = |event: &&StoreEvent| matches!(event, StoreEvent::Stalled(_));
    let stalled = load.bench.events.iter().filter(stalls).count();
    assert!(stalled > 20, "it was full {stalled} times");
    load.run(Duration::from_secs(120));
    load.verify();
}

#[test]
fn releases_one_by_one_share_a_segment_even_if_segments_are_small() {
    // A segment's header takes more than a quarter of it.
    let mut bench = Bench::new(bench::LIMITS);
    let mut ids = Vec::new();
    while bench.disk.sectors().iter().all(|(_, n)| *n < 32) {
        ids.push(bench.put(200, true));
        bench.settle();
    }
    // Half of the bundles of a full segment are released; the other half keeps the
    // segment.
    let half = ids.len() / 2;
    assert!(half > 15, "enough for garbage that is not tolerated");
    let written = bench.disk.written_bytes();
    for id in ids.drain(..half) {
        bench.remove(id);
        bench.settle();
    }
    // The full segment, the one with the releases, and the reserve.
    let segments = bench.disk.sectors().len();
    assert_eq!(segments, 3);
    let written = bench.disk.written_bytes() - written;
    assert!(written < bench::LIMITS.segment_bytes, "{written} bytes");
    bench.crash(Crash::PowerInOrder, 7, Duration::ZERO);
    assert!(ids.iter().all(|id| bench.restored_ids().contains(id)));
}
