//! Custody of bundles.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Role;
use super::bounds::{MOST_BYTES, TEN_YEARS_S, check_within};

/// What custody outlives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Custody ends with the process.
    Memory,
    /// Custody outlives the process and a loss of power.
    Disk,
}

impl Durability {
    /// Its name in configuration and API.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Memory => "memory",
            Durability::Disk => "disk",
        }
    }
}

/// Whose code points and shapes custody signals have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CustodyDialect {
    /// CCSDS 734.6 as ION-DTN implements it.
    #[default]
    Ion,
    /// As bplib 7 does.
    Bplib,
}

/// How many files the store uses beside those of the bundles in custody.
pub const SPARE_SEGMENTS: u64 = 6;
/// And so many times what is in custody.
pub const FILES_PER_CUSTODY: u64 = 2;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CustodyConfig {
    /// What custody outlives: memory or disk. Default: disk, where the folder
    /// of the store is on one with room for it at the start, else memory.
    pub durability: Option<Durability>,
    /// Folder of the store, with disk. Default "custody" in node.state_dir.
    pub dir: Option<PathBuf>,
    /// Payload in memory until it is on disk, bytes. Default 32 MiB at a
    /// terminal, which serves one link, else 96 MiB.
    pub memory_bytes: Option<u64>,
    /// Size of the store's files at most, with disk, bytes. Default 64 MiB.
    pub segment_bytes: u64,
    /// What this node itself has sealed is written when it is so old, with
    /// disk, ms. Default 250.
    pub write_behind_ms: u64,
    /// Bytes of bundles kept at most; at the bound sources are slowed.
    /// Default 1 GiB.
    pub quota_bytes: u64,
    /// Bundles kept at most. Default 1000000.
    pub quota_bundles: usize,
    /// The part of both that is guaranteed to the neighbours, in equal shares,
    /// percent; the rest is for all, and none takes more of it than it leaves.
    /// Default 50.
    pub guaranteed_percent: u8,
    /// Shape of the custody signals sent; both are understood. ion or bplib.
    /// Default ion.
    pub dialect: CustodyDialect,
    /// How long custody signals are gathered before one is sent, ms.
    /// Default 100.
    pub aggregate_ms: u64,
    /// Lifetime of the bundles that carry streams, s. Default 7200.
    pub lifetime_s: u64,
    /// Bundles that are relayed for others are kept for so long at most,
    /// whatever lifetime they name, s. Default 86400.
    pub foreign_lifetime_s: u64,
    /// Nodes a bundle may pass. Default 32.
    pub hop_limit: u8,
}

impl Default for CustodyConfig {
    fn default() -> Self {
        CustodyConfig {
            durability: None,
            dir: None,
            memory_bytes: None,
            segment_bytes: 64 << 20,
            write_behind_ms: 250,
            quota_bytes: 1 << 30,
            quota_bundles: 1_000_000,
            guaranteed_percent: 50,
            dialect: CustodyDialect::Ion,
            aggregate_ms: 100,
            lifetime_s: 7_200,
            foreign_lifetime_s: 86_400,
            hop_limit: 32,
        }
    }
}

impl CustodyConfig {
    /// The store's folder.
    pub fn dir(&self, state_dir: &Path) -> PathBuf {
        let named = self.dir.clone();
        named.unwrap_or_else(|| state_dir.join("custody"))
    }

    /// Payload in memory until it is on disk, bytes.
    pub fn memory_bytes(&self, role: Role) -> u64 {
        self.memory_bytes.unwrap_or(match role {
            Role::Terminal => 32 << 20,
            Role::Hub | Role::Relay => 96 << 20,
        })
    }

    /// Whether custody outlives the process; with the default not before the
    /// node has looked at its disk.
    pub fn is_durable(&self) -> bool {
        self.durability == Some(Durability::Disk)
    }

    /// Most bytes of disk that the store's files take.
    pub fn most_file_bytes(&self) -> u64 {
        let custody = self.quota_bytes.saturating_mul(FILES_PER_CUSTODY);
        custody.saturating_add(self.segment_bytes.saturating_mul(SPARE_SEGMENTS))
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let least = 4 << 20;
        let bundles = self.quota_bundles as u64;
        for (key, value, bounds) in [
            ("quota_bytes", self.quota_bytes, least..=MOST_BYTES),
            (
                "memory_bytes",
                self.memory_bytes.unwrap_or(least),
                least..=MOST_BYTES,
            ),
            ("segment_bytes", self.segment_bytes, 1 << 20..=1 << 30),
            ("write_behind_ms", self.write_behind_ms, 0..=60_000),
            ("quota_bundles", bundles, 64..=1_000_000_000),
            (
                "guaranteed_percent",
                self.guaranteed_percent.into(),
                0..=100,
            ),
            ("aggregate_ms", self.aggregate_ms, 0..=60_000),
            // With 0 bundles would expire at once, or not leave.
            ("lifetime_s", self.lifetime_s, 1..=TEN_YEARS_S),
            (
                "foreign_lifetime_s",
                self.foreign_lifetime_s,
                1..=TEN_YEARS_S,
            ),
            ("hop_limit", self.hop_limit.into(), 1..=255),
        ] {
            check_within(&format!("custody.{key}"), value, bounds, problems);
        }
    }
}
