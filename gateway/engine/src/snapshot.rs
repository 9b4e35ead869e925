//! What operators may see of an engine.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use underpass_bundle::NeighbourId;
use underpass_cla::{Class, SessionId};
use underpass_streams::{Counters, Epoch, StreamInfo, StreamState, class_of};
use underpass_work::each;

use crate::budget::{Meter, MeterSnapshot};
use crate::engine::Engine;
use crate::hop::{Hop, HopId, HopTraffic};
use crate::links::LinkSnapshot;
use crate::measured::MeasuredLink;
use crate::on_demand::OnDemandSnapshot;
use crate::planned::HopPlan;

/// A hop at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HopSnapshot {
    /// Its number.
    pub id: HopId,
    /// The path's or terminal's name.
    pub name: String,
    /// The neighbour's ipn node number.
    pub neighbour: u64,
    /// Whether any session is up.
    pub up: bool,
    /// Whether sending is blocked.
    pub blocked: bool,
    /// Whether bundles are sent by it; else it only receives.
    pub sends: bool,
    /// What is known of the link.
    pub link: LinkSnapshot,
    /// Rate from this node that is in force, bit/s of IP bytes; `None` is
    /// unlimited.
    pub send_rate_bps: Option<u64>,
    /// What the link was measured to carry.
    pub measured: MeasuredLink,
    /// Bits per unit of the beam's capacity in the present MODCOD, as its modem says.
    pub efficiency: Option<f64>,
    /// Whether an operator has set it, over plan and configuration.
    pub rate_by_operator: bool,
    /// What plans give it, if one has named it.
    pub plan: Option<HopPlan>,
    /// Traffic that the scheduler does not send, and that is subtracted from the rate, bit/s.
    pub subtracted_bps: u64,
    /// The sessions.
    pub sessions: Vec<SessionSnapshot>,
    /// Bundles since the start, for each class in turn.
    pub traffic: Vec<HopTraffic>,
    /// What was spent on it, if its bytes are paid for.
    pub meter: Option<MeterSnapshot>,
    /// Whether it is up, if not always.
    pub on_demand: Option<OnDemandSnapshot>,
}

/// A session at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSnapshot {
    /// Its number.
    pub id: u64,
    /// Its class; `None` carries all.
    pub class: Option<u8>,
    /// Whether it was set up as a standby.
    pub standby: bool,
    /// Whether it carries its class at present.
    pub carrying: bool,
    /// Whether only the peer sends by it.
    pub receives_only: bool,
    /// Remote address.
    pub remote: String,
    /// Whether TLS authenticates the peer.
    pub tls: bool,
    /// The convergence layer.
    pub convergence_layer: &'static str,
    /// Congestion control in use.
    pub congestion_control: String,
}

/// Where a session belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionPlace {
    /// The hop it runs on.
    pub hop: HopId,
    /// Its class; `None` carries all.
    pub class: Option<Class>,
    /// The size of one of its ACKs on the hop, IP bytes.
    pub ack_bytes: u64,
    /// The same of one of its keepalives.
    pub keepalive_bytes: u64,
}

/// Streams of one class in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTotals {
    /// Streams with both directions open.
    pub open: u64,
    /// Streams with one direction ended.
    pub half_closed: u64,
    /// Streams closed here whose peer has not confirmed everything.
    pub draining: u64,
    /// Bytes sealed in all.
    pub sent_bytes: u64,
    /// Bytes received in all.
    pub received_bytes: u64,
    /// Bytes that wait to be sealed.
    pub backlog_bytes: u64,
}

impl StreamTotals {
    /// Adds other streams.
    pub fn add(&mut self, other: &StreamTotals) {
        self.open += other.open;
        self.half_closed += other.half_closed;
        self.draining += other.draining;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.backlog_bytes += other.backlog_bytes;
    }
}

/// What streams demand of a hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopDemand {
    /// Bytes that applications have written for it since the start.
    pub offered_bytes: u64,
    /// The part of them that waits here: not sealed, or sealed and not handed on.
    pub backlogged_bytes: u64,
    /// Streams that have not ended.
    pub streams: u64,
}

/// What streams of one class demand of a hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassDemand {
    /// Bytes that wait here to be sealed.
    pub backlogged_bytes: u64,
    /// Streams that have not ended; `None` if there are too many to be counted
    /// each second.
    pub streams: Option<u64>,
}

/// At most this many streams behind a hop are counted by class; with a node at most this many are
/// searched for the largest.
const MOST_COUNTED: usize = 4_096;

impl Engine {
    /// What became of all streams since the start.
    pub fn stream_events(&self) -> Counters {
        let mut sums = Counters::default();
        for (_, streams) in self.peers.iter() {
            sums.absorb(&streams.counters());
        }
        sums
    }

    /// What the streams that a hop leads to demand of it; of several hops to one neighbour, of all
    /// together. What waits and may not go by it at present is not part of its backlog: capacity
    /// that a plan gave the hop for that would go unused.
    pub fn demand(&self, id: HopId) -> HopDemand {
        let mut demand = HopDemand::default();
        let Some(hop) = self.hops.get(&id) else {
            return demand;
        };
        let neighbour = hop.config.neighbour;
        let may_go = |class: &Class| self.place_on(hop, *class).is_some();
        for peer in self.peers_behind(neighbour) {
            let Some(streams) = self.peers.get(peer) else {
                continue;
            };
            demand.streams += streams.stream_count() as u64;
            demand.offered_bytes += streams.counters().sent_bytes.iter().sum::<u64>();
            for class in &self.classes {
                let waiting = streams.backlog(*class).bytes;
                demand.offered_bytes += waiting;
                if may_go(class) {
                    demand.backlogged_bytes += waiting;
                }
            }
        }
        let to = NeighbourId(neighbour);
        let sealed = self
            .classes
            .iter()
            .filter(|class| may_go(class))
            .map(|class| self.agent.backlog_bytes(to, *class));
        demand.backlogged_bytes += sealed.sum::<u64>();
        demand
    }

    /// The same for each class in turn, without sealed bytes.
    pub fn demand_by_class(&self, id: HopId) -> Vec<(Class, ClassDemand)> {
        let neighbour = self.hops.get(&id).map(|hop| hop.config.neighbour);
        let peers = neighbour.map_or_else(Vec::new, |node| self.peers_behind(node));
        let peers: Vec<_> = peers.iter().filter_map(|of| self.peers.get(*of)).collect();
        let count: usize = peers.iter().map(|streams| streams.stream_count()).sum();
        let mut counts = (count <= MOST_COUNTED).then(BTreeMap::<Class, u64>::new);
        if let Some(counts) = &mut counts {
            for (_, stream) in peers.iter().flat_map(|streams| streams.streams()) {
                *counts.entry(stream.class).or_default() += 1;
            }
        }
        let demand = |class: Class| ClassDemand {
            backlogged_bytes: peers.iter().map(|of| of.backlog(class).bytes).sum(),
            streams: counts
                .as_ref()
                .map(|counts| counts.get(&class).copied().unwrap_or(0)),
        };
        self.classes.iter().map(|of| (*of, demand(*of))).collect()
    }

    /// Where a session belongs.
    pub fn session_place(&self, id: SessionId) -> Option<SessionPlace> {
        let session = self.sessions.get(id)?;
        let hop = self.hops.get(&session.hop)?;
        Some(SessionPlace {
            hop: session.hop,
            class: session.info.class,
            ack_bytes: hop.wire.ack_bytes(),
            keepalive_bytes: hop.wire.keepalive_bytes(),
        })
    }

    /// The number of hops.
    pub fn hop_count(&self) -> usize {
        self.hops.len()
    }

    /// The sessions of a hop.
    pub fn sessions_of(&self, id: HopId) -> Vec<SessionId> {
        let hop = self.hops.get(&id);
        each(hop.into_iter().flat_map(Hop::all_sessions)).collect()
    }

    /// All hops. Where there may be many, take one after the other from [`Engine::hop`].
    pub fn hops(&self) -> Vec<HopSnapshot> {
        let ids = each(self.hops.keys());
        ids.filter_map(|id| self.hop(*id)).collect()
    }

    /// A hop.
    pub fn hop(&self, id: HopId) -> Option<HopSnapshot> {
        let hop = self.hops.get(&id)?;
        let sessions = each(hop.all_sessions());
        Some(HopSnapshot {
            id,
            name: hop.config.name.clone(),
            neighbour: hop.config.neighbour,
            up: hop.is_up(),
            blocked: hop.blocked,
            link: hop.link.snapshot(),
            send_rate_bps: hop.rate_bps(),
            measured: hop.measured,
            efficiency: hop.efficiency,
            sends: hop.config.sends,
            rate_by_operator: hop.by_operator.is_some(),
            plan: self.hop_plan(hop),
            subtracted_bps: hop.subtracted_bps,
            sessions: sessions.filter_map(|id| self.session(id)).collect(),
            traffic: hop.traffic.clone(),
            meter: hop.meter.as_ref().map(Meter::snapshot),
            on_demand: hop.presence.as_ref().map(|of| of.snapshot(hop.is_up())),
        })
    }

    fn session(&self, id: SessionId) -> Option<SessionSnapshot> {
        let session = self.sessions.get(id)?;
        let hop = self.hops.get(&session.hop)?;
        let carrying = match session.info.class {
            Some(class) => hop.carrier(class) == Some(id),
            None => self.classes.iter().any(|c| hop.carrier(*c) == Some(id)),
        };
        Some(SessionSnapshot {
            id: id.0,
            class: session.info.class.map(|class| class.0),
            standby: session.info.standby,
            carrying,
            receives_only: session.info.receives_only,
            remote: session.info.remote.to_string(),
            tls: session.info.tls,
            convergence_layer: session.info.convergence_layer,
            congestion_control: session.info.congestion_control.clone(),
        })
    }

    /// All streams with their peers and the runs of these, in no order, at
    /// most `limit`.
    pub fn streams(&self, limit: usize) -> Vec<(u64, Epoch, StreamInfo)> {
        self.peers
            .iter()
            .flat_map(|(peer, streams)| {
                let streams = streams.streams();
                streams.map(move |(epoch, info)| (peer, epoch, info))
            })
            .take(limit)
            .collect()
    }

    /// The number of streams with a node, and at most `limit` of those that have carried most bytes
    /// both ways, the largest first. Of more than 4,096 streams only so many are looked at.
    pub fn largest_streams(&self, peer: u64, limit: usize) -> (usize, Vec<(Epoch, StreamInfo)>) {
        let Some(streams) = self.peers.get(peer) else {
            return (0, Vec::new());
        };
        let mut largest: Vec<_> = each(streams.streams()).take(MOST_COUNTED).collect();
        largest.sort_unstable_by_key(|(_, info)| {
            std::cmp::Reverse(info.sent_bytes.saturating_add(info.read_bytes))
        });
        largest.truncate(limit);
        (streams.stream_count(), largest)
    }

    /// The paths by which a queue of streams may be sent to a node now. For a lane it is the one
    /// that was chosen for its flows, or the others while that one cannot carry. Empty while all
    /// are down or blocked.
    pub fn paths_to(&self, now: Instant, peer: u64, queue: Class) -> Vec<String> {
        let neighbour = self.neighbour_to(peer);
        let mut hops = self.candidates(now, neighbour, class_of(queue));
        let chosen = self.hop_of_lane(neighbour, queue);
        if hops.iter().any(|hop| Some(hop.id) == chosen) {
            hops.retain(|hop| Some(hop.id) == chosen);
        }
        let names = hops.iter().filter_map(|hop| self.hop_name(hop.id));
        names.map(str::to_owned).collect()
    }

    /// The nodes that streams lead to.
    pub fn peers(&self) -> Vec<u64> {
        self.peers.numbers()
    }

    /// Streams with these nodes and their bytes in numbers, for each class in
    /// turn.
    pub fn stream_totals(&self, peers: &[u64]) -> Vec<(Class, StreamTotals)> {
        let mut totals: Vec<_> = self
            .classes
            .iter()
            .map(|class| (*class, StreamTotals::default()))
            .collect();
        for streams in peers.iter().filter_map(|peer| self.peers.get(*peer)) {
            for (_, info) in streams.streams() {
                let place = totals.iter_mut().find(|(class, _)| *class == info.class);
                if let Some((_, total)) = place {
                    match info.state {
                        StreamState::Early | StreamState::Open => total.open += 1,
                        StreamState::HalfClosedLocal | StreamState::HalfClosedRemote => {
                            total.half_closed += 1;
                        }
                        StreamState::Draining => total.draining += 1,
                    }
                }
            }
            let counters = streams.counters();
            for (class, total) in &mut totals {
                let place = usize::from(class.0);
                total.sent_bytes += counters.sent_bytes.get(place).copied().unwrap_or(0);
                total.received_bytes += counters.received_bytes.get(place).copied().unwrap_or(0);
                total.backlog_bytes += streams.backlog(*class).bytes;
            }
        }
        totals
    }
}
