//! Which neighbours may send the bundles of which source.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use crate::contact::{Contact, Node};

/// For each node of a plan, the neighbours through which its bundles can come to the own
/// node: contacts lead from the node to the neighbour and from there to the own node, one
/// after the other in time. Blockages and the present time do not count: a bundle may
/// have waited on its way.
pub(crate) fn speakers(own: Node, contacts: &[Contact]) -> HashMap<Node, BTreeSet<Node>> {
    let mut reaching: HashMap<Node, Vec<&Contact>> = HashMap::new();
    for contact in contacts.iter().filter(|contact| contact.from != own) {
        reaching.entry(contact.to).or_default().push(contact);
    }
    // The latest time by which each neighbour must have a bundle.
    let mut last: BTreeMap<Node, u64> = BTreeMap::new();
    for contact in reaching.remove(&own).unwrap_or_default() {
        if let Some(latest) = latest_ms(contact, u64::MAX) {
            let known = last.entry(contact.from).or_insert(latest);
            *known = latest.max(*known);
        }
    }
    let mut speakers: HashMap<Node, BTreeSet<Node>> = HashMap::new();
    for (neighbour, latest) in last {
        for node in behind(neighbour, latest, &reaching) {
            speakers.entry(node).or_default().insert(neighbour);
        }
    }
    speakers
}

/// The nodes whose bundles can be at a neighbour by `latest`, the neighbour itself
/// included (Dijkstra's algorithm, backwards in time).
fn behind(neighbour: Node, latest: u64, reaching: &HashMap<Node, Vec<&Contact>>) -> BTreeSet<Node> {
    let mut queue = BinaryHeap::from([(latest, neighbour)]);
    let mut done = BTreeSet::new();
    while let Some((by_ms, node)) = queue.pop() {
        if !done.insert(node) {
            continue;
        }
        for contact in reaching.get(&node).into_iter().flatten() {
            if let Some(latest) = latest_ms(contact, by_ms)
                && !done.contains(&contact.from)
            {
                queue.push((latest, contact.from));
            }
        }
    }
    done
}

/// The latest time at which even the smallest bundle can be sent in a contact to arrive
/// by `by_ms`.
fn latest_ms(contact: &Contact, by_ms: u64) -> Option<u64> {
    contact.timing()?.latest_ms(by_ms, 0)
}
