//! Bundles that arrive.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bp7::administrative_record::{DELETED_BUNDLE, RECEIVED_BUNDLE};
use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_cla::Class;

use super::Agent;
use super::config::NeighbourId;
use super::deliver::MAX_WAITING_EVENTS;
use super::event::{DeleteReason, Event, Reject};
use super::originate::foreign_expiry;
use super::own_names::{OwnNames, service_of};
use super::relay::Stays;
use super::security::{Insecure, Security};
use super::signals::Way;
use super::stored::WireName;
use crate::wire::{
    Bundle, CborError, CodePoints, Cteb, DecodeError, DecodeLimits, Eid, Malformed, decode,
    ipn_parts, is_null, read_bpdu,
};

/// A bundle on its way through the node.
#[derive(Debug)]
pub(super) struct Arrival {
    pub bundle: Bundle,
    pub from: NeighbourId,
    pub class: Class,
    pub age_ms: u64,
    pub expires: Instant,
    pub in_bpdu: bool,
    /// The sender of that BPDU, if it has custody of the bundle.
    pub encapsulated: Option<Cteb>,
}

impl Arrival {
    pub fn cteb(&self) -> Option<&Cteb> {
        let own = self.bundle.cteb.as_ref().map(|(_, cteb)| cteb);
        own.or(self.encapsulated.as_ref())
    }

    pub fn name(&self) -> WireName {
        WireName::of(&self.bundle.primary, self.bundle.payload_bytes())
    }
}

/// Decodes bundles as an agent is configured to, verifies their CRCs and judges
/// their security blocks. It
/// needs nothing of the agent's state: many can do so at once.
#[derive(Clone, Debug)]
pub struct Decoder {
    pub(super) node: u64,
    pub(super) names: Arc<OwnNames>,
    pub(super) limits: DecodeLimits,
    pub(super) codes: CodePoints,
    pub(super) security: Option<Arc<dyn Security>>,
}

/// A bundle as it was decoded, or why it could not be.
#[derive(Debug)]
pub struct Decoded {
    /// Its length as it came, bytes.
    pub bytes: u64,
    pub(super) outcome: Result<Bundle, DecodeError>,
    pub(super) secured: Result<(), Insecure>,
    /// Whether its security blocks were judged although its payload is on disk.
    pub(super) followed: bool,
    /// The bundle in it, if it is a BPDU for this node.
    pub(super) encapsulated: Option<Box<Encapsulated>>,
}

/// A bundle that came in a BPDU.
#[derive(Debug)]
pub(super) struct Encapsulated {
    /// The transmission's number; 0 asks for no custody.
    pub transmission: u64,
    pub bundle: Decoded,
}

/// A bundle that came in fragments and is whole: its security blocks are still to be judged, or
/// the bundle in it to be decoded. Its payload may be on disk, and has no other handle then.
#[derive(Debug)]
pub struct Unopened {
    pub(super) whole: Box<Arrival>,
    pub(super) service: u64,
}

/// The same, once [`Decoder::open_whole`] has done that.
#[derive(Debug)]
pub struct Opened {
    whole: Box<Arrival>,
    service: u64,
    /// Whether its payload came on the disk; it is of no use if the disk has failed.
    on_disk: bool,
    secured: io::Result<Result<(), Insecure>>,
    inside: Result<Option<Encapsulated>, CborError>,
}

impl Decoder {
    /// Decodes a whole bundle. The payload of one that is refused is not looked at: it may be
    /// encrypted still.
    pub fn decode(&self, raw: &Bytes) -> Decoded {
        let mut decoded = self.decode_one(raw);
        let opens =
            |bundle: &Bundle| bundle.holds_record() && self.is_here(&bundle.primary.destination);
        let inside = match (&decoded.outcome, decoded.secured) {
            (Ok(bundle), Ok(())) if opens(bundle) => self.open(&bundle.payload),
            _ => return decoded,
        };
        match inside {
            Ok(inside) => decoded.encapsulated = inside.map(Box::new),
            Err(error) => {
                decoded.outcome = decoded.outcome.and_then(|bundle| {
                    let primary = Some(Box::new(bundle.primary));
                    Err(DecodeError::new(error.into(), primary))
                });
            }
        }
        decoded
    }

    /// The bundle in a BPDU; `None` if the payload of this administrative bundle is another record.
    ///
    /// # Errors
    /// When the record is not well-formed.
    fn open(&self, record: &Bytes) -> Result<Option<Encapsulated>, CborError> {
        let inside = read_bpdu(record)?;
        Ok(inside.map(|(head, bundle)| Encapsulated {
            transmission: head.transmission,
            bundle: self.decode_one(&bundle),
        }))
    }

    /// Judges a bundle that came in fragments, and decodes the bundle in it if it is a BPDU. Waits
    /// for the disk if its payload is there.
    pub fn open_whole(&self, unopened: Unopened) -> Opened {
        let Unopened { mut whole, service } = unopened;
        let on_disk = whole.bundle.file.is_some();
        let secured = match (on_disk, &self.security) {
            (true, _) => self.judge_file(&mut whole.bundle),
            (false, Some(security)) => Ok(security.accept(&mut whole.bundle, true)),
            (false, None) => Ok(Ok(())),
        };
        // One in another BPDU is not opened: a record in fragments could nest without end.
        let opens =
            matches!(secured, Ok(Ok(()))) && whole.bundle.is_administrative() && !whole.in_bpdu;
        let inside = match opens {
            true => self.open(&whole.bundle.payload),
            false => Ok(None),
        };
        Opened {
            whole,
            service,
            on_disk,
            secured,
            inside,
        }
    }

    fn decode_one(&self, raw: &Bytes) -> Decoded {
        let mut outcome = decode(raw, &self.limits, &self.codes);
        let secured = match (&self.security, &mut outcome) {
            (Some(security), Ok(bundle)) => {
                let here = self.is_here(&bundle.primary.destination);
                security.accept(bundle, here)
            }
            _ => Ok(()),
        };
        Decoded {
            bytes: raw.len() as u64,
            outcome,
            secured,
            followed: false,
            encapsulated: None,
        }
    }

    pub(super) fn is_here(&self, destination: &Eid) -> bool {
        service_of(self.node, &self.names, destination).is_some()
    }
}

impl Decoded {
    pub(super) fn has_custodian(&self) -> bool {
        let bundle = self.outcome.as_ref();
        bundle.is_ok_and(|bundle| bundle.cteb.is_some())
    }
}

impl Agent {
    /// The decoder of bundles for this agent.
    pub fn decoder(&self) -> Decoder {
        Decoder {
            node: self.config.node,
            names: self.config.names.clone(),
            limits: self.config.decode,
            codes: self.config.codes,
            security: self.config.security.clone(),
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
        let decoder = self.decoder();
        let mut taken = self.receive_decoded(now, from, class, decoder.decode(&raw));
        while let Some(unopened) = self.take_unopened() {
            taken = self.receive_opened(now, decoder.open_whole(unopened));
        }
        taken
    }

    /// The bundle that the last fragment taken has made whole, if there is more to do with it that
    /// takes a while, for which nobody should have to wait. It is to be given to
    /// [`Decoder::open_whole`], and back by [`Agent::receive_opened`]. There may be another one
    /// then: the bundle in a BPDU may be a fragment.
    pub fn take_unopened(&mut self) -> Option<Unopened> {
        self.reassembly.unopened.take()
    }

    /// The next bundle that was put together on the disk and has to be judged, if its turn has
    /// come: maybe after any call. As with [`Agent::take_unopened`], on a thread that may wait for
    /// the disk.
    pub fn take_unjudged(&mut self) -> Option<Unopened> {
        self.reassembly.take_unjudged()
    }

    /// Takes a bundle that came in fragments and was judged and opened. One from the disk is lost
    /// if this is not the agent that has given it away, but one that has taken its place.
    ///
    /// # Errors
    /// When it is malformed or refused.
    pub fn receive_opened(&mut self, now: Instant, opened: Opened) -> Result<(), Reject> {
        let Opened {
            whole,
            service,
            on_disk,
            secured,
            inside,
        } = opened;
        if on_disk && !self.reassembly.end_judging(&whole) {
            return Err(Reject::NoResources);
        }
        match secured {
            Ok(Ok(())) => {}
            Ok(Err(insecure)) => return Err(self.insecure(now, &whole, insecure)),
            Err(_) => {
                self.refuse(now, &whole, DeleteReason::DepletedStorage);
                return Err(Reject::NoResources);
            }
        }
        // It may have taken long.
        if whole.expires <= now {
            self.expire_whole(now, *whole);
            return Ok(());
        }
        let inside = inside.map_err(|error| Reject::Malformed(error.into()))?;
        let (from, name) = (whole.from, whole.name());
        let record = whole.bundle.is_administrative();
        match inside {
            Some(inside) => self.take_encapsulated(now, &whole, inside)?,
            None if on_disk => self.deliver_put_together(now, *whole, service)?,
            None => self.deliver(now, *whole, service)?,
        }
        if record {
            // Otherwise a late duplicate of a fragment would take memory until its time is over.
            self.seen.insert(now, from, name.group, name.sequence);
        }
        Ok(())
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
        self.receive_whole(now, from, class, decoded, (false, None))
    }

    /// As [`Agent::receive_decoded`], on a session that cannot tell the neighbour of a refusal. If
    /// there is no room for a bundle without a custodian, it is lost; whoever has asked for reports
    /// is told.
    ///
    /// # Errors
    /// As there.
    pub fn receive_unrefusable(
        &mut self,
        now: Instant,
        from: NeighbourId,
        class: Class,
        decoded: Decoded,
    ) -> Result<(), Reject> {
        let lost = match (&decoded.outcome, decoded.has_custodian()) {
            (Ok(bundle), false) => Some((bundle.primary.clone(), bundle.payload_bytes())),
            _ => None,
        };
        let taken = self.receive_decoded(now, from, class, decoded);
        if let (Err(Reject::NoResources), Some((mut primary, bytes))) = (taken, lost) {
            if !self.may_report_to(from, &primary) {
                primary.report_to = Eid::none();
            }
            let reason = DeleteReason::DepletedStorage;
            self.tell_refused(now, &primary, bytes, class, reason);
        }
        taken
    }

    /// As [`Agent::receive_decoded`], with whether the bundle came in a BPDU, and the custodian if
    /// it did.
    pub(super) fn receive_whole(
        &mut self,
        now: Instant,
        from: NeighbourId,
        class: Class,
        decoded: Decoded,
        (in_bpdu, custodian): (bool, Option<Cteb>),
    ) -> Result<(), Reject> {
        let bundle = match decoded.outcome {
            Ok(bundle) => bundle,
            Err(error) => {
                let primary = error.primary.as_ref();
                if let Some(primary) = primary.filter(|p| self.believes_primary(from, p)) {
                    self.report(now, primary, 0, class, RECEIVED_BUNDLE, 0);
                    if error.report_unsupported {
                        let reason = DeleteReason::BlockUnsupported.code();
                        self.send_report(now, primary, 0, class, RECEIVED_BUNDLE, reason);
                    }
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
        let (mut arrival, is_over) = self.arrival(now, from, class, bundle);
        (arrival.in_bpdu, arrival.encapsulated) = (in_bpdu, custodian);
        if let Err(forgery) = self.check_authority(&arrival) {
            return Err(self.forged(&arrival, forgery));
        }
        let primary = &mut arrival.bundle.primary;
        if !self.may_report_to(from, primary) {
            primary.report_to = Eid::none();
        }
        if let Err(insecure) = decoded.secured {
            return Err(self.insecure(now, &arrival, insecure));
        }
        let unjudged = arrival.bundle.file.is_some() && !decoded.followed;
        // A security rule may have come into force while it was received.
        if unjudged && !self.is_judged_whole(&arrival) && self.secures(&arrival) {
            return Err(self.insecure(now, &arrival, Insecure::Missing));
        }
        if arrival.bundle.report_unsupported {
            let reason = DeleteReason::BlockUnsupported.code();
            let (primary, bytes) = (&arrival.bundle.primary, arrival.bundle.payload_bytes());
            self.send_report(now, primary, bytes, class, RECEIVED_BUNDLE, reason);
        }
        if is_over {
            self.refuse(now, &arrival, DeleteReason::LifetimeExpired);
            return Ok(());
        }
        if let Some(inside) = decoded.encapsulated {
            return self.take_encapsulated(now, &arrival, *inside);
        }
        let destination = &arrival.bundle.primary.destination;
        if let Some(service) = self.config.own_service(destination) {
            return self.deliver(now, arrival, service);
        }
        let node = ipn_parts(destination).map(|(node, _)| node);
        self.relay(now, arrival, node)
    }

    /// Whether an arriving bundle is a fragment for this node, which is judged with its bundle.
    fn is_judged_whole(&self, arrival: &Arrival) -> bool {
        let primary = &arrival.bundle.primary;
        let here = self.config.own_service(&primary.destination).is_some();
        here && primary.has_fragmentation()
    }

    /// Whether an arriving bundle has to be secured.
    pub(super) fn secures(&self, arrival: &Arrival) -> bool {
        let primary = &arrival.bundle.primary;
        let (source, destination) = (&primary.source, &primary.destination);
        let passes = self.config.own_service(destination).is_none();
        let security = self.config.security.as_ref();
        security.is_some_and(|security| security.secures(source, destination, passes))
    }

    /// Whether an arriving bundle is to be decrypted here.
    fn decrypts(&self, arrival: &Arrival) -> bool {
        let primary = &arrival.bundle.primary;
        let (source, destination) = (&primary.source, &primary.destination);
        let here = self.config.own_service(destination).is_some();
        let security = self.config.security.as_ref().filter(|_| here);
        security.is_some_and(|security| security.encrypts(source, destination))
    }

    /// A bundle from a neighbour, and whether its lifetime is over.
    fn arrival(
        &self,
        now: Instant,
        from: NeighbourId,
        class: Class,
        bundle: Bundle,
    ) -> (Arrival, bool) {
        // Without an age block, the age follows from the creation time (RFC 9171 §4.3.1).
        let age_ms = bundle.age_ms.map_or_else(
            || {
                let created_ms = bundle.primary.creation_timestamp.dtntime();
                self.timestamps.age_ms(now, created_ms)
            },
            |(_, age)| age,
        );
        let (lifetime, most) = (bundle.primary.lifetime, self.config.foreign_lifetime);
        let expires = foreign_expiry(now, lifetime, age_ms, most);
        let arrival = Arrival {
            from,
            class,
            age_ms,
            expires: expires.unwrap_or(now),
            in_bpdu: false,
            encapsulated: None,
            bundle,
        };
        (arrival, expires.is_none())
    }

    /// Judges a long bundle by the blocks before its payload, so that nothing is written to the
    /// disk if it would be deleted or there is no room for it. Once it is whole,
    /// [`Agent::receive_decoded`] judges it again.
    ///
    /// # Errors
    /// The reason for a refusal. Nobody else is told: the neighbour still has the bundle, and hears
    /// of the refusal.
    pub fn judge_long(
        &mut self,
        now: Instant,
        from: NeighbourId,
        class: Class,
        bundle: &Bundle,
    ) -> Result<(), Reject> {
        let (mut arrival, is_over) = self.arrival(now, from, class, bundle.clone());
        // It is no longer once it is whole.
        arrival.bundle.encrypted &= !self.decrypts(&arrival);
        if let Err(forgery) = self.check_authority(&arrival) {
            return Err(self.forged(&arrival, forgery));
        }
        if is_over {
            return Err(Reject::Unwanted(DeleteReason::LifetimeExpired));
        }
        let destination = &arrival.bundle.primary.destination;
        let node = ipn_parts(destination).map(|(node, _)| node);
        let has_room = match self.config.own_service(destination) {
            Some(service) => match self.undeliverable_file(&arrival, service) {
                None => self.has_room_for_file(now, &arrival, service),
                Some(reason) => return Err(Reject::Unwanted(reason)),
            },
            None => match self.way_on(&arrival, node) {
                Ok(way) => self.has_room_onward(&arrival, &way),
                Err(Stays::Forged(forgery)) => return Err(self.forged(&arrival, forgery)),
                Err(Stays::Deleted(reason)) => return Err(Reject::Unwanted(reason)),
            },
        };
        has_room.then_some(()).ok_or(Reject::NoResources)
    }

    /// Refuses a bundle that is not secured as required. The custodian that it names gets no
    /// signal, since that name may be forged, too.
    pub(super) fn insecure(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        insecure: Insecure,
    ) -> Reject {
        let primary = &arrival.bundle.primary;
        let bytes = arrival.bundle.payload_bytes();
        self.tell_refused(now, primary, bytes, arrival.class, insecure.into());
        insecure.into()
    }

    /// Deletes an arriving bundle; its custodian is told that custody is not
    /// taken.
    pub(super) fn refuse(&mut self, now: Instant, arrival: &Arrival, reason: DeleteReason) {
        self.signal(now, arrival, false);
        let primary = &arrival.bundle.primary;
        let bytes = arrival.bundle.payload_bytes();
        self.tell_refused(now, primary, bytes, arrival.class, reason);
    }

    /// Reports a bundle that was not taken. It was received all the same (RFC 9171 §5.6 step 2).
    pub(super) fn tell_refused(
        &mut self,
        now: Instant,
        primary: &PrimaryBlock,
        payload_bytes: u64,
        class: Class,
        reason: DeleteReason,
    ) {
        self.report(now, primary, payload_bytes, class, RECEIVED_BUNDLE, 0);
        self.tell_deleted(now, primary, payload_bytes, class, reason);
    }

    /// Reports that a bundle is given up that was never stored.
    pub(super) fn tell_deleted(
        &mut self,
        now: Instant,
        primary: &PrimaryBlock,
        payload_bytes: u64,
        class: Class,
        reason: DeleteReason,
    ) {
        let code = reason.code();
        self.report(now, primary, payload_bytes, class, DELETED_BUNDLE, code);
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

    /// The signal that is owed to the bundle's custodian, if it has one, and its way.
    pub(super) fn owed<'a>(&self, arrival: &'a Arrival) -> Option<(Way, &'a Cteb)> {
        let cteb = arrival.cteb()?;
        if is_null(&cteb.custodian) {
            return None;
        }
        Some((self.way_back(arrival.from, cteb), cteb))
    }

    /// The way of a signal to the custodian of what came from a neighbour.
    pub(super) fn way_back(&self, from: NeighbourId, cteb: &Cteb) -> Way {
        // Without a route to the custodian, by a neighbour of this agent, the
        // way back is tried.
        let via = ipn_parts(&cteb.custodian)
            .and_then(|(node, _)| self.route(node, 0))
            .filter(|(via, _)| self.sharding.has(*via))
            .map_or(from, |(via, _)| via);
        Way { from, via }
    }

    pub(super) fn report_reception(&mut self, now: Instant, arrival: &Arrival) {
        let primary = &arrival.bundle.primary;
        let bytes = arrival.bundle.payload_bytes();
        self.report(now, primary, bytes, arrival.class, RECEIVED_BUNDLE, 0);
    }
}
