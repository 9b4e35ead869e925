//! Sealing and offering: what the scheduler grants leaves the node.

use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::wire::ipn_parts;
use underpass_bundle::{self as bundle, BundleId, NeighbourId, Offer};
use underpass_cla::{BUNDLE_OVERHEAD_BYTES, Class, SHORT_BUNDLE_BYTES, SessionId, Transfer};
use underpass_scheduler::{Decision, Leaf};
use underpass_streams::wire::Frames;
use underpass_streams::{Peer, Sealed, StreamId};
use underpass_work::each;

use crate::choosing::ASKED_WITHIN;
use crate::engine::{Action, Carried, Engine, STREAM_SERVICE};
use crate::hop::HopId;
use crate::lanes::Queues;
use crate::transfers::Kept;

/// Streams that have more to send seal no payload below this: a session with a smaller MRU gets
/// nothing.
const LEAST_PAYLOAD_BYTES: u64 = 512;

/// A full store frees itself piece by piece. It is filled again when at least this part (1/n) of it
/// is free, so that bundles do not become ever smaller.
const STORE_PART: u64 = 8;

/// How soon hops that wait for room in the store look again, and how many of them at once.
const FED_AT_ONCE: usize = 8;
const LOOK_FOR_ROOM: Duration = Duration::from_millis(20);

/// Bundles for a peer's run that is over are found when their turn comes. At most this many are
/// discarded at once, so that others have their turn in between.
const FORGOTTEN_AT_ONCE: usize = 1_024;

impl Engine {
    /// Sends all that may be sent now.
    pub(crate) fn pump(&mut self, now: Instant) {
        loop {
            self.update_leaves(now);
            match self.scheduler.next(now) {
                Decision::Send { leaf, max_bytes } => self.grant(now, leaf, max_bytes),
                Decision::Wait(until) => {
                    self.wake_at = Some(until);
                    return;
                }
                Decision::Idle => {
                    self.wake_at = None;
                    return;
                }
            }
        }
    }

    fn grant(&mut self, now: Instant, leaf: Leaf, max_bytes: u64) {
        if self.offer(now, leaf, max_bytes).is_none() {
            // What was to be sent is gone, or the store has no room for it at present: this leaf
            // waits.
            self.update_leaves(now);
            self.leaf_waits(HopId(leaf.terminal.0), leaf.class);
        }
    }

    fn offer(&mut self, now: Instant, leaf: Leaf, max_bytes: u64) -> Option<()> {
        let id = HopId(leaf.terminal.0);
        let hop = self.hops.get(&id)?;
        let session = hop.carrier(leaf.class)?;
        let info = &self.sessions.get(session)?.info;
        let (mru, resumes) = (info.transfer_mru_bytes, info.resumes);
        let takes_files = info.takes_files;
        let to = NeighbourId(hop.config.neighbour);
        if let Some(chunks) = self.next_copy(id, leaf.class, mru) {
            let transfer = Transfer::new(self.agent.spare_key(), chunks);
            self.give(now, leaf, session, transfer, true, None);
            return Some(());
        }
        // Another hop may have taken some of what waited.
        let queues = self.open_queues(now, id, leaf.class);
        if !queues.any() {
            return None;
        }
        self.agent.set_resumes(to, leaf.class, resumes);
        self.agent.set_takes_files(to, leaf.class, takes_files);
        let elsewhere = self.taken_by_others(now, id, leaf.class, mru);
        self.agent.set_taken_elsewhere(to, leaf.class, elsewhere);
        let max_bytes = max_bytes.min(mru);
        let mut forgotten = 0;
        let (offer, sparse) = loop {
            if forgotten == FORGOTTEN_AT_ONCE {
                self.ask_again(now, id, Duration::ZERO);
                return None;
            }
            let taken = match self.lead(now, id, leaf.class) {
                Some(lead) => self.take_behind(now, id, leaf.class, lead, max_bytes, mru),
                None => self.take(now, id, queues, leaf.class, max_bytes, mru),
            }?;
            let outlived = self.outlived(&taken.0);
            if outlived.is_none() {
                break taken;
            }
            self.discard(now, taken.0.id, outlived);
            forgotten += 1;
            // A bundle that must not overtake this one may go now.
            self.drain_agent(now);
        };
        // Only bundles in memory are copied.
        let in_memory = offer.file.is_none();
        let several = self.ways.hops_to(to.0).len() > 1;
        let kept = (in_memory && several).then(|| Kept {
            class: leaf.class,
            bundle: offer.id,
            chunks: offer.chunks.clone(),
        });
        if let Some(kept) = &kept {
            self.copy_to_another(now, id, leaf.class, kept.bundle, &kept.chunks);
        }
        let transfer = Transfer {
            key: offer.key,
            chunks: offer.chunks,
            file: offer.file,
            resume: offer.resume,
            reliable: offer.reliable,
        };
        let left_out = transfer.resume.map_or(0, |resume| resume.offset);
        let bytes = transfer.len() - left_out;
        self.agent.turn_taken(to, leaf.class, offer.restored, bytes);
        let short = sparse && transfer.len() <= SHORT_BUNDLE_BYTES;
        let express = match short {
            true => self.express(id, leaf.class, session, transfer.len()),
            false => None,
        };
        let session = express.unwrap_or(session);
        let short_bytes = short.then(|| transfer.len());
        let key = transfer.key;
        self.give(now, leaf, session, transfer, offer.again, short_bytes);
        if let Some(kept) = kept {
            self.sessions.keep(key, kept);
        }
        Some(())
    }

    /// Gives a session of a leaf's hop a bundle; `again` if it was sent before,
    /// `short_bytes` as [`Sessions::offered`](crate::transfers::Sessions) has it.
    fn give(
        &mut self,
        now: Instant,
        leaf: Leaf,
        session: SessionId,
        transfer: Transfer,
        again: bool,
        short_bytes: Option<u64>,
    ) {
        let id = HopId(leaf.terminal.0);
        self.expect_answers(now, id);
        let left_out = transfer.resume.map_or(0, |resume| resume.offset);
        let mut ip_bytes = 0;
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.count_sent(leaf.class, transfer.len(), again, left_out);
            ip_bytes = hop.wire.ip_bytes(transfer.len() - left_out);
        }
        self.scheduler.sent(now, leaf, ip_bytes);
        self.note_given(now, id, ip_bytes);
        let left_by = self.hops.get(&id).map_or(now, |hop| hop.sent_by);
        self.sessions
            .offered(now, session, transfer.key, left_by, short_bytes);
        self.actions.push_back(Action::Offer { session, transfer });
        self.leaf_changed(id, leaf.class);
        self.session_changed(session);
    }

    /// The session for a short bundle of streams that begin or send seldom, if the session of its
    /// class has long bundles in flight: there a lost segment of another bundle would delay it by a
    /// round trip. The session is one of another class for which nothing waits and which has no
    /// long bundle in flight either. Of these it is the one with the fewest bundles, so that a lost
    /// segment delays few. If there is none, it is the session of the first class of data, whatever
    /// is in flight there. The receiver takes a payload on the session of any class.
    fn express(&self, id: HopId, class: Class, own: SessionId, bytes: u64) -> Option<SessionId> {
        if !self.sessions.get(own)?.has_long_in_flight() {
            return None;
        }
        let hop = self.hops.get(&id)?;
        let of_data = self.classes.iter().copied();
        let mut of_data = of_data
            .filter(|class| *class != Class::SIGNALLING)
            .peekable();
        let first = of_data.peek().copied()?;
        of_data
            .filter(|other| *other != class && !hop.ready.contains_key(other))
            .filter_map(|other| {
                let session = hop.carrier(other)?;
                let state = self.sessions.get(session)?;
                let is_long = state.has_long_in_flight();
                let fits = bytes <= state.info.transfer_mru_bytes.min(state.room_bytes());
                let free = hop.has(other, session) && fits && (other == first || !is_long);
                free.then_some((is_long, state.in_flight(), other, session))
            })
            .min()
            .map(|(.., session)| session)
    }

    /// The next bundle for the neighbour, and whether it is of streams that begin or send seldom. A
    /// bundle that waits goes first, at any size that its CL takes; bundles left by an earlier run
    /// take turns with streams. If none waits, one is sealed now, to the size that suits the
    /// present rate.
    fn take(
        &mut self,
        now: Instant,
        hop: HopId,
        queues: Queues,
        class: Class,
        max: u64,
        mru: u64,
    ) -> Option<(Offer, bool)> {
        let neighbour = self.hops.get(&hop)?.config.neighbour;
        let to = NeighbourId(neighbour);
        let woken = self.agent.is_woken(to, class);
        if (self.is_turn_of_light(neighbour, class) || self.agent.yields(to, class))
            && let Some((id, sparse)) = self.seal_in_turn(now, hop, queues, class, max)
            && let Some(offer) = self.agent.next_of(now, id, mru)
        {
            return Some((offer, sparse));
        }
        if queues.of_class {
            if let Some(offer) = self.agent.next_for(now, to, class, mru) {
                self.peers.bundle_has_gone(neighbour, class);
                return Some((offer, false));
            }
            // Some bundles were passed over, and there may be more behind them: others have their
            // turn first.
            if !woken && self.agent.is_woken(to, class) {
                self.ask_again(now, hop, Duration::ZERO);
            }
        }
        // While the store is reading a bundle nothing is sealed behind it: it would pile up.
        if self.agent.is_loading(to, class) {
            return None;
        }
        let (id, sparse) = self.seal_in_turn(now, hop, queues, class, max)?;
        let offer = self.agent.next_of(now, id, mru);
        if offer.is_none() {
            // There may be room for bundles to other nodes.
            self.ask_again(now, hop, Duration::ZERO);
        }
        Some((offer?, sparse))
    }

    /// Seals a bundle from one of these queues.
    fn seal_in_turn(
        &mut self,
        now: Instant,
        hop: HopId,
        queues: Queues,
        class: Class,
        max: u64,
    ) -> Option<(BundleId, bool)> {
        for queue in self.in_turn(hop, queues) {
            if let Some(sealed) = self.seal(now, hop, (class, queue), max) {
                self.note_turn(hop, class, queue);
                return Some(sealed);
            }
        }
        None
    }

    /// As [`Engine::take`], but from behind the first `bytes`, which another hop is to take: these
    /// are sealed for that hop, if they are not yet.
    fn take_behind(
        &mut self,
        now: Instant,
        hop: HopId,
        class: Class,
        (near, bytes): (HopId, u64),
        max: u64,
        mru: u64,
    ) -> Option<(Offer, bool)> {
        let to = NeighbourId(self.hops.get(&hop)?.config.neighbour);
        if self.agent.is_loading(to, class) {
            return None;
        }
        let behind = self.agent.queued_behind(now, to, class, bytes);
        if let Some(id) = behind {
            return Some((self.agent.next_of(now, id, mru)?, false));
        }
        let size = self.scheduler.max_bundle_bytes(near.terminal()).min(mru);
        while self.agent.backlog_bytes(to, class) < bytes
            && self.seal(now, near, (class, class), size).is_some()
        {}
        let sealed = self.seal(now, hop, (class, class), max);
        if sealed.is_none() {
            // The other hop has all that waits; it may be held up.
            self.ask_again(now, hop, ASKED_WITHIN);
        }
        let (id, sparse) = sealed?;
        Some((self.agent.next_of(now, id, mru)?, sparse))
    }

    /// Whether it is the turn of a light stream: these take turns with bundles that were sealed
    /// before. Such bundles are those sent again (after a blockage, all that was in flight),
    /// messages, of which a service may send megabytes, and those sealed ahead for another path.
    /// The heaviest stream does not count as light though its buffer is empty at times: it would
    /// overtake its own bundles, and its receiver would wait for them.
    fn is_turn_of_light(&mut self, neighbour: u64, class: Class) -> bool {
        let to = NeighbourId(neighbour);
        let waits = self.agent.has_pending(to, class) && self.peers.has_light(neighbour, class);
        waits && self.peers.take_light_turn(neighbour, class)
    }

    /// Seals bytes of a queue's streams into a bundle, as late as possible, or releases a withheld
    /// one. Peers behind one neighbour take turns.
    fn seal(
        &mut self,
        now: Instant,
        hop: HopId,
        (class, queue): (Class, Class),
        max: u64,
    ) -> Option<(BundleId, bool)> {
        let neighbour = self.hops.get(&hop)?.config.neighbour;
        if class != Class::SIGNALLING && self.agent.is_paused(NeighbourId(neighbour)) {
            return None;
        }
        let wanted = max.saturating_sub(BUNDLE_OVERHEAD_BYTES);
        if wanted < LEAST_PAYLOAD_BYTES {
            return None;
        }
        while let Some(peer) = self.peers.next(neighbour, queue) {
            if self.has_no_room(now, neighbour, peer, class) {
                self.peers.pass_over(peer, queue);
                continue;
            }
            let to = NeighbourId(neighbour);
            let free = self.agent.free_bytes_of(to, class);
            let least = match class == Class::SIGNALLING {
                true => LEAST_PAYLOAD_BYTES,
                false => self.least_free(to),
            };
            let room = free >= least.min(wanted);
            let limit = usize::try_from(wanted.min(free)).unwrap_or(usize::MAX);
            let sealed = self.peers.seal(&mut self.actions, peer, |streams| {
                let settled = match room {
                    true => streams.poll_settled(class),
                    false => None,
                };
                let last = settled.is_some();
                let sparse = streams.has_sparse(queue) && !last;
                let sealed = match settled {
                    Some(parts) => Some(Sealed::Payload {
                        parts,
                        streams: Vec::new(),
                    }),
                    None if room => streams.poll_payload(now, queue, limit),
                    None => streams.poll_withheld(now, queue).map(Sealed::Withheld),
                };
                (sealed, last, sparse)
            });
            let (sealed, last, sparse) = sealed?;
            self.peers.had_its_turn(neighbour, queue, peer);
            let bundle = match sealed {
                Some(Sealed::Payload { parts, streams }) => {
                    self.originate(now, peer, class, parts, last, streams)
                }
                Some(Sealed::Withheld(flow)) => self.let_leave(peer, flow),
                None if !room => {
                    self.starved.insert(hop);
                    self.agent.await_room(to);
                    return None;
                }
                // The reason for a frame may end while it waits.
                None => {
                    self.peers.pass_over(peer, queue);
                    continue;
                }
            };
            // A bundle that must not overtake others may have to wait, and a withheld one may be
            // gone.
            if let Some(id) = bundle.filter(|id| self.agent.is_queued(*id)) {
                return Some((id, sparse));
            }
        }
        None
    }

    pub(crate) fn least_free(&self, neighbour: NeighbourId) -> u64 {
        (self.agent.burst_bytes(neighbour) / STORE_PART).max(LEAST_PAYLOAD_BYTES)
    }

    /// Lets hops that wait for room in the store seal again, in turn. Those whose neighbours have
    /// taken something are woken at once; room left by others is found by looking.
    pub(crate) fn feed(&mut self, now: Instant) {
        for _ in each(0..self.starved.len().min(FED_AT_ONCE)) {
            let behind = self.starved.range((Excluded(self.last_fed), Unbounded));
            let Some(hop) = behind.chain(&self.starved).next().copied() else {
                break;
            };
            self.last_fed = hop;
            if self.has_room_again(hop) {
                self.starved.remove(&hop);
                self.leaves_changed(hop);
                self.pump(now);
            }
        }
        self.feed_at = match self.starved.is_empty() {
            true => None,
            false => self
                .feed_at
                .filter(|at| *at > now)
                .or(Some(now + LOOK_FOR_ROOM)),
        };
    }

    fn has_room_again(&self, hop: HopId) -> bool {
        self.hops.get(&hop).is_none_or(|hop| {
            let to = NeighbourId(hop.config.neighbour);
            self.agent.free_bytes(to) >= self.least_free(to)
        })
    }

    fn originate(
        &mut self,
        now: Instant,
        peer: u64,
        class: Class,
        payload: Vec<Bytes>,
        last: bool,
        streams: Vec<StreamId>,
    ) -> Option<BundleId> {
        // The pieces are counted references, kept in case of a refusal, which ends the streams
        // whose bytes are in them.
        let epoch = self.peers.get(peer).map(Peer::epoch)?;
        let send = self.stream_bundle(peer, class, payload.clone(), last);
        match self.agent.send(now, send) {
            Ok(id) => {
                self.carries(id, (peer, epoch, streams));
                Some(id)
            }
            Err(_) => {
                self.give_up(peer, &payload);
                self.acknowledge((peer, epoch, streams));
                None
            }
        }
    }

    /// Notes which streams have something in a bundle, until it is
    /// acknowledged.
    pub(crate) fn carries(&mut self, id: BundleId, carried: Carried) {
        if !carried.2.is_empty() {
            self.carried.insert(id, carried);
        }
    }

    /// Notes that a bundle of this node's streams is with the next custodian, or gone.
    pub(crate) fn is_acknowledged(&mut self, id: BundleId) {
        if let Some(carried) = self.carried.remove(&id) {
            self.acknowledge(carried);
        }
    }

    /// The node and the run that a bundle of this node's streams is for, if that run is over: the
    /// next run would ignore the bundle.
    fn outlived(&self, offer: &Offer) -> Option<(u64, u64)> {
        let (source, destination) = self.agent.endpoints_of_own(offer.id)?;
        let (_, STREAM_SERVICE) = ipn_parts(&source)? else {
            return None;
        };
        let (peer, STREAM_SERVICE) = ipn_parts(&destination)? else {
            return None;
        };
        // The payload follows the bundle's header. It names the peer's run, whichever run of this
        // node sealed it.
        let run = Frames::new(offer.chunks.get(1)?).ok()?.header().receiver;
        (run != 0 && run < self.run_of(peer)?).then_some((peer, run))
    }

    /// Discards a bundle of this node's streams that nobody wants; `outlived` is as in
    /// [`Action::Discarded`].
    pub(crate) fn discard(&mut self, now: Instant, id: BundleId, outlived: Option<(u64, u64)>) {
        if let Some((source, created)) = self.agent.discard(now, id) {
            self.actions.push_back(Action::Discarded {
                source,
                created,
                outlived,
            });
        }
        self.is_acknowledged(id);
    }

    pub(crate) fn acknowledge(&mut self, (peer, epoch, streams): Carried) {
        self.peers.seal(&mut self.actions, peer, |peer| {
            peer.acknowledged(epoch, &streams);
        });
    }

    /// A bundle with a payload of streams; `last` if it must not overtake
    /// those before it.
    pub(crate) fn stream_bundle(
        &self,
        peer: u64,
        class: Class,
        payload: Vec<Bytes>,
        last: bool,
    ) -> bundle::Send {
        bundle::Send {
            destination: bundle::wire::ipn(peer, STREAM_SERVICE),
            service: STREAM_SERVICE,
            class,
            label: sender_of(&payload),
            payload,
            lifetime: Some(self.config.lifetime),
            custody: true,
            last,
            reports: None,
        }
    }

    /// Notes that a payload will not be delivered: its streams cannot be complete any more.
    pub(crate) fn give_up(&mut self, peer: u64, payload: &[Bytes]) {
        let whole = Bytes::from(payload.concat());
        let taken = self.change_streams(peer, |streams| streams.handle_expired(whole));
        if let Some(Err(error)) = taken {
            self.actions.push_back(Action::BadPayload { peer, error });
        }
    }
}

/// The incarnation that sealed a payload of frames: it is named at its
/// beginning, behind the version.
fn sender_of(payload: &[Bytes]) -> u64 {
    let first = payload.first().and_then(|piece| piece.get(1..9));
    first.map_or(0, |bytes| {
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    })
}
