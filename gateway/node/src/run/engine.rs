//! The engine's configuration, from the node's.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use underpass_bundle::{self as bundle, NeighbourId};
use underpass_cla::Class;
use underpass_edge::dial::Families;
use underpass_engine::{
    EngineConfig, Estimate, HopConfig, HopId, MeterConfig, MigrationRule, Period, PlanLine, Policy,
    RouteEntry,
};
use underpass_plans::Direction;
use underpass_scheduler as scheduler;
use underpass_streams::Announcement;

use super::{control, deferred, plans, provision, reports};
use crate::config::{
    AskedSettings, BudgetPeriod, ClassSettings, Config, ConvergenceLayer, CustodyDialect,
    FlowEstimate, MeterSettings, MigrateSettings, NodePattern, PathDirection, RelayConfig, Role,
    RouteCustody, class_named,
};

/// The part of a rate that is granted, so that the queue before the hop stays empty; slightly more
/// than the sessions' pace, so that a lone session always has the next bundle before it has
/// finished the last.
const UTILISATION: f64 = 0.994;

/// Makes the engine's configuration; the hops are numbered in their order.
pub(crate) fn configure(config: &Config, incarnation: u64, families: Families) -> EngineConfig {
    let numbers = config.hop_names().zip(0..).collect();
    configure_numbered(config, incarnation, families, &numbers)
}

/// As [`configure`], with numbers given to the hops by their names.
pub(in crate::run) fn configure_numbered(
    config: &Config,
    incarnation: u64,
    families: Families,
    numbers: &BTreeMap<String, u64>,
) -> EngineConfig {
    let edge = config.node.role != Role::Relay;
    let default_class =
        class_named(&config.classes, &config.streams.default_class).unwrap_or(Class::SIGNALLING);
    EngineConfig {
        node: config.node.number,
        incarnation,
        agent: agent(config),
        scheduler: scheduler::Config {
            classes: classes(config),
            utilisation: UTILISATION,
        },
        beam_rate_bps: config.beam.rate_bps,
        hops: hops(config, numbers),
        routes: config
            .routes
            .iter()
            .filter_map(|route| {
                Some(RouteEntry {
                    node: route.node?,
                    via: route.via,
                    custody: route.custody.is_taken(),
                })
            })
            .collect(),
        max_streams: config.streams.max_streams,
        window_bytes: config.streams.window_bytes,
        send_buffer_bytes: config.streams.send_buffer_bytes,
        lifetime: Duration::from_secs(config.custody.lifetime_s),
        hold: Duration::from_secs(config.tcp.hold_s),
        edge,
        reaches: Announcement {
            ipv4: families.ipv4,
            ipv6: families.ipv6,
        },
        default_class,
        policies: policies(config),
    }
}

fn routes_to_several(config: &Config) -> Vec<bundle::Route> {
    let routes = config.routes.iter().filter_map(|route| {
        let ranges = route.nodes.as_ref()?.numbers().iter().cloned();
        Some(ranges.map(|nodes| bundle::Route {
            nodes,
            neighbour: NeighbourId(route.via),
            take_custody: route.custody.is_taken(),
        }))
    });
    routes.flatten().collect()
}

/// The routes to nodes of the dtn scheme; of several to one node the first applies.
fn named_routes(config: &Config) -> bundle::NamedRoutes {
    let mut named = bundle::NamedRoutes::default();
    for route in &config.routes {
        let to = (NeighbourId(route.via), route.custody.is_taken());
        match &route.nodes {
            Some(NodePattern::Name(name)) => {
                named.names.entry(name.clone()).or_insert(to);
            }
            Some(NodePattern::AllNames) => named.others = named.others.or(Some(to)),
            Some(NodePattern::Numbers(_)) | None => {}
        }
    }
    named
}

/// The node's endpoints of the dtn scheme: those of its applications and the echo.
fn own_names(config: &Config) -> bundle::OwnNames {
    let Some(node) = &config.node.name else {
        return bundle::OwnNames::default();
    };
    let applications = config.applications.as_ref();
    let echo = applications.is_some_and(|of| of.echo().is_some());
    let echo = echo.then(|| bundle::ECHO_NAME.to_owned());
    let names = applications.iter().flat_map(|of| of.names());
    bundle::OwnNames::new(node, names.map(str::to_owned).chain(echo))
}

fn agent(config: &Config) -> bundle::Config {
    // The hasher's keys are random, new in each process.
    let random = RandomState::new().build_hasher().finish();
    let mut agent = bundle::Config::new(config.node.number, random);
    agent.codes = bundle::wire::CodePoints::of(match config.custody.dialect {
        CustodyDialect::Ion => bundle::wire::CustodyDialect::Ion,
        CustodyDialect::Bplib => bundle::wire::CustodyDialect::Bplib,
    });
    let by_bibe = config.routes.iter();
    let by_bibe = by_bibe.filter(|route| route.custody == RouteCustody::Bibe);
    agent.bibe = by_bibe.map(|route| NeighbourId(route.via)).collect();
    let served = config.paths.iter();
    let served = served.filter(|path| path.convergence_layer == ConvergenceLayer::Ecla);
    agent.served = served.map(|path| NeighbourId(path.neighbour)).collect();
    agent.aggregate = Duration::from_millis(config.custody.aggregate_ms);
    agent.lifetime = Duration::from_secs(config.custody.lifetime_s);
    agent.foreign_lifetime = Duration::from_secs(config.custody.foreign_lifetime_s);
    // A bundle that a session may take into memory may be decoded there.
    let in_memory = &mut agent.decode.max_payload_bytes;
    *in_memory = config.whole_mru_bytes().max(*in_memory);
    agent.long_above_bytes = config.long_payload_above_bytes();
    agent.relaying = relaying(config);
    agent.routes = routes_to_several(config);
    agent.named = named_routes(config);
    agent.names = Arc::new(own_names(config));
    agent.hop_limit = config.custody.hop_limit;
    agent.store_bytes = config.custody.quota_bytes;
    agent.store_bundles = config.custody.quota_bundles;
    agent.guaranteed_percent = config.custody.guaranteed_percent;
    if let Some(applications) = &config.applications {
        agent.applications = Some(Arc::new(applications.applications()));
    }
    if deferred::takes_part(config) {
        agent.services.insert(underpass_deferred::wire::SERVICE);
    }
    if reports::takes_in(config) {
        agent.services.insert(underpass_reports::SERVICE);
        if control::confirms(config) {
            agent.confirming.insert(underpass_reports::SERVICE);
        }
    }
    if plans::takes_part(config) && config.node.role == Role::Terminal {
        agent.services.insert(underpass_plans::SERVICE);
        agent.services.insert(crate::provider::SERVICE);
    }
    if provision::takes_part(config) {
        agent.services.insert(underpass_provision::SERVICE);
    }
    agent
}

/// A relay forwards; other nodes do so only where it is configured.
fn relaying(config: &Config) -> bundle::Relaying {
    if config.relays.is_empty() && config.node.role == Role::Relay {
        return bundle::Relaying::All;
    }
    let pair = |relay: &RelayConfig| {
        let [one, other] = relay.between.map(NeighbourId);
        (one.min(other), one.max(other))
    };
    bundle::Relaying::Pairs(config.relays.iter().map(pair).collect())
}

/// The class that waits for all others.
pub(in crate::run) fn lowest_class(config: &Config) -> Class {
    let classes = config.classes.iter().zip(0..);
    // The class of the lowest priority (the highest number) with the least weight.
    let lowest = classes.max_by_key(|(class, _)| (class.priority, Reverse(class.weight)));
    lowest.map_or(Class::SIGNALLING, |(_, number)| Class(number))
}

fn classes(config: &Config) -> Vec<scheduler::ClassConfig> {
    config
        .classes
        .iter()
        .zip(0..)
        .map(|(class, number)| scheduler::ClassConfig {
            class: Class(number),
            priority: class.priority,
            weight: class.weight,
        })
        .collect()
}

fn migration(settings: &MigrateSettings) -> MigrationRule {
    MigrationRule {
        after: settings
            .by_rule
            .then(|| Duration::from_secs_f64(settings.after_s)),
        full_part: settings.full_part,
        delay_factor: settings.delay_factor,
        loss: settings.loss,
        rate_part: settings.rate_part,
        back_after: Duration::from_secs_f64(settings.back_after_s),
        room_part: settings.room_part,
    }
}

fn policies(config: &Config) -> BTreeMap<Class, Policy> {
    let policy = |class: &ClassSettings| Policy {
        uses: class.policy,
        paths: class.paths.clone(),
        migration: migration(&class.migrate),
        estimate: match class.estimate {
            FlowEstimate::OpenSession => Estimate::OpenSession,
            FlowEstimate::NewConnection => Estimate::NewConnection,
        },
        metered: class.metered,
    };
    let classes = config.classes.iter().zip(0..);
    classes
        .map(|(class, number)| (Class(number), policy(class)))
        .collect()
}

/// Hubs send on the forward link, terminals on the return link.
fn line_of(config: &Config, link: Direction, terminal: u64) -> Option<PlanLine> {
    let sends_on = match config.node.role {
        Role::Hub => Direction::Forward,
        Role::Terminal => Direction::Return,
        Role::Relay => return None,
    };
    (sends_on == link).then_some(PlanLine { link, terminal })
}

fn meter(config: &Config, settings: Option<&MeterSettings>) -> Option<MeterConfig> {
    let settings = settings?;
    let beyond = settings.beyond.iter();
    Some(MeterConfig {
        budget_bytes: settings.budget_bytes,
        period: match settings.period {
            BudgetPeriod::Day => Period::Day,
            BudgetPeriod::Month => Period::Month(settings.first_day),
            BudgetPeriod::Once => Period::Once,
        },
        beyond: beyond
            .filter_map(|name| class_named(&config.classes, name))
            .collect(),
    })
}

fn hops(config: &Config, numbers: &BTreeMap<String, u64>) -> Vec<HopConfig> {
    let tls = !config.tls.plain;
    let paths = config.paths.iter().map(|path| HopConfig {
        id: HopId(0),
        name: path.name.clone(),
        known_as: vec![path.name.clone()],
        neighbour: path.neighbour,
        on_beam: true,
        weight: 1,
        send_rate_bps: path.send_rate_bps,
        rate_hint_bps: path.hint_bps(),
        rate_hint_rtt: path.hint_rtt(),
        guaranteed_rate_bps: path.guaranteed_rate_bps,
        line: line_of(config, Direction::Return, config.node.number),
        receive_rate_bps: path.receive_rate_bps,
        rtt: path.rtt(),
        rtt_is_guess: path.rtt_ms.is_none(),
        mtu_bytes: path.mtu_bytes,
        dials: true,
        sends: path.direction == PathDirection::Both,
        ipv6: path.remote.ip().to_canonical().is_ipv6(),
        tls: tls && !path.plain,
        meter: meter(config, path.meter.as_ref()),
        on_demand: path.on_demand.as_ref().map(|of| of.on_demand(&path.name)),
    });
    let accepted = config.accepted_hops().map(|hop| {
        let listeners = config.listeners.iter().map(|listener| &listener.name);
        let listeners = listeners.filter(|listener| hop.comes_by(listener));
        HopConfig {
            id: HopId(0),
            known_as: listeners.cloned().collect(),
            neighbour: hop.node,
            // A path by a listener of its own is not part of the beam, so no plan applies to it.
            on_beam: hop.listener.is_none(),
            weight: hop.weight.into(),
            send_rate_bps: hop.send_rate_bps,
            rate_hint_bps: hop.hint_bps,
            rate_hint_rtt: hop.hint_rtt,
            guaranteed_rate_bps: None,
            line: match hop.listener {
                None => line_of(config, Direction::Forward, hop.node),
                Some(_) => None,
            },
            receive_rate_bps: hop.receive_rate_bps,
            rtt: hop.rtt,
            rtt_is_guess: hop.rtt_is_guess,
            mtu_bytes: hop.mtu_bytes,
            dials: false,
            sends: hop.direction == PathDirection::Both,
            // Its sessions set this.
            ipv6: false,
            tls,
            meter: meter(config, hop.meter.as_ref()),
            on_demand: hop.on_demand.as_ref().map(AskedSettings::on_demand),
            name: hop.name,
        }
    });
    let numbered = paths.chain(accepted).filter_map(|hop| {
        let id = HopId(*numbers.get(&hop.name)?);
        Some(HopConfig { id, ..hop })
    });
    numbered.collect()
}

/// The buffers of a hop's sockets, bytes.
pub(super) fn window_of(rate_bps: Option<u64>, rtt: Duration) -> u32 {
    // The kernel doubles what is asked, in a signed 32-bit number.
    const MOST: u64 = 1 << 29;
    let bytes = underpass_engine::window_bytes(rate_bps, rtt).min(MOST);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
