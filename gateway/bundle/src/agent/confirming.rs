//! Bundles for services of this node that say themselves when one is safe.
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
use super::event::Reject;
use super::handover::{CtebState, WayState, WireNameState, way, way_state, wire_name};
use super::receive::Arrival;
use super::signals::Way;
use super::stored::WireName;
use crate::wire::Cteb;

/// Bundles that wait for their service's word at most; more are not taken. A
/// neighbour has some of them in any case, and of the others no more than it
/// leaves free.
const MOST: usize = 16_384;
const GUARANTEED: usize = 16;

/// What waits for its service's word.
#[derive(Default)]
pub(super) struct Unconfirmed {
    next: u64,
    owed: HashMap<u64, (WireName, Way, Cteb)>,
    by_name: HashMap<WireName, u64>,
    /// How many came from each neighbour.
    counts: FastMap<NeighbourId, usize>,
}

/// [`Unconfirmed`], to be handed over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UnconfirmedState {
    next: u64,
    owed: Vec<(u64, WireNameState, WayState, CtebState)>,
}

impl Unconfirmed {
    pub fn hand_over(self) -> UnconfirmedState {
        let owed = self.owed.into_iter().map(|(ticket, (name, way, cteb))| {
            let name = ((&name.group).into(), name.sequence);
            (ticket, name, way_state(way), (&cteb).into())
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
            self.insert(ticket, wire_name(name)?, way(from), cteb.cteb()?);
        }
        Ok(())
    }

    /// Whether one more of a neighbour may wait.
    pub fn has_room(&self, from: NeighbourId) -> bool {
        let own = self.counts.get(&from).copied().unwrap_or(0);
        own < GUARANTEED || own - GUARANTEED < MOST.saturating_sub(self.owed.len())
    }

    fn insert(&mut self, ticket: u64, name: WireName, way: Way, cteb: Cteb) {
        self.remove(ticket);
        *self.counts.entry(way.from).or_default() += 1;
        self.by_name.insert(name.clone(), ticket);
        self.owed.insert(ticket, (name, way, cteb));
    }

    fn remove(&mut self, ticket: u64) -> Option<(Way, Cteb)> {
        let (name, way, cteb) = self.owed.remove(&ticket)?;
        self.by_name.remove(&name);
        if let Some(count) = self.counts.get_mut(&way.from) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&way.from);
            }
        }
        Some((way, cteb))
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Unconfirmed {
            next: _,
            owed,
            by_name,
            counts,
        } = self;
        tell("unconfirmed bundles", owed.len());
        tell("unconfirmed bundles by name", by_name.len());
        tell("neighbours with unconfirmed bundles", counts.len());
    }
}

impl Agent {
    /// The service has made safe what came with this ticket: its custodian may
    /// forget it.
    pub fn confirm(&mut self, now: Instant, ticket: u64) {
        if let Some((way, cteb)) = self.unconfirmed.remove(ticket) {
            let aggregate = self.config.aggregate;
            self.signals.add(now, aggregate, way, &cteb, true);
        }
    }

    /// The ticket of a bundle whose service is to confirm it; none if the
    /// custodian is told at once, or there is none.
    pub(super) fn await_confirmation(
        &mut self,
        arrival: &Arrival,
        service: u64,
        name: &WireName,
    ) -> Result<Option<u64>, Reject> {
        let confirms = self.config.confirming.contains(&service);
        if !confirms && self.config.keeping(service).is_none() {
            return Ok(None);
        }
        let Some((way, cteb)) = self.owed(arrival) else {
            return Ok(None);
        };
        let cteb = cteb.clone();
        if !self.unconfirmed.has_room(arrival.from) {
            return Err(Reject::NoResources);
        }
        let ticket = self.unconfirmed.next;
        self.unconfirmed.next += 1;
        self.unconfirmed.insert(ticket, name.clone(), way, cteb);
        Ok(Some(ticket))
    }

    /// Whether a duplicate is of what waits; then whoever sent it last is
    /// told in the end.
    pub(super) fn is_unconfirmed(&mut self, arrival: &Arrival, name: &WireName) -> bool {
        let Some(ticket) = self.unconfirmed.by_name.get(name).copied() else {
            return false;
        };
        if let Some((way, cteb)) = self.owed(arrival) {
            let cteb = cteb.clone();
            self.unconfirmed.insert(ticket, name.clone(), way, cteb);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::stored::NameGroup;
    use super::*;
    use crate::wire::{CustodyDialect, Eid};

    fn fill(unconfirmed: &mut Unconfirmed, from: NeighbourId) -> usize {
        let mut taken = 0;
        while unconfirmed.has_room(from) {
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
            unconfirmed.insert(ticket, name, Way { from, via: from }, cteb);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_neighbour_whose_bundles_all_wait_leaves_room_for_the_others() {
        let mut unconfirmed = Unconfirmed::default();
        let greedy = fill(&mut unconfirmed, NeighbourId(10));
        assert_eq!(greedy, GUARANTEED + (MOST - GUARANTEED) / 2);
        assert!(fill(&mut unconfirmed, NeighbourId(11)) > GUARANTEED);
        for other in 100..200 {
            assert!(fill(&mut unconfirmed, NeighbourId(other)) >= GUARANTEED);
        }
        for ticket in 0..unconfirmed.next {
            unconfirmed.remove(ticket);
        }
        unconfirmed.footprint(&mut |name, count| assert_eq!(count, 0, "{name}"));
    }
}
