//! What a provider may set of this node from afar.

use serde::Deserialize;

/// What a provider may set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfig {
    /// class: the policies of classes; path: rates, budgets and times of paths, and
    /// further paths to this node's neighbours. Default: nothing.
    pub may_set: Vec<Settable>,
}

/// A part of the configuration that a provider may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Settable {
    /// Of classes.
    Class,
    /// Of paths.
    Path,
}
