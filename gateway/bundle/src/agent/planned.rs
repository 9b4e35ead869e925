//! Routing by a contact plan, whose ways come and go while bundles wait.
//!
//! Bundles of other nodes and of this node's applications go by the plan; those of this node's own
//! services, such as streams, go by its routes. The caller that computes the plan's ways says which
//! neighbours are lost and which destinations have a better way; only bundles that these concern
//! are looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use bp7::primary::PrimaryBlock;
use underpass_work::{FastMap, IdSet, each};

use super::Agent;
use super::config::NeighbourId;
use super::event::BundleId;
use super::stored::{Phase, StoredBundle};
use crate::wire::{Eid, ipn_parts};

/// The ways of a contact plan at present. They take precedence over the routes, which decide for
/// nodes that the plan does not name.
#[derive(Clone, Debug, Default)]
pub struct PlannedRoutes {
    /// The neighbours that bundles are given to.
    pub next: Arc<NextHops>,
    /// The neighbours, by their numbers, by which bundles of a node can come.
    pub speakers: Arc<HashMap<u64, BTreeSet<u64>>>,
}

/// The neighbours that bundles are given to, by the bundles' sizes and destinations.
///
/// A large bundle may fit into no contact of the way that is best for small ones
/// (CCSDS 734.3-B-1), so there is a table for each size of bundle that is asked for.
#[derive(Clone, Debug, Default)]
pub struct NextHops {
    tables: BTreeMap<u64, HashMap<u64, NeighbourId>>,
}

impl NextHops {
    /// Tables by the size in bytes of the largest bundles that they are for; each has next hops
    /// by destination.
    pub fn new(tables: BTreeMap<u64, HashMap<u64, NeighbourId>>) -> NextHops {
        NextHops { tables }
    }

    /// The next hop of a bundle with a payload of so many bytes. If its size has no way, or no
    /// table yet, it goes the way of smaller bundles.
    pub fn to(&self, node: u64, bytes: u64) -> Option<NeighbourId> {
        self.entry(node, bytes).map(|(_, via)| via)
    }

    /// The same, with the size of the table that has it.
    fn entry(&self, node: u64, bytes: u64) -> Option<(u64, NeighbourId)> {
        let mut tables = self.tables.range(..=self.size_of(bytes)?).rev();
        tables.find_map(|(size, next)| Some((*size, *next.get(&node)?)))
    }

    /// The size of the table that is for such a bundle: that of the first one, or the next power
    /// of four, so that no bundle counts for more than four times its bytes and the tables are
    /// few.
    fn size_of(&self, bytes: u64) -> Option<u64> {
        let (least, _) = self.tables.first_key_value()?;
        Some(match bytes <= *least {
            true => *least,
            false => power_of_four(bytes),
        })
    }

    /// Whether a bundle is one of those with a better way: its own table has changed, or one
    /// between that and the table that it goes by.
    fn concerns(&self, moved: &BTreeSet<(u64, u64)>, node: u64, bytes: u64) -> bool {
        let least = self.entry(node, bytes).map_or(0, |(size, _)| size);
        let most = self.size_of(bytes).unwrap_or(u64::MAX);
        moved.range((node, least)..=(node, most)).next().is_some()
    }

    fn len(&self) -> usize {
        self.tables.values().map(HashMap::len).sum()
    }
}

/// The changes of a plan that concern stored bundles.
#[derive(Clone, Copy, Debug)]
pub struct PlanChanged<'a> {
    /// Neighbours to which nothing can be sent for the time being.
    pub lost: &'a BTreeSet<u64>,
    /// Destinations with a better way, each with the size of the table of [`NextHops`] that has
    /// it.
    pub moved: &'a BTreeSet<(u64, u64)>,
}

/// A plan that is followed, and the bundles that go by it if it has a way.
#[derive(Debug)]
pub(super) struct Planned {
    routes: PlannedRoutes,
    stored: FastMap<u64, IdSet<BundleId>>,
    /// By [`power_of_four`] how many bundles are stored, and the bytes of the largest that was, with
    /// sizes that none has any more until they were asked for.
    sizes: BTreeMap<u64, (usize, u64)>,
    /// As [`Agent::take_given`] tells them.
    given: BTreeMap<(u64, u64, u64), i64>,
    /// The stored bundles that are counted there, or were before it was asked for.
    counted: IdSet<BundleId>,
}

impl Planned {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Planned {
            routes,
            stored,
            sizes,
            given,
            counted,
        } = self;
        tell("planned ways", routes.next.len());
        tell("planned sources", routes.speakers.len());
        tell("destinations of bundles", stored.len());
        let bundles = stored.values().map(IdSet::len);
        tell("bundles by destination", bundles.sum());
        tell("sizes of bundles", sizes.len());
        tell("ways with bundles", given.len());
        tell("bundles that count on a way", counted.len());
    }

    fn add(&mut self, node: u64, id: BundleId, bytes: u64) {
        self.stored.entry(node).or_default().insert(id);
        let (bundles, largest) = self.sizes.entry(power_of_four(bytes)).or_default();
        *bundles += 1;
        *largest = bytes.max(*largest);
    }

    /// Returns whether it was there.
    fn remove(&mut self, node: u64, id: BundleId, bytes: u64) -> bool {
        let Some(ids) = self.stored.get_mut(&node) else {
            return false;
        };
        let was_there = ids.remove(id);
        if was_there && let Some((bundles, _)) = self.sizes.get_mut(&power_of_four(bytes)) {
            *bundles = bundles.saturating_sub(1);
        }
        if ids.is_empty() {
            self.stored.remove(&node);
        }
        was_there
    }

    /// Counts the bytes of a bundle to a node that a neighbour has more.
    fn give(&mut self, id: BundleId, node: u64, via: NeighbourId, bytes: u64) {
        // Only nodes of the plan: others would make the table grow with every number that a
        // bundle names.
        if self.routes.next.to(node, 0).is_some() {
            self.counted.insert(id);
            self.count(node, via, bytes, signed(bytes));
        }
    }

    /// Counts as many less, if they were counted: the plan may have had no way then, or may have
    /// none now.
    fn take_back(&mut self, id: BundleId, node: u64, via: NeighbourId, bytes: u64) {
        if self.counted.remove(id) {
            self.count(node, via, bytes, -signed(bytes));
        }
    }

    fn count(&mut self, node: u64, via: NeighbourId, bytes: u64, more: i64) {
        let size = self.routes.next.size_of(bytes).unwrap_or(u64::MAX);
        let given = self.given.entry((node, via.0, size)).or_default();
        *given = given.saturating_add(more);
    }
}

impl Agent {
    /// Follows the ways of a contact plan from now on, or none. Stored bundles that the change
    /// concerns go by their new ways; bundles that the neighbour's CL has acknowledged stay and
    /// wait for their signal.
    pub fn set_planned(
        &mut self,
        now: Instant,
        routes: Option<PlannedRoutes>,
        changed: PlanChanged<'_>,
    ) {
        let Some(routes) = routes else {
            if self.planned.take().is_some() {
                self.reroute_all(now);
            }
            return;
        };
        if let Some(planned) = &mut self.planned {
            planned.routes = routes;
            self.follow_change(now, changed);
            return;
        }
        let mut planned = Planned {
            routes,
            stored: FastMap::default(),
            sizes: BTreeMap::new(),
            given: BTreeMap::new(),
            counted: IdSet::default(),
        };
        for (id, stored) in each(self.bundles.iter()) {
            if let Some(node) = self.planned_destination(stored, &stored.primary()) {
                planned.add(node, id, stored.bytes);
                planned.give(id, node, stored.neighbour, stored.bytes);
            }
        }
        let nodes: Vec<u64> = planned.stored.keys().copied().collect();
        self.planned = Some(planned);
        for node in nodes {
            self.go_by_plan(now, node, |_| true);
        }
    }

    fn follow_change(&mut self, now: Instant, PlanChanged { lost, moved }: PlanChanged<'_>) {
        let Some(planned) = &self.planned else {
            return;
        };
        let nodes: BTreeSet<u64> = match lost.is_empty() {
            true => moved.iter().map(|(node, _)| *node).collect(),
            false => planned.stored.keys().copied().collect(),
        };
        let next = Arc::clone(&planned.routes.next);
        for node in nodes {
            self.go_by_plan(now, node, |stored| {
                // No bundle goes twice, not even by a better way.
                let begun = matches!(stored.phase, Phase::InTransmission(_));
                let lost = lost.contains(&stored.neighbour.0);
                lost || !begun && next.concerns(moved, node, stored.bytes)
            });
        }
    }

    /// Moves bundles to a node to the present ways, in the order in which they came.
    fn go_by_plan(&mut self, now: Instant, node: u64, concerns: impl Fn(&StoredBundle) -> bool) {
        let planned = self.planned.as_ref();
        let ids = planned.and_then(|planned| planned.stored.get(&node));
        let ids: Vec<BundleId> = ids.map_or(Vec::new(), |ids| each(ids.iter()).collect());
        for id in ids {
            let stored = self.bundles.get(id);
            let waits = stored.is_some_and(|stored| {
                let waits = matches!(stored.phase, Phase::Waiting(_) | Phase::Suspended);
                // Other waiting bundles wait for room, and were not sent.
                let acknowledged = waits && stored.transmissions > 0;
                !acknowledged && concerns(stored)
            });
            if waits {
                self.reroute(now, id);
            }
        }
    }

    /// Moves a bundle that was sent without an answer to the present way, if it goes by the plan.
    pub(super) fn try_another_way(&mut self, now: Instant, id: BundleId) {
        if self.planned.is_some()
            && let Some(stored) = self.bundles.get(id)
            && self
                .planned_destination(stored, &stored.primary())
                .is_some()
        {
            self.reroute(now, id);
        }
    }

    /// The sizes of bundles, bytes, for which the agent would have ways of the plan: those of
    /// stored bundles and of bundles that came since the last call.
    pub fn take_planned_sizes(&mut self) -> BTreeSet<u64> {
        let Some(planned) = &mut self.planned else {
            return BTreeSet::new();
        };
        // The first table may be for bundles of more bytes than these, and less than their power.
        let largest = planned.sizes.values().map(|(_, largest)| *largest);
        let of_tables = largest.filter_map(|bytes| planned.routes.next.size_of(bytes));
        let of_tables = of_tables.collect();
        planned.sizes.retain(|_, (bundles, _)| *bundles > 0);
        of_tables
    }

    /// The plan's next hop of a bundle of so many bytes to a node, and whether to take custody on
    /// that way.
    pub(super) fn planned_route(&self, node: u64, bytes: u64) -> Option<(NeighbourId, bool)> {
        let via = self.planned.as_ref()?.routes.next.to(node, bytes)?;
        // A neighbour without custody has a route to itself that says so.
        let direct = self.routes.to(via.0).filter(|(to, _)| *to == via);
        Some((via, direct.is_none_or(|(_, custody)| custody)))
    }

    /// Whether the plan has a way by a neighbour for bundles of a node.
    pub(super) fn plan_lets_speak(&self, neighbour: NeighbourId, node: u64) -> bool {
        let speakers = self.planned.as_ref();
        let speakers = speakers.and_then(|planned| planned.routes.speakers.get(&node));
        speakers.is_some_and(|speakers| speakers.contains(&neighbour.0))
    }

    pub(super) fn note_planned(&mut self, id: BundleId, primary: &PrimaryBlock) {
        if self.planned.is_none() {
            return;
        }
        let Some(stored) = self.bundles.get(id) else {
            return;
        };
        let (bytes, via) = (stored.bytes, stored.neighbour);
        let node = self.planned_destination(stored, primary);
        if let Some((planned, node)) = self.planned.as_mut().zip(node) {
            planned.add(node, id, bytes);
            planned.give(id, node, via, bytes);
        }
    }

    pub(super) fn forget_planned(
        &mut self,
        id: BundleId,
        stored: &StoredBundle,
        primary: &PrimaryBlock,
    ) {
        let node = ipn_parts(&primary.destination);
        if let Some((planned, (node, _))) = self.planned.as_mut().zip(node)
            && planned.remove(node, id, stored.bytes)
        {
            planned.take_back(id, node, stored.neighbour, stored.bytes);
        }
    }

    /// Notes that a stored bundle goes by another neighbour from now on.
    pub(super) fn note_moved(&mut self, id: BundleId, via: NeighbourId) {
        let Some(stored) = self.bundles.get(id).filter(|_| self.planned.is_some()) else {
            return;
        };
        let (bytes, before) = (stored.bytes, stored.neighbour);
        let node = self.planned_destination(stored, &stored.primary());
        if let Some((planned, node)) = self.planned.as_mut().zip(node) {
            planned.take_back(id, node, before, bytes);
            planned.give(id, node, via, bytes);
        }
    }

    /// Notes that a bundle is at its neighbour: what it takes there is not taken back when it
    /// leaves the store.
    pub(super) fn note_forwarded(&mut self, id: BundleId) {
        if let Some(planned) = &mut self.planned {
            planned.counted.remove(id);
        }
    }

    /// By destination, neighbour and the size whose table of [`NextHops`] is for them, the payload
    /// bytes of bundles that have been queued for the neighbour since the last call, less those of
    /// bundles that have left the queue without being forwarded: they take the volume of contacts
    /// behind the neighbour.
    pub fn take_given(&mut self) -> BTreeMap<(u64, u64, u64), i64> {
        let given = self.planned.as_mut().map(|planned| &mut planned.given);
        given.map(std::mem::take).unwrap_or_default()
    }

    /// Where a bundle goes, if it goes by the plan.
    fn planned_destination(&self, stored: &StoredBundle, primary: &PrimaryBlock) -> Option<u64> {
        let (node, _) = ipn_parts(&primary.destination)?;
        self.goes_by_plan(stored, primary).then_some(node)
    }

    fn goes_by_plan(&self, stored: &StoredBundle, primary: &PrimaryBlock) -> bool {
        !stored.own || self.is_of_application(&primary.source)
    }

    fn is_of_application(&self, source: &Eid) -> bool {
        let service = self.config.own_service(source);
        service.is_some_and(|service| self.sends_by_plan(service))
    }

    /// Whether bundles of a service of this node go by the plan.
    pub(super) fn sends_by_plan(&self, service: u64) -> bool {
        let applications = self.config.applications.as_ref();
        applications.is_some_and(|applications| applications.serves(service))
    }

    /// The next hop of a stored bundle with this primary block.
    pub(super) fn route_of(
        &self,
        stored: &StoredBundle,
        primary: &PrimaryBlock,
    ) -> Option<NeighbourId> {
        let route = match ipn_parts(&primary.destination) {
            Some((node, _)) if self.goes_by_plan(stored, primary) => self.route(node, stored.bytes),
            Some((node, _)) => self.static_route(node),
            None => self.named_route(&primary.destination),
        };
        route.map(|(via, _)| via)
    }
}

/// The least power of four that is not below a number of bytes.
fn power_of_four(bytes: u64) -> u64 {
    let bits = u64::BITS - bytes.saturating_sub(1).leading_zeros();
    let power = 1_u64.checked_shl(bits.next_multiple_of(2));
    power.unwrap_or(u64::MAX)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: u64 = 40;
    const KIB_64: u64 = 64 << 10;

    fn tables(of: &[(u64, Option<u64>)]) -> NextHops {
        let of = of.iter().map(|(size, via)| {
            let next = via.map(|via| (NODE, NeighbourId(via)));
            (*size, next.into_iter().collect())
        });
        NextHops::new(of.collect())
    }

    #[test]
    fn a_bundle_goes_by_the_table_for_its_size_or_the_largest_below_that_has_a_way() {
        let next = tables(&[(KIB_64, Some(2)), (1 << 20, Some(3)), (16 << 20, None)]);
        for (bytes, via) in [
            (0, 2),
            (KIB_64, 2),
            // Its own size, 256 KiB, has no table.
            (KIB_64 + 1, 2),
            ((256 << 10) + 1, 3),
            (1 << 20, 3),
            (10 << 20, 3),
            (u64::MAX, 3),
        ] {
            assert_eq!(next.to(NODE, bytes), Some(NeighbourId(via)), "{bytes}");
        }
        assert_eq!(next.to(NODE + 1, 0), None);
        assert_eq!(NextHops::default().to(NODE, 0), None);
    }

    #[test]
    fn the_first_table_is_for_all_bundles_up_to_its_size_whatever_that_is() {
        let next = tables(&[(100_000, Some(2)), (256 << 10, Some(3))]);
        assert_eq!(next.to(NODE, 100_000), Some(NeighbourId(2)));
        assert_eq!(next.size_of(100_000), Some(100_000));
        assert_eq!(next.to(NODE, 100_001), Some(NeighbourId(3)));
    }

    #[test]
    fn a_size_counts_for_at_most_four_times_its_bytes() {
        let next = tables(&[(1, None)]);
        for bytes in (0..62).map(|bits| (1_u64 << bits) + 1) {
            let size = next.size_of(bytes).expect("a table");
            assert!(bytes <= size && size / 4 < bytes, "{bytes}: {size}");
        }
        assert_eq!(next.size_of(u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn only_tables_that_a_bundle_goes_by_concern_it() {
        let next = tables(&[(KIB_64, Some(2)), (1 << 20, Some(3)), (16 << 20, None)]);
        let concerns = |size, bytes| next.concerns(&BTreeSet::from([(NODE, size)]), NODE, bytes);
        assert!(concerns(KIB_64, 1_000) && !concerns(1 << 20, 1_000));
        assert!(concerns(1 << 20, 1 << 20) && !concerns(KIB_64, 1 << 20));
        // It goes by the table below its own until that has a way.
        assert!(concerns(16 << 20, 10 << 20) && concerns(1 << 20, 10 << 20));
        assert!(!concerns(KIB_64, 10 << 20));
        assert!(!next.concerns(&BTreeSet::from([(NODE, KIB_64)]), NODE + 1, 1_000));
    }
}
