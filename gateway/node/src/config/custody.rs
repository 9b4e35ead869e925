//! Custody of bundles.

use serde::Deserialize;

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

/// Custody of bundles.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CustodyConfig {
    /// Bytes of bundles kept at most; at the bound sources are slowed.
    /// Default 1 GiB.
    pub quota_bytes: u64,
    /// Bundles kept at most. Default 1000000.
    pub quota_bundles: usize,
    /// Shape of the custody signals sent; both are understood. ion or bplib.
    /// Default ion.
    pub dialect: CustodyDialect,
    /// How long custody signals are gathered before one is sent, ms.
    /// Default 100.
    pub aggregate_ms: u64,
    /// Lifetime of the bundles that carry streams, s. Default 7200.
    pub lifetime_s: u64,
    /// Nodes a bundle may pass. Default 32.
    pub hop_limit: u8,
}

impl Default for CustodyConfig {
    fn default() -> Self {
        CustodyConfig {
            quota_bytes: 1 << 30,
            quota_bundles: 1_000_000,
            dialect: CustodyDialect::Ion,
            aggregate_ms: 100,
            lifetime_s: 7_200,
            hop_limit: 32,
        }
    }
}

impl CustodyConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if self.quota_bytes < 4 << 20 {
            problems.push("custody.quota_bytes: must be at least 4194304".to_owned());
        }
        if self.quota_bundles < 64 {
            problems.push("custody.quota_bundles: must be at least 64".to_owned());
        }
        if self.lifetime_s == 0 {
            problems.push("custody.lifetime_s = 0: bundles would expire at once".to_owned());
        }
        if self.hop_limit == 0 {
            problems.push("custody.hop_limit = 0: bundles could not leave".to_owned());
        }
    }
}
