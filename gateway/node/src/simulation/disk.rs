//! Durable custody over a simulated disk, which outlives its node.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use underpass_bundle::{NeighbourId, Restored, Sharding, Store, destination_of};
use underpass_store::simulated::{Crash, SimulatedDisk};
use underpass_store::watched::Watched;
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

    /// The disk as the next run finds it if the node is killed now.
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
            // The machine keeps running: only the process is killed.
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
            let tell = move |_: &DiskStore, asks| {
                if asks {
                    asked.notify_one();
                }
            };
            Box::new(Watched::new(store, tell)) as Box<dyn Store>
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
    /// Works until the store is dropped. Runs until dropped.
    pub async fn run(mut self, shell: Arc<Shell>) {
        loop {
            let next = self.worker.step(true);
            shell.with_each(|engine, now| engine.store_moved(now));
            match next {
                Next::Step => tokio::time::sleep(STEP).await,
                Next::Wait(None) => self.asked.notified().await,
                Next::Wait(Some(most)) => {
                    // Its own call into the engine has requested nothing new.
                    let _ = tokio::time::timeout(most, self.asked.notified()).await;
                }
                Next::Stop => return,
            }
        }
    }
}
