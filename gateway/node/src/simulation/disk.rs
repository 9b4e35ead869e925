//! Durable custody over a simulated disk, which outlives its node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use underpass_bundle::{
    BundleId, DurableRecord, NeighbourId, Payload, Restored, Sharding, Store, StoreEvent,
    destination_of,
};
use underpass_store::simulated::{Crash, SimulatedDisk};
use underpass_store::{DiskStore, Identity, Limits, Next, Worker};

use crate::shell::Shell;

/// One step of the disk takes so long.
const STEP: Duration = Duration::from_millis(2);

/// A node's disk.
#[derive(Clone)]
pub struct Disk {
    media: SimulatedDisk,
    runs: u8,
}

impl Disk {
    pub fn new() -> Disk {
        Disk {
            media: SimulatedDisk::default(),
            runs: 0,
        }
    }

    /// The disk as the next run of a node that is killed now will find it.
    pub fn after_kill(&self) -> Disk {
        let media = self.media.copy();
        media.crash(Crash::Kill, 0);
        Disk {
            media,
            runs: self.runs + 1,
        }
    }

    /// The stores of a run, by shard, and their work.
    pub fn open(&self, node: u64, shards: usize) -> (Vec<Box<dyn Store>>, DiskWork) {
        let identity = Identity {
            node,
            // The machine goes on: only the process is killed.
            boot: [0; 16],
            boot_ms: 0,
            seed: node ^ u64::from(self.runs) << 8,
        };
        let limits = Limits {
            segment_bytes: 1 << 20,
            memory_bytes: 4 << 20,
            write_behind: Duration::from_millis(250),
        };
        let now = tokio::time::Instant::now().into_std();
        let sharding = Sharding {
            own: 0,
            count: shards,
        };
        let shard_of = |restored: &Restored| {
            let to = destination_of(&restored.record);
            to.map_or(0, |node| sharding.shard_of(NeighbourId(node)))
        };
        let media = self.media.clone();
        let opened = DiskStore::sharded(media, identity, limits, now, shards, shard_of, |_| ());
        let (stores, worker, report) = opened.expect("a disk of this node");
        assert!(report.damaged.is_empty(), "{:?}", report.damaged);
        let asked = Arc::<Notify>::default();
        let work = DiskWork {
            worker,
            asked: asked.clone(),
        };
        let stores = stores.into_iter().map(|store| {
            let asked = asked.clone();
            Box::new(Asked { store, asked }) as Box<dyn Store>
        });
        (stores.collect(), work)
    }
}

/// What writes for a store.
pub struct DiskWork {
    worker: Worker<SimulatedDisk>,
    asked: Arc<Notify>,
}

impl DiskWork {
    /// Works until the store is gone. Runs until dropped.
    pub async fn run(mut self, shell: Arc<Shell>) {
        loop {
            let next = self.worker.step(true);
            shell.with_each(|engine, now| engine.store_moved(now));
            match next {
                Next::Step => tokio::time::sleep(STEP).await,
                Next::Wait(None) => self.asked.notified().await,
                Next::Wait(Some(most)) => {
                    // Its own call on the engine has asked it for nothing new.
                    let _ = tokio::time::timeout(most, self.asked.notified()).await;
                }
                Next::Stop => return,
            }
        }
    }
}

/// A store that tells its worker when it is asked for something.
struct Asked {
    store: DiskStore,
    asked: Arc<Notify>,
}

impl Store for Asked {
    fn is_durable(&self) -> bool {
        self.store.is_durable()
    }

    fn restore(&mut self) -> Vec<Restored> {
        self.asked.notify_one();
        self.store.restore()
    }

    fn first_free_id(&self) -> BundleId {
        self.store.first_free_id()
    }

    fn free_bytes(&self) -> u64 {
        self.store.free_bytes()
    }

    fn burst_bytes(&self) -> u64 {
        self.store.burst_bytes()
    }

    fn put(
        &mut self,
        now: Instant,
        id: BundleId,
        durable: Option<DurableRecord>,
        payload: Vec<Bytes>,
    ) {
        self.asked.notify_one();
        self.store.put(now, id, durable, payload);
    }

    fn payload(&mut self, id: BundleId) -> Payload {
        self.asked.notify_one();
        self.store.payload(id)
    }

    fn expect(&mut self, id: BundleId) {
        self.asked.notify_one();
        self.store.expect(id);
    }

    fn remove(&mut self, now: Instant, id: BundleId) {
        self.asked.notify_one();
        self.store.remove(now, id);
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.store.poll_event()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.store.next_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.asked.notify_one();
        self.store.handle_timeout(now);
    }

    fn in_memory_alone(&self, id: BundleId) -> Option<Vec<Bytes>> {
        self.store.in_memory_alone(id)
    }

    fn flush(&mut self) {
        self.asked.notify_one();
        self.store.flush();
    }

    fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        self.store.footprint(tell);
    }
}
