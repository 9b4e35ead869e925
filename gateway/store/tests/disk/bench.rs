//! Stores over a simulated disk, in virtual time, and the test's knowledge of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{BundleId, DurableRecord, Payload, Restored, Store, StoreEvent};
use underpass_store::simulated::{Crash, SimulatedDisk};
use underpass_store::{DiskStore, Identity, Limits, Next, Report, Worker};

pub const LIMITS: Limits = Limits {
    segment_bytes: 16 << 10,
    memory_bytes: 8192,
    write_behind: Duration::from_millis(250),
};

pub struct Bench {
    pub disk: SimulatedDisk,
    pub limits: Limits,
    /// One store for each shard.
    pub stores: Vec<DiskStore>,
    /// The number of shards from the next start on.
    pub shards: usize,
    /// Whether it starts again with another number of shards.
    pub changes_shards: bool,
    /// Shards that do not listen, as bits.
    pub deaf: u64,
    /// How often each shard was notified, and how often it had been when it last
    /// listened.
    pub notified: Arc<[AtomicU64]>,
    heard: Vec<u64>,
    /// The starts and ends of stalls that each shard was told of.
    pub stalls: Vec<Vec<bool>>,
    pub worker: Worker<SimulatedDisk>,
    pub report: Report,
    /// The bundles that the stores restored when they were opened.
    pub restored: Vec<Restored>,
    pub now: Instant,
    pub boot: u8,
    pub boot_ms: i64,
    pub runs: u64,
    pub next_id: u64,
    /// All bundles that were ever put durably, with their contents.
    pub put: BTreeMap<u64, Bundle>,
    /// Of these, the bundles that are not removed.
    pub kept: BTreeSet<u64>,
    /// The bytes that the log needs for them: records, with their index entries.
    pub kept_bytes: u64,
    /// The bundles that a caller was told to be safe.
    pub committed: BTreeSet<u64>,
    pub lost: BTreeSet<u64>,
    pub events: Vec<StoreEvent>,
}

#[derive(Clone, Debug)]
pub struct Bundle {
    pub record: Bytes,
    pub payload: Bytes,
    pub urgent: bool,
}

impl Bundle {
    fn needed_bytes(&self) -> u64 {
        let record = 48 + self.record.len();
        (2 * record + 8 + self.payload.len()).next_multiple_of(8) as u64
    }
}

/// Bytes that occur nowhere else.
fn content(id: u64, bytes: usize) -> Bytes {
    let words = (0..bytes.div_ceil(8) as u64).flat_map(|at| {
        let mut word = (id << 20 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word ^= word >> 29;
        word.wrapping_mul(0xBF58_476D_1CE4_E5B9).to_be_bytes()
    });
    words.take(bytes).collect::<Vec<u8>>().into()
}

/// The shard that a bundle is assigned to; that shard may not exist.
fn assigned(id: u64, shards: usize) -> usize {
    let mixed = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    mixed as usize % (shards + 1)
}

/// The shard that owns a bundle.
fn owner(id: u64, shards: usize) -> usize {
    Some(assigned(id, shards))
        .filter(|shard| *shard < shards)
        .unwrap_or(0)
}

type Opened = (Vec<DiskStore>, Worker<SimulatedDisk>, Report);

fn open(
    disk: &SimulatedDisk,
    limits: Limits,
    notified: &Arc<[AtomicU64]>,
    boot: u8,
    boot_ms: i64,
    runs: u64,
    now: Instant,
) -> Opened {
    let identity = Identity {
        node: 20,
        boot: [boot; 16],
        boot_ms,
        seed: runs,
    };
    let (disk, notified, shards) = (disk.clone(), notified.clone(), notified.len());
    let assign = move |restored: &Restored| assigned(restored.id.0, shards);
    let notify = move |shard: usize| {
        notified[shard].fetch_add(1, Ordering::Relaxed);
    };
    let opened = DiskStore::sharded(disk, identity, limits, now, shards, assign, notify);
    opened.expect("the log is taken up")
}

fn counters(shards: usize) -> Arc<[AtomicU64]> {
    (0..shards).map(|_| AtomicU64::new(0)).collect()
}

impl Bench {
    pub fn new(limits: Limits) -> Bench {
        Bench::sharded(limits, 1)
    }

    pub fn sharded(limits: Limits, shards: usize) -> Bench {
        let disk = SimulatedDisk::default();
        let now = Instant::now();
        let notified = counters(shards);
        let (stores, worker, report) = open(&disk, limits, &notified, 1, 1000, 1, now);
        Bench {
            disk,
            limits,
            stores,
            shards,
            changes_shards: false,
            deaf: 0,
            notified,
            heard: vec![0; shards],
            stalls: vec![Vec::new(); shards],
            worker,
            report,
            restored: Vec::new(),
            now,
            boot: 1,
            boot_ms: 1000,
            runs: 1,
            next_id: 0,
            put: BTreeMap::new(),
            kept: BTreeSet::new(),
            kept_bytes: 0,
            committed: BTreeSet::new(),
            lost: BTreeSet::new(),
            events: Vec::new(),
        }
    }

    /// The shard that owns a bundle.
    pub fn owner(&self, id: u64) -> usize {
        owner(id, self.stores.len())
    }

    pub fn put_in(&mut self, shard: usize, bytes: usize, urgent: bool) -> u64 {
        while self.owner(self.next_id) != shard {
            self.next_id += 1;
        }
        self.put(bytes, urgent)
    }

    /// Puts a bundle whose bytes follow from its id.
    pub fn put(&mut self, bytes: usize, urgent: bool) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let bundle = Bundle {
            record: Bytes::from(vec![id as u8; 40 + (id % 5) as usize]),
            payload: content(id, bytes),
            urgent,
        };
        let durable = DurableRecord {
            record: bundle.record.clone(),
            urgent,
            file: None,
        };
        // In two pieces, as streams seal bundles.
        let half = bundle.payload.len() / 2;
        let pieces = vec![bundle.payload.slice(..half), bundle.payload.slice(half..)];
        let shard = self.owner(id);
        self.stores[shard].put(self.now, BundleId(id), Some(durable), pieces);
        self.kept_bytes += bundle.needed_bytes();
        self.put.insert(id, bundle);
        self.kept.insert(id);
        id
    }

    pub fn remove(&mut self, id: u64) {
        let shard = self.owner(id);
        self.stores[shard].remove(self.now, BundleId(id));
        if self.kept.remove(&id) {
            let needed = self.put[&id].needed_bytes();
            self.kept_bytes = self.kept_bytes.saturating_sub(needed);
        }
        self.committed.remove(&id);
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.boot_ms += i64::try_from(time.as_millis()).unwrap();
        for store in &mut self.stores {
            store.handle_timeout(self.now);
        }
        self.listen();
    }

    /// One step of the worker; returns whether it wants another at once.
    pub fn step(&mut self) -> bool {
        let next = self.worker.step(true);
        self.listen();
        next == Next::Step
    }

    /// Lets the worker do all its work, and tells all shards.
    pub fn settle(&mut self) {
        self.deaf = 0;
        for _ in 0..10_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the worker never rests");
    }

    /// Lets the worker retry failed work some times.
    pub fn recover(&mut self) {
        for _ in 0..10 {
            self.settle();
        }
    }

    /// Lets each shard listen that was notified and is not deaf.
    pub fn listen(&mut self) {
        let hears = |bench: &Bench, shard: usize| bench.deaf >> shard & 1 == 0;
        let shards = self.stores.len();
        let next = |bench: &Bench| {
            let waits = |shard: &usize| bench.notified(*shard) > bench.heard[*shard];
            (0..shards).find(|shard| hears(bench, *shard) && waits(shard))
        };
        while let Some(shard) = next(self) {
            self.heard[shard] = self.notified(shard);
            self.hear(shard);
        }
        for shard in 0..shards {
            let silent = !hears(self, shard) || self.stores[shard].poll_event().is_none();
            assert!(silent, "{shard} was not notified");
        }
        let stalls = &self.stalls;
        let all = self.deaf > 0 || stalls.iter().all(|heard| *heard == stalls[0]);
        assert!(all, "not all were told: {stalls:?}");
    }

    pub fn notified(&self, shard: usize) -> u64 {
        self.notified[shard].load(Ordering::Relaxed)
    }

    fn hear(&mut self, shard: usize) {
        while let Some(event) = self.stores[shard].poll_event() {
            match &event {
                StoreEvent::Committed(BundleId(id)) => {
                    assert_eq!(self.owner(*id), shard, "{shard} is told of {id}");
                    assert!(self.committed.insert(*id), "{id} is told twice");
                }
                StoreEvent::Loaded(BundleId(id)) => {
                    assert_eq!(self.owner(*id), shard, "{shard} is told of {id}");
                }
                StoreEvent::Lost { id, .. } => {
                    assert_eq!(self.owner(id.0), shard, "{shard} is told of {id:?}");
                    self.lost.insert(id.0);
                    self.remove(id.0);
                }
                StoreEvent::Stalled(_) => self.stalls[shard].push(true),
                StoreEvent::Resumed => self.stalls[shard].push(false),
            }
            self.events.push(event);
        }
    }

    /// Asks the store that owns it for a payload.
    pub fn ask(&mut self, id: u64) -> Payload {
        let shard = self.owner(id);
        self.stores[shard].payload(BundleId(id))
    }

    /// A payload, from memory or from the disk.
    pub fn load(&mut self, id: u64) -> Option<Bytes> {
        self.deaf = 0;
        for _ in 0..100 {
            match self.ask(id) {
                Payload::Here(pieces) => return Some(pieces.concat().into()),
                Payload::Coming => drop(self.step()),
                Payload::Lost => return None,
            }
        }
        panic!("the payload never comes");
    }

    /// A payload, or none once it is reported lost.
    pub fn load_or_lose(&mut self, id: u64) -> Option<Bytes> {
        for _ in 0..100 {
            match self.ask(id) {
                Payload::Here(pieces) => return Some(pieces.concat().into()),
                Payload::Coming => drop(self.step()),
                Payload::Lost => {
                    assert!(self.lost.contains(&id), "{id} is lost, and nobody was told");
                    return None;
                }
            }
        }
        panic!("neither the payload nor its loss ever comes");
    }

    /// The node ends, and starts again after `down`; a loss of power also starts another
    /// boot.
    pub fn crash(&mut self, how: Crash, seed: u64, down: Duration) {
        self.disk.crash(how, seed);
        self.reopen(how != Crash::Kill, down);
    }

    pub fn reopen(&mut self, new_boot: bool, down: Duration) {
        self.runs += 1;
        self.now += down;
        self.boot_ms += i64::try_from(down.as_millis()).unwrap();
        if new_boot {
            self.boot += 1;
            self.boot_ms = 5000;
        }
        let shards = self.shards;
        self.deaf = 0;
        self.notified = counters(shards);
        self.heard = vec![0; shards];
        self.stalls = vec![Vec::new(); shards];
        let opened = open(
            &self.disk,
            self.limits,
            &self.notified,
            self.boot,
            self.boot_ms,
            self.runs,
            self.now,
        );
        (self.stores, self.worker, self.report) = opened;
        self.restored.clear();
        let first_free = self.stores[0].first_free_id().0;
        for (shard, store) in self.stores.iter_mut().enumerate() {
            let restored = store.restore();
            assert!(restored.iter().all(|b| owner(b.id.0, shards) == shard));
            assert!(restored.is_sorted_by_key(|bundle| bundle.id));
            assert_eq!(store.first_free_id().0, first_free);
            self.restored.extend(restored);
        }
        self.restored.sort_by_key(|bundle| bundle.id);
        assert_eq!(
            self.restored.len(),
            self.restored_ids().len(),
            "restored once"
        );
        assert_eq!(self.restored.len(), self.report.bundles);
        assert!(self.restored.iter().all(|bundle| bundle.id.0 < first_free));
        self.next_id = self.next_id.max(first_free);
    }

    pub fn restored_ids(&self) -> BTreeSet<u64> {
        self.restored.iter().map(|bundle| bundle.id.0).collect()
    }
}
