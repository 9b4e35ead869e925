//! How the store keeps its bound on a real disk: puts without pause, released
//! soon, but for one in each segment.
//!
//! `cargo run --release -p underpass-store --example load -- DIR SECONDS MBIT`
//! puts bundles of 64 KiB at MBIT Mbit/s for so many seconds into an empty
//! directory, then opens it again and reads all that is left. It fails if the
//! files ever take more than `docs/custody.md` says, or anything is lost.

use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{BundleId, DurableRecord, Payload, Store, StoreEvent};
use underpass_store::{DiskStore, Handle, Limits, open};

const NODE: u64 = 20;
const BUNDLE_BYTES: usize = 64 << 10;
/// When the next custodian signals.
const SIGNALLED_AFTER: Duration = Duration::from_secs(1);
/// Pinned bundles stay for so many segments.
const PINNED: usize = 50;
const LIMITS: Limits = Limits {
    segment_bytes: 8 << 20,
    memory_bytes: 32 << 20,
    write_behind: Duration::from_millis(250),
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, seconds, mbit] = &arguments[..] else {
        return Err("usage: load DIR SECONDS MBIT".into());
    };
    let dir = Path::new(dir);
    let time = Duration::from_secs(seconds.parse()?);
    let every = Duration::from_secs_f64(BUNDLE_BYTES as f64 * 8e-6 / mbit.parse::<f64>()?);
    let (notify, moved) = mpsc::channel();
    let start = Instant::now();
    let (store, handle, report) = open(dir, NODE, LIMITS, start, move || {
        let _ = notify.send(());
    })?;
    if report.bundles > 0 {
        return Err("the directory is not empty".into());
    }
    let mut load = Load::new(store, handle, start, dir);
    let mut shown = start;
    while start.elapsed() < time {
        load.beat()?;
        if shown.elapsed() >= Duration::from_secs(30) {
            shown = Instant::now();
            load.show();
        }
        let next = start + every * u32::try_from(load.next_id)?;
        let pause = next.saturating_duration_since(Instant::now());
        let _ = moved.recv_timeout(pause);
    }
    load.show();
    load.finish()
}

struct Load<'a> {
    dir: &'a Path,
    store: DiskStore,
    handle: Handle,
    start: Instant,
    next_id: u64,
    refused: u64,
    due: VecDeque<(Instant, u64)>,
    pinned: VecDeque<u64>,
    since_pin: usize,
    kept: u64,
    most_kept: u64,
    most_used: u64,
    /// The longest time from a put to its being safe.
    slowest: Duration,
    submitted: VecDeque<(Instant, u64)>,
}

impl Load<'_> {
    fn new(store: DiskStore, handle: Handle, start: Instant, dir: &Path) -> Load<'_> {
        Load {
            dir,
            store,
            handle,
            start,
            next_id: 0,
            refused: 0,
            due: VecDeque::new(),
            pinned: VecDeque::new(),
            since_pin: 0,
            kept: 0,
            most_kept: 0,
            most_used: 0,
            slowest: Duration::ZERO,
            submitted: VecDeque::new(),
        }
    }

    fn beat(&mut self) -> Result<(), Box<dyn Error>> {
        let now = Instant::now();
        if self.store.free_bytes() > BUNDLE_BYTES as u64 {
            self.put(now);
        } else {
            self.refused += 1;
        }
        while let Some((due, id)) = self.due.front().copied()
            && due <= now
        {
            self.due.pop_front();
            self.store.remove(now, BundleId(id));
            self.kept -= 1;
        }
        self.store.handle_timeout(now);
        while let Some(event) = self.store.poll_event() {
            match event {
                StoreEvent::Committed(BundleId(id)) => {
                    // They are safe in the order in which they were put.
                    while let Some((put, first)) = self.submitted.front().copied()
                        && first <= id
                    {
                        self.submitted.pop_front();
                        self.slowest = self.slowest.max(put.elapsed());
                    }
                }
                StoreEvent::Lost { id, .. } => return Err(format!("{id:?} is lost").into()),
                StoreEvent::Stalled(why) => return Err(format!("stalled: {why}").into()),
                StoreEvent::Loaded(_) | StoreEvent::Resumed => {}
            }
        }
        if self.next_id.is_multiple_of(64) {
            self.check()?;
        }
        Ok(())
    }

    fn put(&mut self, now: Instant) {
        let id = self.next_id;
        self.next_id += 1;
        let durable = DurableRecord {
            record: Bytes::from(vec![id as u8; 150]),
            urgent: true,
            file: None,
        };
        self.store
            .put(now, BundleId(id), Some(durable), vec![content(id)]);
        self.submitted.push_back((now, id));
        self.kept += 1;
        self.most_kept = self.most_kept.max(self.kept);
        self.since_pin += BUNDLE_BYTES;
        if self.since_pin as u64 >= LIMITS.segment_bytes {
            self.since_pin = 0;
            self.pinned.push_back(id);
            if self.pinned.len() > PINNED
                && let Some(old) = self.pinned.pop_front()
            {
                self.due.push_front((now, old));
            }
        } else {
            self.due.push_back((now + SIGNALLED_AFTER, id));
        }
    }

    fn bound(&self) -> u64 {
        2 * self.most_kept * (BUNDLE_BYTES + 512) as u64 + 6 * LIMITS.segment_bytes
    }

    /// What the files take, as the disk counts it.
    fn check(&mut self) -> Result<(), Box<dyn Error>> {
        let mut used = 0;
        for entry in std::fs::read_dir(self.dir)? {
            // Deleted meanwhile.
            used += entry?.metadata().map_or(0, |found| found.len());
        }
        self.most_used = self.most_used.max(used);
        let bound = self.bound();
        match used <= bound {
            true => Ok(()),
            false => Err(format!("{used} bytes used, more than {bound}").into()),
        }
    }

    fn show(&self) {
        let figures = self.handle.monitor().figures();
        let seconds = self.start.elapsed().as_secs_f64();
        println!(
            "{seconds:.0} s: {} bundles put, {:.1} MB/s, {} pauses for the disk; files {} MiB at \
             most, {} now, of {} allowed; kept {} at most, {} now; {} syncs, the slowest {} ms",
            self.next_id,
            self.next_id as f64 * BUNDLE_BYTES as f64 / 1e6 / seconds,
            self.refused,
            self.most_used >> 20,
            figures.log_bytes >> 20,
            self.bound() >> 20,
            self.most_kept,
            self.kept,
            figures.commits,
            self.slowest.as_millis(),
        );
    }

    /// Opens the directory again, and reads all that is left.
    fn finish(mut self) -> Result<(), Box<dyn Error>> {
        let now = Instant::now();
        for (_, id) in self.due.drain(..) {
            self.store.remove(now, BundleId(id));
        }
        self.handle.close();
        drop(self.store);
        let (notify, moved) = mpsc::channel();
        let started = Instant::now();
        let (mut store, handle, report) = open(self.dir, NODE, LIMITS, now, move || {
            let _ = notify.send(());
        })?;
        let took = started.elapsed();
        let mut left: VecDeque<u64> = store.restore().iter().map(|found| found.id.0).collect();
        if !report.damaged.is_empty() || left != self.pinned {
            return Err(format!("{left:?} came back, damaged: {:?}", report.damaged).into());
        }
        while let Some(id) = left.front().copied() {
            match store.payload(BundleId(id)) {
                Payload::Here(pieces) if pieces.concat() == content(id) => {
                    left.pop_front();
                    store.remove(Instant::now(), BundleId(id));
                }
                Payload::Here(_) | Payload::Lost => return Err(format!("{id} is damaged").into()),
                Payload::Coming => {
                    moved.recv()?;
                    while store.poll_event().is_some() {}
                }
            }
        }
        handle.close();
        println!("{} came back in {} ms", report.bundles, took.as_millis());
        Ok(())
    }
}

/// Bytes that are nowhere else.
fn content(id: u64) -> Bytes {
    let words = (0..BUNDLE_BYTES as u64 / 8).map(|at| {
        let word = (id << 20 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (word ^ word >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    });
    words.flat_map(u64::to_be_bytes).collect::<Vec<u8>>().into()
}
