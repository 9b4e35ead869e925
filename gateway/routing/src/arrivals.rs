//! The earliest arrivals at all nodes, with each number of hops.

use crate::graph::{Graph, Place};

/// When a node can be reached at the earliest: with so many hops, and with
/// more of them earlier. The hops rise and the times fall.
type Steps = Vec<(usize, u64)>;

/// The earliest arrivals of so many bytes that are at one node at one time.
#[derive(Debug)]
pub(crate) struct Arrivals {
    steps: Vec<Steps>,
}

impl Arrivals {
    /// Round by round, each node's earliest arrival with one hop more. Nothing
    /// that arrives after `by_ms` counts.
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
                    // Most cannot be earlier: that is seen without a division.
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

    /// The earliest arrival at a node, and the fewest hops that arrive then.
    pub fn at(&self, place: Place) -> Option<(u64, usize)> {
        let (hops, arrival_ms) = *self.steps.get(place as usize)?.last()?;
        Some((arrival_ms, hops))
    }

    /// The earliest arrival at a node with so many hops at most.
    pub fn within(&self, place: Place, most: usize) -> Option<u64> {
        let steps = self.steps.get(place as usize)?;
        let within = steps.partition_point(|(hops, _)| *hops <= most);
        Some(steps.get(within.checked_sub(1)?)?.1)
    }
}
