//! A plan's contacts by the nodes that send and receive in them.

use std::collections::{BTreeMap, HashMap};

use crate::contact::{Contact, Node, Timing};
use crate::router::ContactId;

/// A node's place in a graph.
pub(crate) type Place = u32;

/// The part of a contact that a search needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub from: Place,
    pub to: Place,
    pub timing: Timing,
}

/// Contacts in the order in which searches visit them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    places: HashMap<Node, Place>,
    nodes: Vec<Node>,
    /// From each node, by end, so that a search skips the contacts that are over.
    from: Vec<BTreeMap<(u64, ContactId), Edge>>,
    /// To each node, by start.
    to: Vec<BTreeMap<(u64, ContactId), Edge>>,
}

impl Graph {
    pub fn place(&self, node: Node) -> Option<Place> {
        self.places.get(&node).copied()
    }

    pub fn node(&self, place: Place) -> Node {
        self.nodes[place as usize]
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn insert(&mut self, id: ContactId, contact: &Contact) {
        let [from, to] = [contact.from, contact.to].map(|node| self.place_or_new(node));
        // A contact whose booked bytes never end is never used.
        let Some(timing) = contact.timing() else {
            return;
        };
        let edge = Edge { from, to, timing };
        self.from[from as usize].insert((contact.end_ms, id), edge);
        self.to[to as usize].insert((contact.start_ms, id), edge);
    }

    pub fn remove(&mut self, id: ContactId, contact: &Contact) {
        if let Some(from) = self.place(contact.from) {
            self.from[from as usize].remove(&(contact.end_ms, id));
        }
        if let Some(to) = self.place(contact.to) {
            self.to[to as usize].remove(&(contact.start_ms, id));
        }
    }

    /// The contacts from a node that end at `ready_ms` or later.
    pub fn leaving(&self, place: Place, ready_ms: u64) -> impl Iterator<Item = &Edge> {
        let later = self.from[place as usize].range((ready_ms, ContactId(0))..);
        later.map(|(_, edge)| edge)
    }

    /// The contacts to a node that begin by `by_ms`.
    pub fn reaching(&self, place: Place, by_ms: u64) -> impl Iterator<Item = (ContactId, &Edge)> {
        let begun = self.to[place as usize].range(..=(by_ms, ContactId(u64::MAX)));
        begun.map(|((_, id), edge)| (*id, edge))
    }

    fn place_or_new(&mut self, node: Node) -> Place {
        let next = Place::try_from(self.nodes.len()).unwrap_or(Place::MAX);
        *self.places.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.from.push(BTreeMap::new());
            self.to.push(BTreeMap::new());
            next
        })
    }
}
