//! Bundles that begin at this node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bp7::flags::BundleControlFlags as Flags;
use bytes::Bytes;
use underpass_cla::Class;
use underpass_payloads::PayloadFile;

use super::config::NeighbourId;
use super::deliver::counted_node;
use super::event::{BundleId, Delivery, Event, Send, SendError};
use super::fixed::FixedParts;
use super::quota::Reservation;
use super::security::Encrypted;
use super::signing::{FIRST_SECURITY_NUMBER, Signed};
use super::stored::{BlockNumbers, Note, Phase, StoredBundle};
use super::{Agent, ReportRequest};
use crate::wire::{
    Content, CrcKind, Eid, block_type, ipn_parts, is_null, order_block, seal_payload,
    seal_payload_of, seal_payload_part, seal_primary, write_trailer,
};

/// Longer lifetimes count as this: it is practically endless.
pub(super) const MAX_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A bundle of this node before it is sealed.
pub(super) struct Draft {
    pub service: u64,
    pub destination: Eid,
    pub report_to: Eid,
    pub flags: Flags,
    pub class: Class,
    pub lifetime: Duration,
    pub custody: bool,
    pub payload: Vec<Bytes>,
    /// The payload, if it is on disk.
    pub file: Option<Arc<PayloadFile>>,
    /// What secures that, if it has to be.
    pub signed: Option<Box<Signed>>,
    pub via: NeighbourId,
    /// Whether a service of this node sends it, and so learns of its end.
    pub own: bool,
    /// The service's own number for it.
    pub label: u64,
    /// See [`Agent::withhold`].
    pub note: Option<Note>,
    /// Whether it must not overtake.
    pub last: bool,
}

impl Agent {
    /// Seals a payload into a bundle and queues it; under custody it is kept until the next
    /// custodian signals. A payload for a service of this node is delivered at once. Only bundles
    /// that go by this agent's neighbours are taken, see [`Agent::shard_to`].
    pub fn send(&mut self, now: Instant, send: Send) -> Result<BundleId, SendError> {
        self.take_from_service(now, send, None, None)
    }

    /// As [`Agent::send`], with a payload on disk instead of that of `send`. Under custody the
    /// store has the bundle's record, and gives the file its name; without custody the bundle is
    /// lost when the process ends.
    ///
    /// # Errors
    /// As [`Agent::send`]; also when it is for this node itself, or is to be
    /// secured: see [`Agent::send_signed`].
    pub fn send_file(
        &mut self,
        now: Instant,
        send: Send,
        file: Arc<PayloadFile>,
    ) -> Result<BundleId, SendError> {
        self.take_file(now, send, file, None)
    }

    /// As [`Agent::send_file`], of a bundle that was secured.
    ///
    /// # Errors
    /// As [`Agent::send`]; also when it is for this node itself, or is to be
    /// encrypted by now and was not.
    pub fn send_signed(
        &mut self,
        now: Instant,
        send: Send,
        file: Arc<PayloadFile>,
        signed: Signed,
    ) -> Result<BundleId, SendError> {
        self.take_file(now, send, file, Some(signed))
    }

    fn take_file(
        &mut self,
        now: Instant,
        send: Send,
        file: Arc<PayloadFile>,
        signed: Option<Signed>,
    ) -> Result<BundleId, SendError> {
        let send = Send {
            payload: Vec::new(),
            ..send
        };
        self.take_from_service(now, send, None, Some((file, signed)))
    }

    fn take_from_service(
        &mut self,
        now: Instant,
        send: Send,
        note: Option<Note>,
        file: Option<(Arc<PayloadFile>, Option<Signed>)>,
    ) -> Result<BundleId, SendError> {
        if is_null(&send.destination) {
            return Err(SendError::Destination);
        }
        let to = ipn_parts(&send.destination);
        let bytes: u64 = send.payload.iter().map(|piece| piece.len() as u64).sum();
        if bytes > self.config.decode.max_payload_bytes {
            return Err(SendError::TooLarge);
        }
        let Some(source) = self.config.endpoint(send.service) else {
            return Err(SendError::Source);
        };
        let here = self.config.own_service(&send.destination);
        if let Some((_, signed)) = &file
            && (here.is_some() || self.lacks_security(&source, &send.destination, signed.as_ref()))
        {
            return Err(SendError::OnDisk);
        }
        let (file, signed) = file.unzip();
        if let Some(service) = here {
            return self.send_to_itself(now, send, source, service, bytes);
        }
        let route = match to {
            Some((node, _)) if self.sends_by_plan(send.service) => {
                self.route(node, bytes + file.as_ref().map_or(0, |file| file.len()))
            }
            Some((node, _)) => self.static_route(node),
            None => self.named_route(&send.destination),
        };
        let (via, _) = route
            .filter(|(via, _)| self.sharding.has(*via))
            .ok_or(SendError::NoRoute)?;
        let room = self.reserve_to_send(via, bytes, send.class);
        let room = room.ok_or(SendError::NoRoom)?;
        let (report_to, reports) = match &send.reports {
            Some(request) => (request.to.clone(), report_flags(request)),
            None => (Eid::none(), Flags::empty()),
        };
        let draft = Draft {
            service: send.service,
            destination: send.destination,
            report_to,
            // CCSDS 734.6: a bundle under custody must not be fragmented.
            flags: match send.custody {
                true => Flags::BUNDLE_MUST_NOT_FRAGMENTED | reports,
                false => reports,
            },
            class: send.class,
            lifetime: send.lifetime.unwrap_or(self.config.lifetime),
            custody: send.custody,
            payload: send.payload,
            file,
            signed: signed.flatten().map(Box::new),
            via,
            own: true,
            label: send.label,
            note,
            last: send.last,
        };
        Ok(self.originate(now, draft, room))
    }

    /// As [`Agent::send`], but the bundle is not offered before
    /// [`Agent::let_go`]. A later run of the node gets `note` with
    /// [`Event::Restored`] and withholds the bundle again, even if it was let
    /// go.
    pub fn withhold(
        &mut self,
        now: Instant,
        send: Send,
        note: Note,
    ) -> Result<BundleId, SendError> {
        let id = self.take_from_service(now, send, Some(note), None)?;
        if let Some(stored) = self.bundles.get_mut(id) {
            stored.phase = Phase::Withheld;
            let (via, class, bytes) = (stored.neighbour, stored.class, stored.bytes);
            if let Some(queue) = self.neighbour(via).queues.get_mut(&class) {
                queue.remove(id, bytes);
            }
        }
        Ok(id)
    }

    /// Queues a bundle that was withheld; nothing happens if it is gone.
    pub fn let_go(&mut self, id: BundleId) {
        let stored = self.bundles.get(id);
        if stored.is_some_and(|stored| stored.phase == Phase::Withheld) {
            self.enqueue(id);
        }
    }

    /// Notes that a withheld bundle will be let go soon, so that its payload is read beforehand.
    pub fn expect(&mut self, id: BundleId) {
        if self.store.is_durable() && self.bundles.contains_key(id) {
            self.store.expect(id);
        }
    }

    /// The creation timestamp of a stored bundle: DTN time, ms, and sequence
    /// number.
    pub fn created(&self, id: BundleId) -> Option<(u64, u64)> {
        let timestamp = self.bundles.get(id)?.primary().creation_timestamp;
        Some((timestamp.dtntime(), timestamp.seqno()))
    }

    /// Whether custody is taken on the way of a bundle of so many bytes to a node.
    pub fn takes_custody_to(&self, node: u64, bytes: u64) -> bool {
        self.route(node, bytes).is_none_or(|(_, custody)| custody)
    }

    /// The class of a stored bundle.
    pub fn class_of(&self, id: BundleId) -> Option<Class> {
        Some(self.bundles.get(id)?.class)
    }

    /// The source and destination of a bundle of this node, if its payload is still as its service
    /// has sent it, not encrypted.
    pub fn endpoints_of_own(&self, id: BundleId) -> Option<(Eid, Eid)> {
        let stored = self.bundles.get(id).filter(|stored| stored.own)?;
        let mut blocks = stored.others.iter();
        let encrypted = blocks.any(|block| block.kind == block_type::BCB);
        let primary = (!encrypted).then(|| stored.primary())?;
        Some((primary.source, primary.destination))
    }

    /// Discards a bundle that its service has no use for. Returns its source, and its creation as
    /// from [`Agent::created`].
    pub fn discard(&mut self, now: Instant, id: BundleId) -> Option<(Eid, (u64, u64))> {
        let primary = self.remove(now, id)?.primary();
        let timestamp = primary.creation_timestamp;
        Some((primary.source, (timestamp.dtntime(), timestamp.seqno())))
    }

    fn send_to_itself(
        &mut self,
        now: Instant,
        send: Send,
        source: Eid,
        service: u64,
        bytes: u64,
    ) -> Result<BundleId, SendError> {
        if !self.config.delivers(service) {
            return Err(SendError::NoRoute);
        }
        let room = self.usage.reserve_undelivered(bytes);
        let room = room.ok_or(SendError::NoRoom)?;
        if let Some(keeping) = self.config.keeping(service)
            && !keeping.reserve(service, counted_node(&source, None), bytes)
        {
            return Err(SendError::NoRoom);
        }
        let id = self.common.new_id();
        let payload = match <[Bytes; 1]>::try_from(send.payload) {
            Ok([whole]) => whole,
            Err(pieces) => pieces.concat().into(),
        };
        let timestamp = self.timestamps.next(now, send.service);
        let delivery = Delivery {
            source,
            timestamp,
            service,
            class: send.class,
            from: None,
            age: Duration::ZERO,
            left: send.lifetime.unwrap_or(self.config.lifetime),
            ticket: None,
            payload,
            file: None,
        };
        self.push_delivery(delivery, room);
        self.events.push_back(Event::Released { id, bytes });
        Ok(id)
    }

    /// Seals a draft, stores and queues it.
    pub(super) fn originate(&mut self, now: Instant, draft: Draft, room: Reservation) -> BundleId {
        let lifetime = draft.lifetime.min(MAX_LIFETIME);
        let bytes = match &draft.file {
            Some(file) => file.len(),
            None => draft.payload.iter().map(|piece| piece.len() as u64).sum(),
        };
        let mut others = match draft.last {
            true => vec![order_block(BlockNumbers::NEXT)],
            false => Vec::new(),
        };
        let (primary, primary_raw, secured, since) = match draft.signed {
            Some(signed) => {
                let Signed {
                    primary,
                    secured,
                    since,
                } = *signed;
                (primary, Bytes::new(), Some(secured), since)
            }
            None => {
                let source = self.config.endpoint(draft.service);
                let (mut primary, raw) = seal_primary(
                    draft.destination,
                    // The name may be gone since the draft was made.
                    source.unwrap_or_else(|| self.admin.clone()),
                    draft.report_to,
                    self.timestamps.next(now, draft.service),
                    lifetime,
                    draft.flags.bits(),
                );
                let security = self.config.security.as_ref();
                let secured = security
                    .filter(|_| draft.file.is_none())
                    .and_then(|security| {
                        let payload = Content::Here(&draft.payload);
                        let secured = security.secure(&mut primary, FIRST_SECURITY_NUMBER, payload);
                        secured.expect("a payload in memory can be read, and is short")
                    });
                (primary, raw, secured, now)
            }
        };
        let is_secured = secured.is_some();
        let (primary_raw, (payload, file), payload_crc) = match secured {
            Some(secured) => {
                others.extend(secured.blocks);
                let content = match secured.encrypted {
                    Some(Encrypted::Here(payload)) => (vec![payload], None),
                    Some(Encrypted::OnDisk(file)) => (Vec::new(), Some(file)),
                    None => (draft.payload, draft.file),
                };
                (secured.primary, content, CrcKind::None)
            }
            None => {
                let content = (draft.payload, draft.file);
                (primary_raw, content, self.config.payload_crc)
            }
        };
        let (payload_head, tail) = match &file {
            Some(file) if is_secured => seal_payload_part(file.len()),
            Some(file) => seal_payload_of(file),
            None => seal_payload(&payload, payload_crc),
        };
        let fixed = FixedParts::new(&primary_raw, &payload_head, &write_trailer(&tail));
        let to = (draft.via, draft.class);
        let age_ms = now.saturating_duration_since(since).as_millis();
        let stored = StoredBundle {
            others: others.into(),
            reports: !is_null(&primary.report_to),
            hop_count: Some((self.config.hop_limit, 0)),
            custody: draft.custody,
            own: draft.own,
            label: draft.label,
            note: draft.note.map(Box::new),
            age_ms: u64::try_from(age_ms).unwrap_or(u64::MAX),
            file,
            ..StoredBundle::new(now, fixed, bytes, to, since + lifetime)
        };
        self.store_bundle(now, stored, payload, room)
    }
}

/// The moment at which a received bundle's lifetime ends; `None` if it has.
pub(super) fn expiry(now: Instant, lifetime: Duration, age_ms: u64) -> Option<Instant> {
    let left = lifetime.checked_sub(Duration::from_millis(age_ms))?;
    (!left.is_zero()).then(|| now + left.min(MAX_LIFETIME))
}

/// The same for another node's bundle, which also stays here for at most `most` from now on,
/// whatever its age on arrival.
pub(super) fn foreign_expiry(
    now: Instant,
    lifetime: Duration,
    age_ms: u64,
    most: Duration,
) -> Option<Instant> {
    let expires = expiry(now, lifetime, age_ms)?;
    Some(expires.min(now + most.min(MAX_LIFETIME)))
}

pub(super) fn report_flags(request: &ReportRequest) -> Flags {
    let asked = [
        (request.reception, Flags::BUNDLE_STATUS_REQUEST_RECEPTION),
        (request.forwarding, Flags::BUNDLE_STATUS_REQUEST_FORWARD),
        (request.delivery, Flags::BUNDLE_STATUS_REQUEST_DELIVERY),
        (request.deletion, Flags::BUNDLE_STATUS_REQUEST_DELETION),
    ]
    .into_iter()
    .filter(|(asked, _)| *asked)
    .fold(Flags::empty(), |all, (_, flag)| all | flag);
    // Reports include the time.
    match asked.is_empty() {
        true => asked,
        false => asked | Flags::BUNDLE_REQUEST_STATUS_TIME,
    }
}
