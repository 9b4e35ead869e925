//! Queries of the whole node: combined from all shards, in the order and up to the limit of a node
//! with one shard.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use underpass_bundle::{BundleId, BundleInfo, CustodyFigures, NeighbourFigures, NeighbourId};
use underpass_cla::Class;
use underpass_engine::{
    Engine, HopId, HopSnapshot, MeterSnapshot, PlanSnapshot, StreamKey, StreamTotals,
    TunnelSnapshot,
};
use underpass_plans::{Direction, Plan, Refused};
use underpass_streams::{Counters, Epoch, StreamInfo};

use super::{PORTION, Shell, timer};

/// A stream as operators see it.
#[derive(Clone, Debug)]
pub struct ListedStream {
    /// Which run of the peer it is with.
    pub epoch: Epoch,
    pub info: StreamInfo,
    /// Where it leads, as long as an edge task has it.
    pub target: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct PeerStreams {
    pub open: usize,
    /// The streams that have carried most bytes, the largest first.
    pub largest: Vec<ListedStream>,
    /// The paths that the bytes of each class may use now.
    pub paths: BTreeMap<Class, Vec<String>>,
}

/// What the shell has seen in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Bundles deleted without having been delivered or forwarded.
    pub deleted_bundles: u64,
    /// Payloads that were no frames.
    pub bad_payloads: u64,
    pub refused_bundles: u64,
    /// Of these, bundles that claim what their neighbour may not claim.
    pub forged_bundles: u64,
    /// Streams of peers refused because they name clients that are not the peer's.
    pub foreign_clients: u64,
}

impl Shell {
    /// The result of `look` for each hop, in order. The engines are released between portions, so
    /// that many hops delay nobody.
    pub fn of_each_hop<R>(&self, look: impl Fn(&Engine, HopSnapshot) -> R) -> Vec<R> {
        let mut seen = Vec::new();
        for (shard, portion) in self.portions_of_hops() {
            let inner = self.lock(shard);
            let hops = portion.iter().filter_map(|id| inner.engine.hop(*id));
            seen.extend(hops.map(|hop| (hop.id, look(&inner.engine, hop))));
        }
        seen.sort_by_key(|(id, _)| *id);
        seen.into_iter().map(|(_, of_hop)| of_hop).collect()
    }

    /// Every metered hop, with its path's or terminal's name.
    pub fn meters(&self) -> Vec<(HopId, String, MeterSnapshot)> {
        self.read_each(Engine::meters)
            .into_iter()
            .flatten()
            .collect()
    }

    /// Every hop; as [`Shell::of_each_hop`].
    pub fn hops(&self) -> Vec<HopSnapshot> {
        self.of_each_hop(|_, hop| hop)
    }

    /// The hops of each shard, in portions that are visited under one lock.
    pub(super) fn portions_of_hops(&self) -> Vec<(usize, Vec<HopId>)> {
        let each = self.read_each(Engine::hop_ids).into_iter().enumerate();
        let portions = each.flat_map(|(shard, hops)| {
            let portions = hops
                .chunks(PORTION)
                .map(|portion| (shard, portion.to_vec()));
            portions.collect::<Vec<_>>()
        });
        portions.collect()
    }

    /// Counts of streams and their bytes, by class. The engines are released between portions of
    /// the peers.
    pub fn stream_totals(&self) -> Vec<(Class, StreamTotals)> {
        let mut totals = self.read_any(|engine| engine.stream_totals(&[]));
        for shard in self.numbers() {
            let peers = self.lock(shard).engine.peers();
            for portion in peers.chunks(PORTION) {
                let of_portion = self.lock(shard).engine.stream_totals(portion);
                for ((_, total), (_, more)) in totals.iter_mut().zip(of_portion) {
                    total.add(&more);
                }
            }
        }
        totals
    }

    /// What became of all streams since the start.
    pub fn stream_events(&self) -> Counters {
        let mut sums = Counters::default();
        for events in self.read_each(Engine::stream_events) {
            sums.absorb(&events);
        }
        sums
    }

    /// Streams with their peers and the peers' runs, in no order, at most `limit`.
    pub fn streams(&self, limit: usize) -> Vec<(u64, Epoch, StreamInfo)> {
        let mut streams = Vec::new();
        for shard in self.numbers() {
            let left = limit - streams.len();
            streams.extend(self.lock(shard).engine.streams(left));
        }
        streams
    }

    /// The streams with a node that have carried most, the largest first, at most `limit`. Visits
    /// one shard, and no other node's streams.
    pub fn streams_with(&self, peer: u64, limit: usize) -> PeerStreams {
        let shard = self.directory().of_peer(peer);
        let now = timer::now();
        let inner = self.lock(shard);
        let (open, largest) = inner.engine.largest_streams(peer, limit);
        let mut paths = BTreeMap::new();
        for (_, info) in &largest {
            let to = || inner.engine.paths_to(now, peer, info.queue);
            paths.entry(info.queue).or_insert_with(to);
        }
        let listed = largest.into_iter().map(|(epoch, info)| {
            let id = info.id;
            let target = inner.streams.target(StreamKey { peer, epoch, id });
            ListedStream {
                epoch,
                info,
                target: target.map(str::to_owned),
            }
        });
        PeerStreams {
            open,
            largest: listed.collect(),
            paths,
        }
    }

    /// Where streams lead, in their order; none for those that no edge task has.
    pub fn targets(&self, keys: impl IntoIterator<Item = StreamKey>) -> Vec<Option<String>> {
        let target = |key: StreamKey| {
            let shard = self.directory().of_peer(key.peer);
            let inner = self.lock(shard);
            inner.streams.target(key).map(str::to_owned)
        };
        keys.into_iter().map(target).collect()
    }

    /// The oldest bundles in the store, oldest first, at most `limit`.
    pub fn stored_bundles(&self, now: Instant, limit: usize) -> Vec<BundleInfo> {
        let each = self.read_each(|engine| engine.stored_bundles(now, limit));
        let mut bundles: Vec<BundleInfo> = each.into_iter().flatten().collect();
        // The node numbers bundles as they come.
        bundles.sort_by_key(|bundle| bundle.id);
        bundles.truncate(limit);
        bundles
    }

    /// The store's figures.
    pub fn custody(&self, now: Instant) -> CustodyFigures {
        let each = self.read_each(|engine| engine.custody(now)).into_iter();
        each.fold(CustodyFigures::default(), sum_of)
    }

    /// What waits in the store for each neighbour.
    pub fn custody_by_neighbour(&self) -> BTreeMap<NeighbourId, NeighbourFigures> {
        let each = self.read_each(Engine::custody_by_neighbour);
        each.into_iter().flatten().collect()
    }

    /// Whether this node still has a bundle: it has not been released.
    pub fn has_bundle(&self, id: BundleId) -> bool {
        let mut each = self.numbers();
        each.any(|shard| self.lock(shard).engine.has_bundle(id))
    }

    /// Deletes a stored bundle; streams of this node whose bytes are in it are reset. Returns
    /// whether there was such a bundle.
    pub fn cancel(&self, id: BundleId) -> bool {
        let mut each = self.numbers();
        each.any(|shard| self.cancel_at(shard, id))
    }

    pub(super) fn cancel_at(&self, shard: usize, id: BundleId) -> bool {
        self.with_inner(shard, |inner, now| inner.engine.cancel(now, id))
    }

    /// The plans of each link on which this node sends.
    pub fn plans(&self, now: Instant) -> Vec<PlanSnapshot> {
        let each = self.read_each(|engine| engine.plans(now));
        let (mut forward, mut paths): (Option<PlanSnapshot>, Vec<PlanSnapshot>) = (None, vec![]);
        for plan in each.into_iter().flatten() {
            // Every shard follows the forward link's plan, for its own hops.
            match &mut forward {
                _ if link_of(&plan) == Some(Direction::Return) => paths.push(plan),
                Some(forward) => forward.hops.extend(plan.hops),
                none => *none = Some(plan),
            }
        }
        if let Some(forward) = &mut forward {
            forward.hops.sort_unstable();
        }
        paths.sort_by(|one, other| one.hops.cmp(&other.hops));
        forward.into_iter().chain(paths).collect()
    }

    /// Takes a plan of the beam's forward link: every shard follows it for its
    /// own hops.
    ///
    /// # Errors
    /// When it is not newer than the present one, or not for this node's link and beam. No shard
    /// follows it then: what the first one takes, the others take, too.
    pub fn follow_forward(&self, plan: &Arc<Plan>) -> Result<(), Refused> {
        let mut each = self.numbers();
        each.try_for_each(|shard| {
            self.with_inner(shard, |inner, now| {
                inner.engine.follow_forward(now, plan.clone())
            })
        })
    }

    /// The present path of each class that moves between paths.
    pub fn tunnels(&self) -> Vec<TunnelSnapshot> {
        let each = self.read_each(Engine::tunnels);
        each.into_iter().flatten().collect()
    }

    /// What the shell has seen in all.
    pub fn counts(&self) -> Counts {
        let mut sums = Counts::default();
        for shard in self.numbers() {
            let counts = self.lock(shard).counts;
            sums.deleted_bundles += counts.deleted_bundles;
            sums.bad_payloads += counts.bad_payloads;
            sums.refused_bundles += counts.refused_bundles;
            sums.forged_bundles += counts.forged_bundles;
            sums.foreign_clients += counts.foreign_clients;
        }
        sums
    }

    /// A stream of `peer` is refused because it names a client that is not the peer's.
    pub fn count_foreign_client(&self, peer: u64) {
        let shard = self.directory().of_peer(peer);
        self.lock(shard).counts.foreign_clients += 1;
    }
}

fn sum_of(mut sum: CustodyFigures, more: CustodyFigures) -> CustodyFigures {
    sum.used_bytes += more.used_bytes;
    sum.undelivered_bytes += more.undelivered_bytes;
    sum.bundles += more.bundles;
    for (class, more) in more.classes {
        let sum = sum.classes.entry(class).or_default();
        sum.bundles += more.bundles;
        sum.bytes += more.bytes;
        sum.custody_bundles += more.custody_bundles;
        sum.custody_bytes += more.custody_bytes;
        sum.oldest = sum.oldest.max(more.oldest);
    }
    sum
}

fn link_of(plan: &PlanSnapshot) -> Option<Direction> {
    let newest = plan.next.as_ref().or(plan.current.as_ref());
    newest.map(|plan| plan.link())
}
