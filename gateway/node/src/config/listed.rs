//! The terminals of a hub as the control service lists them: a file in
//! `node.state_dir`, which the node writes and reads as if it were a fragment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Table;

/// The file's name.
const NAME: &str = "terminals.toml";

/// The service's list of terminals. It has no other keys: they would let the service, or anybody
/// with access to the state folder, configure the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    #[serde(default, rename = "terminal")]
    pub terminals: Vec<ListedTerminal>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedTerminal {
    /// Its ipn node number.
    pub node: u64,
    /// Share of the beam among the terminals.
    pub weight: u32,
    /// Most that is sent to it, bit/s of IP bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_rate_bps: Option<u64>,
    /// Rate from it, bit/s of IP bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_rate_bps: Option<u64>,
}

impl Listing {
    /// Where a node has it.
    pub fn file(state_dir: &Path) -> PathBuf {
        state_dir.join(NAME)
    }

    /// As it is written: TOML.
    ///
    /// # Errors
    /// When a number is larger than TOML has them.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// The file that a configuration takes terminals from, if it does.
    pub(super) fn file_of(written: &Table) -> Option<PathBuf> {
        let key = |table: &str, key: &str| written.get(table)?.get(key).cloned();
        let takes = key("control", "terminals").and_then(|value| value.as_bool());
        takes.filter(|takes| *takes)?;
        let state_dir = key("node", "state_dir");
        let state_dir = state_dir.and_then(|value| Some(PathBuf::from(value.as_str()?)));
        Some(Listing::file(
            &state_dir.unwrap_or_else(super::node::default_state_dir),
        ))
    }

    /// Without the terminals that are configured by hand: the operator has said more about these
    /// than the service knows.
    pub(super) fn beside(mut self, written: &Table) -> Listing {
        let terminals = written.get("terminal").and_then(|value| value.as_array());
        let nodes = terminals
            .into_iter()
            .flatten()
            .filter_map(|one| u64::try_from(one.get("node")?.as_integer()?).ok());
        let by_hand: BTreeSet<u64> = nodes.collect();
        self.terminals.retain(|one| !by_hand.contains(&one.node));
        self
    }
}
