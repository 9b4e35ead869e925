//! Bundles on their way out.

use std::time::Instant;

use bp7::administrative_record::FORWARDED_BUNDLE;
use bp7::flags::BundleControlFlags as Flags;
use bytes::Bytes;
use underpass_cla::{Class, Outcome, Refusal, Resume};
use underpass_work::each;

use super::Agent;
use super::bibe::BPDU_BYTES;
use super::config::NeighbourId;
use super::event::{BundleId, DeleteReason, Event, Offer};
use super::neighbour::Size;
use super::originate::Draft;
use super::stored::{BlockNumbers, Phase, Sent, StoredBundle};
use crate::wire::{Cteb, Eid, HopBlocks, encode_signal, write_header};

/// How many bundles are searched for one that the peer's MRU allows.
pub(super) const LOOK_AHEAD: usize = 64;
/// How many bundles are searched for one behind others.
pub const DEEP: usize = 256;
/// No stream has longer payloads than this.
const LONG_BYTES: u64 = 2 << 20;
/// The most header bytes besides the primary block and the blocks that are passed on.
pub(super) const REWRITTEN_BYTES: u64 = 256;

impl StoredBundle {
    /// Whether the bundle is long. A neighbour without room for a long bundle may have room for
    /// others: it has a separate quota for payloads on disk, and takes few long ones into memory at
    /// once.
    pub(super) fn is_long(&self) -> bool {
        self.file.is_some() || self.bytes > LONG_BYTES
    }
}

impl Agent {
    /// Whether [`Agent::next_for`] has something to offer.
    pub fn has_pending(&self, neighbour: NeighbourId, class: Class) -> bool {
        let neighbour = self.neighbours.get(&neighbour);
        neighbour.is_some_and(|neighbour| neighbour.has_pending(class))
    }

    /// Whether a neighbour has no room at present: nothing but signalling is
    /// offered to it. [`Event::Woken`] follows the end of the pause.
    pub fn is_paused(&self, neighbour: NeighbourId) -> bool {
        let neighbour = self.neighbours.get(&neighbour);
        neighbour.is_some_and(|neighbour| neighbour.pause.until.is_some())
    }

    /// Whether the next bundle for a neighbour is on its way from the store.
    /// [`Event::Woken`] follows.
    pub fn is_loading(&self, neighbour: NeighbourId, class: Class) -> bool {
        let neighbour = self.neighbours.get(&neighbour);
        let queue = neighbour.and_then(|neighbour| neighbour.queues.get(&class));
        queue.is_some_and(|queue| queue.loading.is_some())
    }

    /// Whether [`Event::Woken`] follows for a neighbour and class: [`Agent::next_for`] may have
    /// returned nothing only because it looks at few bundles at a time.
    pub fn is_woken(&self, neighbour: NeighbourId, class: Class) -> bool {
        self.woken.contains(&(neighbour, Some(class)))
    }

    /// Payload bytes that wait to be offered to a neighbour in a class.
    pub fn backlog_bytes(&self, neighbour: NeighbourId, class: Class) -> u64 {
        let neighbour = self.neighbours.get(&neighbour);
        let queue = neighbour.and_then(|neighbour| neighbour.queues.get(&class));
        queue.map_or(0, |queue| queue.bytes)
    }

    /// The next bundle for a session of a neighbour, at most `max_bytes` (the peer's transfer MRU)
    /// long: bundles that were sent before go first, and those of earlier runs take turns
    /// ([`Agent::set_restored`]) with all others. Age, previous node and CTEB are written now. The
    /// bundle is in transmission until [`Agent::transfer_finished`].
    pub fn next_for(
        &mut self,
        now: Instant,
        neighbour: NeighbourId,
        class: Class,
        max_bytes: u64,
    ) -> Option<Offer> {
        if class == Class::SIGNALLING {
            self.seal_signals(now, neighbour);
        }
        let waiting = self.neighbours.get(&neighbour)?;
        if !waiting.has_pending(class) {
            return None;
        }
        let passed_over = self.pass_over_beyond(now, neighbour, class, max_bytes);
        let more = self.put_aside(neighbour, class, max_bytes) || passed_over;
        self.fragment_next(now, neighbour, class, max_bytes);
        let queue = self.neighbours.get(&neighbour)?.queues.get(&class)?;
        let first = {
            let aside = each(queue.aside(max_bytes)).take(LOOK_AHEAD);
            let all = aside.chain(each(queue.in_order()).take(LOOK_AHEAD));
            let mut able =
                all.filter(|id| self.may_go(*id, max_bytes) && !self.waits_beyond(now, *id));
            let first = able.next();
            first.map(|id| self.least_refused(id, able))
        };
        let Some(id) = first else {
            // There may be a bundle behind those that were looked at.
            if more {
                self.woken.insert((neighbour, Some(class)));
            }
            return None;
        };
        let payload = self.fetch(now, id)?;
        self.offer(now, id, payload)
    }

    /// The bundle whose turn it is, of the first one and those behind it. A neighbour that has
    /// taken no long bundle since it refused one may still have room for one that goes elsewhere.
    /// So of long bundles it is the one with the fewest waits in vain.
    fn least_refused(&self, first: BundleId, behind: impl Iterator<Item = BundleId>) -> BundleId {
        let refused = |id: BundleId| {
            let stored = self.bundles.get(id).filter(|stored| stored.is_long())?;
            let neighbour = self.neighbours.get(&stored.neighbour)?;
            (neighbour.long_pause.refusals > 0).then_some(stored.unanswered)
        };
        let Some(times) = refused(first) else {
            return first;
        };
        let others = behind.filter_map(|id| Some((refused(id)?, id)));
        let all = std::iter::once((times, first)).chain(others);
        all.min_by_key(|(times, _)| *times)
            .map_or(first, |(_, id)| id)
    }

    /// Puts aside the first bundles of a queue that are too long for a session and must not be
    /// fragmented, or for which the neighbour has no room. Returns whether there were any.
    fn put_aside(&mut self, neighbour: NeighbourId, class: Class, max_bytes: u64) -> bool {
        let waiting = self.neighbours.get(&neighbour);
        let Some(queue) = waiting.and_then(|waiting| waiting.queues.get(&class)) else {
            return false;
        };
        let first = each(queue.in_order()).take(LOOK_AHEAD);
        let first = first.take_while(|id| !self.may_go(*id, max_bytes));
        let too_long = first.filter_map(|id| {
            let stored = self.bundles.get(id)?;
            let waits = self.is_held_back(stored) || !self.goes_in_fragments(stored);
            waits.then(|| (id, self.sent_bytes(stored)))
        });
        let too_long: Vec<(BundleId, u64)> = too_long.collect();
        let neighbour = self.neighbours.get_mut(&neighbour);
        if let Some(queue) = neighbour.and_then(|neighbour| neighbour.queues.get_mut(&class)) {
            for (id, bytes) in &too_long {
                queue.put_aside(*id, *bytes);
            }
        }
        !too_long.is_empty()
    }

    /// Offers one bundle to its neighbour before all others, if it is queued and at most
    /// `max_bytes` long; otherwise as [`Agent::next_for`].
    pub fn next_of(&mut self, now: Instant, id: BundleId, max_bytes: u64) -> Option<Offer> {
        if !self.is_queued(id) || !self.may_go(id, max_bytes) || self.waits_beyond(now, id) {
            return None;
        }
        let payload = self.fetch(now, id)?;
        self.offer(now, id, payload)
    }

    /// The first bundle that waits for a neighbour behind so many bytes of others,
    /// in the order in which they are offered; only [`DEEP`] are looked at.
    pub fn queued_behind(
        &self,
        now: Instant,
        neighbour: NeighbourId,
        class: Class,
        bytes: u64,
    ) -> Option<BundleId> {
        let queue = self.neighbours.get(&neighbour)?.queues.get(&class)?;
        let mut before = 0;
        let mut queued = each(queue.in_order()).take(DEEP);
        queued.find(|id| {
            let stored = self.bundles.get(*id);
            let held_back = || {
                let held_back = stored.is_some_and(|stored| self.is_held_back(stored));
                held_back || self.waits_beyond(now, *id)
            };
            let behind = before >= bytes && !held_back();
            before += stored.map_or(0, |stored| stored.bytes);
            behind
        })
    }

    /// A key for a transfer that the agent does not follow, such as that of a
    /// copy.
    pub fn spare_key(&mut self) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        key
    }

    /// Whether a bundle waits to be offered.
    pub fn is_queued(&self, id: BundleId) -> bool {
        let stored = self.bundles.get(id);
        stored.is_some_and(|stored| stored.phase == Phase::Queued)
    }

    /// Sets whether the session for a neighbour and class can resume a bundle
    /// in its middle. If not, a bundle whose transfer broke is encoded anew,
    /// with its present age.
    pub fn set_resumes(&mut self, neighbour: NeighbourId, class: Class, resumes: bool) {
        let neighbour = self.neighbours.get_mut(&neighbour);
        if let Some(queue) = neighbour.and_then(|neighbour| neighbour.queues.get_mut(&class)) {
            queue.begins_anew = !resumes;
        }
    }

    /// Sets whether the session for a neighbour and class takes payloads that are
    /// on disk. If not, bundles with one wait for a session that does.
    pub fn set_takes_files(&mut self, neighbour: NeighbourId, class: Class, takes: bool) {
        let neighbour = self.neighbours.get_mut(&neighbour);
        if let Some(queue) = neighbour.and_then(|neighbour| neighbour.queues.get_mut(&class)) {
            queue.takes_files = takes;
        }
    }

    pub(super) fn takes_files(&self, stored: &StoredBundle) -> bool {
        let neighbour = self.neighbours.get(&stored.neighbour);
        let queue = neighbour.and_then(|neighbour| neighbour.queues.get(&stored.class));
        queue.is_some_and(|queue| queue.takes_files)
    }

    /// Sets the longest bundle with a payload on disk, in bytes, that a session by another path to
    /// a neighbour takes in a class; 0 if there is none. Bundles up to that length wait for that
    /// session and do not go in fragments.
    pub fn set_taken_elsewhere(&mut self, neighbour: NeighbourId, class: Class, bytes: u64) {
        let neighbour = self.neighbours.get_mut(&neighbour);
        if let Some(queue) = neighbour.and_then(|neighbour| neighbour.queues.get_mut(&class)) {
            queue.taken_elsewhere_bytes = bytes;
        }
    }

    pub(super) fn is_taken_elsewhere(&self, stored: &StoredBundle) -> bool {
        let neighbour = self.neighbours.get(&stored.neighbour);
        let queue = neighbour.and_then(|neighbour| neighbour.queues.get(&stored.class));
        let bytes = queue.map_or(0, |queue| queue.taken_elsewhere_bytes);
        self.sent_bytes(stored) <= bytes
    }

    pub(super) fn fits(&self, id: BundleId, max_bytes: u64) -> bool {
        let stored = self.bundles.get(id);
        let stored = stored.filter(|stored| stored.file.is_none() || self.takes_files(stored));
        stored.is_some_and(|stored| self.sent_bytes(stored) <= max_bytes)
    }

    /// Whether a session that takes `max_bytes` may be offered a bundle now.
    fn may_go(&self, id: BundleId, max_bytes: u64) -> bool {
        let stored = self.bundles.get(id);
        let held_back = stored.is_some_and(|stored| self.is_held_back(stored));
        !held_back && self.fits(id, max_bytes)
    }

    /// Whether a bundle waits because its neighbour had no room for another long one.
    pub(super) fn is_held_back(&self, stored: &StoredBundle) -> bool {
        let neighbour = self.neighbours.get(&stored.neighbour);
        let pauses = neighbour.is_some_and(|neighbour| neighbour.long_pause.until.is_some());
        pauses && stored.is_long() && stored.class != Class::SIGNALLING
    }

    /// The most bytes of a bundle as it is sent.
    fn sent_bytes(&self, stored: &StoredBundle) -> u64 {
        let encapsulated = stored.custody && self.config.bibe.contains(&stored.neighbour);
        let bpdu = if encapsulated { BPDU_BYTES } else { 0 };
        stored.bytes.saturating_add(stored.header_bytes() + bpdu)
    }

    /// Makes bundles of the neighbour's first due signal.
    fn seal_signals(&mut self, now: Instant, via: NeighbourId) {
        let neighbour = self.neighbours.get_mut(&via);
        let Some(neighbour) = neighbour.filter(|neighbour| neighbour.seals_signals()) else {
            return;
        };
        let Some(to) = neighbour.signals.pop_front() else {
            return;
        };
        let (dispositions, more) = self.signals.take(&to);
        if more {
            neighbour.signals.push_front(to.clone());
        }
        let codes = super::custody::codes_for(&self.config.codes, to.dialect);
        for record in encode_signal(codes.ccs_record, codes.dialect, &dispositions) {
            let bytes = record.len() as u64;
            let draft = Draft {
                service: 0,
                destination: to.custodian.clone(),
                report_to: Eid::none(),
                flags: Flags::BUNDLE_ADMINISTRATIVE_RECORD_PAYLOAD
                    | Flags::BUNDLE_MUST_NOT_FRAGMENTED,
                class: Class::SIGNALLING,
                lifetime: self.config.lifetime,
                custody: false,
                payload: vec![Bytes::from(record)],
                file: None,
                signed: None,
                via,
                own: false,
                label: 0,
                note: None,
                last: false,
            };
            let room = self.usage.reserve_anyway(via, bytes);
            let id = self.originate(now, draft, room);
            self.neighbour(via).sealed.insert(id);
        }
    }

    /// Notes that a bundle no longer waits for a neighbour: if it was one of a signal, another
    /// signal may be sealed.
    pub(super) fn unseal(&mut self, via: NeighbourId, class: Class, id: BundleId) {
        if class != Class::SIGNALLING {
            return;
        }
        let Some(neighbour) = self.neighbours.get_mut(&via) else {
            return;
        };
        if neighbour.sealed.remove(&id) && neighbour.seals_signals() {
            self.woken.insert((via, Some(class)));
        }
    }

    fn offer(&mut self, now: Instant, id: BundleId, payload: Vec<Bytes>) -> Option<Offer> {
        self.ask_beyond(now, id);
        let stored = self.bundles.get_mut(id)?;
        let neighbour = self.neighbours.get_mut(&stored.neighbour)?;
        if let Some(queue) = neighbour.queues.get_mut(&stored.class) {
            queue.remove(id, stored.bytes);
            if queue.begins_anew {
                stored.sent = None;
            }
        }
        if let Some(number) = stored.number {
            neighbour.answerable.remove(&number);
        }
        let via = stored.neighbour;
        let by_bibe = self.config.bibe.contains(&via);
        let signalled = stored.custody && !self.config.served.contains(&via);
        let number = signalled.then(|| {
            *stored.number.get_or_insert_with(|| {
                let number = neighbour.next_number;
                neighbour.next_number += 1;
                neighbour.unsignalled.insert(number, id);
                number
            })
        });
        let own_cteb = number.filter(|_| !by_bibe).map(|number| Cteb {
            number,
            sequence: neighbour.sequence,
            custodian: self.admin.clone(),
            dialect: self.config.codes.dialect,
        });
        let transmission = number.filter(|_| by_bibe);
        let again = stored.transmissions > 0;
        stored.transmissions += 1;
        let key = self.next_key;
        self.next_key += 1;
        stored.phase = Phase::InTransmission(key);
        self.transmissions.insert(key, id);
        let resume = stored.resumable(now).map(|sent| Resume {
            key: sent.key,
            offset: sent.acknowledged,
        });
        let header = if let Some(sent) = stored.sent.as_ref().filter(|_| resume.is_some()) {
            sent.header.clone()
        } else {
            let cteb = own_cteb.as_ref().or(stored.passed_cteb.as_deref());
            let numbers = BlockNumbers::from(&stored.numbers);
            let hop = HopBlocks {
                previous_node: (numbers.previous_node, &self.admin),
                age_ms: (numbers.age, stored.age_ms_at(now)),
                hop_count: stored
                    .hop_count
                    .map(|(limit, count)| (numbers.hop_count, limit, count)),
                cteb: cteb.map(|cteb| (numbers.cteb, cteb)),
                creb: stored.creb.as_deref().map(|creb| (numbers.creb, creb)),
            };
            let header = write_header(
                &self.config.codes,
                stored.fixed.primary(),
                &hop,
                &stored.others,
                stored.fixed.payload_head(),
            );
            let header = match transmission {
                Some(number) => {
                    let behind_bytes = stored.bytes + stored.fixed.trailer().len() as u64;
                    let left = stored.expires.saturating_duration_since(now);
                    self.encapsulate(now, via, number, (&header, behind_bytes), left)
                }
                None => header,
            };
            let stored = self.bundles.get_mut(id)?;
            stored.sent = Some(Box::new(Sent {
                key,
                header: header.clone(),
                encoded: now,
                acknowledged: 0,
            }));
            header
        };
        let stored = self.bundles.get(id)?;
        let mut chunks = Vec::with_capacity(payload.len() + 3);
        chunks.push(header);
        chunks.extend(payload);
        chunks.push(Bytes::copy_from_slice(stored.fixed.trailer()));
        chunks.extend(transmission.map(|_| Agent::end_of_bpdu()));
        Some(Offer {
            key,
            id,
            chunks,
            file: stored.file.clone(),
            resume,
            reliable: stored.custody
                || stored.passed_cteb.is_some()
                || stored.class == Class::SIGNALLING,
            again,
            restored: stored.restored,
        })
    }

    /// Notes that a transfer broke off when the peer's answer could not be heard any more: the
    /// bundle has probably arrived.
    pub fn transfer_unanswered(&mut self, key: u64, acknowledged: u64) {
        if let Some(id) = self.transfer_ended(key, acknowledged) {
            self.enqueue_as(id, true);
        }
    }

    /// Notes how much of a bundle its last transfer has brought. Returns `None` if the bundle is
    /// gone.
    fn transfer_ended(&mut self, key: u64, acknowledged: u64) -> Option<BundleId> {
        let id = self.transmissions.remove(&key)?;
        // It may be released, expired or cancelled meanwhile.
        let stored = self.bundles.get_mut(id)?;
        match &mut stored.sent {
            Some(sent) if acknowledged > 0 => sent.acknowledged = acknowledged,
            sent => *sent = None,
        }
        Some(id)
    }

    /// Takes the end of a transfer that [`Agent::next_for`] began.
    pub fn transfer_finished(&mut self, now: Instant, key: u64, outcome: Outcome) {
        let acknowledged = match outcome {
            Outcome::Broken { acknowledged } => acknowledged,
            _ => 0,
        };
        let Some(id) = self.transfer_ended(key, acknowledged) else {
            return;
        };
        let Some(stored) = self.bundles.get_mut(id) else {
            return;
        };
        match outcome {
            Outcome::Acknowledged | Outcome::Refused(Refusal::Completed) => {
                stored.acknowledged = Some(now);
                let (via, custody, long) = (stored.neighbour, stored.custody, stored.is_long());
                self.end_refusals(via, long);
                match custody && !self.config.served.contains(&via) {
                    true => self.wait_for_signal(now, id),
                    false => self.forwarded(now, id),
                }
            }
            Outcome::Broken { .. } => self.enqueue(id),
            // Signalling is never paused, so only this bundle waits.
            Outcome::Refused(Refusal::NoResources) if stored.class == Class::SIGNALLING => {
                self.try_later(now, id);
            }
            // It waits longer than the others, so that a bundle too long for the neighbour's
            // remaining room is not always the first.
            Outcome::Refused(Refusal::NoResources) if stored.is_long() => {
                let via = stored.neighbour;
                self.pause(now, via, Size::Long);
                self.try_later(now, id);
            }
            Outcome::Refused(Refusal::NoResources) => {
                let (via, custody) = (stored.neighbour, stored.custody);
                // A bundle under custody is refused in this way only if the neighbour's store could
                // never take it.
                if !custody && self.refused_beyond(now, id) {
                    self.try_later(now, id);
                } else {
                    self.pause(now, via, Size::Any);
                    self.enqueue(id);
                }
            }
            Outcome::Refused(Refusal::NotAcceptable) if stored.custody => {
                self.try_later(now, id);
            }
            Outcome::Refused(Refusal::NotAcceptable) => {
                self.give_up(now, id, DeleteReason::TrafficPared);
            }
        }
    }

    /// Releases a bundle without custody, since it is at the next hop.
    fn forwarded(&mut self, now: Instant, id: BundleId) {
        self.taken_beyond(id);
        self.note_forwarded(id);
        if let Some(stored) = self.remove(now, id) {
            self.report_on(now, &stored, FORWARDED_BUNDLE, 0);
            self.tell_released(id, &stored);
        }
    }

    pub(super) fn tell_released(&mut self, id: BundleId, stored: &StoredBundle) {
        if stored.own {
            self.events.push_back(Event::Released {
                id,
                bytes: stored.bytes,
            });
        }
    }

    /// Stops offers of a size to a neighbour without room for a while, except signals.
    fn pause(&mut self, now: Instant, via: NeighbourId, size: Size) {
        let timer = self.config.custody_timer;
        let begun = self.neighbour(via).pause_of(size).begin(now, &timer);
        self.pauses.extend(begun.map(|until| (until, (via, size))));
    }

    pub(super) fn end_pause(&mut self, via: NeighbourId, size: Size) {
        if let Some(until) = self.neighbour(via).end_pause(size) {
            self.pauses.remove(&(until, (via, size)));
        }
        // This applies even if nothing is queued: the refused bundle may be gone, and those who
        // seal for this neighbour wait for the end of the pause.
        self.woken.insert((via, None));
    }

    /// Notes that the neighbour accepts bundles again; long ones, too, if this was one.
    fn end_refusals(&mut self, via: NeighbourId, long: bool) {
        let neighbour = self.neighbour(via);
        neighbour.pause.refusals = 0;
        if !long {
            return;
        }
        neighbour.long_pause.refusals = 0;
        if neighbour.long_pause.until.is_some() {
            self.end_pause(via, Size::Long);
        }
    }
}
