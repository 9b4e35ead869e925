//! The agent and its store: storing, restoring, fetching and giving up bundles.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bp7::administrative_record::DELETED_BUNDLE;
use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_cla::Class;
use underpass_payloads::PayloadFile;

use super::Agent;
use super::config::NeighbourId;
use super::deliver::source_node;
use super::event::{BundleId, DeleteReason, Event};
use super::originate::foreign_expiry;
use super::passing::Party;
use super::quota::Reservation;
use super::stored::{Phase, StoredBundle, WireName};
use super::stored_record::{self, NamedFile};
use crate::store::{DurableRecord, Payload, Restored, StoreEvent};
use crate::wire::{Extension, block_type};

/// How many payloads, and bytes of them, are asked for before they are needed, so that a disk's
/// latency costs a link nothing. When half of them were fetched, as many more are asked for.
const READ_AHEAD: usize = 256;
const READ_AHEAD_BYTES: u64 = 4 << 20;
/// So many in any case; more only up to this part (1/n) of the store's memory: the store always
/// keeps a sixteenth for payloads that it reads, and payloads that do not fit would push each other
/// out.
const READ_AHEAD_FEW: usize = 16;
const READ_AHEAD_PART: u64 = 64;

impl Agent {
    pub(super) fn store_bundle(
        &mut self,
        now: Instant,
        mut stored: StoredBundle,
        payload: Vec<Bytes>,
        room: Reservation,
    ) -> BundleId {
        let id = self.common.new_id();
        let durable = (stored.custody && self.store.is_durable()).then(|| {
            stored.detach();
            DurableRecord {
                record: stored_record::encode(&stored),
                urgent: !stored.own,
                file: stored.file.clone(),
            }
        });
        self.store.put(now, id, durable, payload);
        self.tell_storable();
        self.insert(id, stored, room);
        id
    }

    pub(super) fn insert(&mut self, id: BundleId, stored: StoredBundle, room: Reservation) {
        self.usage.keep(stored.neighbour, room);
        self.expiries.insert(stored.since, stored.expires, id);
        self.tally.add(id, &stored);
        let withheld = stored.phase == Phase::Withheld;
        let (custody, bytes) = (stored.custody, stored.bytes);
        let primary = self.primary_to_note(&stored);
        self.bundles.insert(id, Box::new(stored));
        let mut waits = false;
        if let Some(primary) = primary {
            if custody {
                let name = WireName::of(&primary, bytes);
                self.by_name.insert(&self.bundles, &name, id);
            }
            self.note_planned(id, &primary);
            waits = self.await_earlier(id, &primary);
        }
        if !waits && !withheld {
            self.enqueue(id);
        }
    }

    /// The primary block of a bundle if its contents are to be noted: for one in custody, or any
    /// while there is a contact plan. Others are not decoded again for nothing.
    fn primary_to_note(&self, stored: &StoredBundle) -> Option<PrimaryBlock> {
        (stored.custody || self.planned.is_some()).then(|| stored.primary())
    }

    /// Takes over the bundles in custody that an earlier run of this node has left in the store,
    /// and queues them by the present routes. [`Event::Restored`] reports those that this node's
    /// services had sent.
    pub fn restore(&mut self, now: Instant) {
        for restored in self.store.restore() {
            self.restore_one(now, &restored);
        }
    }

    fn restore_one(&mut self, now: Instant, restored: &Restored) {
        let id = restored.id;
        let decoded = stored_record::decode(
            now,
            &restored.record,
            restored.payload_bytes,
            restored.stored_for,
        );
        // The store has verified the record, so only a version that this program does not know ends
        // here. The bundle stays in the store.
        let Ok((mut stored, named)) = decoded else {
            self.events.push_back(Event::Unreadable(id));
            return;
        };
        // The same if payloads on disk are not configured any more.
        if named.is_some() && self.config.payloads.is_none() {
            self.events.push_back(Event::Unreadable(id));
            return;
        }
        // The node ended while one agent passed the bundle to another: both had it.
        let primary = stored.primary();
        let name = WireName::of(&primary, stored.bytes);
        if self.by_name.get(&self.bundles, &name).is_some() {
            self.store.remove(now, id);
            return;
        }
        let missing = named.is_some_and(|named| {
            let taken = self.take_up_file(id, &primary, &named);
            stored.file = taken.ok();
            stored.file.is_none()
        });
        if let Some(via) = self.route_of(&stored, &primary) {
            stored.neighbour = via;
        }
        if !stored.own {
            // Who sent it, and whether its wish for reports was believed, is not stored.
            stored.reports = false;
            let most = self.config.foreign_lifetime;
            let most = most.saturating_sub(restored.stored_for);
            let expires = foreign_expiry(now, primary.lifetime, stored.age_ms, most);
            stored.expires = expires.unwrap_or(now);
        }
        if stored.own {
            let service = self.config.own_service(&primary.source).unwrap_or(0);
            self.events.push_back(Event::Restored {
                id,
                destination: primary.destination,
                service,
                label: stored.label,
                note: stored.note.as_deref().copied(),
            });
        }
        let room = self
            .usage
            .reserve_anyway(stored.neighbour, stored.counted_bytes());
        self.insert(id, stored, room);
        if missing {
            self.lost(now, id, Bytes::new());
        }
    }

    /// Opens the payload on disk that a stored bundle's record names.
    pub(super) fn take_up_file(
        &mut self,
        id: BundleId,
        primary: &PrimaryBlock,
        named: &NamedFile,
    ) -> io::Result<Arc<PayloadFile>> {
        let payloads = self.config.payloads.as_ref();
        let payloads = payloads.ok_or(io::ErrorKind::Unsupported)?;
        let owner = source_node(&primary.source);
        let file = payloads.take_up(&named.name, owner, named.bytes, id.0)?;
        self.store.adopt(id, file.clone());
        Ok(file)
    }

    /// Handles the store's events. To be called whenever it has done something on its own.
    pub fn handle_store(&mut self, now: Instant) {
        while let Some(event) = self.store.poll_event() {
            match event {
                StoreEvent::Committed(id) => self.signal_owed(now, id),
                StoreEvent::Loaded(id) => self.loaded(now, id),
                StoreEvent::Lost { id, damaged } => self.lost(now, id, damaged),
                StoreEvent::Stalled(why) => self.events.push_back(Event::StoreStalled(why)),
                StoreEvent::Resumed => self.events.push_back(Event::StoreResumed),
            }
        }
        self.tell_storable();
    }

    /// Tells the node's other agents how much this one's store can take.
    pub(super) fn tell_storable(&self) {
        if self.store.is_durable() {
            let bytes = self.store.free_bytes();
            self.common.set_storable(self.sharding.own, bytes);
        }
    }

    /// Makes all that is in custody durable, since the node ends.
    pub fn flush_store(&mut self) {
        self.store.flush();
    }

    /// Signals to the earlier custodian that it may release a bundle, which is safe here or with
    /// the next custodian.
    fn signal_owed(&mut self, now: Instant, id: BundleId) {
        if let Some(owed) = self.uncommitted.remove(&id) {
            self.settle(now, owed, Ok(()));
        }
    }

    /// The payload of a queued bundle, if it is in memory; otherwise the bundle's queue waits for
    /// it.
    pub(super) fn fetch(&mut self, now: Instant, id: BundleId) -> Option<Vec<Bytes>> {
        let payload = self.store.payload(id);
        let stored = self.bundles.get(id)?;
        let (via, class) = (stored.neighbour, stored.class);
        if self.store.is_durable() {
            self.read_ahead(via, class, matches!(payload, Payload::Coming));
        }
        match payload {
            Payload::Here(pieces) => Some(pieces),
            Payload::Coming => {
                let queue = self.neighbour(via).queues.entry(class).or_default();
                queue.loading = Some(id);
                None
            }
            Payload::Lost => {
                self.lost(now, id, Bytes::new());
                None
            }
        }
    }

    /// Asks for the next payloads of a queue, if those asked for before run out
    /// or the one that is needed was not among them.
    fn read_ahead(&mut self, via: NeighbourId, class: Class, missed: bool) {
        let neighbour = self.neighbours.get_mut(&via);
        let Some(queue) = neighbour.and_then(|neighbour| neighbour.queues.get_mut(&class)) else {
            return;
        };
        if queue.read_ahead > 0 && !missed {
            queue.read_ahead -= 1;
            return;
        }
        let many_bytes = self.store.burst_bytes() / READ_AHEAD_PART;
        let (mut bytes, mut ahead) = (0, 0);
        for id in queue.in_order().take(READ_AHEAD) {
            bytes += self.bundles.get(id).map_or(0, |stored| stored.bytes);
            let many = ahead >= READ_AHEAD_FEW && bytes > many_bytes;
            if many || bytes > READ_AHEAD_BYTES {
                break;
            }
            self.store.expect(id);
            ahead += 1;
        }
        queue.read_ahead = ahead / 2;
    }

    fn loaded(&mut self, now: Instant, id: BundleId) {
        let Some(stored) = self.bundles.get(id) else {
            return;
        };
        let (via, class) = (stored.neighbour, stored.class);
        match stored.phase {
            Phase::Ending(reason) => return self.give_up(now, id, reason),
            Phase::Leaving => return self.leaving.look_again(now),
            _ => {}
        }
        if !self.sharding.has(via) {
            return;
        }
        let queue = self.neighbour(via).queues.entry(class).or_default();
        if queue.loading == Some(id) {
            queue.loading = None;
            self.woken.insert((via, Some(class)));
        }
    }

    /// Gives up a bundle whose payload the store has lost.
    pub(super) fn lost(&mut self, now: Instant, id: BundleId, damaged: Bytes) {
        // Custody of a bundle that was not safe is not signalled.
        if let Some(owed) = self.uncommitted.remove(&id)
            && let Party::Keeper(_) = owed.to
        {
            self.settle(now, owed, Err(DeleteReason::DepletedStorage));
        }
        let reason = match self.bundles.get(id).map(|stored| stored.phase) {
            Some(Phase::Ending(reason)) => reason,
            _ => DeleteReason::DepletedStorage,
        };
        self.end(now, id, reason, vec![damaged]);
    }

    /// Gives up a stored bundle. The service that sent it is told, with the payload once that is in
    /// memory.
    pub(super) fn give_up(&mut self, now: Instant, id: BundleId, reason: DeleteReason) {
        let Some(stored) = self.bundles.get_mut(id) else {
            return;
        };
        if !stored.own {
            self.end(now, id, reason, Vec::new());
            return;
        }
        match self.store.payload(id) {
            Payload::Here(payload) => self.end(now, id, reason, payload),
            Payload::Lost => self.end(now, id, reason, Vec::new()),
            Payload::Coming => {
                self.halt(id);
                if let Some(stored) = self.bundles.get_mut(id) {
                    stored.phase = Phase::Ending(reason);
                }
            }
        }
    }

    fn end(&mut self, now: Instant, id: BundleId, reason: DeleteReason, payload: Vec<Bytes>) {
        let Some(stored) = self.remove(now, id) else {
            return;
        };
        let primary = stored.primary();
        self.report_on(now, &stored, DELETED_BUNDLE, reason.code());
        self.events.push_back(match stored.own {
            true => Event::GivenUp {
                id,
                destination: primary.destination,
                reason,
                payload: self.revealed(&stored, payload),
            },
            false => Event::Deleted {
                id: Some(id),
                source: primary.source,
                reason,
            },
        });
    }

    /// A payload as its service has sent it; empty if it was encrypted since and the key is gone.
    fn revealed(&self, stored: &StoredBundle, payload: Vec<Bytes>) -> Vec<Bytes> {
        let encrypted = |block: &Extension| block.kind == block_type::BCB;
        let security = self.config.security.as_ref();
        match security.filter(|_| stored.others.iter().any(encrypted)) {
            Some(security) => {
                let primary = stored.fixed.primary();
                let revealed = security.reveal(primary, &stored.others, &payload.concat());
                revealed.into_iter().collect()
            }
            None => payload,
        }
    }

    /// Takes a stored bundle out of all queues and timers that would send it.
    pub(super) fn halt(&mut self, id: BundleId) {
        self.never_asks(id);
        let Some(stored) = self.bundles.get(id) else {
            return;
        };
        let (via, class, bytes) = (stored.neighbour, stored.class, stored.bytes);
        self.expiries.remove(stored.expires, id);
        match stored.phase {
            Phase::Waiting(until) => drop(self.custody_timers.remove(&(until, id))),
            Phase::InTransmission(key) => drop(self.transmissions.remove(&key)),
            Phase::AwaitingEarlier
            | Phase::Queued
            | Phase::Withheld
            | Phase::Suspended
            | Phase::Passing
            | Phase::Ending(_) => {}
            Phase::Leaving => self.leaving.remove(id, stored.since),
        }
        let neighbour = self.neighbours.get_mut(&via);
        if let Some(queue) = neighbour.and_then(|neighbour| neighbour.queues.get_mut(&class)) {
            let waited = queue.loading == Some(id);
            queue.remove(id, bytes);
            if waited {
                self.woken.insert((via, Some(class)));
            }
        }
    }

    /// Forgets a stored bundle altogether.
    pub(super) fn remove(&mut self, now: Instant, id: BundleId) -> Option<Box<StoredBundle>> {
        self.halt(id);
        let stored = self.bundles.remove(id)?;
        self.free(stored.neighbour, stored.counted_bytes());
        self.tally.remove(id, &stored);
        self.unseal(stored.neighbour, stored.class, id);
        let primary = self.primary_to_note(&stored);
        if let Some(primary) = &primary {
            self.forget_planned(id, &stored, primary);
        }
        let in_custody = primary.filter(|_| stored.custody);
        if let Some(primary) = &in_custody {
            let name = WireName::of(primary, stored.bytes);
            self.by_name.remove(&name, id);
        }
        if let Some(number) = stored.number {
            let neighbour = self.neighbour(stored.neighbour);
            neighbour.unsignalled.remove(&number);
            neighbour.answerable.remove(&number);
        }
        self.signal_owed(now, id);
        self.store.remove(now, id);
        if let Some(primary) = &in_custody {
            self.unblock_next(id, primary);
        }
        Some(stored)
    }
}
