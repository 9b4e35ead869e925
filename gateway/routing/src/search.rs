//! One search for the best route.
//!
//! The arrivals at all nodes say when the destination can be reached and with how many
//! hops. From there the search goes back one hop at a time, and visits only contacts that
//! leave enough time for the hops before them: so it finds exactly the routes that are
//! earliest and shortest. Among these, bisection finds the latest end, and then the
//! smallest first hop is read off.

use std::collections::{BTreeMap, BTreeSet};

use crate::arrivals::Arrivals;
use crate::graph::{Edge, Graph, Place};
use crate::router::{ContactId, Route};

/// The latest times at which a bundle may be at nodes, a given number of hops before the
/// destination.
type Latest = BTreeMap<Place, u64>;

/// The contacts that may be one certain hop of the route.
type Layer = Vec<(ContactId, Edge)>;

/// One search: its question and its data.
pub(crate) struct Search<'a> {
    pub graph: &'a Graph,
    /// The arrivals of `bytes` that are at the own node at `at_ms`.
    pub arrivals: &'a Arrivals,
    pub from: Place,
    pub bytes: u64,
    pub at_ms: u64,
}

impl Search<'_> {
    /// The best route to a node.
    pub fn best(&self, to: Place) -> Option<Route> {
        let (arrival_ms, hops) = self.arrivals.at(to)?;
        if hops == 0 {
            return None;
        }
        let mut layers = self.layers(to, arrival_ms, hops);
        let ends_from_ms = self.latest_end(to, arrival_ms, &mut layers);
        let latest = self.latest(to, arrival_ms, &layers, ends_from_ms)?;
        self.trace(&layers, &latest, ends_from_ms)
    }

    /// The contacts of all routes that arrive by `arrival_ms` with `hops` hops, the last
    /// hop's contacts first.
    fn layers(&self, to: Place, arrival_ms: u64, hops: usize) -> Vec<Layer> {
        let mut layers = Vec::with_capacity(hops);
        let mut latest = Latest::from([(to, arrival_ms)]);
        for left in (0..hops).rev() {
            let mut layer = Layer::new();
            let mut before = Latest::new();
            for (place, by_ms) in &latest {
                for (id, edge) in self.graph.reaching(*place, *by_ms) {
                    let there = self.arrivals.within(edge.from, left);
                    let Some(there_ms) = there.filter(|there_ms| there_ms <= by_ms) else {
                        continue;
                    };
                    let Some(latest_ms) = edge.timing.latest_ms(*by_ms, self.bytes) else {
                        continue;
                    };
                    if there_ms <= latest_ms {
                        layer.push((id, *edge));
                        let of_place = before.entry(edge.from).or_insert(latest_ms);
                        *of_place = latest_ms.max(*of_place);
                    }
                }
            }
            layers.push(layer);
            latest = before;
        }
        layers
    }

    /// The best value, over such routes, for the end of the contact that ends first.
    /// Removes contacts that end before it from the layers.
    fn latest_end(&self, to: Place, arrival_ms: u64, layers: &mut [Layer]) -> u64 {
        // A route ends no later than the latest contact of each of its hops.
        let last = |layer: &Layer| layer.iter().map(|(_, edge)| edge.timing.end_ms).max();
        let most = layers.iter().filter_map(last).min().unwrap_or(0);
        let all = layers.iter().flatten().map(|(_, edge)| edge.timing.end_ms);
        let ends: BTreeSet<u64> = all.filter(|end| *end <= most).collect();
        let ends: Vec<u64> = ends.into_iter().collect();
        // Some route reaches the first of these ends; often one reaches the last of them.
        let (mut known, mut unknown) = (0, ends.len());
        let mut next = ends.len().saturating_sub(1);
        while known + 1 < unknown {
            if self.latest(to, arrival_ms, layers, ends[next]).is_some() {
                known = next;
                for layer in &mut *layers {
                    layer.retain(|(_, edge)| edge.timing.end_ms >= ends[next]);
                }
            } else {
                unknown = next;
            }
            next = known.midpoint(unknown);
        }
        ends.get(known).copied().unwrap_or(0)
    }

    /// The latest times before each hop, the last hop's first, over contacts that end at
    /// `ends_from_ms` or later; none if there is no such route.
    fn latest(
        &self,
        to: Place,
        arrival_ms: u64,
        layers: &[Layer],
        ends_from_ms: u64,
    ) -> Option<Vec<Latest>> {
        let mut all = vec![Latest::from([(to, arrival_ms)])];
        for (layer, left) in layers.iter().zip((0..layers.len()).rev()) {
            let behind = all.last()?;
            let mut before = Latest::new();
            for (_, edge) in layer
                .iter()
                .filter(|(_, edge)| edge.timing.end_ms >= ends_from_ms)
            {
                let by_ms = behind.get(&edge.to);
                let latest = by_ms.and_then(|by_ms| edge.timing.latest_ms(*by_ms, self.bytes));
                let there = self.arrivals.within(edge.from, left);
                if let Some((latest_ms, there_ms)) = latest.zip(there)
                    && there_ms <= latest_ms
                {
                    let of_place = before.entry(edge.from).or_insert(latest_ms);
                    *of_place = latest_ms.max(*of_place);
                }
            }
            if before.is_empty() {
                return None;
            }
            all.push(before);
        }
        let begins = all.last()?.get(&self.from);
        begins
            .is_some_and(|latest_ms| self.at_ms <= *latest_ms)
            .then_some(all)
    }

    /// Builds the route forward: first the first hop with the smallest number, then for
    /// each hop the earliest arrival, among contacts that leave time for the hops that
    /// follow.
    fn trace(&self, layers: &[Layer], latest: &[Latest], ends_from_ms: u64) -> Option<Route> {
        let (mut place, mut ready_ms) = (self.from, self.at_ms);
        let (mut contacts, mut entry, mut termination_ms) = (Vec::new(), None, u64::MAX);
        for (layer, behind) in layers.iter().zip(latest).rev() {
            let counts = |(id, edge): &(ContactId, Edge)| {
                if edge.from != place || edge.timing.end_ms < ends_from_ms {
                    return None;
                }
                let arrival = edge.timing.arrival_ms(ready_ms, self.bytes)?;
                let by_ms = behind.get(&edge.to)?;
                let first = entry.is_none().then(|| self.graph.node(edge.to));
                (arrival <= *by_ms).then_some((first, arrival, *id, edge.to, edge.timing.end_ms))
            };
            let (_, arrival_ms, id, to, end_ms) = layer.iter().filter_map(counts).min()?;
            entry.get_or_insert(self.graph.node(to));
            termination_ms = termination_ms.min(end_ms);
            contacts.push(id);
            (place, ready_ms) = (to, arrival_ms);
        }
        Some(Route {
            contacts,
            entry: entry?,
            arrival_ms: ready_ms,
            termination_ms,
        })
    }
}
