//! A store over a simulated disk, in virtual time, and what is known of it.

use std::collections::{BTreeMap, BTreeSet};
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
    pub store: DiskStore,
    pub worker: Worker<SimulatedDisk>,
    pub report: Report,
    /// What the store had kept when it was opened.
    pub restored: Vec<Restored>,
    pub now: Instant,
    pub boot: u8,
    pub boot_ms: i64,
    pub runs: u64,
    pub next_id: u64,
    /// All that was ever put for good, with what it was.
    pub put: BTreeMap<u64, Bundle>,
    /// Of that, what is not removed.
    pub kept: BTreeSet<u64>,
    /// What the log needs for it: records, with their entries in an index.
    pub kept_bytes: u64,
    /// What somebody was told to be safe.
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

/// Bytes that are nowhere else.
fn content(id: u64, bytes: usize) -> Bytes {
    let words = (0..bytes.div_ceil(8) as u64).flat_map(|at| {
        let mut word = (id << 20 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word ^= word >> 29;
        word.wrapping_mul(0xBF58_476D_1CE4_E5B9).to_be_bytes()
    });
    words.take(bytes).collect::<Vec<u8>>().into()
}

fn open(
    disk: &SimulatedDisk,
    limits: Limits,
    boot: u8,
    boot_ms: i64,
    runs: u64,
    now: Instant,
) -> (DiskStore, Worker<SimulatedDisk>, Report) {
    let identity = Identity {
        node: 20,
        boot: [boot; 16],
        boot_ms,
        seed: runs,
    };
    DiskStore::over(disk.clone(), identity, limits, now, || {}).expect("the log is taken up")
}

impl Bench {
    pub fn new(limits: Limits) -> Bench {
        let disk = SimulatedDisk::default();
        let now = Instant::now();
        let (store, worker, report) = open(&disk, limits, 1, 1000, 1, now);
        Bench {
            disk,
            limits,
            store,
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

    /// Keeps a bundle whose bytes follow from its id.
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
        };
        // In two pieces, as streams seal them.
        let half = bundle.payload.len() / 2;
        let pieces = vec![bundle.payload.slice(..half), bundle.payload.slice(half..)];
        self.store
            .put(self.now, BundleId(id), Some(durable), pieces);
        self.kept_bytes += bundle.needed_bytes();
        self.put.insert(id, bundle);
        self.kept.insert(id);
        id
    }

    pub fn remove(&mut self, id: u64) {
        self.store.remove(self.now, BundleId(id));
        if self.kept.remove(&id) {
            let needed = self.put[&id].needed_bytes();
            self.kept_bytes = self.kept_bytes.saturating_sub(needed);
        }
        self.committed.remove(&id);
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.boot_ms += i64::try_from(time.as_millis()).unwrap();
        self.store.handle_timeout(self.now);
        self.listen();
    }

    /// One step of the worker; tells whether it wants another at once.
    pub fn step(&mut self) -> bool {
        let next = self.worker.step(true);
        self.listen();
        next == Next::Step
    }

    /// Lets the worker do all that it can.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the worker never rests");
    }

    /// Lets the worker try again what has failed, some times.
    pub fn recover(&mut self) {
        for _ in 0..10 {
            self.settle();
        }
    }

    pub fn listen(&mut self) {
        while let Some(event) = self.store.poll_event() {
            match &event {
                StoreEvent::Committed(BundleId(id)) => {
                    self.committed.insert(*id);
                }
                StoreEvent::Lost { id, .. } => {
                    self.lost.insert(id.0);
                    self.remove(id.0);
                }
                _ => {}
            }
            self.events.push(event);
        }
    }

    /// A payload, from memory or from the disk.
    pub fn load(&mut self, id: u64) -> Option<Bytes> {
        for _ in 0..100 {
            match self.store.payload(BundleId(id)) {
                Payload::Here(pieces) => return Some(pieces.concat().into()),
                Payload::Coming => drop(self.step()),
                Payload::Lost => return None,
            }
        }
        panic!("the payload never comes");
    }

    /// A payload, or none once it is told to be lost.
    pub fn load_or_lose(&mut self, id: u64) -> Option<Bytes> {
        for _ in 0..100 {
            match self.store.payload(BundleId(id)) {
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

    /// The node ends, and starts again after `down`; a loss of power is
    /// another boot.
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
        let opened = open(
            &self.disk,
            self.limits,
            self.boot,
            self.boot_ms,
            self.runs,
            self.now,
        );
        (self.store, self.worker, self.report) = opened;
        self.restored = self.store.restore();
        let first_free = self.store.first_free_id().0;
        assert!(self.restored.iter().all(|bundle| bundle.id.0 < first_free));
        self.next_id = self.next_id.max(first_free);
    }

    pub fn restored_ids(&self) -> BTreeSet<u64> {
        self.restored.iter().map(|bundle| bundle.id.0).collect()
    }
}
