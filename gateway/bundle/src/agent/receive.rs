//! Bundles that arrive, and what happens to those for other nodes.

use std::time::Instant;

use bp7::administrative_record::{DELETED_BUNDLE, RECEIVED_BUNDLE};
use bytes::Bytes;
use underpass_cla::Class;

use super::Agent;
use super::authority::Forgery;
use super::config::NeighbourId;
use super::deliver::MAX_WAITING_EVENTS;
use super::event::{DeleteReason, Event, Reject};
use super::originate::expiry;
use super::quota::Reservation;
use super::signals::Way;
use super::stored::{BlockNumbers, Phase, StoredBundle, WireName};
use crate::wire::{
    Bundle, CodePoints, Cteb, DecodeError, DecodeLimits, Eid, MAX_RECORD_BYTES, Malformed, decode,
    ipn_parts, is_null, write_trailer,
};

/// A bundle on its way through the node.
pub(super) struct Arrival {
    pub bundle: Bundle,
    pub from: NeighbourId,
    pub class: Class,
    pub age_ms: u64,
    pub expires: Instant,
}

impl Arrival {
    pub fn cteb(&self) -> Option<&Cteb> {
        self.bundle.cteb.as_ref().map(|(_, cteb)| cteb)
    }

    pub fn name(&self) -> WireName {
        WireName::of(&self.bundle.primary, self.bundle.payload.len() as u64)
    }
}

/// Decodes bundles as an agent is configured to, and verifies their CRCs. It
/// needs nothing of the agent's state: many can do so at once.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    limits: DecodeLimits,
    codes: CodePoints,
}

/// A bundle as it was decoded, or why it could not be.
#[derive(Debug)]
pub struct Decoded {
    /// Its length as it came, bytes.
    pub bytes: u64,
    outcome: Result<Bundle, DecodeError>,
}

impl Decoder {
    /// Decodes a whole bundle.
    pub fn decode(&self, raw: &Bytes) -> Decoded {
        Decoded {
            bytes: raw.len() as u64,
            outcome: decode(raw, &self.limits, &self.codes),
        }
    }
}

impl Agent {
    /// What decodes bundles for this agent.
    pub fn decoder(&self) -> Decoder {
        Decoder {
            limits: self.config.decode,
            codes: self.config.codes,
        }
    }

    /// Decodes a bundle and takes it, as [`Agent::receive_decoded`] does.
    ///
    /// # Errors
    /// When it is malformed or refused.
    pub fn receive(
        &mut self,
        now: Instant,
        from: NeighbourId,
        class: Class,
        raw: Bytes,
    ) -> Result<(), Reject> {
        let decoded = self.decoder().decode(&raw);
        self.receive_decoded(now, from, class, decoded)
    }

    /// Takes a whole bundle from a neighbour. On `Ok` the CL may acknowledge
    /// it: the bundle is kept, delivered, known already, or deleted by the
    /// protocol's rules, with its custodian told.
    ///
    /// # Errors
    /// When it is malformed or refused.
    pub fn receive_decoded(
        &mut self,
        now: Instant,
        from: NeighbourId,
        class: Class,
        decoded: Decoded,
    ) -> Result<(), Reject> {
        let bundle = match decoded.outcome {
            Ok(bundle) => bundle,
            Err(error) => {
                let primary = error.primary.as_ref();
                if let Some(primary) = primary.filter(|p| self.believes_primary(from, p)) {
                    let reason = match error.reason {
                        Malformed::Unsupported(_) => DeleteReason::BlockUnsupported,
                        _ => DeleteReason::BlockUnintelligible,
                    };
                    self.report(now, primary, 0, class, DELETED_BUNDLE, reason.code());
                }
                return Err(error.reason.into());
            }
        };
        self.neighbour(from);
        let age_ms = bundle.age_ms.map_or(0, |(_, age)| age);
        let lifetime = bundle.primary.lifetime.min(self.config.foreign_lifetime);
        let expires = expiry(now, lifetime, age_ms);
        let mut arrival = Arrival {
            from,
            class,
            age_ms,
            expires: expires.unwrap_or(now),
            bundle,
        };
        if let Err(forgery) = self.check_authority(&arrival) {
            return Err(self.forged(&arrival, forgery));
        }
        let primary = &mut arrival.bundle.primary;
        if !self.may_report_to(from, primary) {
            primary.report_to = Eid::none();
        }
        if arrival.bundle.report_unsupported {
            let reason = DeleteReason::BlockUnsupported.code();
            let (primary, bytes) = (&arrival.bundle.primary, arrival.bundle.payload.len());
            self.send_report(now, primary, bytes as u64, class, RECEIVED_BUNDLE, reason);
        }
        if expires.is_none() {
            self.refuse(now, &arrival, DeleteReason::LifetimeExpired);
            return Ok(());
        }
        match ipn_parts(&arrival.bundle.primary.destination) {
            Some((node, service)) if node == self.config.node => {
                self.deliver(now, arrival, service)
            }
            Some((node, _)) => self.relay(now, arrival, node),
            None => {
                self.refuse(now, &arrival, DeleteReason::NoRoute);
                Ok(())
            }
        }
    }

    /// Deletes an arriving bundle; its custodian is told that custody is not
    /// taken.
    pub(super) fn refuse(&mut self, now: Instant, arrival: &Arrival, reason: DeleteReason) {
        self.signal(now, arrival, false);
        let primary = &arrival.bundle.primary;
        let bytes = arrival.bundle.payload.len() as u64;
        self.report(
            now,
            primary,
            bytes,
            arrival.class,
            DELETED_BUNDLE,
            reason.code(),
        );
        if self.events.len() < MAX_WAITING_EVENTS {
            self.events.push_back(Event::Deleted {
                id: None,
                source: primary.source.clone(),
                reason,
            });
        }
    }

    /// Gathers a custody signal to the bundle's custodian, if it has one.
    pub(super) fn signal(&mut self, now: Instant, arrival: &Arrival, accepted: bool) {
        if let Some((way, cteb)) = self.owed(arrival) {
            let aggregate = self.config.aggregate;
            self.signals.add(now, aggregate, way, cteb, accepted);
        }
    }

    /// What the bundle's custodian is owed, if it has one: a signal, and on
    /// which way.
    pub(super) fn owed<'a>(&self, arrival: &'a Arrival) -> Option<(Way, &'a Cteb)> {
        let cteb = arrival.cteb()?;
        if is_null(&cteb.custodian) {
            return None;
        }
        // Without a route to the custodian the way back is tried.
        let via = ipn_parts(&cteb.custodian)
            .and_then(|(node, _)| self.route(node))
            .map_or(arrival.from, |(via, _)| via);
        let from = arrival.from;
        Some((Way { from, via }, cteb))
    }

    /// Answers a duplicate of what is in custody; not before that is as safe
    /// as the store makes it.
    fn signal_again(&mut self, now: Instant, arrival: &Arrival) {
        let id = self.by_name.get(&self.bundles, &arrival.name());
        if let Some(id) = id.filter(|id| self.uncommitted.contains_key(id)) {
            if let Some((way, cteb)) = self.owed(arrival) {
                self.uncommitted.insert(id, (way, cteb.clone()));
            }
            return;
        }
        self.signal(now, arrival, true);
    }

    /// Forwards a bundle for another node.
    fn relay(&mut self, now: Instant, arrival: Arrival, node: u64) -> Result<(), Reject> {
        let hop_count = match arrival.bundle.hop_count {
            Some((_, limit, count)) if count >= limit => {
                self.refuse(now, &arrival, DeleteReason::HopLimitExceeded);
                return Ok(());
            }
            Some((_, limit, count)) => Some((limit, count + 1)),
            None => None,
        };
        let (via, take_custody) = match self.route(node) {
            Some((via, _)) if !self.config.relaying.allows(arrival.from, via) => {
                return Err(self.forged(&arrival, Forgery::Relay));
            }
            // The way it came leads nowhere else.
            Some((via, take)) if via != arrival.from => (via, take),
            _ => {
                self.refuse(now, &arrival, DeleteReason::NoRoute);
                return Ok(());
            }
        };
        let custody = arrival.cteb().is_some() && take_custody && self.config.accept_custody;
        if custody && self.has_custody(&arrival) {
            self.signal_again(now, &arrival);
            return Ok(());
        }
        let room = self.reserve_to_relay(&arrival);
        let room = room.ok_or(Reject::NoResources)?;
        self.report_reception(now, &arrival);
        self.take(now, arrival, via, custody, hop_count, room);
        Ok(())
    }

    /// Room for a bundle for another node. Administrative records may exceed
    /// the store: the signals among them empty stores.
    fn reserve_to_relay(&self, arrival: &Arrival) -> Option<Reservation> {
        let bytes = arrival.bundle.payload.len();
        let record = arrival.bundle.is_administrative() && bytes <= MAX_RECORD_BYTES;
        match record {
            true => self.common.quota.reserve_beyond(bytes as u64),
            false => self.reserve(bytes as u64),
        }
    }

    /// Whether this node has custody of the bundle, or had it and this is the
    /// same custodian's retransmission.
    ///
    /// Having seen the bundle is not enough. If it comes back in a routing loop
    /// after another node took custody, a signal would make that node delete
    /// the only copy. So in doubt it is taken again, and its destination
    /// suppresses the duplicate.
    fn has_custody(&self, arrival: &Arrival) -> bool {
        let name = arrival.name();
        if self.by_name.get(&self.bundles, &name).is_some() {
            return true;
        }
        let Some(cteb) = arrival.cteb() else {
            return false;
        };
        self.seen.contains(&name.group, name.sequence)
            && self
                .taken
                .contains(&(cteb.custodian.clone(), cteb.sequence), cteb.number)
    }

    fn take(
        &mut self,
        now: Instant,
        arrival: Arrival,
        via: NeighbourId,
        custody: bool,
        hop_count: Option<(u8, u8)>,
        room: Reservation,
    ) {
        let name = arrival.name();
        let bundle = &arrival.bundle;
        let cteb = arrival.cteb().cloned();
        let stored = StoredBundle {
            primary: bundle.primary.clone(),
            primary_raw: bundle.primary_raw.clone(),
            others: bundle.others.clone(),
            numbers: block_numbers(bundle),
            hop_count,
            passed_cteb: cteb.clone().filter(|_| !custody).map(Box::new),
            creb: bundle.creb.as_ref().map(|(_, creb)| Box::new(creb.clone())),
            payload_head: bundle.payload_head.clone(),
            trailer: write_trailer(&bundle.payload_tail),
            bytes: bundle.payload.len() as u64,
            age_ms: arrival.age_ms,
            since: now,
            expires: arrival.expires,
            class: arrival.class,
            neighbour: via,
            custody,
            own: false,
            label: 0,
            note: None,
            number: None,
            phase: Phase::Queued,
            transmissions: 0,
            unanswered: 0,
            acknowledged: None,
            sent: None,
        };
        let id = self.store_bundle(now, stored, vec![bundle.payload.clone()], room);
        if let Some(cteb) = cteb.filter(|_| custody) {
            self.seen.insert(now, name.group, name.sequence);
            let sequence = (cteb.custodian, cteb.sequence);
            self.taken.insert(now, sequence, cteb.number);
            if !self.store.is_durable() {
                self.signal(now, &arrival, true);
            } else if let Some((way, cteb)) = self.owed(&arrival) {
                self.uncommitted.insert(id, (way, cteb.clone()));
            }
        }
    }

    pub(super) fn report_reception(&mut self, now: Instant, arrival: &Arrival) {
        let primary = &arrival.bundle.primary;
        let bytes = arrival.bundle.payload.len() as u64;
        self.report(now, primary, bytes, arrival.class, RECEIVED_BUNDLE, 0);
    }
}

/// Blocks that this node rewrites keep their numbers, since security blocks
/// may name them; new ones get free numbers.
fn block_numbers(bundle: &Bundle) -> BlockNumbers {
    let theirs = [
        bundle.previous_node.as_ref().map(|(number, _)| *number),
        bundle.age_ms.map(|(number, _)| number),
        bundle.hop_count.map(|(number, ..)| number),
        bundle.cteb.as_ref().map(|(number, _)| *number),
        bundle.creb.as_ref().map(|(number, _)| *number),
    ];
    let kept = bundle.others.iter().map(|block| block.number);
    let used: Vec<u64> = theirs.iter().flatten().copied().chain(kept).collect();
    let mut free = (2..).filter(|number| !used.contains(number));
    let [previous_node, age, hop_count, cteb, creb] =
        theirs.map(|number| number.or_else(|| free.next()).unwrap_or_default());
    BlockNumbers {
        previous_node,
        age,
        hop_count,
        cteb,
        creb,
    }
}
