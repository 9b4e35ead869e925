//! Another configuration while the engine runs: hops come, go and change, and
//! nothing else notices.

use std::collections::BTreeSet;
use std::time::Instant;

use underpass_bundle::{self as bundle, NeighbourId};
use underpass_streams::{Announcement, Event, ResetCode};

use crate::config::{EngineConfig, HopConfig};
use crate::engine::{Action, Engine, EngineError};
use crate::hop::{Hop, HopId};

/// The reason given to the applications of a removed neighbour's streams.
const REMOVED: &str = "the node was taken from the configuration";

impl EngineConfig {
    /// The routes of bundles: the static ones to single nodes; then each neighbour to itself, even
    /// before it is up; then the agent's own.
    pub fn bundle_routes(&self) -> Vec<bundle::Route> {
        let fixed = self.routes.iter().map(|route| bundle::Route {
            nodes: route.node..=route.node,
            neighbour: NeighbourId(route.via),
            take_custody: route.custody,
        });
        let neighbours = self.hops.iter().map(|hop| bundle::Route {
            nodes: hop.neighbour..=hop.neighbour,
            neighbour: NeighbourId(hop.neighbour),
            take_custody: true,
        });
        let others = self.agent.routes.iter().cloned();
        fixed.chain(neighbours).chain(others).collect()
    }
}

impl Engine {
    /// Replaces the configuration of the node. Hops that the new one does not have are removed with
    /// their sessions. A neighbour without any hop left loses its streams, and the bundles for
    /// which there is no other route. New hops need numbers that were never used before; a hop that
    /// stays keeps its neighbour and may change its rates, share, round trip and packet size.
    /// Streams of all others go on.
    ///
    /// Node number, incarnation, services and the classes with their
    /// priorities must be the same as before.
    ///
    /// # Errors
    /// When the configuration contradicts itself or has other classes; nothing has changed then.
    pub fn reconfigure(&mut self, now: Instant, config: EngineConfig) -> Result<(), EngineError> {
        self.check(&config)?;
        self.scheduler
            .set_class_weights(&config.scheduler.classes)?;
        let before: BTreeSet<u64> = self.ways.neighbours().collect();
        let routes = config.bundle_routes();
        let config = config.part(self.sharding);
        let agent = &config.agent;
        let running = &self.config.agent;
        let reroutes = agent.relaying != running.relaying
            || agent.named != running.named
            || !same(self.agent.routes(), &routes);

        self.agent.set_limits(bundle::Limits {
            store_bytes: agent.store_bytes,
            store_bundles: agent.store_bundles,
            guaranteed_percent: agent.guaranteed_percent,
            foreign_lifetime: agent.foreign_lifetime,
            hop_limit: agent.hop_limit,
        });
        self.agent.set_bibe(agent.bibe.clone());
        self.agent.set_served(agent.served.clone());
        self.agent.set_named_routes(agent.named.clone());
        let kept: BTreeSet<HopId> = config.hops.iter().map(|hop| hop.id).collect();
        let gone = self.hops.keys().filter(|id| !kept.contains(id));
        for id in gone.copied().collect::<Vec<_>>() {
            self.remove_hop(now, id);
        }
        self.ways.replace(&config.hops, &config.routes);
        for hop in &config.hops {
            match self.hops.contains_key(&hop.id) {
                true => self.change_hop(now, hop),
                false => self.add_hop(now, hop),
            }
        }
        let mut agent = config.agent.clone();
        // Services cannot change: messages for them may be in custody.
        agent.services.clone_from(&self.config.agent.services);
        agent.confirming.clone_from(&self.config.agent.confirming);
        agent
            .applications
            .clone_from(&self.config.agent.applications);
        // One object each for the node's whole life; only its contents change.
        agent.security.clone_from(&self.config.agent.security);
        self.config.agent.names.replace(&agent.names);
        agent.names.clone_from(&self.config.agent.names);
        self.config = EngineConfig { agent, ..config };
        self.peers.set_default_class(self.config.default_class);
        self.lay_lanes();

        let after: BTreeSet<u64> = self.ways.neighbours().collect();
        for neighbour in before.difference(&after) {
            self.reconsider_reading(now, *neighbour);
        }
        self.end_streams_without_a_way();
        if reroutes {
            let relaying = self.config.agent.relaying.clone();
            self.agent.set_routes(now, routes, relaying);
            self.drain_agent(now);
        }
        for peer in self.peers.numbers() {
            self.peers.reroute(peer, self.ways.neighbour_to(peer));
            self.apply_stream_limits(peer);
        }
        self.apply_plans(now);
        for id in self.hop_ids() {
            self.plan_blockages_of_line(now, id);
            self.apply_rate(now, id);
            self.leaves_changed(id);
        }
        self.steer_all(now);
        self.after_change(now);
        Ok(())
    }

    /// Sets the address families that this node's edge reaches, and tells the peers. Returns
    /// whether they have changed.
    pub fn set_reaches(&mut self, now: Instant, reaches: Announcement) -> bool {
        if self.config.reaches == reaches {
            return false;
        }
        self.config.reaches = reaches;
        for peer in self.peers.numbers() {
            self.apply_stream_limits(peer);
        }
        self.after_change(now);
        true
    }

    fn add_hop(&mut self, now: Instant, config: &HopConfig) {
        let highest = self.classes.iter().max();
        let numbers = highest.map_or(0, |class| usize::from(class.0) + 1);
        let hop = Hop::new(now, config.clone(), numbers);
        let terminal = config.id.terminal();
        self.scheduler
            .add_terminal(now, terminal, config.weight, hop.rate_bps());
        self.scheduler.set_beside(now, terminal, !config.on_beam);
        self.hops.insert(config.id, hop);
    }

    pub(crate) fn change_hop(&mut self, now: Instant, config: &HopConfig) {
        let Some(hop) = self.hops.get_mut(&config.id) else {
            return;
        };
        debug_assert_eq!(hop.config.neighbour, config.neighbour);
        let was_on_demand = hop.presence.is_some();
        hop.reconfigure(now, config.clone());
        let is_new_on_demand = !was_on_demand && hop.presence.is_some();
        self.scheduler
            .set_beside(now, config.id.terminal(), !config.on_beam);
        self.widen(config.id);
        // The hop may not be metered any more, and only metered hops rest.
        self.wake(now, config.id);
        self.judge(now, config.id);
        if is_new_on_demand {
            // Something may wait for it already.
            self.path_connected(now, config.id);
        }
    }

    /// Removes a hop; what was offered to its sessions is sent again, by another hop if there is
    /// one.
    fn remove_hop(&mut self, now: Instant, id: HopId) {
        let sessions: Vec<_> = self.hops[&id].all_sessions().collect();
        for session in sessions {
            self.give_up_session(now, session, REMOVED);
            self.sessions.remove(session);
        }
        let Some(hop) = self.hops.remove(&id) else {
            return;
        };
        if let Some(at) = hop.link_at {
            self.link_times.remove(&(at, id));
        }
        self.starved.remove(&id);
        self.on_demand.forget(id);
        self.scheduler.remove_terminal(now, id.terminal());
        let neighbour = hop.config.neighbour;
        let hops = self.hops_to(neighbour);
        let up = |id: &HopId| self.hops.get(id).is_some_and(Hop::is_up);
        if !hops.iter().any(up) {
            self.agent.neighbour_down(now, NeighbourId(neighbour));
        }
    }

    /// Resets the streams with nodes that no hop leads to any more. The state of these nodes stays,
    /// so that stream numbers go on if one comes back in this run.
    fn end_streams_without_a_way(&mut self) {
        let peers = self.peers.numbers().into_iter();
        let lost: Vec<u64> = peers
            .filter(|peer| self.hops_to(self.neighbour_to(*peer)).is_empty())
            .collect();
        for peer in lost {
            let code = ResetCode::Unreachable;
            let reset = self.change_streams(peer, |streams| {
                let all = streams.streams().map(|(epoch, info)| (epoch, info.id));
                let mut all: Vec<_> = all.collect();
                all.retain(|(epoch, id)| {
                    let mux = streams.streams_of(*epoch, *id);
                    mux.is_some_and(|mux| mux.reset(*id, code, REMOVED).is_ok())
                });
                all
            });
            for (epoch, id) in reset.unwrap_or_default() {
                let reason = REMOVED.to_owned();
                let event = Event::Reset { id, code, reason };
                self.actions
                    .push_back(Action::Stream { peer, epoch, event });
            }
        }
    }
}

fn same(one: &[bundle::Route], other: &[bundle::Route]) -> bool {
    let parts = |route: &bundle::Route| {
        let custody = route.take_custody;
        (route.nodes.clone(), route.neighbour, custody)
    };
    one.iter().map(parts).eq(other.iter().map(parts))
}
