//! The state of a node that one process hands over to the next, make before break.
//!
//! Streams and custody go on where they were: the run of the node is the same, and a peer only sees
//! some sessions end while others are up. Sessions stay behind, since their encryption cannot move;
//! what was offered to them and is not acknowledged is sent again. Inputs from outside, such as
//! plans, operators' rates and the state of links, are given to the next process anew.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use underpass_bundle::{AgentState, BundleId, NeighbourId, Store};
use underpass_cla::{SessionId, SessionInfo};
use underpass_handover::{HandoverError, ensure};
use underpass_streams::{Config, Epoch, Peer, PeerState, Side, StreamId};

use crate::ahead::ReadAhead;
use crate::config::EngineConfig;
use crate::engine::{Engine, EngineError};
use crate::hop::HopId;
use crate::restored::RestoredState;
use crate::shards::NodeParts;
use crate::streams::StreamKey;

const UPGRADED: &str = "another process goes on for this node";

/// A whole node, to be read and written by serde.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeState {
    node: u64,
    incarnation: u64,
    shards: Vec<EngineState>,
}

#[derive(Debug, Serialize, Deserialize)]
struct EngineState {
    agent: AgentState,
    /// By the other edge node's number.
    peers: Vec<(u64, PeerState)>,
    /// Bundles that no custodian has acknowledged, with their peer, its epoch
    /// and the streams, each as often as it was counted.
    carried: Vec<(u64, u64, u64, Vec<u64>)>,
    /// Peer, epoch, stream, and its bundles that are withheld, in order.
    withheld: Vec<(u64, u64, u64, Vec<u64>)>,
    restored: RestoredState,
}

/// Why a node was not taken over.
#[derive(Debug, Error)]
pub enum TakeOverError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The state does not fit it, or contradicts itself.
    #[error(transparent)]
    State(#[from] HandoverError),
}

impl NodeState {
    /// Into how many engines the node is divided.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The run of the node, which goes on.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }
}

impl Engine {
    /// Takes back what was offered to sessions, and ends them; the next process has its own.
    /// Nothing more is sent until [`Engine::hand_over`], unless a session comes up: then all goes
    /// on as before.
    pub fn end_sessions(&mut self, now: Instant) {
        for id in self.hop_ids() {
            let sessions: Vec<_> = self.hops[&id].all_sessions().collect();
            for session in sessions {
                self.give_up_session(now, session, UPGRADED);
                self.sessions.remove(session);
            }
        }
        let neighbours: Vec<u64> = self.ways.neighbours().collect();
        for neighbour in neighbours {
            self.agent.neighbour_down(now, NeighbourId(neighbour));
        }
        self.after_change(now);
    }

    /// Ends the standby sessions of a hop in whose place the next process can take others: a peer
    /// that dials sets them up. Returns how many classes had any. A peer that is blocked cannot
    /// dial, and keeps its standbys.
    pub fn end_standbys(
        &mut self,
        now: Instant,
        hop: HopId,
        can_take: impl Fn(&SessionInfo) -> bool,
    ) -> usize {
        let Some(hop) = self.hops.get(&hop).filter(|hop| !hop.blocked) else {
            return 0;
        };
        let ends = |id: &&SessionId| {
            let session = self.sessions.get(**id);
            session.is_some_and(|session| can_take(&session.info))
        };
        let standbys = hop.sessions.iter().map(|set| {
            let waiting = set.iter().skip(1).filter(ends);
            waiting.copied().collect::<Vec<SessionId>>()
        });
        let standbys: Vec<_> = standbys.filter(|waiting| !waiting.is_empty()).collect();
        for session in standbys.iter().flatten() {
            self.give_up_session(now, *session, UPGRADED);
        }
        self.after_change(now);
        standbys.len()
    }

    /// How many classes of a hop have a session of their own, and one more if there is a session
    /// without a class; 0 while the hop is blocked, since nobody can set up another session.
    pub fn carried_classes(&self, hop: HopId) -> usize {
        let Some(open) = self.hops.get(&hop).filter(|hop| !hop.blocked) else {
            return 0;
        };
        let own = open.sessions.iter().filter(|set| !set.is_empty()).count();
        own + usize::from(!open.classless.is_empty())
    }

    /// What prevents a handover of the engine for long, if anything does.
    pub fn lasting_obstacle(&self) -> Option<&'static str> {
        self.agent.lasting_obstacle()
    }

    /// What prevents a handover of the node at this moment, if anything does: sessions, actions
    /// that nobody has taken, something under way between shards, or data that is not on the disk
    /// yet.
    pub fn handover_obstacle(&self) -> Option<&'static str> {
        if !self.actions.is_empty() {
            Some("there is something to be done outside")
        } else if self
            .hops
            .values()
            .any(|hop| hop.all_sessions().next().is_some())
        {
            Some("sessions are up")
        } else {
            self.agent.handover_obstacle()
        }
    }

    /// Hands all engines of a node over to another process of the same run, or back to this one if
    /// that does not come up. No engine may have an obstacle ([`Engine::handover_obstacle`]). The
    /// next process finds durable bundles on the disk.
    pub fn hand_over(now: Instant, engines: Vec<Engine>) -> NodeState {
        let first = engines.first().map(|engine| &engine.config);
        NodeState {
            node: first.map_or(0, |config| config.node),
            incarnation: first.map_or(0, |config| config.incarnation),
            shards: engines
                .into_iter()
                .map(|engine| engine.into_state(now))
                .collect(),
        }
    }

    fn into_state(self, now: Instant) -> EngineState {
        debug_assert_eq!(self.handover_obstacle(), None);
        // Without `..`, so that a new field has to be considered here.
        let Engine {
            agent,
            peers,
            carried,
            ahead,
            restored,
            // The next process has its own.
            config: _,
            scheduler: _,
            hops: _,
            classes: _,
            ways: _,
            sharding: _,
            came_by: _,
            // No session is left.
            sessions: _,
            actions: _,
            // Told to the next process too.
            utc: _,
            beam: _,
            beam_by_operator: _,
            beam_rate_bps: _,
            beam_allowed_bps: _,
            beam_measured_bps: _,
            // Found anew.
            changed: _,
            starved: _,
            last_fed: _,
            unchanged: _,
            link_times: _,
            feed_at: _,
            wake_at: _,
            asked: _,
            ask_at: _,
            steering: _,
            on_demand: _,
            completing: _,
            without_room: _,
        } = self;
        let carried: BTreeMap<_, _> = carried.into_iter().collect();
        let carried = carried.into_iter().map(|(bundle, (peer, epoch, ids))| {
            let ids = ids.into_iter().map(|id| id.0).collect();
            (bundle.0, peer, epoch.0, ids)
        });
        let withheld = ahead.into_withheld().into_iter();
        let withheld = withheld.map(|(key, bundles)| {
            let bundles = bundles.into_iter().map(|bundle| bundle.0).collect();
            (key.peer, key.epoch.0, key.id.0, bundles)
        });
        let peers = peers.into_streams().into_iter();
        EngineState {
            carried: carried.collect(),
            withheld: withheld.collect(),
            peers: peers
                .map(|(peer, streams)| (peer, streams.hand_over(now)))
                .collect(),
            restored: restored.hand_over(),
            agent: agent.hand_over(now),
        }
    }

    /// The engines of a node that the process before has handed over, one for each store, as many
    /// as it had ([`NodeState::shards`]). The run and nonce of `config` are replaced by those of
    /// the state; its routes have to lead by the same shards.
    ///
    /// # Errors
    /// When the configuration contradicts itself, or the state itself, the
    /// configuration or the stores.
    pub fn take_over(
        now: Instant,
        config: &EngineConfig,
        stores: Vec<Box<dyn Store>>,
        state: NodeState,
    ) -> Result<Vec<Engine>, TakeOverError> {
        ensure(state.node == config.node, "it is another node's")?;
        let is_like = stores.len() == state.shards.len();
        ensure(is_like, "there are more or fewer shards")?;
        let mut config = config.clone();
        config.incarnation = state.incarnation;
        if let Some(shard) = state.shards.first() {
            config.agent.run_nonce = shard.agent.run_nonce();
        }
        // All engines are made before any is used.
        let mut engines = NodeParts::engines(now, &config, stores)?;
        for (engine, state) in engines.iter_mut().zip(state.shards) {
            engine.take_state_over(now, state)?;
        }
        for engine in &mut engines {
            engine.after_change(now);
        }
        Ok(engines)
    }

    fn take_state_over(&mut self, now: Instant, state: EngineState) -> Result<(), HandoverError> {
        self.agent.take_over(now, state.agent)?;
        for (peer, streams) in state.peers {
            self.take_peer_over(now, peer, streams)?;
        }
        for (bundle, peer, epoch, ids) in state.carried {
            let ids = ids.into_iter().map(StreamId).collect();
            let bundle = self.taken_over(bundle)?;
            self.carries(bundle, (peer, Epoch(epoch), ids));
        }
        let mut withheld = BTreeMap::new();
        for (peer, epoch, id, bundles) in state.withheld {
            let (epoch, id) = (Epoch(epoch), StreamId(id));
            let bundles = bundles.into_iter().map(|bundle| self.taken_over(bundle));
            let bundles = bundles.collect::<Result<_, _>>()?;
            withheld.insert(StreamKey { peer, epoch, id }, bundles);
        }
        self.ahead = ReadAhead::of_withheld(withheld);
        let agent = &self.agent;
        self.restored
            .take_over(state.restored, |bundle| agent.has_bundle(bundle))
    }

    /// A bundle that the state names.
    fn taken_over(&self, bundle: u64) -> Result<BundleId, HandoverError> {
        let bundle = BundleId(bundle);
        ensure(self.agent.has_bundle(bundle), "a bundle is missing")?;
        Ok(bundle)
    }

    fn take_peer_over(
        &mut self,
        now: Instant,
        peer: u64,
        state: PeerState,
    ) -> Result<(), HandoverError> {
        ensure(!self.peers.contains(peer), "a peer is there twice")?;
        let neighbour = self.neighbour_to(peer);
        // No way leads there at present, but one may again.
        let unreached = Config {
            max_streams: self.config.max_streams,
            bundle_lifetime: self.config.lifetime,
            ..Config::default()
        };
        let config = self.stream_config_to(neighbour).unwrap_or(unreached);
        let side = Side::of(self.config.node, peer);
        let mut streams = Peer::take_over(config, side, now, state)?;
        streams.set_announcement(self.config.reaches);
        self.peers.insert(peer, neighbour, streams);
        self.ways.add_peer(peer);
        self.change_streams(peer, |_| ());
        Ok(())
    }
}
