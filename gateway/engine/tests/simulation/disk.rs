//! Disks that survive their nodes: the durable store over a simulated disk, with a worker
//! that has its own timing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use underpass_bundle::{Restored, Store, destination_of};
use underpass_store::simulated::{Crash, SimulatedDisk};
use underpass_store::watched::Watched;
use underpass_store::{DiskStore, Identity, Limits, Next, Worker};

use crate::nodes;
use crate::random::Random;
use crate::schedule::{DiskPlan, HowStopped, NodePlan, Schedule};
use crate::world::{Happening, World};

/// The pause before a failed disk is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The most steps in which a worker writes everything.
const MOST_STEPS: usize = 10_000;

/// A node's disk.
#[derive(Clone, Debug)]
pub struct Disk {
    pub media: SimulatedDisk,
    plan: DiskPlan,
    /// The number of power losses so far.
    boots: u8,
    /// The number of bits flipped so far.
    pub flipped: u64,
    /// Whether the node ended in a way that may leave damage.
    suspect: bool,
}

/// What the store has signalled to its surroundings.
#[derive(Debug, Default)]
struct Flags {
    /// The worker has a request.
    asked: AtomicBool,
    /// Everything that was put durably is on disk.
    quiet: AtomicBool,
}

/// The worker of a store in one run of its node.
pub struct DiskWork {
    worker: Worker<SimulatedDisk>,
    flags: Arc<Flags>,
    latency: Duration,
    /// The time of its next step.
    pub due: Option<Duration>,
    retry_at: Duration,
}

impl Disk {
    pub fn new(plan: DiskPlan) -> Disk {
        Disk {
            media: SimulatedDisk::default(),
            plan,
            boots: 0,
            flipped: 0,
            suspect: false,
        }
    }

    /// The stores of a node's next run, by shard, opened at time `at` of the simulation.
    pub fn open(
        &self,
        schedule: &Schedule,
        node: usize,
        at: Duration,
        now: Instant,
    ) -> (Vec<Box<dyn Store>>, DiskWork) {
        let NodePlan { number, shards, .. } = schedule.nodes[node];
        let at_ms = at.as_millis() as u64;
        let identity = Identity {
            node: number,
            boot: [self.boots; 16],
            boot_ms: at_ms as i64,
            seed: Random::new(number ^ at_ms << 8 ^ u64::from(self.boots)).next(),
        };
        let limits = Limits {
            segment_bytes: self.plan.segment_bytes,
            memory_bytes: self.plan.memory_bytes,
            write_behind: Duration::from_millis(250),
        };
        let shard_of = |restored: &Restored| {
            let destination = destination_of(&restored.record);
            destination.map_or(0, |to| nodes::shard_to(schedule, node, to))
        };
        let media = self.media.clone();
        let opened = DiskStore::sharded(media, identity, limits, now, shards, shard_of, |_| ());
        let (stores, worker, report) = opened.expect("a disk of this node");
        let damaged = &report.damaged;
        assert!(damaged.is_empty() || self.suspect, "{damaged:?}");
        let flags = Arc::<Flags>::default();
        let work = DiskWork {
            worker,
            flags: flags.clone(),
            latency: self.plan.latency,
            due: None,
            retry_at: Duration::ZERO,
        };
        let watched = stores.into_iter().map(|store| {
            let flags = flags.clone();
            let tell = move |store: &DiskStore, asks| {
                flags.asked.fetch_or(asks, Ordering::Relaxed);
                // Only a store with nothing to write takes bundles of any size.
                let quiet = store.free_bytes() == u64::MAX;
                flags.quiet.store(quiet, Ordering::Relaxed);
            };
            Box::new(Watched::new(store, tell)) as Box<dyn Store>
        });
        (watched.collect(), work)
    }
}

impl DiskWork {
    /// Whether everything that was put durably is on disk.
    pub fn is_quiet(&self) -> bool {
        self.flags.quiet.load(Ordering::Relaxed)
    }

    /// Writes until nothing is left to write, or the disk fails.
    pub fn drain(&mut self) {
        for _ in 0..MOST_STEPS {
            if self.worker.step(true) != Next::Step {
                return;
            }
        }
        panic!("a worker never ends");
    }
}

impl World {
    /// After a call of a node's engine: its disk starts on the engine's requests.
    pub fn wake_disk(&mut self, node: usize) {
        let Some(work) = &mut self.nodes[node].work else {
            return;
        };
        let at = self.now + work.latency;
        if work.flags.asked.swap(false, Ordering::Relaxed) && work.due.is_none_or(|due| due > at) {
            work.due = Some(at);
            self.at(at, Happening::DiskWork(node));
        }
    }

    pub fn work_disk(&mut self, number: usize) {
        let now = self.now;
        let Some(work) = &mut self.nodes[number].work else {
            return;
        };
        // Another step has come first, or this one is of an earlier run.
        if work.due != Some(now) {
            return;
        }
        let retry = now >= work.retry_at;
        if retry {
            work.retry_at = now + RETRY;
        }
        work.due = match work.worker.step(retry) {
            Next::Step => Some(now + work.latency),
            Next::Wait(pause) => pause.map(|pause| now + pause),
            Next::Stop => None,
        };
        if let Some(at) = work.due {
            self.at(at, Happening::DiskWork(number));
        }
        self.call_all(number, |engine, now| engine.store_moved(now));
    }

    /// What happens to a node's disk when the node ends.
    pub fn crash_disk(&mut self, number: usize, how: HowStopped, dice: u64) {
        let node = &mut self.nodes[number];
        let (Some(disk), Some(mut work)) = (&mut node.disk, node.work.take()) else {
            return;
        };
        match how {
            HowStopped::InOrder => work.drain(),
            HowStopped::Crash { crash, torn, flip } => {
                if torn {
                    disk.media.die_after(dice % 8_192);
                    work.worker.step(true);
                }
                let power = crash != Crash::Kill;
                disk.boots += u8::from(power);
                disk.suspect |= power || torn || flip;
                let losses = disk.media.crash(crash, dice);
                let flipped = flip && disk.media.flip(dice);
                disk.flipped += u64::from(flipped);
                self.count("torn write", losses.torn.into());
                self.count("sector lost", losses.sectors);
                self.count("sector overtaken", losses.overtaken_sectors);
                self.count("name lost", losses.names);
                self.count("flipped bit", flipped.into());
            }
        }
    }
}
