//! Sealing and offering: what the scheduler grants leaves the node.

use std::time::Instant;

use bytes::Bytes;
use underpass_bundle::{self as bundle, NeighbourId, Offer};
use underpass_cla::{Class, Transfer};
use underpass_scheduler::{Decision, Leaf};

use crate::engine::{Action, Engine, STREAM_SERVICE};
use crate::hop::HopId;

/// What a bundle adds to its payload at most: primary block, age, hop count,
/// previous node, custody, CRCs.
const BUNDLE_OVERHEAD_BYTES: u64 = 256;

impl Engine {
    /// Sends all that may be sent now.
    pub(crate) fn pump(&mut self, now: Instant) {
        loop {
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
            // What seemed to be there is gone, or the store has no room for
            // it at present.
            let known = self.scheduler.set_ready(now, leaf, false);
            debug_assert!(known.is_ok(), "{known:?}");
        }
    }

    fn offer(&mut self, now: Instant, leaf: Leaf, max_bytes: u64) -> Option<()> {
        let id = HopId(leaf.terminal.0);
        let hop = self.hops.get(&id)?;
        let wire = hop.wire;
        let session = hop.carrier(leaf.class)?;
        let mru = self.sessions.get(&session)?.info.transfer_mru_bytes;
        let offer = self.take(now, id, leaf.class, max_bytes.min(mru), mru)?;
        let transfer = Transfer {
            key: offer.key,
            chunks: offer.chunks,
        };
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.count_sent(leaf.class, transfer.len(), offer.again);
        }
        self.scheduler
            .sent(now, leaf, wire.ip_bytes(transfer.len()));
        self.actions.push_back(Action::Offer { session, transfer });
        if let Some(state) = self.sessions.get_mut(&session) {
            state.ready = false;
        }
        self.update_leaves(now, id);
        Some(())
    }

    /// A bundle for the neighbour: one that waits, of any size its CL takes,
    /// else one sealed now to the size that suits the present rate.
    fn take(
        &mut self,
        now: Instant,
        hop: HopId,
        class: Class,
        max: u64,
        mru: u64,
    ) -> Option<Offer> {
        let neighbour = self.hops.get(&hop)?.config.neighbour;
        let to = NeighbourId(neighbour);
        if let Some(offer) = self.agent.next_for(now, to, class, mru) {
            return Some(offer);
        }
        self.seal(now, hop, class, max)?;
        self.agent.next_for(now, to, class, mru)
    }

    /// Seals bytes of streams into a bundle, as late as possible. Peers
    /// behind one neighbour take turns.
    fn seal(&mut self, now: Instant, hop: HopId, class: Class, max: u64) -> Option<()> {
        let neighbour = self.hops.get(&hop)?.config.neighbour;
        let peer = self.next_peer(neighbour, class)?;
        let room = max.saturating_sub(BUNDLE_OVERHEAD_BYTES);
        if !self.agent.room(room) {
            self.starved.insert(hop);
            return None;
        }
        let limit = usize::try_from(room).unwrap_or(usize::MAX);
        let payload = self.muxes.get_mut(&peer)?.poll_payload(class, limit)?;
        self.gather_events(peer);
        self.last_sealed.insert(neighbour, peer);
        self.originate(now, peer, class, payload)
    }

    fn next_peer(&self, neighbour: u64, class: Class) -> Option<u64> {
        let peers = self.peers_behind.get(&neighbour)?;
        let last = self.last_sealed.get(&neighbour);
        let start = peers.iter().position(|peer| Some(peer) == last);
        let start = start.map_or(0, |place| place + 1);
        let turn = peers[start..].iter().chain(&peers[..start]);
        let waiting = |peer: &&u64| {
            self.muxes
                .get(peer)
                .is_some_and(|mux| mux.has_pending(class))
        };
        turn.copied().find(|peer| waiting(&peer))
    }

    fn originate(
        &mut self,
        now: Instant,
        peer: u64,
        class: Class,
        payload: Vec<Bytes>,
    ) -> Option<()> {
        let send = bundle::Send {
            destination: bundle::wire::ipn(peer, STREAM_SERVICE),
            service: STREAM_SERVICE,
            class,
            // The pieces are counted references: kept for the case of
            // refusal, which ends the streams whose bytes are in them.
            payload: payload.clone(),
            lifetime: Some(self.config.lifetime),
            custody: true,
            reports: None,
        };
        if self.agent.send(now, send).is_ok() {
            return Some(());
        }
        self.give_up(now, peer, &payload);
        None
    }

    /// A payload will not be delivered: its streams cannot be whole any more.
    pub(crate) fn give_up(&mut self, now: Instant, peer: u64, payload: &[Bytes]) {
        let Some(mux) = self.muxes.get_mut(&peer) else {
            return;
        };
        let whole = Bytes::from(payload.concat());
        if let Err(error) = mux.handle_expired(whole) {
            self.actions.push_back(Action::BadPayload { peer, error });
        }
        self.gather(now, peer);
    }

    fn gather_events(&mut self, peer: u64) {
        if let Some(mux) = self.muxes.get_mut(&peer) {
            while let Some(event) = mux.poll_event() {
                self.actions.push_back(Action::Stream { peer, event });
            }
        }
    }
}
