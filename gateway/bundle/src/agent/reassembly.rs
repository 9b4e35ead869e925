//! Fragments for services of this node, and of administrative records for it, until their bundle is
//! whole (RFC 9171 §5.9).
//!
//! A fragment proves nothing: a sender of a few that never sends the rest would occupy memory. So
//! this memory is small. No neighbour has more of it than it leaves free, and no service of a
//! neighbour nearly all of that. A bundle that is not whole when its lifetime ends, or after ten
//! minutes, is forgotten. Of two fragments that contradict each other the first is believed.
//! Bundles that are too long for memory are put together on the disk, if this node has room for
//! them there. A bundle that has to be secured is judged once it is whole, between two calls of the
//! agent, and so is a bundle in a BPDU decoded.

mod judging;
mod on_disk;
mod proof;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use underpass_work::each;

use super::Agent;
use super::config::NeighbourId;
use super::event::{DeleteReason, Reject};
use super::passing::Message;
use super::quota::Reservation;
use super::receive::{Arrival, Unopened};
use super::security::Insecure;
use super::stored::NameGroup;
use crate::wire::{BpduHead, Bundle, MAX_HEADER_BYTES, Malformed, ipn_parts, is_null};
use on_disk::OnDisk;
use proof::{Proof, security_bytes};

/// The most payload bytes of fragments, in all.
const MOST_BYTES: u64 = 128 << 20;
/// The most fragments, in all.
const MOST_FRAGMENTS: usize = 16_384;
/// What a fragment costs beside its payload, bytes.
const BESIDE_BYTES: u64 = 512;
/// Payloads below this are copied, bytes: four times what headers may have.
const COPIED_BYTES: usize = 4 * MAX_HEADER_BYTES;
/// A service has at most so many times what its neighbour leaves free beyond the amount that it has
/// itself.
const SERVICE_PART: u64 = 4;
/// The longest time for which a bundle may be incomplete.
const MOST_TIME: Duration = Duration::from_secs(600);

/// The bundle that a fragment is of: source and time, sequence number,
/// destination.
type Whole = (NameGroup, u64, String);

/// Bytes and fragments.
type Counts<K> = HashMap<K, (u64, usize)>;

/// The fragments of one bundle.
struct Parts {
    service: u64,
    total: u64,
    /// By offset; they do not overlap.
    pieces: BTreeMap<u64, Bytes>,
    have: u64,
    /// What secures the bundle, if it has to be.
    proof: Option<Proof>,
    /// The room that they take, by neighbour.
    room: Vec<(NeighbourId, u64, Reservation)>,
    until: Instant,
    /// Orders those of one time.
    number: u64,
}

/// All bundles that are not whole yet.
#[derive(Default)]
pub(super) struct Reassembly {
    parts: HashMap<Whole, Parts>,
    untils: BTreeSet<(Instant, u64)>,
    /// Names by the number that orders those of one time.
    names: HashMap<u64, Whole>,
    next: u64,
    bytes: u64,
    fragments: usize,
    by_neighbour: Counts<NeighbourId>,
    /// The part of each neighbour's fragments that is for each service.
    by_service: Counts<(NeighbourId, u64)>,
    on_disk: OnDisk,
    /// See [`Agent::take_unopened`].
    pub unopened: Option<Unopened>,
}

impl Reassembly {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Reassembly {
            parts,
            untils,
            names,
            next: _,
            bytes: _,
            fragments,
            by_neighbour,
            by_service,
            on_disk,
            unopened: _,
        } = self;
        tell("bundles in fragments", parts.len());
        tell("bundles in fragments by time", untils.len() + names.len());
        tell("fragments", *fragments);
        tell("neighbours with fragments", by_neighbour.len());
        tell("services with fragments", by_service.len());
        on_disk.footprint(tell);
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let until = self.untils.first().map(|(until, _)| *until);
        until.into_iter().chain(self.on_disk.next_timeout()).min()
    }

    /// Forgets what is not whole in time. Returns what is whole, but not judged in time.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Unopened> {
        while let Some((until, number)) = self.untils.first().copied().filter(|(at, _)| *at <= now)
        {
            self.untils.remove(&(until, number));
            if let Some(name) = self.names.remove(&number) {
                self.forget(&name);
            }
        }
        self.on_disk.handle_timeout(now)
    }

    /// See [`Agent::take_unjudged`].
    pub fn take_unjudged(&mut self) -> Option<Unopened> {
        self.on_disk.judging.take_next()
    }

    /// Notes that a bundle on the disk is judged; false if none of its name is waited for.
    pub fn end_judging(&mut self, whole: &Arrival) -> bool {
        self.on_disk.judging.remove(&whole_of(whole))
    }

    fn has_room(&self, from: NeighbourId, service: u64, bytes: u64) -> bool {
        let free = (
            MOST_BYTES.saturating_sub(self.bytes),
            MOST_FRAGMENTS.saturating_sub(self.fragments),
        );
        let own = self.by_neighbour.get(&from).copied().unwrap_or_default();
        let of_service = self.by_service.get(&(from, service));
        let of_service = of_service.copied().unwrap_or_default();
        // What is free beyond the amount that the neighbour has.
        let left_bytes = free.0.checked_sub(own.0.saturating_add(bytes));
        let left_fragments = free.1.saturating_sub(own.1);
        left_bytes.is_some_and(|left| of_service.0.saturating_add(bytes) <= SERVICE_PART * left)
            && (of_service.1 as u64) < SERVICE_PART * left_fragments as u64
    }

    fn forget(&mut self, name: &Whole) -> Option<Parts> {
        let parts = self.parts.remove(name)?;
        for (from, bytes, _) in &parts.room {
            self.uncount(*from, parts.service, *bytes);
        }
        Some(parts)
    }

    /// Counts a fragment of a neighbour for a service in memory.
    fn count(&mut self, from: NeighbourId, service: u64, bytes: u64) {
        self.fragments += 1;
        self.bytes += bytes;
        let of_neighbour = self.by_neighbour.entry(from).or_default();
        let of_service = self.by_service.entry((from, service)).or_default();
        for own in [of_neighbour, of_service] {
            own.0 += bytes;
            own.1 += 1;
        }
    }

    /// Takes such a fragment out of the counts.
    fn uncount(&mut self, from: NeighbourId, service: u64, bytes: u64) {
        self.fragments -= 1;
        self.bytes -= bytes;
        subtract(&mut self.by_neighbour, from, bytes);
        subtract(&mut self.by_service, (from, service), bytes);
    }
}

/// Takes a fragment out of a count.
fn subtract<K: Eq + Hash>(counts: &mut Counts<K>, key: K, bytes: u64) {
    if let Some(own) = counts.get_mut(&key) {
        own.0 -= bytes;
        own.1 -= 1;
        if own.1 == 0 {
            counts.remove(&key);
        }
    }
}

impl Parts {
    /// Adds a piece at its place, and returns whether anything of it is new. An error means that it
    /// contradicts an earlier piece.
    fn put(&mut self, offset: u64, total: u64, mut piece: Bytes) -> Result<bool, ()> {
        if total != self.total {
            return Err(());
        }
        let end = offset + piece.len() as u64;
        // All overlapping pieces are checked first, so that nothing is taken of a wrong fragment.
        // Of those that begin before it only the last one can reach into it.
        let last = self.pieces.range(..=offset).next_back();
        let first = last.map_or(offset, |(at, _)| *at);
        let over: Vec<(u64, Bytes)> = each(self.pieces.range(first..end))
            .filter(|(at, known)| *at + known.len() as u64 > offset)
            .map(|(at, known)| (*at, known.clone()))
            .collect();
        let of = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        for (at, known) in &over {
            let from = offset.max(*at);
            let to = end.min(at + known.len() as u64);
            let ours = &known[of(from - at)..of(to - at)];
            let theirs = &piece[of(from - offset)..of(to - offset)];
            if ours != theirs {
                return Err(());
            }
        }
        // The gaps between the pieces that are there.
        let mut at = offset;
        let mut added = false;
        for (start, known) in over {
            if start > at {
                let part = piece.split_to(of(start - at));
                self.have += part.len() as u64;
                self.pieces.insert(at, part);
                added = true;
                at = start;
            }
            let known_end = (start + known.len() as u64).min(end);
            drop(piece.split_to(of(known_end.saturating_sub(at))));
            at = at.max(known_end);
        }
        if !piece.is_empty() {
            self.have += piece.len() as u64;
            self.pieces.insert(at, piece);
            added = true;
        }
        Ok(added)
    }
}

impl Agent {
    /// Takes a fragment for a service of this node, and delivers the bundle if that is whole now.
    pub(super) fn take_fragment(
        &mut self,
        now: Instant,
        arrival: Arrival,
        service: u64,
    ) -> Result<(), Reject> {
        let primary = &arrival.bundle.primary;
        let bytes = arrival.bundle.payload_bytes();
        let end = primary.fragmentation_offset.checked_add(bytes);
        let total = primary.total_data_length;
        let fits = bytes > 0 && end.is_some_and(|end| end <= total);
        // A bundle without a source must not be fragmented (RFC 9171 §4.2.3).
        let nameless = is_null(&primary.source);
        let record = arrival.bundle.is_administrative();
        let to_disk = !record && self.goes_to_disk(service, total);
        let too_long = !to_disk && total > self.config.decode.max_payload_bytes;
        let on_disk = arrival.bundle.file.is_some();
        if !fits || nameless || too_long && !on_disk {
            return Err(Reject::Malformed(Malformed::Fragment));
        }
        let secures = self.secures(&arrival);
        if secures && arrival.cteb().is_some() {
            // A fragment proves nothing, nor who its custodian is.
            return Err(self.insecure(now, &arrival, Insecure::Missing));
        }
        if on_disk && !to_disk {
            self.refuse(now, &arrival, DeleteReason::DepletedStorage);
            return Ok(());
        }
        if arrival.cteb().is_some() || arrival.bundle.encrypted && !secures {
            self.refuse(now, &arrival, DeleteReason::BlockUnsupported);
            return Ok(());
        }
        let bytes = counted_bytes(&arrival.bundle);
        let room = self.usage.reserve_fragment(bytes);
        let room = room.ok_or(Reject::NoResources)?;
        // The sender of a BPDU gets its signal by the neighbour that the BPDU came from.
        let shard = match record {
            true => self.sharding.own,
            false => self.assembler(&arrival),
        };
        if shard != self.sharding.own {
            self.pass(shard, Message::Fragment(Box::new(arrival), service, room));
            return Ok(());
        }
        self.assemble(now, arrival, service, room)
    }

    /// The agent that puts a fragment's bundle together: all its fragments go there, whichever way
    /// they come.
    fn assembler(&self, arrival: &Arrival) -> usize {
        let source = ipn_parts(&arrival.bundle.primary.source);
        let node = source.map_or(0, |(node, _)| node);
        self.sharding.shard_of(NeighbourId(node))
    }

    pub(super) fn assemble(
        &mut self,
        now: Instant,
        mut arrival: Arrival,
        service: u64,
        room: Reservation,
    ) -> Result<(), Reject> {
        let whole = whole_of(&arrival);
        let (group, sequence, _) = &whole;
        if self.seen.contains(group, *sequence) {
            return Ok(());
        }
        let primary = &arrival.bundle.primary;
        let (offset, total) = (primary.fragmentation_offset, primary.total_data_length);
        let record = arrival.bundle.is_administrative();
        let to_disk = !record && self.goes_to_disk(service, total);
        // Fragments of one bundle have the same total length.
        let elsewhere = match to_disk {
            true => self.reassembly.parts.contains_key(&whole),
            false => self.reassembly.on_disk.has(&whole),
        };
        if elsewhere {
            return Err(Reject::Malformed(Malformed::Fragment));
        }
        if to_disk {
            return self.place_fragment(now, arrival, service, whole, room);
        }
        // Its service may belong to no application any more.
        if arrival.bundle.file.is_some() {
            return Err(Reject::NoResources);
        }
        let secures = self.secures(&arrival);
        let proof = (secures && offset == 0).then(|| Proof::of(&arrival));
        let payload = own_payload(&arrival);
        let bytes = counted_bytes(&arrival.bundle);
        if !self.reassembly.has_room(arrival.from, service, bytes) {
            return Err(Reject::NoResources);
        }
        let reassembly = &mut self.reassembly;
        let parts = match reassembly.parts.get_mut(&whole) {
            Some(parts) => parts,
            None => {
                let until = arrival.expires.min(now + MOST_TIME);
                let number = reassembly.next;
                reassembly.next += 1;
                reassembly.untils.insert((until, number));
                reassembly.names.insert(number, whole.clone());
                reassembly.parts.entry(whole.clone()).or_insert(Parts {
                    service,
                    total,
                    pieces: BTreeMap::new(),
                    have: 0,
                    proof: None,
                    room: Vec::new(),
                    until,
                    number,
                })
            }
        };
        match parts.put(offset, total, payload) {
            Err(()) => return Err(Reject::Malformed(Malformed::Fragment)),
            // It was there already.
            Ok(false) => return Ok(()),
            Ok(true) => {}
        }
        parts.proof = parts.proof.take().or(proof);
        parts.room.push((arrival.from, bytes, room));
        let is_whole = parts.have >= total;
        reassembly.count(arrival.from, service, bytes);
        if !is_whole {
            return Ok(());
        }
        let Some(parts) = reassembly.forget(&whole) else {
            return Ok(());
        };
        reassembly.names.remove(&parts.number);
        reassembly.untils.remove(&(parts.until, parts.number));
        let mut payload = BytesMut::with_capacity(usize::try_from(total).unwrap_or(0));
        for piece in parts.pieces.into_values() {
            payload.extend_from_slice(&piece);
        }
        drop(parts.room);
        let proof = parts.proof.filter(|_| secures);
        let proves = proof.is_some();
        if let Some(proof) = proof {
            proof.put_back(&mut arrival)?;
        }
        made_whole(&mut arrival);
        arrival.bundle.payload = payload.freeze();
        let opens = match proves {
            true => true,
            // A rule has come into force since the first fragment came.
            false if secures => return Err(self.insecure(now, &arrival, Insecure::Missing)),
            false if record && !arrival.in_bpdu => {
                let head = BpduHead::read(&arrival.bundle.payload);
                head.map_err(|error| Reject::Malformed(error.into()))?
                    .is_some()
            }
            false => false,
        };
        if opens {
            let whole = Box::new(arrival);
            self.reassembly.unopened = Some(Unopened { whole, service });
            return Ok(());
        }
        if !record {
            return self.deliver(now, arrival, service);
        }
        let from = arrival.from;
        self.deliver(now, arrival, service)?;
        // Otherwise a late duplicate of a fragment would take memory until its time is over.
        let (group, sequence, _) = whole;
        self.seen.insert(now, from, group, sequence);
        Ok(())
    }
}

/// The bundle that a fragment is of.
fn whole_of(arrival: &Arrival) -> Whole {
    let mut name = arrival.name();
    name.group.fragment = None;
    let destination = arrival.bundle.primary.destination.to_string();
    (name.group, name.sequence, destination)
}

/// The bytes that a fragment counts in memory.
fn counted_bytes(bundle: &Bundle) -> u64 {
    bundle.payload.len() as u64 + BESIDE_BYTES + security_bytes(bundle)
}

/// A fragment's payload. A slice of a bundle keeps all of it in memory, its headers
/// too.
fn own_payload(arrival: &Arrival) -> Bytes {
    let payload = &arrival.bundle.payload;
    match payload.len() < COPIED_BYTES {
        true => Bytes::copy_from_slice(payload),
        false => payload.clone(),
    }
}

/// Turns a fragment into its bundle, except for the payload.
fn made_whole(arrival: &mut Arrival) {
    let flags = bp7::flags::BundleControlFlags::BUNDLE_IS_FRAGMENT.bits();
    let primary = &mut arrival.bundle.primary;
    primary.bundle_control_flags &= !flags;
    (primary.fragmentation_offset, primary.total_data_length) = (0, 0);
}
