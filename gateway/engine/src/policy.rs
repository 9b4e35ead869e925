//! By which of the paths to its neighbour a class goes.

use serde::Deserialize;
use underpass_completion::Estimate;

use crate::config::HopConfig;
use crate::migration::MigrationRule;

/// How several paths are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathUse {
    /// Each bundle goes by the one that delivers it first.
    #[default]
    Bonded,
    /// All go by the first that can take them.
    Failover,
    /// All go by the first, and wait while it cannot carry.
    Pinned,
    /// Each goes by the two that deliver it first.
    Duplicated,
    /// All go by one, and move to another as the rule says.
    Migrate,
    /// Each flow goes by the one that completes it first.
    MinFct,
}

impl PathUse {
    /// Its name in configuration and API.
    pub fn name(self) -> &'static str {
        match self {
            PathUse::Bonded => "bonded",
            PathUse::Failover => "failover",
            PathUse::Pinned => "pinned",
            PathUse::Duplicated => "duplicated",
            PathUse::Migrate => "migrate",
            PathUse::MinFct => "minfct",
        }
    }
}

/// When a class goes by a metered path, while that has a budget left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeteredUse {
    /// Never.
    Never,
    /// Only while no path that is not metered can carry it.
    #[default]
    Last,
    /// As by any other.
    Freely,
}

/// A class's policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// What is done with them.
    pub uses: PathUse,
    /// Paths and listeners by their names, the preferred ones first; empty means all, in the order
    /// of the configuration.
    pub paths: Vec<String>,
    /// When a class with [`PathUse::Migrate`] moves.
    pub migration: MigrationRule,
    /// How a class with [`PathUse::MinFct`] estimates completion.
    pub estimate: Estimate,
    /// What it does with metered paths.
    pub metered: MeteredUse,
}

impl Policy {
    /// The place of a hop in the order of preference; `None` if the class does not use it.
    pub(crate) fn place_of(&self, hop: &HopConfig) -> Option<usize> {
        if self.paths.is_empty() {
            return Some(0);
        }
        let names = || [&hop.name].into_iter().chain(&hop.known_as);
        let place = self
            .paths
            .iter()
            .position(|path| names().any(|name| name == path))?;
        (self.uses != PathUse::Pinned || place == 0).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(uses: PathUse, paths: &[&str], known_as: &str) -> Option<usize> {
        let policy = Policy {
            uses,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            ..Policy::default()
        };
        let hop = HopConfig {
            name: "terminal-10".to_owned(),
            known_as: vec![known_as.to_owned()],
            ..crate::config::tests::hop(None)
        };
        policy.place_of(&hop)
    }

    #[test]
    fn a_path_that_is_not_named_is_not_used() {
        let both = ["lte", "sat"];
        assert_eq!(place(PathUse::Bonded, &[], "lte"), Some(0));
        assert_eq!(place(PathUse::Bonded, &["lte"], "sat"), None);
        assert_eq!(place(PathUse::Failover, &both, "sat"), Some(1));
        assert_eq!(place(PathUse::Pinned, &both, "lte"), Some(0));
        assert_eq!(place(PathUse::Pinned, &both, "sat"), None);
        assert_eq!(place(PathUse::Duplicated, &["terminal-10"], "sat"), Some(0));
    }
}
