//! The engine's state, its making, and its time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use thiserror::Error;
use underpass_bundle::wire::Eid;
use underpass_bundle::{
    self as bundle, Agent, BundleId, BundleInfo, CustodyFigures, MemoryStore, NeighbourFigures,
    NeighbourId, Passed, Sharding, Store,
};
use underpass_cla::{Class, SessionId, Transfer};
use underpass_scheduler::{self as scheduler, LinkScheduler};
use underpass_streams::{self as streams, Epoch, PayloadError, StreamId};
use underpass_work::FastMap;

use crate::ahead::ReadAhead;
use crate::bringing_up::OnDemandPaths;
use crate::completing::Completing;
use crate::config::EngineConfig;
use crate::hop::{Hop, HopId};
use crate::leaves::ChangedLeaves;
use crate::link::{LinkChange, Utc};
use crate::on_demand::PathChange;
use crate::peers::Peers;
use crate::planned::{Followed, PlanChange, Unchanged};
use crate::restored::RestoredStreams;
use crate::services::Message;
use crate::shards::NodeParts;
use crate::steering::{Migration, Steering};
use crate::transfers::Sessions;
use crate::ways::Ways;
use crate::without_room::WithoutRoom;

/// The ipn service of streams; 1 to 127 are for private use.
pub const STREAM_SERVICE: u64 = 80;

/// What is to be done outside, in order.
#[derive(Debug)]
pub enum Action {
    /// Give the session this bundle.
    Offer {
        /// The session, which has said that it is ready.
        session: SessionId,
        /// The bundle.
        transfer: Transfer,
    },
    /// Tell the session its path's rate.
    SetRate {
        /// The session.
        session: SessionId,
        /// Bit/s of IP bytes; `None` is unlimited.
        ip_bps: Option<u64>,
    },
    /// Tell the session that the link is known to be blocked, or free again.
    Suspend {
        /// The session.
        session: SessionId,
        /// Whether it is blocked.
        blocked: bool,
    },
    /// Have the session send something that the peer's transport acknowledges.
    Ask {
        /// The session.
        session: SessionId,
    },
    /// The peer answers nothing on the session, though its link carries: set up another one like
    /// it.
    Renew {
        /// The session, which stays until the other one is up.
        session: SessionId,
    },
    /// Note that a link's state has changed.
    Link {
        /// The hop.
        hop: HopId,
        /// How.
        change: LinkChange,
    },
    /// Tell the beacons that a link may rest, or no longer may.
    Rest {
        /// The hop.
        hop: HopId,
        /// Whether it may.
        rests: bool,
    },
    /// Bring a path up, or release it.
    Path {
        /// The hop.
        hop: HopId,
        /// What is to be done.
        change: PathChange,
    },
    /// Note that a class goes by another path from now on.
    Migrated(Migration),
    /// Note that another plan holds from now on, or none any more.
    Plan(PlanChange),
    /// End the session at once. Its transfers have been given back already; later reports about
    /// them are ignored.
    Abort {
        /// The session, which is not used any more.
        session: SessionId,
        /// Why.
        reason: &'static str,
    },
    /// Something happened to a stream.
    Stream {
        /// The stream's peer.
        peer: u64,
        /// Which of the peer's runs it is with.
        epoch: Epoch,
        /// What happened.
        event: streams::Event,
    },
    /// A message for a service of this node other than streams.
    Message(Message),
    /// A bundle for an application of this node.
    Application(bundle::Delivery),
    /// Give this to [`Engine::take_passed`] of another engine of the node, in
    /// order.
    Passed {
        /// Which one.
        shard: usize,
        /// What it is to do.
        passed: Passed,
    },
    /// Something happened to a bundle; said for the log.
    Bundle(bundle::Event),
    /// Note that a bundle of this node's streams was discarded, since nobody wants it.
    Discarded {
        /// Who sent it.
        source: Eid,
        /// When it was created: DTN time, ms, and sequence number.
        created: (u64, u64),
        /// The node and the run that the bundle was for, if it was discarded because that run is
        /// over.
        outlived: Option<(u64, u64)>,
    },
    /// A peer's payload did not hold frames.
    BadPayload {
        /// The peer.
        peer: u64,
        /// What is wrong with it.
        error: PayloadError,
    },
}

/// Why an engine cannot be made.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The classes or rates contradict themselves.
    #[error(transparent)]
    Scheduler(#[from] scheduler::ConfigError),
    /// Peers without classes could not be served.
    #[error("the default class {0} is not configured")]
    DefaultClass(Class),
}

/// The streams with bytes in a bundle: their peer, its run, and each stream as often as it was
/// counted.
pub(crate) type Carried = (u64, Epoch, Vec<StreamId>);

/// One node, without I/O and clock.
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) agent: Agent,
    pub(crate) scheduler: LinkScheduler,
    pub(crate) hops: BTreeMap<HopId, Hop>,
    /// Streams, by the edge node at their other end.
    pub(crate) peers: Peers,
    /// Leaves of which the scheduler is to be told anew.
    pub(crate) changed: ChangedLeaves,
    /// Sessions, and what was offered to them and has not ended.
    pub(crate) sessions: Sessions,
    /// The streams in each bundle that no custodian has acknowledged.
    pub(crate) carried: FastMap<BundleId, Carried>,
    /// Hops that wait for room in the store.
    pub(crate) starved: BTreeSet<HopId>,
    /// The one of them that was fed last.
    pub(crate) last_fed: HopId,
    /// The time of day, where it is known.
    pub(crate) utc: Option<Utc>,
    /// The plans of the beam, whose capacity and shares hold for all hops on it.
    pub(crate) beam: Followed,
    /// The beam's rate as an operator has set it, over any plan.
    pub(crate) beam_by_operator: Option<Option<u64>>,
    /// The capacity that all hops on the beam share, bit/s of IP bytes.
    pub(crate) beam_rate_bps: Option<u64>,
    /// The part of that which operator, plan or configuration allow.
    pub(crate) beam_allowed_bps: Option<u64>,
    pub(crate) beam_measured_bps: Option<u64>,
    /// The time in which the plans change nothing.
    pub(crate) unchanged: Unchanged,
    /// When links are to be judged anew.
    pub(crate) link_times: BTreeSet<(Instant, HopId)>,
    /// What is read ahead while nothing can be sent.
    pub(crate) ahead: ReadAhead,
    /// Its place among the engines of the node.
    pub(crate) sharding: Sharding,
    /// When to look again whether another engine has freed room in the store.
    pub(crate) feed_at: Option<Instant>,
    /// Hops that let others go first, and when they are asked again.
    pub(crate) asked: BTreeSet<HopId>,
    pub(crate) ask_at: Option<Instant>,
    /// The classes that move between paths.
    pub(crate) steering: Steering,
    /// The paths that are up on demand.
    pub(crate) on_demand: OnDemandPaths,
    /// The flows of classes that go by the path that completes them first.
    pub(crate) completing: Completing,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) wake_at: Option<Instant>,
    pub(crate) classes: Vec<Class>,
    pub(crate) ways: Ways,
    /// The hop by which the bundle that is being handed on has come.
    pub(crate) came_by: Option<HopId>,
    /// Streams' bundles of earlier runs of this node.
    pub(crate) restored: RestoredStreams,
    /// Nodes that nothing is sealed for at present.
    pub(crate) without_room: WithoutRoom,
}

impl Engine {
    /// An engine without sessions whose custody is in memory.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(now: Instant, config: EngineConfig) -> Result<Engine, EngineError> {
        Engine::with_store(now, config, Box::new(MemoryStore::default()))
    }

    /// An engine without sessions that takes over the bundles in custody that an earlier run left
    /// in the store.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn with_store(
        now: Instant,
        config: EngineConfig,
        store: Box<dyn Store>,
    ) -> Result<Engine, EngineError> {
        let mut engine =
            NodeParts::new(&config, 1)?.engine(now, &config, store, Sharding::ALONE)?;
        engine.restore(now);
        Ok(engine)
    }

    /// An engine that has taken up no custody yet.
    pub(crate) fn of_shard(
        now: Instant,
        config: EngineConfig,
        agent: Agent,
        mut scheduler: LinkScheduler,
        sharding: Sharding,
    ) -> Result<Engine, EngineError> {
        let beam_rate_bps = config.beam_rate_bps;
        scheduler.set_root_rate(now, beam_rate_bps);
        let classes: Vec<Class> = config.scheduler.classes.iter().map(|c| c.class).collect();
        if !classes.contains(&config.default_class) {
            return Err(EngineError::DefaultClass(config.default_class));
        }
        let highest = classes.iter().max();
        let numbers = highest.map_or(0, |class| usize::from(class.0) + 1);
        let mut hops = BTreeMap::new();
        for hop in &config.hops {
            let state = Hop::new(now, hop.clone(), numbers);
            scheduler.add_terminal(now, hop.id.terminal(), hop.weight, state.rate_bps());
            scheduler.set_beside(now, hop.id.terminal(), !hop.on_beam);
            hops.insert(hop.id, state);
        }
        let ways = Ways::new(&config.hops, &config.routes);
        let mut engine = Engine {
            agent,
            peers: Peers::new(classes.clone(), config.default_class),
            config,
            scheduler,
            hops,
            changed: ChangedLeaves::default(),
            sessions: Sessions::default(),
            carried: FastMap::default(),
            starved: BTreeSet::new(),
            last_fed: HopId(0),
            utc: None,
            beam: Followed::default(),
            beam_by_operator: None,
            beam_rate_bps,
            beam_allowed_bps: beam_rate_bps,
            beam_measured_bps: None,
            unchanged: Unchanged::default(),
            link_times: BTreeSet::new(),
            actions: VecDeque::new(),
            wake_at: None,
            classes,
            ways,
            came_by: None,
            restored: RestoredStreams::default(),
            ahead: ReadAhead::default(),
            sharding,
            feed_at: None,
            asked: BTreeSet::new(),
            ask_at: None,
            steering: Steering::default(),
            on_demand: OnDemandPaths::default(),
            completing: Completing::default(),
            without_room: WithoutRoom::default(),
        };
        engine.lay_lanes();
        Ok(engine)
    }

    /// Takes over the custody of an earlier run.
    pub(crate) fn restore(&mut self, now: Instant) {
        self.agent.restore(now);
        self.after_change(now);
    }

    /// The next thing to be done outside.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Engine::handle_timeout`] must be called at the latest.
    pub fn next_timeout(&self) -> Option<Instant> {
        let links = self.link_times.first().map(|(at, _)| *at);
        let own = self.wake_at.into_iter().chain(links);
        let own = own.chain(self.ahead.next_timeout()).chain(self.feed_at);
        let own = own.chain(self.ask_at).chain(self.steering.next_timeout());
        let own = own.chain(self.on_demand.next_timeout());
        let own = own.chain(self.unchanged.until);
        let own = own.chain(self.peers.next_timeout());
        let own = own.chain(self.without_room.next_timeout());
        own.chain(self.agent.next_timeout()).min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.agent.handle_timeout(now);
        self.follow(now);
        self.watch_links(now);
        self.read_ahead(now);
        self.look_at_due_peers(now);
        self.look_for_room(now);
        self.ask_hops(now);
        self.steer_due(now);
        self.judge_paths_due(now);
        self.after_change(now);
    }

    /// The store has done something: to be called when it says so.
    pub fn store_moved(&mut self, now: Instant) {
        self.agent.handle_store(now);
        self.after_change(now);
    }

    /// Makes all that is in custody durable, since the node ends.
    pub fn flush_store(&mut self) {
        self.agent.flush_store();
    }

    /// Tells the engine the time of day: DTN time, ms since 2000-01-01 UTC.
    pub fn set_clock(&mut self, now: Instant, dtn_time_ms: u64) {
        self.agent.set_clock(now, dtn_time_ms);
    }

    /// Tells the engine the same time of a clock that is known to be right, or `None` without one:
    /// bundles without an age block are judged by it.
    pub fn set_known_time(&mut self, now: Instant, dtn_time_ms: Option<u64>) {
        self.agent.set_known_time(now, dtn_time_ms);
    }

    /// What waits in the store for each neighbour.
    pub fn custody_by_neighbour(&self) -> BTreeMap<NeighbourId, NeighbourFigures> {
        self.agent.custody_by_neighbour()
    }

    /// The store's figures.
    pub fn custody(&self, now: Instant) -> CustodyFigures {
        self.agent.custody(now)
    }

    /// The oldest bundles in the store.
    pub fn stored_bundles(&self, now: Instant, limit: usize) -> Vec<BundleInfo> {
        self.agent.list(now, None, limit)
    }

    /// The neighbour that takes bundles for `node`: itself, or the one routed.
    pub(crate) fn neighbour_to(&self, node: u64) -> u64 {
        self.ways.neighbour_to(node)
    }

    pub(crate) fn hops_to(&self, neighbour: u64) -> Arc<[HopId]> {
        self.ways.shared_hops_to(neighbour)
    }

    /// A class of this node: the named one, or the default if another node named one that is not
    /// configured here.
    pub(crate) fn known(&self, class: Class) -> Class {
        match self.classes.contains(&class) {
            true => class,
            false => self.config.default_class,
        }
    }

    /// After any change: hands on what happened, and sends what may be sent.
    pub(crate) fn after_change(&mut self, now: Instant) {
        self.drain_agent(now);
        self.pump(now);
        self.feed(now);
        self.seal_ended(now);
    }
}
