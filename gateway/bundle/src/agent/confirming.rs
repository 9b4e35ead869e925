//! Bundles for services of this node that say themselves when one is safe.
//!
//! A bundle that such a service has not confirmed stays in custody upstream: if
//! the node ends before, it is sent again. Duplicates that come meanwhile are
//! neither delivered nor answered.

use std::collections::HashMap;
use std::time::Instant;

use super::Agent;
use super::event::Reject;
use super::receive::Arrival;
use super::signals::Way;
use super::stored::WireName;
use crate::wire::Cteb;

/// Bundles that wait for their service's word at most; more are not taken.
const MOST: usize = 16_384;

/// What waits for its service's word.
#[derive(Default)]
pub(super) struct Unconfirmed {
    next: u64,
    owed: HashMap<u64, (WireName, Way, Cteb)>,
    by_name: HashMap<WireName, u64>,
}

impl Unconfirmed {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Unconfirmed {
            next: _,
            owed,
            by_name,
        } = self;
        tell("unconfirmed bundles", owed.len());
        tell("unconfirmed bundles by name", by_name.len());
    }
}

impl Agent {
    /// The service has made safe what came with this ticket: its custodian may
    /// forget it.
    pub fn confirm(&mut self, now: Instant, ticket: u64) {
        if let Some((name, way, cteb)) = self.unconfirmed.owed.remove(&ticket) {
            self.unconfirmed.by_name.remove(&name);
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
        if !self.config.confirming.contains(&service) {
            return Ok(None);
        }
        let Some((way, cteb)) = self.owed(arrival) else {
            return Ok(None);
        };
        let cteb = cteb.clone();
        if self.unconfirmed.owed.len() >= MOST {
            return Err(Reject::NoResources);
        }
        let ticket = self.unconfirmed.next;
        self.unconfirmed.next += 1;
        self.unconfirmed.by_name.insert(name.clone(), ticket);
        self.unconfirmed
            .owed
            .insert(ticket, (name.clone(), way, cteb));
        Ok(Some(ticket))
    }

    /// Whether a duplicate is of what waits; then whoever sent it last is
    /// told in the end.
    pub(super) fn is_unconfirmed(&mut self, arrival: &Arrival, name: &WireName) -> bool {
        let Some(ticket) = self.unconfirmed.by_name.get(name).copied() else {
            return false;
        };
        if let Some((way, cteb)) = self.owed(arrival) {
            let owed = (name.clone(), way, cteb.clone());
            self.unconfirmed.owed.insert(ticket, owed);
        }
        true
    }
}
