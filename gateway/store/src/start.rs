//! Opens a disk: its bundles go to one store, or to the stores of a node's shards, which share one
//! log and one worker.

use std::time::{Duration, Instant};

use underpass_bundle::{BundleId, Restored};

use crate::budget::Sum;
use crate::disk::Disk;
use crate::log::Log;
use crate::queue::{Figures, Shared};
use crate::recovery::{Damage, RecoveryError};
use crate::segment::Identity;
use crate::store::{DiskStore, Limits};
use crate::worker::Worker;

/// What a start has found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Bundles restored.
    pub bundles: usize,
    /// Their payloads' bytes.
    pub bytes: u64,
    /// What was dropped.
    pub damaged: Vec<Damage>,
}

impl DiskStore {
    /// A store over a disk, and the worker that it needs, whose owner calls [`Worker::step`].
    /// `notify` is called when the worker has done something.
    ///
    /// # Errors
    /// When the disk cannot be read, or holds another node's bundles.
    pub fn over<D: Disk>(
        disk: D,
        identity: Identity,
        limits: Limits,
        now: Instant,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Result<(DiskStore, Worker<D>, Report), RecoveryError> {
        let notify = move |_| notify();
        let opened = DiskStore::sharded(disk, identity, limits, now, 1, |_| 0, notify)?;
        let (mut stores, worker, report) = opened;
        Ok((stores.swap_remove(0), worker, report))
    }

    /// As [`DiskStore::over`], for `shards` shards, at least one: a store for each, which is used
    /// under its shard's own lock. A bundle's id is unique over all shards. `limits` hold for all
    /// stores together. `assign` says which shard takes a bundle that an earlier run has left, even
    /// if that run had another number of shards; a shard that does not exist stands for shard 0.
    ///
    /// `notify` is called with a shard, by the worker when there is something for the shard's
    /// store, or by a call of another shard's store when there may be room again. So it must not
    /// wait for a shard's lock. The shard then polls its store, and asks again for room that it was
    /// refused.
    ///
    /// # Errors
    /// When the disk cannot be read, or holds another node's bundles.
    pub fn sharded<D: Disk>(
        disk: D,
        identity: Identity,
        limits: Limits,
        now: Instant,
        shards: usize,
        assign: impl Fn(&Restored) -> usize,
        notify: impl Fn(usize) + Send + Sync + 'static,
    ) -> Result<(Vec<DiskStore>, Worker<D>, Report), RecoveryError> {
        let (log, recovered) = Log::recover(disk, identity, limits.segment_bytes)?;
        let shards = shards.max(1);
        let shared = Shared::new(shards, notify);
        let report = Report {
            bundles: recovered.bundles.len(),
            bytes: recovered.bundles.iter().map(|b| b.payload_bytes).sum(),
            damaged: recovered.damaged,
        };
        let figures = Figures {
            restored_bundles: report.bundles as u64,
            damaged_at_start: report.damaged.len() as u64,
            ..Figures::default()
        };
        let worker = Worker::new(log, shared.clone(), recovered.unverified, figures);
        let (known, behind) = (Sum::new(shards), Sum::new(shards));
        let epoch = (now, identity.boot_ms);
        let first_free_id = recovered.first_free_id;
        let store = |shard| {
            DiskStore::new(
                &shared,
                shard,
                limits,
                epoch,
                first_free_id,
                [&known, &behind],
            )
        };
        let mut stores: Vec<DiskStore> = (0..shards).map(store).collect();
        for found in recovered.bundles {
            let restored = Restored {
                id: BundleId(found.id),
                record: found.description,
                payload_bytes: found.payload_bytes,
                stored_for: Duration::from_millis(found.stored_for_ms),
            };
            let shard = Some(assign(&restored)).filter(|shard| *shard < shards);
            stores[shard.unwrap_or(0)].take_up(restored);
        }
        Ok((stores, worker, report))
    }
}
