//! Bundles for other nodes: checked where they come in, and taken by the agent
//! that has their next hop.

use std::time::Instant;

use bp7::administrative_record::RECEIVED_BUNDLE;
use bytes::Bytes;

use super::Agent;
use super::accounts::Purpose;
use super::authority::Forgery;
use super::config::NeighbourId;
use super::event::{BundleId, DeleteReason, Reject};
use super::fixed::FixedParts;
use super::passing::{Message, Owed, Party};
use super::quota::Reservation;
use super::receive::Arrival;
use super::stored::{BlockNumbers, Phase, StoredBundle, WireName, excess_bytes};
use crate::wire::{Bundle, Cteb, MAX_RECORD_BYTES, is_null, write_trailer};

/// A bundle for another node, which may be taken if it is not there already.
pub(super) struct Onward {
    pub stored: StoredBundle,
    pub payload: Vec<Bytes>,
    pub room: Reservation,
    /// The party that waits to hear that it was taken.
    pub owed: Option<Owed>,
}

/// Where a bundle for another node goes.
pub(super) struct Way {
    via: NeighbourId,
    take_custody: bool,
    /// Its hop limit and hop count when it is sent.
    hop_count: Option<(u8, u8)>,
}

/// Why a bundle for another node is not forwarded.
pub(super) enum Stays {
    Forged(Forgery),
    Deleted(DeleteReason),
}

impl Onward {
    pub fn name(&self) -> WireName {
        WireName::of(&self.stored.primary(), self.stored.bytes)
    }
}

impl Agent {
    /// Forwards a bundle for another node: the one with this number, or one of the dtn scheme.
    pub(super) fn relay(
        &mut self,
        now: Instant,
        arrival: Arrival,
        node: Option<u64>,
    ) -> Result<(), Reject> {
        let Way {
            via,
            take_custody,
            hop_count,
        } = match self.way_on(&arrival, node) {
            Ok(way) => way,
            Err(Stays::Forged(forgery)) => return Err(self.forged(&arrival, forgery)),
            Err(Stays::Deleted(reason)) => {
                self.refuse(now, &arrival, reason);
                return Ok(());
            }
        };
        let begins = self.config.served.contains(&arrival.from);
        let asked = arrival.cteb().is_some() || begins;
        let custody = asked && take_custody && self.config.accept_custody;
        let shard = self.sharding.shard_of(via);
        let here = shard == self.sharding.own;
        let owed = self.owed(&arrival).map(|(way, cteb)| Owed {
            shard: self.sharding.own,
            to: Party::Custodian(way, cteb.clone()),
        });
        if here && custody && self.has_custody(&arrival.name(), arrival.cteb()) {
            self.answer_again(now, &arrival.name(), owed);
            return Ok(());
        }
        let Some(room) = self.reserve_to_relay(&arrival, via) else {
            let asked = !here && custody && self.ask(shard, arrival.name(), owed);
            // Nobody should wait for room that never suffices.
            if !self.could_relay(&arrival, via) {
                // If another shard was asked, that tells the custodian.
                if !asked {
                    self.signal(now, &arrival, false);
                }
                let (primary, bytes) = (&arrival.bundle.primary, arrival.bundle.payload_bytes());
                let reason = DeleteReason::DepletedStorage;
                self.tell_refused(now, primary, bytes, arrival.class, reason);
                return Ok(());
            }
            let bytes = counted_bytes(&arrival.bundle);
            if self.owed(&arrival).is_none() || bytes > self.storable(via) {
                return Err(Reject::NoResources);
            }
            // Custody is refused, so that only this bundle is sent later: the neighbour may have
            // others, for which there is room.
            if !asked {
                self.signal(now, &arrival, false);
            }
            return Ok(());
        };
        let onward = Onward {
            stored: stored_of(&arrival, now, via, custody, hop_count),
            payload: vec![arrival.bundle.payload],
            room,
            owed,
        };
        match here {
            true => drop(self.take(now, onward)),
            false => self.pass(shard, Message::Bundle(Box::new(onward))),
        }
        Ok(())
    }

    /// The next hop of a bundle for another node.
    pub(super) fn way_on(&self, arrival: &Arrival, node: Option<u64>) -> Result<Way, Stays> {
        let hop_count = match arrival.bundle.hop_count {
            Some((_, limit, count)) if count >= limit => {
                return Err(Stays::Deleted(DeleteReason::HopLimitExceeded));
            }
            Some((_, limit, count)) => Some((limit, count + 1)),
            None => None,
        };
        if !arrival.bundle.has_room_for_hop_blocks() {
            return Err(Stays::Deleted(DeleteReason::BlockUnintelligible));
        }
        // If the plan's best way leads back, the bundle waits for another way.
        let bytes = arrival.bundle.payload_bytes();
        let by_number = |node| match self.route_of_any(node, bytes) {
            Some((via, _)) if via == arrival.from => self.static_route(node),
            route => route,
        };
        let route = match node {
            Some(node) => by_number(node),
            None => self.named_route(&arrival.bundle.primary.destination),
        };
        match route {
            Some((via, _)) if !self.config.relaying.allows(arrival.from, via) => {
                Err(Stays::Forged(Forgery::Relay))
            }
            // The way it came leads nowhere else.
            Some((via, take_custody)) if via != arrival.from => Ok(Way {
                via,
                take_custody,
                hop_count,
            }),
            _ => Err(Stays::Deleted(DeleteReason::NoRoute)),
        }
    }

    /// Room for a bundle for another node.
    fn reserve_to_relay(&self, arrival: &Arrival, via: NeighbourId) -> Option<Reservation> {
        let (bytes, purpose) = needed_room(&arrival.bundle);
        match purpose {
            Purpose::Emptying => self.usage.reserve(via, bytes, purpose),
            _ => self.reserve(via, bytes),
        }
    }

    /// Whether there could be room for a bundle for another node if nothing else were stored.
    fn could_relay(&self, arrival: &Arrival, via: NeighbourId) -> bool {
        let (bytes, purpose) = needed_room(&arrival.bundle);
        purpose == Purpose::Emptying || self.usage.could_reserve(via, bytes)
    }

    /// Whether there is room for a bundle that goes on this way. A bundle in this agent's custody
    /// needs none: its custodian is only told again.
    pub(super) fn has_room_onward(&self, arrival: &Arrival, way: &Way) -> bool {
        let (bytes, purpose) = needed_room(&arrival.bundle);
        let storable = purpose == Purpose::Emptying || bytes <= self.storable(way.via);
        let has_room = storable && self.usage.has_room_for(way.via, bytes, purpose);
        has_room || self.has_custody(&arrival.name(), arrival.cteb())
    }

    /// Whether this agent has custody of the bundle, or had it and this is the
    /// same custodian's retransmission.
    ///
    /// Having seen the bundle is not enough. If it comes back in a routing loop after another node
    /// took custody, a signal would make that node delete the only copy. So in doubt it is taken
    /// again, and its destination drops the duplicate.
    pub(super) fn has_custody(&self, name: &WireName, cteb: Option<&Cteb>) -> bool {
        if self.by_name.get(&self.bundles, name).is_some() {
            return true;
        }
        let Some(cteb) = cteb else {
            return false;
        };
        self.seen.contains(&name.group, name.sequence)
            && self
                .taken
                .contains(&(cteb.custodian.clone(), cteb.sequence), cteb.number)
    }

    /// Answers a duplicate of a bundle in custody, but not before that is as safe as the store
    /// makes it.
    pub(super) fn answer_again(&mut self, now: Instant, name: &WireName, owed: Option<Owed>) {
        let Some(owed) = owed else {
            return;
        };
        let id = self.by_name.get(&self.bundles, name);
        let phase = id.and_then(|id| Some(self.bundles.get(id)?.phase));
        let uncommitted = id.and_then(|id| self.uncommitted.get_mut(&id));
        match (&owed.to, uncommitted) {
            // A bundle that is safe and stays here may be reported to anyone. But two agents that
            // pass a bundle to each other, since routes have changed twice, must not both forget
            // it.
            (Party::Keeper(_), uncommitted)
                if uncommitted.is_some() || phase == Some(Phase::Passing) =>
            {
                self.settle(now, owed, Err(DeleteReason::DepletedStorage));
            }
            (Party::Asker(..), Some(_)) => {
                self.settle(now, owed, Err(DeleteReason::DepletedStorage));
            }
            // The last sender replaces the one before, but not a waiting agent.
            (Party::Custodian(..), Some(before)) => {
                if let Party::Custodian(..) = before.to {
                    *before = owed;
                }
            }
            _ => self.settle(now, owed, Ok(())),
        }
    }

    /// Stores and queues a bundle. The party that waits for it is told once it is as safe as the
    /// store makes it.
    pub(super) fn take(&mut self, now: Instant, onward: Onward) -> BundleId {
        let name = onward.owed.is_some().then(|| onward.name());
        let Onward {
            stored,
            payload,
            room,
            owed,
        } = onward;
        let custody = stored.custody;
        let kept = matches!(&owed, Some(owed) if matches!(owed.to, Party::Keeper(_)));
        let by_bibe = owed.as_ref().is_some_and(|owed| owed.to.is_told_by_bibe());
        if !kept {
            self.report_on(now, &stored, RECEIVED_BUNDLE, 0);
        }
        let id = self.store_bundle(now, stored, payload, room);
        // Nodes further on know nothing of a BPDU, so its sender is told here, even if no custody
        // is taken on the way.
        let Some(owed) = owed.filter(|_| custody || kept || by_bibe) else {
            return id;
        };
        if let (Party::Custodian(way, cteb), Some(name)) = (&owed.to, name) {
            self.seen.insert(now, way.from, name.group, name.sequence);
            let sequence = (cteb.custodian.clone(), cteb.sequence);
            self.taken.insert(now, way.from, sequence, cteb.number);
        }
        match custody && self.store.is_durable() {
            true => drop(self.uncommitted.insert(id, owed)),
            false => self.settle(now, owed, Ok(())),
        }
        id
    }
}

/// What a bundle counts against the store's quota, as
/// [`StoredBundle::counted_bytes`].
fn counted_bytes(bundle: &Bundle) -> u64 {
    bundle.payload.len() as u64 + excess_bytes(&bundle.primary_raw, &bundle.others)
}

/// The room that a bundle for another node needs, and its purpose. Administrative records may
/// exceed the store's limits, since the signals among them empty stores.
fn needed_room(bundle: &Bundle) -> (u64, Purpose) {
    let bytes = counted_bytes(bundle);
    let record = bundle.is_administrative() && bytes <= MAX_RECORD_BYTES as u64;
    let purpose = match record {
        true => Purpose::Emptying,
        false => Purpose::Bundle,
    };
    (bytes, purpose)
}

fn stored_of(
    arrival: &Arrival,
    now: Instant,
    via: NeighbourId,
    custody: bool,
    hop_count: Option<(u8, u8)>,
) -> StoredBundle {
    let bundle = &arrival.bundle;
    let fixed = FixedParts::new(
        &bundle.primary_raw,
        &bundle.payload_head,
        &write_trailer(&bundle.payload_tail),
    );
    let bytes = bundle.payload_bytes();
    let to = (via, arrival.class);
    // BIBE's custody ends with the BPDU.
    let cteb = bundle.cteb.as_ref().map(|(_, cteb)| cteb.clone());
    StoredBundle {
        others: bundle.others.clone().into(),
        numbers: block_numbers(bundle).into(),
        reports: !is_null(&bundle.primary.report_to),
        hop_count,
        passed_cteb: cteb.filter(|_| !custody).map(Box::new),
        creb: bundle.creb.as_ref().map(|(_, creb)| Box::new(creb.clone())),
        age_ms: arrival.age_ms,
        custody,
        file: bundle.file.clone(),
        ..StoredBundle::new(now, fixed, bytes, to, arrival.expires)
    }
}

/// Blocks that this node rewrites keep their numbers, since security blocks
/// may name them; new ones get free numbers.
fn block_numbers(bundle: &Bundle) -> BlockNumbers {
    let theirs = [
        bundle.previous_node.as_ref().map(|(number, _)| *number),
        bundle.age_ms.map(|(number, _)| number),
        bundle.hop_count.map(|(number, ..)| number),
        bundle.cteb.as_ref().map(|(number, _)| *number),
        bundle.creb.as_ref().map(|(number, _)| *number),
    ];
    let kept = bundle.others.iter().map(|block| block.number);
    let used: Vec<u64> = theirs.iter().flatten().copied().chain(kept).collect();
    let mut free = (2..).filter(|number| !used.contains(number));
    let numbers = theirs.map(|number| number.or_else(|| free.next()).unwrap_or_default());
    numbers.into()
}
