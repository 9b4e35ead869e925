//! Static routes, prepared for lookups of single nodes.

use std::collections::BTreeMap;

use underpass_work::each;

use super::config::{NeighbourId, Route};

/// Ranges of node numbers that do not overlap, and where they lead.
#[derive(Debug)]
pub struct Routes {
    /// By the last node of each.
    ranges: BTreeMap<u64, Range>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    first: u64,
    neighbour: NeighbourId,
    take_custody: bool,
}

impl Routes {
    pub(super) fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Routes { ranges } = self;
        tell("ranges of routes", ranges.len());
    }

    /// Prepares the routes; where they overlap, the first counts.
    pub fn new(routes: &[Route]) -> Routes {
        let mut ranges = BTreeMap::new();
        for route in routes {
            for (first, last) in uncovered(&ranges, *route.nodes.start(), *route.nodes.end()) {
                let range = Range {
                    first,
                    neighbour: route.neighbour,
                    take_custody: route.take_custody,
                };
                ranges.insert(last, range);
            }
        }
        Routes { ranges }
    }

    /// The next hop to a node, and whether to take custody on that way.
    pub fn to(&self, node: u64) -> Option<(NeighbourId, bool)> {
        let (_, range) = each(self.ranges.range(node..)).next()?;
        (range.first <= node).then_some((range.neighbour, range.take_custody))
    }
}

/// The parts of `first..=last` that no range covers.
fn uncovered(ranges: &BTreeMap<u64, Range>, first: u64, last: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut from = Some(first).filter(|first| *first <= last);
    for (end, range) in ranges.range(first..) {
        let Some(start) = from.filter(|_| range.first <= last) else {
            break;
        };
        if start < range.first {
            gaps.push((start, range.first - 1));
        }
        from = end.checked_add(1).filter(|next| *next <= last);
    }
    gaps.extend(from.map(|start| (start, last)));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_route_that_matches_rules(
            ranges in proptest::collection::vec((0u64..40, 0u64..12), 0..12)
        ) {
            let routes: Vec<Route> = ranges
                .iter()
                .zip(0..)
                .map(|((first, length), via)| Route {
                    nodes: *first..=first + length,
                    neighbour: NeighbourId(via),
                    take_custody: via % 2 == 0,
                })
                .collect();
            let ready = Routes::new(&routes);
            for node in 0..60 {
                let first = routes.iter().find(|route| route.nodes.contains(&node));
                let expected = first.map(|route| (route.neighbour, route.take_custody));
                prop_assert_eq!(ready.to(node), expected);
            }
        }
    }

    #[test]
    fn all_nodes_and_none_are_ranges_too() {
        let route = |first, last| Route {
            nodes: first..=last,
            neighbour: NeighbourId(first),
            take_custody: true,
        };
        let routes = Routes::new(&[route(5, 5), route(9, 3), route(0, u64::MAX)]);
        assert_eq!(routes.to(5), Some((NeighbourId(5), true)));
        for node in [0, 4, 6, 9, u64::MAX] {
            assert_eq!(routes.to(node), Some((NeighbourId(0), true)), "{node}");
        }
    }
}
