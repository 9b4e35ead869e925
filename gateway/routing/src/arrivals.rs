//! The earliest arrivals at all nodes, by number of hops.

use crate::graph::{Graph, Place};

/// The earliest arrivals at one node, as (hops, ms): each entry has more hops than the
/// one before it and arrives earlier.
type Steps = Vec<(usize, u64)>;

/// The earliest arrivals at all nodes of a bundle that is at one node at one time.
#[derive(Debug)]
pub(crate) struct Arrivals {
    steps: Vec<Steps>,
}

impl Arrivals {
    /// Finds each node's earliest arrival round by round, with one more hop each round.
    /// Arrivals after `by_ms` do not count.
    pub fn new(graph: &Graph, from: Place, bytes: u64, at_ms: u64, by_ms: u64) -> Arrivals {
        let mut best = vec![u64::MAX; graph.len()];
        let mut steps: Vec<Steps> = vec![Steps::new(); graph.len()];
        best[from as usize] = at_ms;
        steps[from as usize].push((0, at_ms));
        let mut frontier = vec![(from, at_ms)];
        let mut hops = 0;
        while !frontier.is_empty() {
            hops += 1;
            let mut reached: Vec<Place> = Vec::new();
            for (place, ready_ms) in &frontier {
                for edge in graph.leaving(*place, *ready_ms) {
                    let before = best[edge.to as usize].min(by_ms.saturating_add(1));
                    // Most contacts cannot be earlier; this check rules them out without
                    // a division.
                    let timing = &edge.timing;
                    let least = ready_ms
                        .max(&timing.begins_ms)
                        .saturating_add(timing.owlt_ms);
                    if least >= before {
                        continue;
                    }
                    if let Some(arrival) = timing.arrival_ms(*ready_ms, bytes)
                        && arrival < before
                    {
                        let steps = &mut steps[edge.to as usize];
                        match steps.last_mut() {
                            Some((of, step)) if *of == hops => *step = arrival,
                            _ => {
                                steps.push((hops, arrival));
                                reached.push(edge.to);
                            }
                        }
                        best[edge.to as usize] = arrival;
                    }
                }
            }
            frontier.clear();
            frontier.extend(
                reached
                    .into_iter()
                    .map(|place| (place, best[place as usize])),
            );
        }
        Arrivals { steps }
    }

    /// The earliest arrival at a node, and the fewest hops with which it is possible.
    pub fn at(&self, place: Place) -> Option<(u64, usize)> {
        let (hops, arrival_ms) = *self.steps.get(place as usize)?.last()?;
        Some((arrival_ms, hops))
    }

    /// The earliest arrival at a node with at most `most` hops.
    pub fn within(&self, place: Place, most: usize) -> Option<u64> {
        let steps = self.steps.get(place as usize)?;
        let within = steps.partition_point(|(hops, _)| *hops <= most);
        Some(steps.get(within.checked_sub(1)?)?.1)
    }
}
