//! What this node says of itself.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::bounds::check_within;

/// `[reports]`: reports to another node. A hub takes in its terminals' without
/// being told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportsConfig {
    /// The node that they go to: the hub's ipn node number.
    pub to: u64,
    /// File with this terminal's token at the control service, of role terminal, by which it
    /// proves that it is at that hub. Read anew for each proof. Default: no proof.
    pub token_file: Option<PathBuf>,
    /// How often one is made, ms, 100 to 3,600,000. Default 1000.
    #[serde(default = "default_interval_ms")]
    pub interval_ms: u64,
}

fn default_interval_ms() -> u64 {
    1000
}

impl ReportsConfig {
    /// How often one is made.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let key = "reports.interval_ms";
        check_within(key, self.interval_ms, 100..=3_600_000, problems);
    }
}
