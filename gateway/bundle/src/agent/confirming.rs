//! Bundles for services of this node that confirm when a bundle is safe with them.
//!
//! A bundle that such a service has not confirmed stays in custody upstream: if
//! the node ends before, it is sent again. Duplicates that come meanwhile are
//! neither delivered nor answered.

use std::collections::HashMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use underpass_handover::{HandoverError, ensure};
use underpass_work::FastMap;

use super::Agent;
use super::config::NeighbourId;
use super::handover::{CtebState, WayState, WireNameState, way, way_state, wire_name};
use super::receive::Arrival;
use super::signals::Way;
use super::stored::WireName;
use crate::wire::Cteb;

/// The most bundles that wait for their service's confirmation; custody of more is refused. Each
/// neighbour may have a few of them in any case, and of the others at most as many as it leaves
/// free. A service has at most as many of its neighbour's as it leaves to other services.
const MOST: usize = 16_384;
const GUARANTEED: usize = 16;

/// The bundles that wait for their service's confirmation.
#[derive(Default)]
pub(super) struct Unconfirmed {
    next: u64,
    owed: HashMap<u64, Awaited>,
    by_name: HashMap<WireName, u64>,
    /// How many came from each neighbour.
    counts: FastMap<NeighbourId, usize>,
    /// And how many of these are for each service.
    services: HashMap<(NeighbourId, u64), usize>,
}

/// One bundle that waits.
struct Awaited {
    name: WireName,
    way: Way,
    cteb: Cteb,
    /// The service with which it waits; unknown for a bundle that an earlier process has taken.
    service: Option<u64>,
}

/// [`Unconfirmed`], to be handed over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UnconfirmedState {
    next: u64,
    owed: Vec<(u64, WireNameState, WayState, CtebState)>,
}

impl Unconfirmed {
    pub fn hand_over(self) -> UnconfirmedState {
        let owed = self.owed.into_iter().map(|(ticket, awaited)| {
            let name = ((&awaited.name.group).into(), awaited.name.sequence);
            (ticket, name, way_state(awaited.way), (&awaited.cteb).into())
        });
        let mut owed: Vec<_> = owed.collect();
        owed.sort_unstable_by_key(|(ticket, ..)| *ticket);
        UnconfirmedState {
            next: self.next,
            owed,
        }
    }

    pub fn take_over(&mut self, state: UnconfirmedState) -> Result<(), HandoverError> {
        self.next = state.next;
        for (ticket, name, from, cteb) in state.owed {
            ensure(ticket < state.next, "a ticket is yet to be given")?;
            let awaited = Awaited {
                name: wire_name(name)?,
                way: way(from),
                cteb: cteb.cteb()?,
                service: None,
            };
            self.insert(ticket, awaited);
        }
        Ok(())
    }

    /// Whether one more bundle of a neighbour may wait for a service.
    fn has_room(&self, from: NeighbourId, service: u64) -> bool {
        let own = self.counts.get(&from).copied().unwrap_or(0);
        let free = MOST.saturating_sub(self.owed.len());
        let guaranteed = GUARANTEED.saturating_sub(own);
        // With each bundle that it takes, a neighbour has one more and leaves one less.
        let left = (free + GUARANTEED).saturating_sub(own).div_ceil(2);
        let of_service = self.services.get(&(from, service));
        of_service.copied().unwrap_or(0) < left.max(guaranteed)
    }

    fn insert(&mut self, ticket: u64, awaited: Awaited) {
        self.remove(ticket);
        let from = awaited.way.from;
        *self.counts.entry(from).or_default() += 1;
        if let Some(service) = awaited.service {
            *self.services.entry((from, service)).or_default() += 1;
        }
        self.by_name.insert(awaited.name.clone(), ticket);
        self.owed.insert(ticket, awaited);
    }

    fn remove(&mut self, ticket: u64) -> Option<Awaited> {
        let awaited = self.owed.remove(&ticket)?;
        self.by_name.remove(&awaited.name);
        let from = awaited.way.from;
        if let Some(count) = self.counts.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&from);
            }
        }
        let of_service = awaited.service.map(|service| (from, service));
        if let Some(key) = of_service
            && let Some(count) = self.services.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                self.services.remove(&key);
            }
        }
        Some(awaited)
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Unconfirmed {
            next: _,
            owed,
            by_name,
            counts,
            services,
        } = self;
        tell("unconfirmed bundles", owed.len());
        tell("unconfirmed bundles by name", by_name.len());
        tell("neighbours with unconfirmed bundles", counts.len());
        tell("services with unconfirmed bundles", services.len());
    }
}

impl Agent {
    /// Notes that a service has made the bundle with this ticket safe: its custodian may release
    /// it.
    pub fn confirm(&mut self, now: Instant, ticket: u64) {
        if let Some(Awaited { way, cteb, .. }) = self.unconfirmed.remove(ticket) {
            let aggregate = self.config.aggregate;
            self.signals.add(now, aggregate, way, &cteb, true);
        }
    }

    /// Whether a bundle may wait until its service confirms it, or need not.
    pub(super) fn may_await_confirmation(&self, arrival: &Arrival, service: u64) -> bool {
        let awaits = self.confirms(service) && self.owed(arrival).is_some();
        !awaits || self.unconfirmed.has_room(arrival.from, service)
    }

    fn confirms(&self, service: u64) -> bool {
        self.config.confirming.contains(&service) || self.config.keeping(service).is_some()
    }

    /// The ticket of a bundle that its service is to confirm; `None` if the custodian is told at
    /// once, or there is none.
    pub(super) fn await_confirmation(
        &mut self,
        arrival: &Arrival,
        service: u64,
        name: &WireName,
    ) -> Option<u64> {
        if !self.confirms(service) {
            return None;
        }
        let awaited = self.awaited(arrival, service, name)?;
        let ticket = self.unconfirmed.next;
        self.unconfirmed.next += 1;
        self.unconfirmed.insert(ticket, awaited);
        Some(ticket)
    }

    /// Whether a bundle is a duplicate of one that waits; if so, the last sender is told in the
    /// end.
    pub(super) fn is_unconfirmed(
        &mut self,
        arrival: &Arrival,
        service: u64,
        name: &WireName,
    ) -> bool {
        let Some(ticket) = self.unconfirmed.by_name.get(name).copied() else {
            return false;
        };
        if let Some(awaited) = self.awaited(arrival, service, name) {
            self.unconfirmed.insert(ticket, awaited);
        }
        true
    }

    fn awaited(&self, arrival: &Arrival, service: u64, name: &WireName) -> Option<Awaited> {
        let (way, cteb) = self.owed(arrival)?;
        Some(Awaited {
            name: name.clone(),
            way,
            cteb: cteb.clone(),
            service: Some(service),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::stored::NameGroup;
    use super::*;
    use crate::wire::{CustodyDialect, Eid};

    fn fill(unconfirmed: &mut Unconfirmed, from: NeighbourId, services: Range<u64>) -> usize {
        let mut taken = 0;
        for service in services {
            while unconfirmed.has_room(from, service) {
                let ticket = unconfirmed.next;
                unconfirmed.next += 1;
                let group = NameGroup {
                    source: Eid::none(),
                    time: 0,
                    fragment: None,
                };
                let name = WireName {
                    group,
                    sequence: ticket,
                };
                let cteb = Cteb {
                    number: ticket,
                    sequence: 0,
                    custodian: Eid::none(),
                    dialect: CustodyDialect::Ion,
                };
                let awaited = Awaited {
                    name,
                    way: Way { from, via: from },
                    cteb,
                    service: Some(service),
                };
                unconfirmed.insert(ticket, awaited);
                taken += 1;
            }
        }
        taken
    }

    fn empty(unconfirmed: &mut Unconfirmed) {
        for ticket in 0..unconfirmed.next {
            unconfirmed.remove(ticket);
        }
        unconfirmed.footprint(&mut |name, count| assert_eq!(count, 0, "{name}"));
    }

    #[test]
    fn a_neighbour_whose_bundles_all_wait_leaves_room_for_the_others() {
        let mut unconfirmed = Unconfirmed::default();
        let greedy = fill(&mut unconfirmed, NeighbourId(10), 0..100);
        assert_eq!(greedy, GUARANTEED + (MOST - GUARANTEED) / 2);
        assert!(fill(&mut unconfirmed, NeighbourId(11), 0..100) > GUARANTEED);
        for other in 100..200 {
            assert!(fill(&mut unconfirmed, NeighbourId(other), 0..100) >= GUARANTEED);
        }
        empty(&mut unconfirmed);
    }

    #[test]
    fn a_service_that_confirms_nothing_leaves_room_for_those_beside_it() {
        let mut unconfirmed = Unconfirmed::default();
        let from = NeighbourId(10);
        let greedy = fill(&mut unconfirmed, from, 0..1);
        assert!(greedy > MOST / 5, "{greedy}");
        for service in 1..8 {
            assert!(fill(&mut unconfirmed, from, service..service + 1) > 0);
        }
        empty(&mut unconfirmed);
    }
}
