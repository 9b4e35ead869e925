//! Bundles for this node: services and administrative records.

use std::time::{Duration, Instant};

use bp7::administrative_record::DELIVERED_BUNDLE;

use super::Agent;
use super::config::NeighbourId;
use super::event::{DeleteReason, Delivery, Event, Reject};
use super::quota::Reservation;
use super::receive::Arrival;
use crate::wire::{BPDU_RECORD, Eid, Malformed, Record, decode_record, ipn_parts, is_null};

/// The most waiting events of a kind that comes from strangers and on which nothing depends; more
/// are dropped.
pub(super) const MAX_WAITING_EVENTS: usize = 65_536;

/// The number of the node that an endpoint is of; 0 where it has none.
pub(super) fn source_node(source: &Eid) -> u64 {
    ipn_parts(source).map_or(0, |(node, _)| node)
}

/// As [`Delivery::counted_node`].
pub(super) fn counted_node(source: &Eid, from: Option<NeighbourId>) -> u64 {
    match (ipn_parts(source), from) {
        (Some((node, _)), _) => node,
        (None, Some(NeighbourId(neighbour))) => neighbour,
        (None, None) => 0,
    }
}

impl Agent {
    /// Delivers a bundle once; a duplicate's custodian is only told again.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        arrival: Arrival,
        service: u64,
    ) -> Result<(), Reject> {
        let fragment = arrival.bundle.primary.has_fragmentation();
        let record = arrival.bundle.is_administrative();
        if record && !fragment {
            self.take_record(now, &arrival)?;
            // A relay may have taken custody of it.
            self.signal(now, &arrival, true);
            return Ok(());
        }
        let on_disk = arrival.bundle.file.is_some();
        if fragment && (record || self.config.delivers(service)) {
            return self.take_fragment(now, arrival, service);
        }
        let name = arrival.name();
        let named = !is_null(&name.group.source);
        if named && self.seen.contains(&name.group, name.sequence) {
            if !self.is_unconfirmed(&arrival, service, &name) {
                self.signal(now, &arrival, true);
            }
            return Ok(());
        }
        let undeliverable = match on_disk {
            true => self.undeliverable_file(&arrival, service),
            false => self.undeliverable(&arrival, service),
        };
        if let Some(reason) = undeliverable {
            self.refuse(now, &arrival, reason);
            return Ok(());
        }
        // Only bundles for this service have to wait: the neighbour sends others meanwhile.
        if !self.may_await_confirmation(&arrival, service) {
            self.signal(now, &arrival, false);
            return Ok(());
        }
        // A payload on disk has room there already.
        let bytes = arrival.bundle.payload.len() as u64;
        let room = self.usage.reserve_undelivered(bytes);
        let room = room.ok_or(Reject::NoResources)?;
        let node = counted_node(&arrival.bundle.primary.source, Some(arrival.from));
        if let Some(keeping) = self.config.keeping(service)
            && !keeping.reserve(service, node, bytes)
        {
            self.refuse(now, &arrival, DeleteReason::DepletedStorage);
            return Ok(());
        }
        let ticket = self.await_confirmation(&arrival, service, &name);
        if named {
            self.seen
                .insert(now, arrival.from, name.group, name.sequence);
        }
        if ticket.is_none() {
            self.signal(now, &arrival, true);
        }
        self.report_reception(now, &arrival);
        let primary = &arrival.bundle.primary;
        let whole = arrival.bundle.payload_bytes();
        self.report(now, primary, whole, arrival.class, DELIVERED_BUNDLE, 0);
        let delivery = Delivery {
            source: primary.source.clone(),
            timestamp: primary.creation_timestamp.clone(),
            service,
            class: arrival.class,
            from: Some(arrival.from),
            age: Duration::from_millis(arrival.age_ms),
            left: arrival.expires.saturating_duration_since(now),
            ticket,
            payload: arrival.bundle.payload,
            file: arrival.bundle.file,
        };
        self.push_delivery(delivery, room);
        Ok(())
    }

    fn undeliverable(&self, arrival: &Arrival, service: u64) -> Option<DeleteReason> {
        if !self.config.delivers(service) {
            return Some(DeleteReason::DestinationUnavailable);
        }
        // No decryption is done here.
        let encrypted = arrival.bundle.encrypted;
        encrypted.then_some(DeleteReason::BlockUnsupported)
    }

    /// The same for a bundle whose payload is on disk, or is to go there: only applications take
    /// it, and fragments of bundles that are put together there.
    pub(super) fn undeliverable_file(
        &self,
        arrival: &Arrival,
        service: u64,
    ) -> Option<DeleteReason> {
        let primary = &arrival.bundle.primary;
        let whole = !primary.has_fragmentation()
            || arrival.cteb().is_none() && self.goes_to_disk(service, primary.total_data_length);
        let taken =
            self.config.keeping(service).is_some() && !arrival.bundle.is_administrative() && whole;
        let refused = (!taken).then_some(DeleteReason::DepletedStorage);
        self.undeliverable(arrival, service).or(refused)
    }

    /// Whether there is room for a bundle for a service of this node whose payload is to go to the
    /// disk. A known bundle needs none: its custodian is only told again.
    pub(super) fn has_room_for_file(&self, now: Instant, arrival: &Arrival, service: u64) -> bool {
        if arrival.bundle.primary.has_fragmentation() {
            return self.has_place_for(now, arrival);
        }
        let name = arrival.name();
        if self.seen.contains(&name.group, name.sequence) {
            return true;
        }
        let node = counted_node(&arrival.bundle.primary.source, Some(arrival.from));
        let keeping = self.config.keeping(service);
        // The payload itself has room on the disk.
        self.usage.has_room_undelivered(0)
            && keeping.is_none_or(|keeping| keeping.has_room(service, node, 0))
            && self.may_await_confirmation(arrival, service)
    }

    pub(super) fn push_delivery(&mut self, delivery: Delivery, room: Reservation) {
        self.usage.keep_undelivered(room);
        self.events.push_back(Event::Deliver(delivery));
    }

    fn take_record(&mut self, now: Instant, arrival: &Arrival) -> Result<(), Reject> {
        let record = decode_record(&arrival.bundle.payload, &self.config.codes)
            .map_err(|error| Reject::Malformed(Malformed::Cbor(error)))?;
        let reporter = arrival.bundle.primary.source.clone();
        let room = self.events.len() < MAX_WAITING_EVENTS;
        match record {
            Record::Custody(dispositions) => {
                let source = ipn_parts(&reporter).map(|(node, _)| node);
                self.signal_came(now, arrival.from, source, dispositions);
            }
            Record::Status(report) if room => {
                self.events
                    .push_back(Event::StatusReport { reporter, report });
            }
            Record::Reporting(dispositions) if room => {
                self.events.push_back(Event::CompressedReport {
                    reporter,
                    dispositions,
                });
            }
            Record::Bibe(signal) => {
                let source = ipn_parts(&reporter).map(|(node, _)| node);
                self.bibe_signal_came(now, arrival.from, source, signal);
            }
            // A BPDU for this node that is not in another was opened before.
            Record::Other(BPDU_RECORD) => return Err(Malformed::Nested.into()),
            Record::Status(_) | Record::Reporting(_) | Record::Other(_) => {}
        }
        Ok(())
    }
}
