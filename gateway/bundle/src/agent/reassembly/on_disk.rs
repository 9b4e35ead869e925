//! Fragments of bundles that are too long for memory, put together in a file.
//!
//! The folder of payloads has a thread for that. A fragment that is not written yet counts as in
//! memory; written bytes count on the disk, for the neighbour that has sent them. The thread cannot
//! call the agent, so the agent checks every few milliseconds while it waits for results.
//!
//! A fragment that was lost on the way is not sent again, so a bundle may stay incomplete. It keeps
//! its place as long as no other bundle needs it. When one does, the bundle of the same neighbour
//! that has stalled for longest is given up.
//!
//! Many nodes may be behind a neighbour. A node has at most as many of the neighbour's places as it
//! leaves free for the others, and no bundle of a node that has begun fewer is given up for it.
//! This holds as far as the neighbour checks the sources of its bundles.
//!
//! A bundle that has to be secured waits, once it is whole, until it is judged ([`Judging`]).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_cla::Class;
use underpass_payloads::{Assembly, Outcomes, Part, PayloadFile, Placed};
use underpass_work::each;

use super::super::Agent;
use super::super::config::NeighbourId;
use super::super::deliver::counted_node;
use super::super::event::{DeleteReason, Reject};
use super::super::quota::Reservation;
use super::super::receive::{Arrival, Unopened};
use super::super::security::Insecure;
use super::judging::Judging;
use super::proof::Proof;
use super::{Whole, counted_bytes, made_whole, own_payload, whole_of};
use crate::wire::Malformed;

/// The longest pause between fragments of an incomplete bundle.
const MOST_PAUSE: Duration = Duration::from_secs(3600);
/// After such a pause another bundle of the same neighbour may have its place: most
/// blockages are shorter.
const STALLED: Duration = Duration::from_secs(120);
/// How long after a fragment was given to the thread its results are looked for.
const LOOK_AFTER: Duration = Duration::from_millis(5);

/// The bundles that are put together on the disk.
#[derive(Default)]
pub(super) struct OnDisk {
    bundles: HashMap<Whole, Incomplete>,
    /// Fragments that the thread has, by number.
    writing: HashMap<u64, Writing>,
    next: u64,
    outcomes: Outcomes,
    look_at: Option<Instant>,
    /// Whole ones that are still to be judged.
    pub judging: Judging,
}

struct Incomplete {
    assembly: Assembly,
    /// The first fragment, without its payload: its data about the bundle counts, including the end
    /// of its lifetime.
    first: Arrival,
    /// What secures the bundle, if it has to be.
    proof: Option<Proof>,
    service: u64,
    /// When its last fragment has come.
    moved: Instant,
}

impl Incomplete {
    /// When it is forgotten if nothing more comes.
    fn until(&self) -> Instant {
        self.first.expires.min(self.moved + MOST_PAUSE)
    }

    /// The node that it counts for: the neighbour, or one behind it.
    fn source(&self) -> u64 {
        counted_node(&self.first.bundle.primary.source, Some(self.first.from))
    }

    fn is_stalled(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.moved) >= STALLED && !self.assembly.is_being_written()
    }
}

/// A fragment that the thread has.
struct Writing {
    whole: Whole,
    from: NeighbourId,
    service: u64,
    /// The bytes that it counts in memory, and its room there.
    bytes: u64,
    room: Reservation,
    /// What it has to secure its bundle.
    proof: Option<Proof>,
    primary: PrimaryBlock,
    class: Class,
    payload_bytes: u64,
}

impl OnDisk {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let OnDisk {
            bundles,
            writing,
            next: _,
            outcomes: _,
            look_at: _,
            judging,
        } = self;
        tell("bundles in fragments on disk", bundles.len());
        tell("fragments that are written", writing.len());
        tell("bundles in fragments to be judged", judging.len());
    }

    /// Whether a bundle is put together here, or was and is still to be judged.
    pub fn has(&self, whole: &Whole) -> bool {
        self.bundles.contains_key(whole) || self.judging.has(whole)
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let untils = each(self.bundles.values()).map(Incomplete::until);
        let judging = self.judging.next_timeout();
        untils.chain(self.look_at).chain(judging).min()
    }

    /// Forgets what is not whole in time. Returns what is whole, but not judged in time.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Unopened> {
        self.bundles
            .retain(|_, incomplete| incomplete.until() > now);
        self.judging.handle_timeout(now)
    }

    /// Keeps what a fragment has to secure its bundle, now that the fragment is in its place.
    fn prove(&mut self, whole: &Whole, proof: Option<Proof>) {
        if let Some(incomplete) = self.bundles.get_mut(whole) {
            incomplete.proof = incomplete.proof.take().or(proof);
        }
    }

    fn begun(&self, from: NeighbourId, source: u64) -> usize {
        let begun = each(self.bundles.values());
        let begun = begun.filter(|of| of.first.from == from && of.source() == source);
        begun.count()
    }

    /// The bundle of a neighbour to give up for a new one of `source`: the one that has stalled for
    /// longest, of the source that has begun the most, but of no source that has begun fewer than
    /// `source`.
    fn stalled(&self, now: Instant, from: NeighbourId, source: u64) -> Option<&Whole> {
        let own = self.begun(from, source);
        let stalled = each(&self.bundles);
        let stalled = stalled.filter(|(_, of)| of.first.from == from && of.is_stalled(now));
        let stalled = stalled.map(|(whole, of)| (self.begun(from, of.source()), of.moved, whole));
        let stalled = stalled.filter(|(begun, ..)| *begun >= own);
        let first = stalled.min_by_key(|(begun, moved, whole)| (Reverse(*begun), *moved, whole.1));
        first.map(|(.., whole)| whole)
    }

    /// Takes that bundle out.
    fn take_stalled(&mut self, now: Instant, from: NeighbourId, source: u64) -> Option<Incomplete> {
        let whole = self.stalled(now, from, source)?.clone();
        self.bundles.remove(&whole)
    }
}

impl Agent {
    /// Whether a bundle of so many bytes for a service is put together on the disk.
    pub(in crate::agent) fn goes_to_disk(&self, service: u64, total: u64) -> bool {
        let payloads = self.config.payloads.as_ref();
        let most = payloads.map_or(0, |payloads| payloads.max_payload_bytes());
        let fits = total > self.config.long_above_bytes && total <= most;
        fits && self.config.keeping(service).is_some()
    }

    /// Gives a fragment of such a bundle to the thread, to be written at its place.
    pub(super) fn place_fragment(
        &mut self,
        now: Instant,
        mut arrival: Arrival,
        service: u64,
        whole: Whole,
        room: Reservation,
    ) -> Result<(), Reject> {
        self.take_placed(now);
        let (group, sequence, _) = &whole;
        let judging = &self.reassembly.on_disk.judging;
        if self.seen.contains(group, *sequence) || judging.has(&whole) {
            return Ok(());
        }
        let (from, class) = (arrival.from, arrival.class);
        let bytes = counted_bytes(&arrival.bundle);
        let primary = arrival.bundle.primary.clone();
        let (offset, total) = (primary.fragmentation_offset, primary.total_data_length);
        let payload_bytes = arrival.bundle.payload_bytes();
        let proof = (offset == 0 && self.secures(&arrival)).then(|| Proof::of(&arrival));
        let part = match arrival.bundle.file.take() {
            Some(file) => Part::OnDisk(file),
            None => Part::Here(own_payload(&arrival)),
        };
        if !self.reassembly.has_room(from, service, bytes) {
            return Err(Reject::NoResources);
        }
        let source = counted_node(&primary.source, Some(from));
        let has_place = self.reassembly.on_disk.has(&whole) || self.may_begin(from, source);
        let given_up = match has_place {
            true => None,
            false => Some(self.make_place(now, from, source)?),
        };
        let payloads = self.config.payloads.as_ref().ok_or(Reject::NoResources)?;
        strip(&mut arrival);
        let on_disk = &mut self.reassembly.on_disk;
        let (number, outcomes) = (on_disk.next, &on_disk.outcomes);
        let place = |assembly: &Assembly, part| {
            let placed = assembly.place(from.0, offset, part, number, outcomes);
            placed.map_err(|_| Reject::NoResources)
        };
        match on_disk.bundles.get_mut(&whole) {
            Some(incomplete) => {
                if incomplete.assembly.bytes() != total {
                    return Err(Reject::Malformed(Malformed::Fragment));
                }
                place(&incomplete.assembly, part)?;
                incomplete.moved = now;
            }
            None => {
                let assembly = match given_up {
                    Some(given_up) => payloads.assemble_instead(from.0, total, given_up),
                    None => payloads.assemble(from.0, total),
                };
                let assembly = assembly.map_err(|_| Reject::NoResources)?;
                place(&assembly, part)?;
                let incomplete = Incomplete {
                    assembly,
                    first: arrival,
                    proof: None,
                    service,
                    moved: now,
                };
                on_disk.bundles.insert(whole.clone(), incomplete);
            }
        }
        on_disk.next += 1;
        on_disk.look_at.get_or_insert(now + LOOK_AFTER);
        let writing = Writing {
            whole,
            from,
            service,
            bytes,
            room,
            proof,
            primary,
            class,
            payload_bytes,
        };
        on_disk.writing.insert(number, writing);
        self.reassembly.count(from, service, bytes);
        Ok(())
    }

    /// Whether a fragment of such a bundle has a place there, or can have one.
    pub(in crate::agent) fn has_place_for(&self, now: Instant, arrival: &Arrival) -> bool {
        if self.config.payloads.is_none() {
            return false;
        }
        // Only the agent that puts it together knows which parts are there.
        if self.assembler(arrival) != self.sharding.own {
            return true;
        }
        let (from, whole) = (arrival.from, whole_of(arrival));
        let source = counted_node(&arrival.bundle.primary.source, Some(from));
        let on_disk = &self.reassembly.on_disk;
        on_disk.has(&whole)
            || self.seen.contains(&whole.0, whole.1)
            || self.may_begin(from, source)
            || on_disk.stalled(now, from, source).is_some()
    }

    /// Whether a neighbour may begin one more bundle of a source in a free place.
    fn may_begin(&self, from: NeighbourId, source: u64) -> bool {
        let payloads = self.config.payloads.as_ref();
        let left = payloads.map_or(0, |payloads| payloads.places_left(from.0));
        match source == from.0 {
            true => left > 0,
            false => self.reassembly.on_disk.begun(from, source) < left,
        }
    }

    /// Gives up a stalled bundle of a neighbour, for a new one of `source` that takes its place.
    fn make_place(
        &mut self,
        now: Instant,
        from: NeighbourId,
        source: u64,
    ) -> Result<Assembly, Reject> {
        let on_disk = &mut self.reassembly.on_disk;
        let stalled = on_disk.take_stalled(now, from, source);
        let Incomplete {
            assembly,
            mut first,
            ..
        } = stalled.ok_or(Reject::NoResources)?;
        made_whole(&mut first);
        let (primary, bytes) = (&first.bundle.primary, assembly.bytes());
        let reason = DeleteReason::DepletedStorage;
        self.tell_deleted(now, primary, bytes, first.class, reason);
        Ok(assembly)
    }

    /// Takes the results of the thread.
    pub(in crate::agent) fn take_placed(&mut self, now: Instant) {
        if self.reassembly.on_disk.writing.is_empty() {
            return;
        }
        for (number, placed) in self.reassembly.on_disk.outcomes.take() {
            let Some(writing) = self.reassembly.on_disk.writing.remove(&number) else {
                continue;
            };
            let Writing {
                from,
                service,
                bytes,
                ..
            } = writing;
            self.reassembly.uncount(from, service, bytes);
            drop(writing.room);
            let reason = match placed {
                Placed::There => {
                    let on_disk = &mut self.reassembly.on_disk;
                    on_disk.prove(&writing.whole, writing.proof);
                    continue;
                }
                Placed::Whole(file) => {
                    let on_disk = &mut self.reassembly.on_disk;
                    on_disk.prove(&writing.whole, writing.proof);
                    self.take_put_together(now, writing.whole, file);
                    continue;
                }
                Placed::Contradicts => DeleteReason::BlockUnintelligible,
                Placed::Refused(_) => {
                    // A bundle of which the disk has taken nothing must not keep others out.
                    let bundles = &mut self.reassembly.on_disk.bundles;
                    let incomplete = bundles.get(&writing.whole);
                    if incomplete.is_some_and(|of| of.assembly.is_empty()) {
                        bundles.remove(&writing.whole);
                    }
                    DeleteReason::DepletedStorage
                }
                Placed::Lost(_) => {
                    self.reassembly.on_disk.bundles.remove(&writing.whole);
                    DeleteReason::DepletedStorage
                }
            };
            // Its CL has acknowledged it: nobody sends it again.
            let (bytes, class) = (writing.payload_bytes, writing.class);
            self.tell_refused(now, &writing.primary, bytes, class, reason);
        }
        let on_disk = &mut self.reassembly.on_disk;
        let waits = !on_disk.writing.is_empty();
        on_disk.look_at = waits.then(|| now + LOOK_AFTER);
    }

    /// A bundle is whole: it is delivered, unless it is to be judged first.
    fn take_put_together(&mut self, now: Instant, whole: Whole, file: Arc<PayloadFile>) {
        let Some(incomplete) = self.reassembly.on_disk.bundles.remove(&whole) else {
            return;
        };
        let (mut arrival, service) = (incomplete.first, incomplete.service);
        let secures = self.secures(&arrival);
        let proved = match incomplete.proof {
            Some(proof) => {
                let put_back = proof.put_back(&mut arrival);
                put_back.map_err(|_| DeleteReason::BlockUnintelligible)
            }
            // A security rule has come into force while it was put together.
            None if secures => Err(Insecure::Missing.into()),
            None => Ok(()),
        };
        made_whole(&mut arrival);
        arrival.bundle.file = Some(file);
        if let Err(reason) = proved {
            let (primary, bytes) = (&arrival.bundle.primary, arrival.bundle.payload_bytes());
            self.tell_refused(now, primary, bytes, arrival.class, reason);
        } else if secures {
            let unopened = Unopened {
                whole: Box::new(arrival),
                service,
            };
            self.reassembly.on_disk.judging.add(whole, unopened);
        } else {
            // Who asks for reports is told of a refusal.
            let _ = self.deliver_put_together(now, arrival, service);
        }
    }

    /// Deletes a bundle that was put together, since its lifetime is over. No agent waits until the
    /// disk has freed its payload.
    pub(in crate::agent) fn expire_whole(&mut self, now: Instant, mut whole: Arrival) {
        self.refuse(now, &whole, DeleteReason::LifetimeExpired);
        if let Some(file) = whole.bundle.file.take() {
            file.forget();
        }
    }

    /// Delivers a bundle that was put together here. Its fragments were acknowledged, so a refusal
    /// is reported to whoever asks for that.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub(in crate::agent) fn deliver_put_together(
        &mut self,
        now: Instant,
        arrival: Arrival,
        service: u64,
    ) -> Result<(), Reject> {
        let (primary, class) = (arrival.bundle.primary.clone(), arrival.class);
        let bytes = arrival.bundle.payload_bytes();
        let delivered = self.deliver(now, arrival, service);
        if delivered.is_err() {
            let reason = DeleteReason::DepletedStorage;
            self.tell_refused(now, &primary, bytes, class, reason);
        }
        delivered
    }
}

/// Reduces a fragment to what its delivery needs: the rest would keep the buffer that it was read
/// from in memory.
fn strip(arrival: &mut Arrival) {
    let bundle = &mut arrival.bundle;
    for part in [
        &mut bundle.primary_raw,
        &mut bundle.payload_head,
        &mut bundle.payload,
        &mut bundle.payload_tail,
    ] {
        *part = Bytes::new();
    }
    bundle.others = Vec::new();
}
