//! A node as several engines, each for a part of its neighbours: neighbours of different parts are
//! served in parallel, under different locks.
//!
//! The engines of a node share the beam, which grants each its part, the quota, and the numbers of
//! bundles. Work for a neighbour of another engine is passed to that one
//! ([`Action::Passed`](crate::Action)). So custody of a bundle that is relayed from one engine to
//! another is signalled only when the second has made it safe.

use std::sync::Arc;
use std::time::Instant;

use underpass_bundle::{self as bundle, Agent, NeighbourId, Passed, Sharding, Store};
use underpass_scheduler::{Beam, LinkScheduler};

use crate::bringing_up::ON_DEMAND_SERVICE;
use crate::config::EngineConfig;
use crate::engine::{Engine, EngineError, STREAM_SERVICE};

impl EngineConfig {
    /// The configuration of one engine of the node: only the hops to its own
    /// neighbours.
    pub(crate) fn part(mut self, sharding: Sharding) -> EngineConfig {
        let is_own = |neighbour| sharding.shard_of(NeighbourId(neighbour)) == sharding.own;
        self.hops.retain(|hop| is_own(hop.neighbour));
        self
    }
}

/// What the engines of a node have in common.
pub(crate) struct NodeParts {
    beam: Arc<Beam>,
    agents: bundle::Common,
}

impl NodeParts {
    /// The engines of a node, one for each store, which have taken over no custody yet.
    pub fn engines(
        now: Instant,
        config: &EngineConfig,
        stores: Vec<Box<dyn Store>>,
    ) -> Result<Vec<Engine>, EngineError> {
        let count = stores.len();
        let node = NodeParts::new(config, count)?;
        let stores = stores.into_iter().enumerate();
        let engines = stores.map(|(own, store)| {
            let sharding = Sharding { own, count };
            node.engine(now, config, store, sharding)
        });
        engines.collect()
    }

    pub fn new(config: &EngineConfig, shards: usize) -> Result<NodeParts, EngineError> {
        let mut agent = config.agent.clone();
        agent.routes = config.bundle_routes();
        Ok(NodeParts {
            beam: Arc::new(Beam::new(&config.scheduler)?),
            agents: bundle::Common::new(&agent, shards),
        })
    }

    /// One of the engines, which has taken over no custody yet.
    pub fn engine(
        &self,
        now: Instant,
        config: &EngineConfig,
        store: Box<dyn Store>,
        sharding: Sharding,
    ) -> Result<Engine, EngineError> {
        let mut config = config.clone();
        if config.edge {
            config.agent.services.insert(STREAM_SERVICE);
        }
        config.agent.services.insert(ON_DEMAND_SERVICE);
        config.agent.routes = config.bundle_routes();
        let agent = Agent::in_shard(config.agent.clone(), store, self.agents.clone(), sharding);
        let scheduler = LinkScheduler::on(&config.scheduler, Arc::clone(&self.beam))?;
        let config = config.part(sharding);
        Engine::of_shard(now, config, agent, scheduler, sharding)
    }
}

impl Engine {
    /// The engines of a node, one for each store, that take over the custody which an earlier run
    /// has left there. A bundle that is in the store of another engine than that of its next hop is
    /// passed on.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn of_shards(
        now: Instant,
        config: &EngineConfig,
        stores: Vec<Box<dyn Store>>,
    ) -> Result<Vec<Engine>, EngineError> {
        let mut engines = NodeParts::engines(now, config, stores)?;
        // Bundles that one engine restores may have to be passed to another.
        for engine in &mut engines {
            engine.restore(now);
        }
        Ok(engines)
    }

    /// Does what another engine of the node has passed on.
    pub fn take_passed(&mut self, now: Instant, passed: Passed) {
        self.agent.take_passed(now, passed);
        self.after_change(now);
    }

    /// Whether [`Engine::reconfigure`] would accept a configuration.
    ///
    /// # Errors
    /// Those of [`Engine::reconfigure`].
    pub fn check(&self, config: &EngineConfig) -> Result<(), EngineError> {
        if !self.classes.contains(&config.default_class) {
            return Err(EngineError::DefaultClass(config.default_class));
        }
        // A scheduler of the same classes refuses the same changes as the engine's own.
        let mut trial = LinkScheduler::new(&self.config.scheduler)?;
        Ok(trial.set_class_weights(&config.scheduler.classes)?)
    }
}
