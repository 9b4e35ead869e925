//! Proactive fragmentation (RFC 9171 §5.8): a bundle that is longer than the
//! neighbour's convergence layer takes is sent as several.
//!
//! A few fragments are made at a time, and the rest is a fragment itself until its turn comes: each
//! stored fragment takes memory beside its payload, so one bundle for a neighbour with a small
//! limit could otherwise fill the store. The fragments take the place of the whole bundle: bundles
//! behind it are not fragmented before them.
//!
//! This is done only without custody: CCSDS 734.6 forbids to fragment a bundle under custody. A
//! bundle with security blocks is not fragmented either, since they cover the whole. If the payload
//! is on disk, each fragment has a part of the file.

use std::time::Instant;

use bp7::flags::{BundleControlFlags as Flags, BundleValidation};
use bytes::Bytes;
use underpass_cla::Class;
use underpass_work::each;

use super::Agent;
use super::config::NeighbourId;
use super::event::BundleId;
use super::fixed::FixedParts;
use super::forward::{LOOK_AHEAD, REWRITTEN_BYTES};
use super::stored::{Phase, StoredBundle};
use crate::wire::{
    decode_primary_again, is_null, is_replicated, is_security, seal_fragment, seal_payload,
    seal_payload_part, write_trailer,
};

/// The least bytes that a fragment carries, except for the last one: a neighbour that takes less
/// gets nothing.
const LEAST_BYTES: u64 = 512;
/// How many fragments of a bundle are made at once: so many, or this part (1/n) of the rest. The
/// CRC of the rest is computed each time, and the part bounds how often; a payload on disk has
/// none.
const AT_ONCE: u64 = 64;
const PART_AT_ONCE: u64 = 16;
/// The most bytes that a fragment's primary block has more than its bundle's, for offset and total
/// length.
const PRIMARY_MORE_BYTES: u64 = 18;

impl StoredBundle {
    /// The most bytes of its header as it is sent.
    pub(super) fn header_bytes(&self) -> u64 {
        let passed_on: usize = self.others.iter().map(|block| block.raw.len()).sum();
        (self.fixed.primary().len() + passed_on) as u64 + REWRITTEN_BYTES
    }

    pub(super) fn may_be_fragmented(&self) -> bool {
        let primary = self.primary();
        let flags = primary.bundle_control_flags;
        let whole = flags.contains(Flags::BUNDLE_MUST_NOT_FRAGMENTED)
            // RFC 9171 §4.2.3: without a source its fragments cannot be told from others', whatever
            // its flags say.
            || is_null(&primary.source)
            || flags.contains(Flags::BUNDLE_ADMINISTRATIVE_RECORD_PAYLOAD)
            || self.custody
            || self.passed_cteb.is_some()
            || self.others.iter().any(is_security);
        !whole
    }

    /// The most bytes that each fragment carries for a neighbour that takes `max_bytes`.
    fn fragment_bytes(&self, max_bytes: u64) -> Option<u64> {
        let room = max_bytes.checked_sub(self.header_bytes() + PRIMARY_MORE_BYTES)?;
        (room >= LEAST_BYTES).then_some(room)
    }
}

impl Agent {
    /// Whether a bundle that is too long for a session of its neighbour may go in fragments by it.
    /// A payload on disk does not if another session takes it whole: no one of its many fragments
    /// may be lost, and other implementations put them together in memory, for which it may be too
    /// long.
    pub(super) fn goes_in_fragments(&self, stored: &StoredBundle) -> bool {
        let apart = match stored.file {
            Some(_) => self.takes_files(stored) && !self.is_taken_elsewhere(stored),
            None => true,
        };
        apart && stored.may_be_fragmented()
    }

    /// Replaces the first bundle in a queue by some of its fragments and the rest,
    /// if it is too long for the neighbour and may be fragmented.
    pub(super) fn fragment_next(
        &mut self,
        now: Instant,
        neighbour: NeighbourId,
        class: Class,
        max_bytes: u64,
    ) {
        let waiting = self.neighbours.get(&neighbour);
        let Some(queue) = waiting.and_then(|waiting| waiting.queues.get(&class)) else {
            return;
        };
        let first = each(queue.in_order()).take(LOOK_AHEAD).find_map(|id| {
            let stored = self.bundles.get(id);
            let stored = stored.filter(|stored| !self.is_held_back(stored))?;
            if self.fits(id, max_bytes) {
                return Some(None);
            }
            let stored = Some(stored).filter(|stored| self.goes_in_fragments(stored))?;
            let bytes = stored.fragment_bytes(max_bytes)?;
            Some(Some((id, bytes)))
        });
        let Some(Some((id, bytes))) = first else {
            return;
        };
        if let Some(payload) = self.fetch(now, id) {
            self.fragment(now, id, &payload, bytes);
        }
    }

    fn fragment(&mut self, now: Instant, id: BundleId, payload: &[Bytes], most: u64) {
        let Some(whole) = self.remove(now, id) else {
            return;
        };
        self.tell_released(id, &whole);
        // As it came: other nodes may report on it where this node may not.
        let primary = decode_primary_again(whole.fixed.primary());
        let (first, total) = match primary.has_fragmentation() {
            true => (primary.fragmentation_offset, primary.total_data_length),
            false => (0, whole.bytes),
        };
        let mut rest = Pieces(payload.to_vec());
        let all = whole.bytes.div_ceil(most);
        let mut left = match whole.file {
            Some(_) => AT_ONCE,
            None => AT_ONCE.max(all / PART_AT_ONCE),
        };
        let mut offset = 0;
        while offset < whole.bytes {
            let bytes = match left {
                0 => whole.bytes - offset,
                _ => most.min(whole.bytes - offset),
            };
            left = left.saturating_sub(1);
            let file = whole.file.as_ref().map(|file| file.part(offset, bytes));
            let payload = match file {
                Some(_) => Vec::new(),
                None => rest.take(bytes),
            };
            let (_, primary_raw) = seal_fragment(&primary, first + offset, total);
            let (payload_head, tail) = match file {
                Some(_) => seal_payload_part(bytes),
                None => seal_payload(&payload, self.config.payload_crc),
            };
            let fixed = FixedParts::new(&primary_raw, &payload_head, &write_trailer(&tail));
            let to = (whole.neighbour, whole.class);
            let mut stored = StoredBundle {
                numbers: whole.numbers.clone(),
                reports: whole.reports,
                hop_count: whole.hop_count,
                creb: whole.creb.clone(),
                age_ms: whole.age_ms_at(now),
                file,
                ..StoredBundle::new(now, fixed, bytes, to, whole.expires)
            };
            // The first fragment has all blocks, the others what must be in each.
            let others = whole.others.iter();
            let others = others.filter(|block| offset == 0 || is_replicated(block));
            stored.others = others.cloned().collect();
            // The whole was stored already, so the store is never too full for its parts.
            let counted = stored.counted_bytes();
            let room = self.usage.reserve_anyway(whole.neighbour, counted);
            let id = self.store_bundle(now, stored, payload, room);
            if let Some(queue) = self.neighbour(to.0).queues.get_mut(&to.1) {
                queue.put_first(id);
            }
            offset += bytes;
        }
        debug_assert!(whole.phase == Phase::Queued, "it waited to be offered");
    }
}

/// A payload in pieces, from which the first bytes are taken repeatedly.
struct Pieces(Vec<Bytes>);

impl Pieces {
    fn take(&mut self, bytes: u64) -> Vec<Bytes> {
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut taken = Vec::new();
        while left > 0 {
            let Some(first) = self.0.first_mut() else {
                break;
            };
            let part = first.split_to(left.min(first.len()));
            left -= part.len();
            taken.push(part);
            if first.is_empty() {
                self.0.remove(0);
            }
        }
        taken
    }
}
