//! What a provider may set remotely on this node.

use std::time::Duration;

use serde::Deserialize;

use super::bounds::check_within;

/// What a provider may set.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfig {
    /// class: the policies of classes; path: rates, budgets and times of paths, and
    /// further paths to this node's neighbours; terminal: the same of a hub's
    /// terminals and their paths. Default: nothing.
    pub may_set: Vec<Settable>,
    /// Within this time in which the link could be there, the neighbour must be heard
    /// after a change, or the node takes its former settings back, s, 10 to 3,600.
    /// Default 180.
    pub trial_s: u64,
}

impl Default for ProviderConfig {
    fn default() -> Self {
        ProviderConfig {
            may_set: Vec::new(),
            trial_s: 180,
        }
    }
}

impl ProviderConfig {
    /// How long a change is on trial, in clear link time.
    pub fn trial(&self) -> Duration {
        Duration::from_secs(self.trial_s)
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        check_within("provider.trial_s", self.trial_s, 10..=3_600, problems);
    }
}

/// A part of the configuration that a provider may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Settable {
    /// Of classes.
    Class,
    /// Of paths.
    Path,
    /// Of terminals, at their hub.
    Terminal,
}
