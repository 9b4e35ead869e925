//! What is in custody, and where.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use underpass_store::Figures;

use crate::api::ApiState;
use crate::config::Durability;

#[derive(Debug, Serialize, Deserialize)]
pub struct CustodyView {
    pub bundles: u64,
    /// Bytes stored, as the quota counts them.
    pub used_bytes: u64,
    pub quota_bytes: u64,
    /// What custody outlives: memory or disk.
    pub durability: String,
    /// The store on the disk; null without one.
    pub disk: Option<DiskView>,
    /// By class name.
    pub classes: BTreeMap<String, CustodyClassView>,
    pub neighbours: Vec<CustodyNeighbourView>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CustodyNeighbourView {
    /// Its node number.
    pub neighbour: u64,
    pub bundles: u64,
    /// Bytes stored, as the quota counts them.
    pub used_bytes: u64,
    /// Bundles that have room whatever others have.
    pub guaranteed_bundles: u64,
    /// Bytes that have room whatever others have.
    pub guaranteed_bytes: u64,
}

/// The custody store on a disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DiskView {
    /// Bytes of its files.
    pub log_bytes: u64,
    /// Bytes in them of bundles that are kept.
    pub live_bytes: u64,
    /// Its files.
    pub segments: u64,
    /// Payload in memory that is not on the disk yet, bytes.
    pub uncommitted_bytes: u64,
    /// Payload in memory that is on the disk too, bytes.
    pub resident_bytes: u64,
    /// Bundles written since the start.
    pub committed_bundles: u64,
    pub committed_bytes: u64,
    /// Times that the disk made something durable.
    pub commits: u64,
    /// Payloads read since the start.
    pub loaded_bundles: u64,
    /// Bundles restored at the start.
    pub restored_bundles: u64,
    /// Damaged places found at the start.
    pub damaged_at_start: u64,
    /// Bundles found damaged since.
    pub lost_bundles: u64,
    /// Files that the disk could not read, since the start.
    pub failed_segments: u64,
    /// Why nothing can be written at present; null if it can.
    pub stalled: Option<String>,
}

impl From<Figures> for DiskView {
    fn from(figures: Figures) -> DiskView {
        DiskView {
            log_bytes: figures.log_bytes,
            live_bytes: figures.live_bytes,
            segments: figures.segments as u64,
            uncommitted_bytes: figures.uncommitted_bytes,
            resident_bytes: figures.resident_bytes,
            committed_bundles: figures.committed_bundles,
            committed_bytes: figures.committed_bytes,
            commits: figures.commits,
            loaded_bundles: figures.loaded_bundles,
            restored_bundles: figures.restored_bundles,
            damaged_at_start: figures.damaged_at_start,
            lost_bundles: figures.lost_bundles,
            failed_segments: figures.failed_segments,
            stalled: figures.stalled,
        }
    }
}

/// The custody store's bundles of one class.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CustodyClassView {
    pub bundles: u64,
    /// Payload bytes stored.
    pub bytes: u64,
    /// Those in this node's custody.
    pub custody_bundles: u64,
    /// Their payload bytes.
    pub custody_bytes: u64,
    /// Age of the oldest, s.
    pub oldest_s: f64,
}

impl ApiState {
    pub(in crate::api) fn custody(&self) -> CustodyView {
        let figures = self.shell.custody(Instant::now());
        let classes = figures.classes.iter().map(|(class, figures)| {
            let view = CustodyClassView {
                bundles: figures.bundles,
                bytes: figures.bytes,
                custody_bundles: figures.custody_bundles,
                custody_bytes: figures.custody_bytes,
                oldest_s: figures.oldest.as_secs_f64(),
            };
            (self.class_name(*class), view)
        });
        let neighbours = self.shell.custody_by_neighbour().into_iter();
        let neighbours = neighbours.map(|(neighbour, figures)| CustodyNeighbourView {
            neighbour: neighbour.0,
            bundles: figures.used.bundles,
            used_bytes: figures.used.bytes,
            guaranteed_bundles: figures.guaranteed.bundles,
            guaranteed_bytes: figures.guaranteed.bytes,
        });
        let config = self.config.get();
        let custody = &config.custody;
        CustodyView {
            bundles: figures.bundles as u64,
            used_bytes: figures.used_bytes,
            quota_bytes: custody.quota_bytes,
            durability: match custody.is_durable() {
                true => Durability::Disk.name().to_owned(),
                false => Durability::Memory.name().to_owned(),
            },
            disk: self.custody.monitor().map(|disk| disk.figures().into()),
            classes: classes.collect(),
            neighbours: neighbours.collect(),
        }
    }
}
