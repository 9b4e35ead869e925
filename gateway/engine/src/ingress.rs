//! What arrives: bundles from neighbours, payloads for streams.

use std::time::Instant;

use underpass_bundle::wire::Bundle;
use underpass_bundle::{self as bundle, Decoded, Decoder, NeighbourId, Opened, Reject, Unopened};
use underpass_cla::{Class, Refusal, SessionId};

use crate::bringing_up::ON_DEMAND_SERVICE;
use crate::engine::{Action, Engine, STREAM_SERVICE};
use crate::hop::HopId;
use crate::leaves::Places;
use crate::link::Sign;

impl Engine {
    /// Decides, when a transfer begins on a session, whether a bundle of `length` bytes may be
    /// taken. Whether it is for this node shows only once it is here. Such a bundle has room where
    /// one to be relayed has none, and so have custody signals, which empty the store.
    ///
    /// # Errors
    /// When there is no room for it in any case.
    pub fn admit(
        &mut self,
        now: Instant,
        id: SessionId,
        length: Option<u64>,
    ) -> Result<(), Refusal> {
        self.peer_uses(now, id);
        let length = length.unwrap_or(0);
        if self.agent.room(length) || self.agent.delivery_room(length) {
            Ok(())
        } else {
            Err(Refusal::NoResources)
        }
    }

    /// The decoder of bundles for this engine, valid as long as the engine lives: others who share
    /// the engine need not wait while a bundle is decoded.
    pub fn decoder(&self) -> Decoder {
        self.agent.decoder()
    }

    /// Judges a long bundle that comes in on a session, by the blocks before its payload.
    ///
    /// # Errors
    /// When it would be deleted, or there is no room for it.
    pub fn judge_long(
        &mut self,
        now: Instant,
        id: SessionId,
        bundle: &Bundle,
    ) -> Result<(), Refusal> {
        let (_, from, class) = self.origin_of(id).ok_or(Refusal::NoResources)?;
        let hears = self.hears_refusals(id);
        match self.agent.judge_long(now, from, class, bundle) {
            // The neighbour would not hear of this refusal. Once the bundle is whole, its custodian
            // does, and so does whoever asked for reports.
            Err(Reject::NoResources) if !hears => Ok(()),
            judged => judged.map_err(Refusal::from),
        }
    }

    /// Whether the peer of a session is told which of its bundles are refused.
    fn hears_refusals(&self, id: SessionId) -> bool {
        let session = self.sessions.get(id);
        session.is_some_and(|session| session.info.hears_refusals)
    }

    fn origin_of(&self, id: SessionId) -> Option<(HopId, NeighbourId, Class)> {
        let session = self.sessions.get(id)?;
        let class = session.info.class.unwrap_or(self.config.default_class);
        let from = NeighbourId(self.hops.get(&session.hop)?.config.neighbour);
        Some((session.hop, from, self.known(class)))
    }

    /// A whole bundle arrived on a session.
    ///
    /// # Errors
    /// When it is malformed or cannot be kept.
    pub fn receive(&mut self, now: Instant, id: SessionId, bundle: Decoded) -> Result<(), Refusal> {
        let hears = self.hears_refusals(id);
        let (id, from, class) = self.origin_of(id).ok_or(Refusal::NoResources)?;
        let hop = self.hops.get_mut(&id).ok_or(Refusal::NoResources)?;
        let bytes = bundle.bytes;
        let ip_bytes = hop.wire.ip_bytes(bytes);
        let outcome = match hears {
            true => self.agent.receive_decoded(now, from, class, bundle),
            false => self.agent.receive_unrefusable(now, from, class, bundle),
        };
        if outcome.is_ok() {
            hop.count_received(class, bytes);
        }
        self.spend(now, id, ip_bytes);
        self.wake(now, id);
        self.came_by = Some(id);
        self.heard(now, id, now, Sign::Session);
        self.after_change(now);
        self.came_by = None;
        outcome.map_err(Refusal::from)
    }

    /// The bundle that a fragment of the last [`Engine::receive`] or [`Engine::take_passed`] has made
    /// whole: see [`Agent::take_unopened`](bundle::Agent::take_unopened).
    pub fn take_unopened(&mut self) -> Option<Unopened> {
        self.agent.take_unopened()
    }

    /// The next bundle on the disk that is to be judged: see
    /// [`Agent::take_unjudged`](bundle::Agent::take_unjudged).
    pub fn take_unjudged(&mut self) -> Option<Unopened> {
        self.agent.take_unjudged()
    }

    /// Takes such a bundle, whose last fragment has come on a session of this engine or another.
    ///
    /// # Errors
    /// When it is malformed or cannot be kept.
    pub fn receive_opened(
        &mut self,
        now: Instant,
        id: Option<SessionId>,
        opened: Opened,
    ) -> Result<(), Refusal> {
        let outcome = self.agent.receive_opened(now, opened);
        // The session may be down by now.
        let origin = id.and_then(|id| self.origin_of(id));
        self.came_by = origin.map(|(hop, ..)| hop);
        self.after_change(now);
        self.came_by = None;
        outcome.map_err(Refusal::from)
    }

    /// Hands on what the bundle node has to say.
    pub(crate) fn drain_agent(&mut self, now: Instant) {
        while let Some(event) = self.agent.poll_event() {
            match event {
                bundle::Event::Deliver(delivery) if delivery.service == STREAM_SERVICE => {
                    self.deliver(now, delivery);
                }
                bundle::Event::Deliver(delivery) if self.is_of_application(delivery.service) => {
                    self.actions.push_back(Action::Application(delivery));
                }
                bundle::Event::Deliver(delivery) if delivery.service == ON_DEMAND_SERVICE => {
                    if !self.take_need(now, &delivery) && !self.take_missing(now, &delivery) {
                        let unclaimed = bundle::Event::Deliver(delivery);
                        self.actions.push_back(Action::Bundle(unclaimed));
                    }
                }
                bundle::Event::Deliver(delivery) => self.deliver_message(delivery),
                bundle::Event::Restored {
                    id,
                    destination,
                    service: STREAM_SERVICE,
                    label,
                    note,
                } => match note {
                    Some(note) => self.restore_withheld(id, &destination, label, note),
                    // No stream of this run has bytes in it.
                    None => self.agent.set_restored(id),
                },
                bundle::Event::GivenUp {
                    id,
                    destination,
                    payload,
                    ..
                } => {
                    self.forget_withheld(id);
                    self.is_acknowledged(id);
                    if let Some((peer, STREAM_SERVICE)) = bundle::wire::ipn_parts(&destination) {
                        self.give_up(peer, &payload);
                    }
                }
                bundle::Event::Woken { neighbour, class } => {
                    let place =
                        class.and_then(|class| self.classes.iter().position(|c| *c == class));
                    let places = place.map_or(Places::MAX, |place| 1 << place);
                    self.leaves_to_changed(neighbour.0, places);
                    if class.is_none() {
                        self.may_have_room(neighbour.0);
                    }
                }
                bundle::Event::Released { id, .. } => self.is_acknowledged(id),
                bundle::Event::Passed { shard, passed } => {
                    self.actions.push_back(Action::Passed { shard, passed });
                }
                // Each engine of the node is told; one tells it on.
                bundle::Event::StoreStalled(_) | bundle::Event::StoreResumed
                    if self.sharding.own > 0 => {}
                other => self.actions.push_back(Action::Bundle(other)),
            }
        }
        self.forget_unwanted(now);
    }

    fn deliver(&mut self, now: Instant, delivery: bundle::Delivery) {
        let Some((peer, _)) = bundle::wire::ipn_parts(&delivery.source) else {
            return;
        };
        let class = delivery.class;
        // Only configured nodes have streams here, and not this one with itself.
        let other = delivery.from.is_some();
        if !self.meet(peer) || !other {
            let unclaimed = bundle::Event::Deliver(delivery);
            self.actions.push_back(Action::Bundle(unclaimed));
            return;
        }
        let payload = delivery.payload;
        let taken =
            self.change_streams(peer, |streams| streams.handle_payload(now, class, payload));
        if let Some(Err(error)) = taken {
            self.actions.push_back(Action::BadPayload { peer, error });
        }
        self.heed_limits(now, peer);
        self.ask_about_withheld(now, peer);
    }
}
