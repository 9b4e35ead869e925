//! The engines of a schedule.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use underpass_bundle::{self as bundle, MemoryStore, NeighbourId, Sharding, Store};
use underpass_cla::{Class, SessionInfo};
use underpass_engine::{Engine, EngineConfig, HopConfig, HopId, PlanLine, Policy, RouteEntry};
use underpass_plans::Direction;
use underpass_scheduler::{self as scheduler, ClassConfig};
use underpass_streams::Announcement;

use crate::messages;
use crate::random::Random;
use crate::schedule::{CLASSES, HUB, LinkPlan, Schedule};

fn shard_of(schedule: &Schedule, node: usize, neighbour: u64) -> usize {
    let count = schedule.nodes[node].shards;
    Sharding { own: 0, count }.shard_of(NeighbourId(neighbour))
}

pub fn shard_of_link(schedule: &Schedule, node: usize, link: usize) -> usize {
    let ends = schedule.links[link].ends;
    let other = ends[usize::from(ends[0] == node)];
    shard_of(schedule, node, schedule.nodes[other].number)
}

/// The shard of a node that owns what goes to another node.
pub fn shard_to(schedule: &Schedule, node: usize, peer: u64) -> usize {
    let routes = routes(schedule, node);
    let route = routes.iter().find(|route| route.node == peer);
    shard_of(schedule, node, route.map_or(peer, |route| route.via))
}

pub fn config(schedule: &Schedule, node: usize, incarnation: u64) -> EngineConfig {
    let plan = &schedule.nodes[node];
    let run = schedule.seed ^ (node as u64) << 32 ^ incarnation;
    let mut agent = bundle::Config::new(plan.number, Random::new(run).next());
    agent.store_bytes = plan.store_bytes;
    agent.store_bundles = plan.store_bundles;
    agent.services.insert(messages::SERVICE);
    EngineConfig {
        node: plan.number,
        incarnation,
        agent,
        scheduler: scheduler::Config {
            classes: classes(schedule.equal_priority),
            utilisation: 0.985,
        },
        beam_rate_bps: schedule.beam_rate_bps.filter(|_| node == HUB),
        hops: hops(schedule, node),
        routes: routes(schedule, node),
        max_streams: plan.max_streams,
        window_bytes: Some(plan.window_bytes),
        send_buffer_bytes: Some(plan.send_buffer_bytes),
        lifetime: Duration::from_secs(24 * 3600),
        hold: Duration::from_secs(3600),
        edge: plan.edge,
        reaches: Announcement {
            ipv4: true,
            ipv6: false,
        },
        default_class: Class(1),
        policies: policies(schedule, node),
    }
}

/// The stores of a node without a disk, one for each shard.
pub fn in_memory(schedule: &Schedule, node: usize) -> Vec<Box<dyn Store>> {
    let shards = 0..schedule.nodes[node].shards;
    let stores = shards.map(|_| Box::<MemoryStore>::default());
    stores.map(|store| store as Box<dyn Store>).collect()
}

/// The engines for a node of the schedule in one of its incarnations, one for
/// each shard.
pub fn engines(
    schedule: &Schedule,
    node: usize,
    incarnation: u64,
    stores: Option<Vec<Box<dyn Store>>>,
    now: Instant,
) -> Vec<Engine> {
    let plan = &schedule.nodes[node];
    let config = config(schedule, node, incarnation);
    let stores = stores.unwrap_or_else(|| in_memory(schedule, node));
    let made = Engine::of_shards(now, &config, stores);
    let mut engines = made.expect("a valid configuration");
    for engine in &mut engines {
        if plan.clock {
            engine.set_clock(now, 800_000_000_000 + incarnation);
        }
    }
    engines
}

fn classes(equal_priority: bool) -> Vec<ClassConfig> {
    let config = |class: u8| ClassConfig {
        class: Class(class),
        priority: if equal_priority { class.min(1) } else { class },
        weight: u32::from(class) + 1,
    };
    (0..CLASSES).map(config).collect()
}

/// Only nodes with the links that a policy names get that policy.
fn policies(schedule: &Schedule, node: usize) -> BTreeMap<Class, Policy> {
    let second = schedule.links.iter().find(|link| link.second);
    let mut links = schedule.links.iter();
    let only = second.is_some_and(|second| {
        links.all(|link| !link.ends.contains(&node) || link.ends == second.ends)
    });
    match only {
        true => schedule.policies.iter().cloned().collect(),
        false => BTreeMap::new(),
    }
}

fn hops(schedule: &Schedule, node: usize) -> Vec<HopConfig> {
    let links = schedule.links.iter().enumerate();
    links
        .filter_map(|(number, link)| {
            let end = link.ends.iter().position(|end| *end == node)?;
            let side = if end == 0 {
                Direction::Forward
            } else {
                Direction::Return
            };
            let line = PlanLine {
                link: side,
                terminal: schedule.nodes[link.ends[1]].number,
            };
            let neighbour = schedule.nodes[link.ends[1 - end]].number;
            // Plans are for the first link between two nodes.
            let line = (!link.second).then_some(line);
            Some(hop(number, link, neighbour, line))
        })
        .collect()
}

fn hop(number: usize, link: &LinkPlan, neighbour: u64, line: Option<PlanLine>) -> HopConfig {
    HopConfig {
        send_rate_bps: link.rate_bps,
        line,
        receive_rate_bps: link.rate_bps,
        rtt: link.delay * 2,
        meter: link.meter.clone(),
        ..HopConfig::new(HopId(number as u64), format!("link{number}"), neighbour)
    }
}

/// If a relay lies between, both sides are routed through it, and the schedule says
/// whether it takes custody.
fn routes(schedule: &Schedule, node: usize) -> Vec<RouteEntry> {
    let Some(relay) = schedule.nodes.iter().position(|plan| !plan.edge) else {
        return Vec::new();
    };
    let others = schedule.nodes.iter().enumerate();
    let others = others.filter(|(other, plan)| *other != node && plan.edge);
    others
        .filter(|(other, _)| node == relay || node == HUB || *other == HUB)
        .map(|(_, plan)| RouteEntry {
            node: plan.number,
            via: match node == relay {
                true => plan.number,
                false => schedule.nodes[relay].number,
            },
            custody: schedule.relay_custody,
        })
        .collect()
}

/// What an end is told about a session.
pub fn session_info(
    peer: u64,
    class: Option<Class>,
    transfer_mru_bytes: u64,
    incarnation: Option<u64>,
) -> SessionInfo {
    SessionInfo {
        peer_node_id: format!("ipn:{peer}.0"),
        class,
        incarnation,
        resumes: true,
        transfer_mru_bytes,
        tls: true,
        congestion_control: "hybla".to_owned(),
        ..SessionInfo::new("tcpcl", SocketAddr::from((Ipv4Addr::LOCALHOST, 4556)))
    }
}
