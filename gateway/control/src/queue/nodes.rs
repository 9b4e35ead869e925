//! Whose reports wait.

use std::collections::{BTreeSet, HashMap};

/// Which reports of each node wait, wherever they are.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    of: HashMap<u64, OfNode>,
    /// Bytes and node, in their order.
    by_bytes: BTreeSet<(u64, u64)>,
}

#[derive(Debug, Default)]
struct OfNode {
    bytes: u64,
    ids: BTreeSet<u64>,
}

impl Nodes {
    pub fn add(&mut self, node: u64, id: u64, bytes: u64) {
        let of_node = self.of.entry(node).or_default();
        self.by_bytes.remove(&(of_node.bytes, node));
        of_node.ids.insert(id);
        of_node.bytes += bytes;
        self.by_bytes.insert((of_node.bytes, node));
    }

    pub fn remove(&mut self, node: u64, id: u64, bytes: u64) {
        let Some(of_node) = self.of.get_mut(&node) else {
            return;
        };
        self.by_bytes.remove(&(of_node.bytes, node));
        of_node.ids.remove(&id);
        of_node.bytes -= bytes;
        if of_node.ids.is_empty() {
            self.of.remove(&node);
            return;
        }
        self.by_bytes.insert((of_node.bytes, node));
    }

    /// All of them: first those of the node that has the most, and of each node
    /// the oldest first.
    pub fn most_first(&self) -> impl Iterator<Item = u64> + '_ {
        let nodes = self.by_bytes.iter().rev();
        let ids = nodes.filter_map(move |(_, node)| Some(&self.of.get(node)?.ids));
        ids.flatten().copied()
    }
}
