//! One search for the best route.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use crate::contact::{Contact, Node};
use crate::router::{ContactId, Route};

/// Each node's contacts by the time that they end, with that of their start.
pub(crate) type Outgoing = HashMap<Node, BTreeMap<(u64, ContactId), u64>>;

/// What a search looks for, and where.
pub(crate) struct Search<'a> {
    contacts: &'a HashMap<ContactId, Contact>,
    outgoing: &'a Outgoing,
    from: Node,
    to: Node,
    bytes: u64,
    at_ms: u64,
}

/// Which routes count.
#[derive(Clone, Copy)]
struct Bounds {
    /// No contact ends before that.
    ends_from_ms: u64,
    /// The neighbour that they begin with.
    entry: Option<Node>,
    /// They arrive by then.
    by_ms: u64,
}

/// How a node was reached: by which contact, in the round before from where.
type Step = (u64, ContactId, Node);

impl<'a> Search<'a> {
    pub(crate) fn new(
        contacts: &'a HashMap<ContactId, Contact>,
        outgoing: &'a Outgoing,
        from: Node,
        to: Node,
        bytes: u64,
        at_ms: u64,
    ) -> Search<'a> {
        Search {
            contacts,
            outgoing,
            from,
            to,
            bytes,
            at_ms,
        }
    }

    /// The best route. The earliest arrival is found first; then the fewest
    /// hops that arrive as early: a node reached later may be on a shorter way
    /// that is as good in the end, so this goes round by round and not by one
    /// arrival for each node. With these two fixed, a later end is found by
    /// halving, and the smallest entry among those by trying.
    pub(crate) fn best(&self) -> Option<Route> {
        let by_ms = self.earliest()?;
        let mut bounds = Bounds {
            ends_from_ms: 0,
            entry: None,
            by_ms,
        };
        let first = self.rounds(bounds, usize::MAX)?;
        let hops = first.contacts.len();
        // A later end: between what is found and the latest of the own contacts.
        let mut best = first;
        let all = self.outgoing.values().flatten();
        let later = all.filter(|((end, _), start)| **start <= by_ms && *end > best.termination_ms);
        let mut ends: Vec<u64> = later.map(|((end, _), _)| *end).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut ends = &ends[..];
        while !ends.is_empty() {
            let middle = ends.len() / 2;
            bounds.ends_from_ms = ends[middle];
            match self.rounds(bounds, hops) {
                Some(route) => {
                    let end = route.termination_ms;
                    best = route;
                    ends = &ends[ends.partition_point(|other| *other <= end)..];
                }
                None => ends = &ends[..middle],
            }
        }
        bounds.ends_from_ms = best.termination_ms;
        let own = self.outgoing.get(&self.from).into_iter().flatten();
        let entries: BTreeSet<Node> = own
            .filter_map(|((_, id), _)| Some(self.contacts.get(id)?.to))
            .collect();
        for entry in entries.range(..best.entry) {
            bounds.entry = Some(*entry);
            if let Some(route) = self.rounds(bounds, hops) {
                return Some(route);
            }
        }
        Some(best)
    }

    /// The contacts by which a node can be left at this time, and by which
    /// something could arrive in time.
    fn onward(
        &self,
        node: Node,
        ready_ms: u64,
        by_ms: u64,
    ) -> impl Iterator<Item = (ContactId, &'a Contact, u64)> + '_ {
        let outgoing = self.outgoing.get(&node);
        let later = outgoing.map(|outgoing| outgoing.range((ready_ms, ContactId(0))..));
        let begun = later.into_iter().flatten();
        let begun = begun.filter(move |(_, start_ms)| **start_ms <= by_ms);
        begun.filter_map(move |((_, id), _)| {
            let contact = self.contacts.get(id)?;
            let arrival = contact.arrival_ms(ready_ms, self.bytes)?;
            (arrival <= by_ms).then_some((*id, contact, arrival))
        })
    }

    /// The earliest arrival (Dijkstra's algorithm: who is later at a contact
    /// is never earlier behind it).
    fn earliest(&self) -> Option<u64> {
        let mut reached: HashMap<Node, u64> = HashMap::from([(self.from, self.at_ms)]);
        let mut queue = BinaryHeap::from([Reverse((self.at_ms, self.from))]);
        while let Some(Reverse((ready_ms, node))) = queue.pop() {
            if node == self.to {
                return (node != self.from).then_some(ready_ms);
            }
            if reached.get(&node).is_some_and(|best| *best < ready_ms) {
                continue;
            }
            let by_ms = reached.get(&self.to).copied().unwrap_or(u64::MAX);
            for (_, contact, arrival) in self.onward(node, ready_ms, by_ms) {
                let best = reached.entry(contact.to).or_insert(u64::MAX);
                if arrival < *best {
                    *best = arrival;
                    queue.push(Reverse((arrival, contact.to)));
                }
            }
        }
        None
    }

    /// The route with the fewest hops within the bounds, if there is one of so
    /// many at most. Round by round, each node's earliest arrival with one hop
    /// more.
    fn rounds(&self, bounds: Bounds, most: usize) -> Option<Route> {
        let mut best: HashMap<Node, u64> = HashMap::from([(self.from, self.at_ms)]);
        let mut rounds: Vec<HashMap<Node, Step>> = Vec::new();
        let mut frontier = vec![(self.from, self.at_ms)];
        while !frontier.is_empty() && rounds.len() < most {
            let mut round: HashMap<Node, Step> = HashMap::new();
            for (node, ready_ms) in &frontier {
                for (id, contact, arrival) in self.onward(*node, *ready_ms, bounds.by_ms) {
                    let entry = bounds.entry.filter(|_| rounds.is_empty());
                    let counts = contact.end_ms >= bounds.ends_from_ms
                        && entry.is_none_or(|entry| entry == contact.to)
                        && best.get(&contact.to).is_none_or(|best| arrival < *best);
                    let earlier = round.get(&contact.to).is_none_or(|step| arrival < step.0);
                    if counts && earlier {
                        round.insert(contact.to, (arrival, id, *node));
                    }
                }
            }
            frontier = round.iter().map(|(node, step)| (*node, step.0)).collect();
            best.extend(frontier.iter().copied());
            let arrived = round.contains_key(&self.to);
            rounds.push(round);
            if arrived {
                return self.trace(&rounds);
            }
        }
        None
    }

    /// Goes back from the destination, a round at each hop.
    fn trace(&self, rounds: &[HashMap<Node, Step>]) -> Option<Route> {
        let (arrival_ms, ..) = *rounds.last()?.get(&self.to)?;
        let (mut node, mut entry) = (self.to, self.to);
        let (mut contacts, mut termination_ms) = (Vec::new(), u64::MAX);
        for round in rounds.iter().rev() {
            let (_, id, before) = *round.get(&node)?;
            termination_ms = termination_ms.min(self.contacts.get(&id)?.end_ms);
            contacts.push(id);
            (entry, node) = (node, before);
        }
        contacts.reverse();
        Some(Route {
            contacts,
            entry,
            arrival_ms,
            termination_ms,
        })
    }
}
