//! Paths: rates, bundles, sessions and their transports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use prometheus_client::registry::Unit;
use underpass_cla::Class;
use underpass_engine::{Engine, HopId, HopSnapshot, HopTraffic, MoveReason, Need, Source};

use super::super::ApiState;
use super::super::migrations::MigrationView;
use super::super::view::{PathView, SessionView};
use super::families::{Families, Labels, Name, per_second};
use super::ltp;
use crate::shell::TransportTotals;

/// A class' name, or that of sessions that carry all.
const ALL_CLASSES: &str = "all";

pub fn encode(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let paths = state.paths();
    states(&paths, families)?;
    migrations(state, families)?;
    holds(state, families)?;
    blockages(state, families)?;
    beacons(state, families)?;
    rates(state, &paths, families)?;
    budgets(&paths, families)?;
    on_demand(&paths, families)?;
    bundles(state, families)?;
    transports(state, families)?;
    mptcp(&paths, families)?;
    sessions(&paths, families)
}

fn of_path(path: &PathView) -> Labels {
    vec![
        ("path", path.hop.name.clone()),
        ("neighbour", path.hop.neighbour.to_string()),
    ]
}

/// A row for each path that has a figure.
fn of_paths<V>(
    paths: &[PathView],
    figure: impl Fn(&PathView) -> Option<V>,
) -> impl Iterator<Item = (Labels, V)> {
    let row = move |path: &PathView| Some((of_path(path), figure(path)?));
    paths.iter().filter_map(row)
}

fn states(paths: &[PathView], families: &mut Families<'_>) -> fmt::Result {
    families.gauge(
        "path_up",
        "Whether any session of the path is up",
        of_paths(paths, |path| Some(u64::from(path.hop.up))),
    )?;
    families.gauge(
        "path_blocked",
        "Whether sending on the path is held",
        of_paths(paths, |path| Some(u64::from(path.hop.blocked))),
    )
}

fn migrations(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let views = state.migrations();
    let of = |view: &MigrationView| {
        vec![
            ("class", view.class.clone()),
            ("neighbour", view.neighbour.to_string()),
        ]
    };
    families.gauge(
        "class_path",
        "The path by which a class goes that moves between paths",
        views.iter().map(|view| {
            let mut labels = of(view);
            labels.push(("path", view.path.clone()));
            (labels, 1_u64)
        }),
    )?;
    let moves = views.iter().flat_map(|view| {
        MoveReason::ALL.map(|reason| {
            let mut labels = of(view);
            labels.push(("reason", reason.name().to_owned()));
            let count = view.moves.get(reason.name()).copied().unwrap_or(0);
            (labels, count)
        })
    });
    families.counter(
        "class_migrations",
        "Moves of a class to another path, by their reason",
        moves,
    )
}

fn holds(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let mut counts: BTreeMap<(&str, bool), u64> = BTreeMap::new();
    for view in state.holds_view() {
        let kind = (view.held.name(), view.in_force);
        *counts.entry(kind).or_default() += 1;
    }
    families.gauge(
        "holds",
        "What operators have set and not released",
        counts.into_iter().map(|((what, in_force), count)| {
            let in_force = in_force.to_string();
            (
                vec![("what", what.to_owned()), ("in_force", in_force)],
                count,
            )
        }),
    )
}

fn blockages(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let hops = state.shell.hops();
    let of = |hop: &HopSnapshot| vec![("path", hop.name.clone())];
    families.gauge(
        ("path_silence", Unit::Seconds),
        "Since the peer was last heard; absent if it never was",
        hops.iter()
            .filter_map(|hop| Some((of(hop), hop.link.heard?.elapsed().as_secs_f64()))),
    )?;
    families.gauge(
        "path_plan_contradicted",
        "Whether the peer is heard in the planned blockage in force",
        hops.iter()
            .map(|hop| (of(hop), u64::from(hop.link.plan_contradicted))),
    )?;
    let totals = state.shell.link_totals();
    let total = |hop: &HopSnapshot| totals.get(&hop.id).cloned().unwrap_or_default();
    let begun = hops.iter().flat_map(|hop| {
        let total = total(hop);
        Source::ALL.map(|source| {
            let mut labels = of(hop);
            labels.push(("source", source.name().to_owned()));
            let count = total.blockages.get(&source).copied().unwrap_or(0);
            (labels, count)
        })
    });
    families.counter("path_blockages", "Blockages, by who said so first", begun)?;
    families.counter(
        ("path_blocked", Unit::Seconds),
        "Time of the blockages that are over",
        hops.iter()
            .map(|hop| (of(hop), total(hop).blocked.as_secs_f64())),
    )?;
    families.counter(
        "path_plans_contradicted",
        "Planned blockages in which the peer was heard",
        hops.iter()
            .map(|hop| (of(hop), total(hop).plans_contradicted)),
    )
}

fn beacons(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let rows = state.shell.beacons().into_iter().flat_map(|beacons| {
        let endpoints = beacons.counters().into_iter();
        endpoints.flat_map(|(name, counters)| {
            let outcomes = [
                ("sent", counters.sent),
                ("heard", counters.heard),
                ("malformed", counters.malformed),
                ("unknown-key", counters.unknown_key),
                ("forged", counters.forged),
                ("replayed", counters.replayed),
            ];
            outcomes.map(|(outcome, count)| {
                let socket = ("socket", name.to_owned());
                (vec![socket, ("outcome", outcome.to_owned())], count)
            })
        })
    });
    families.counter(
        "beacons",
        "Beacons sent, and datagrams received by what they were; socket is a path or listener",
        rows,
    )
}

fn budgets(paths: &[PathView], families: &mut Families<'_>) -> fmt::Result {
    families.gauge(
        ("path_spent", Unit::Bytes),
        "IP bytes in both directions in the present period of a metered path",
        of_paths(paths, |path| Some(path.hop.meter.as_ref()?.spent_bytes)),
    )?;
    families.gauge(
        ("path_budget", Unit::Bytes),
        "What may be spent in the present period of a metered path; absent without a budget",
        of_paths(paths, |path| path.hop.meter.as_ref()?.budget_bytes),
    )
}

fn on_demand(paths: &[PathView], families: &mut Families<'_>) -> fmt::Result {
    let own = || {
        let paths = paths.iter();
        let own = paths.filter_map(|path| Some((path, path.hop.on_demand.as_ref()?)));
        own.filter(|(_, of)| of.dials)
    };
    families.counter(
        ("path_up", Unit::Seconds),
        "How long a path on demand was up",
        own().map(|(path, of)| (of_path(path), of.up_s)),
    )?;
    let times = own().flat_map(|(path, of)| {
        Need::ALL.map(|need| {
            let mut labels = of_path(path);
            labels.push(("need", need.name().to_owned()));
            let times = of.brought_up.get(need.name()).copied().unwrap_or(0);
            (labels, times)
        })
    });
    families.counter(
        "path_brought_up",
        "How often a path on demand was brought up, by what needed it",
        times,
    )
}

fn rates(state: &ApiState, paths: &[PathView], families: &mut Families<'_>) -> fmt::Result {
    families.gauge(
        ("path_rate", per_second()),
        "Rate of the path from this node, as IP bytes; absent if unlimited",
        of_paths(paths, |path| path.hop.rate_bps.map(octets)),
    )?;
    families.gauge(
        ("path_subtracted", per_second()),
        "Part of the rate that ACKs and plain IP take",
        of_paths(paths, |path| Some(octets(path.hop.subtracted_bps))),
    )?;
    families.gauge(
        ("path_capacity", per_second()),
        "What the link was measured to carry, as IP bytes; absent if all that is set",
        of_paths(paths, |path| path.hop.measured.capacity_bps.map(octets)),
    )?;
    families.gauge(
        ("path_queue", Unit::Seconds),
        "How long the link's queue holds packets up",
        of_paths(paths, |path| Some(path.hop.measured.queue_ms / 1e3)),
    )?;
    let beam = state.shell.read_any(Engine::beam_rate_bps);
    families.gauge(
        ("beam_rate", per_second()),
        "Rate that all paths share, as IP bytes; absent if unlimited",
        beam.map(|bps| (vec![], octets(bps))),
    )
}

/// Bytes per second of bit/s.
fn octets(bps: u64) -> f64 {
    bps as f64 / 8.0
}

type OfTraffic = (&'static str, &'static str, fn(&HopTraffic) -> u64);

const BUNDLE_COUNTS: [OfTraffic; 5] = [
    (
        "path_flows",
        "Flows of classes with policy minfct that were to be complete first by the path",
        |traffic| traffic.flows,
    ),
    (
        "path_sent_bundles",
        "Bundles given to the convergence layer, repetitions included",
        |traffic| traffic.sent_bundles,
    ),
    (
        "path_repeated_bundles",
        "Bundles given to the convergence layer that had been given to one before",
        |traffic| traffic.repeated_bundles,
    ),
    (
        "path_resumed_bundles",
        "Bundles among those repeated that went on where an earlier transfer had broken",
        |traffic| traffic.resumed_bundles,
    ),
    (
        "path_received_bundles",
        "Bundles that arrived and were kept",
        |traffic| traffic.received_bundles,
    ),
];

const BUNDLE_BYTES: [OfTraffic; 4] = [
    (
        "path_sent_bundle",
        "Bytes of the bundles in path_sent_bundles",
        |traffic| traffic.sent_bytes,
    ),
    (
        "path_repeated_bundle",
        "Bytes of the bundles in path_repeated_bundles",
        |traffic| traffic.repeated_bytes,
    ),
    (
        "path_resumed_bundle",
        "Bytes of the bundles in path_resumed_bundles that were not sent again",
        |traffic| traffic.resumed_bytes,
    ),
    (
        "path_received_bundle",
        "Bytes of the bundles in path_received_bundles",
        |traffic| traffic.received_bytes,
    ),
];

fn bundles(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let hops = state.shell.hops();
    let rows = |count: fn(&HopTraffic) -> u64| {
        let hops = hops.iter();
        hops.flat_map(move |hop| {
            let classes = hop.traffic.iter().zip(0..);
            classes.map(move |(traffic, class)| {
                let labels = vec![
                    ("path", hop.name.clone()),
                    ("class", state.class_name(Class(class))),
                ];
                (labels, count(traffic))
            })
        })
    };
    for (name, help, count) in BUNDLE_COUNTS {
        families.counter(name, help, rows(count))?;
    }
    for (name, help, count) in BUNDLE_BYTES {
        families.counter((name, Unit::Bytes), help, rows(count))?;
    }
    Ok(())
}

type OfTransport = (&'static str, &'static str, fn(&TransportTotals) -> u64);

const TRANSPORT_SUMS: [OfTransport; 3] = [
    (
        "transport_sent",
        "Payload that the transports sent, retransmissions included",
        |totals| totals.sent_bytes,
    ),
    (
        "transport_retransmitted",
        "Payload that the transports sent again",
        |totals| totals.retransmitted_bytes,
    ),
    (
        "transport_received",
        "Payload that the transports received",
        |totals| totals.received_bytes,
    ),
];

/// Symbols of coded datagrams.
const CODED_SUMS: [OfTransport; 4] = [
    (
        "coded_symbols_sent",
        "Symbols of bundles sent as coded datagrams, each counted once",
        |totals| totals.coded.symbols_sent,
    ),
    (
        "coded_repair_symbols_sent",
        "Repair symbols sent ahead of any request",
        |totals| totals.coded.repair_symbols_sent,
    ),
    (
        "coded_asked_symbols_sent",
        "Symbols sent because the neighbour lacked them",
        |totals| totals.coded.asked_symbols_sent,
    ),
    (
        "coded_symbols_recovered",
        "Lost symbols that repair has given without a round trip",
        |totals| totals.coded.symbols_recovered,
    ),
];

fn transports(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let hops = state.shell.hops();
    let names: BTreeMap<HopId, String> = hops.into_iter().map(|hop| (hop.id, hop.name)).collect();
    let totals = state.shell.transport_totals();
    let bytes =
        TRANSPORT_SUMS.map(|(name, help, sum)| (Name::from((name, Unit::Bytes)), help, sum));
    let symbols = CODED_SUMS.map(|(name, help, sum)| (Name::from(name), help, sum));
    for (name, help, sum) in bytes.into_iter().chain(symbols) {
        let rows = totals.iter().map(|((hop, class), totals)| {
            let path = names.get(hop).cloned().unwrap_or_default();
            let class = class.map_or(ALL_CLASSES.to_owned(), |class| state.class_name(class));
            (vec![("path", path), ("class", class)], sum(totals))
        });
        families.counter(name, help, rows)?;
    }
    ltp::counts(&names, &totals, families)
}

fn mptcp(paths: &[PathView], families: &mut Families<'_>) -> fmt::Result {
    let of_all = || paths.iter().filter_map(|path| Some((path, path.mptcp?)));
    families.gauge(
        "path_subflows",
        "Subflows of the path's sessions over MPTCP",
        of_all().map(|(path, of)| (of_path(path), of.subflows)),
    )?;
    families.gauge(
        "path_mptcp_sessions",
        "Sessions of the path that were to be over MPTCP, and what carries them",
        of_all().flat_map(|(path, of)| {
            let carried = [("mptcp", of.sessions), ("tcp", of.fallback_sessions)];
            carried.map(|(transport, count)| {
                let mut labels = of_path(path);
                labels.push(("transport", transport.to_owned()));
                (labels, count)
            })
        }),
    )
}

fn sessions(paths: &[PathView], families: &mut Families<'_>) -> fmt::Result {
    let all = || {
        let paths = paths.iter();
        paths.flat_map(|path| path.sessions.iter().map(move |session| (path, session)))
    };
    let labels = |path: &PathView, view: &SessionView| {
        let class = view.class.as_deref().unwrap_or(ALL_CLASSES);
        vec![("path", path.hop.name.clone()), ("class", class.to_owned())]
    };
    let mut counts: BTreeMap<Labels, u64> = BTreeMap::new();
    let mut controls: BTreeSet<Labels> = BTreeSet::new();
    for (path, view) in all() {
        let part = match (view.carrying, view.receives_only) {
            (true, _) => "carrying",
            (false, true) => "receiving",
            (false, false) => "standby",
        };
        let mut row = labels(path, view);
        row.push(("state", part.to_owned()));
        *counts.entry(row).or_default() += 1;
        let mut row = labels(path, view);
        row.push(("algorithm", view.congestion_control.clone()));
        controls.insert(row);
    }
    families.gauge("sessions", "Sessions that are up", counts)?;
    families.info(
        "congestion_control",
        "Congestion control in use by the sessions",
        controls,
    )?;
    // One session of each class carries, so that rows are unique.
    let carrying: Vec<_> = all()
        .filter(|(_, view)| view.carrying)
        .map(|(path, view)| (labels(path, view), view))
        .collect();
    ltp::present(paths, families)?;
    figures(&carrying, families)
}

type OfSession = (&'static str, &'static str, Unit, fn(&SessionView) -> f64);

fn figures(carrying: &[(Labels, &SessionView)], families: &mut Families<'_>) -> fmt::Result {
    let rows: [OfSession; 5] = [
        (
            "session_rtt",
            "Smoothed round-trip time of the session that carries the class",
            Unit::Seconds,
            |view| view.rtt_ms / 1e3,
        ),
        (
            "session_min_rtt",
            "Least round-trip time of the session that carries the class",
            Unit::Seconds,
            |view| view.min_rtt_ms / 1e3,
        ),
        (
            "session_delivery_rate",
            "Payload delivered, as the transport last measured it",
            per_second(),
            |view| octets(view.delivery_rate_bps),
        ),
        (
            "session_cwnd",
            "Congestion window of the session that carries the class",
            Unit::Bytes,
            |view| view.cwnd_bytes as f64,
        ),
        (
            "session_in_flight",
            "Bytes given to the transport and not acknowledged",
            Unit::Bytes,
            |view| view.in_flight_bytes as f64,
        ),
    ];
    for (name, help, unit, figure) in rows {
        let rows = carrying
            .iter()
            .map(|(labels, view)| (labels.clone(), figure(view)));
        families.gauge((name, unit), help, rows)?;
    }
    Ok(())
}
