//! Streams, custody, and what was refused or lost.

use std::fmt;

use prometheus_client::registry::Unit;
use underpass_cla::Class;
use underpass_engine::StreamTotals;

use super::super::ApiState;
use super::super::view::{CustodyClassView, CustodyNeighbourView};
use super::families::{Families, Labels};

pub fn encode(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    streams(state, families)?;
    custody(state, families)?;
    losses(state, families)
}

fn of_class(class: &str) -> Labels {
    vec![("class", class.to_owned())]
}

fn streams(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let streams = state.streams();
    let states = streams.iter().flat_map(|(class, view)| {
        let counts = [
            ("open", view.open),
            ("half-closed", view.half_closed),
            ("draining", view.draining),
        ];
        counts.map(|(state, count)| {
            let mut labels = of_class(class);
            labels.push(("state", state.to_owned()));
            (labels, count)
        })
    });
    families.gauge("streams", "Streams by state", states)?;
    let rows = |figure: fn(&StreamTotals) -> u64| {
        let rows = streams.iter();
        rows.map(move |(class, view)| (of_class(class), figure(view)))
    };
    families.counter(
        ("streams_sent", Unit::Bytes),
        "Bytes of streams that were sealed into bundles",
        rows(|view| view.sent_bytes),
    )?;
    families.counter(
        ("streams_received", Unit::Bytes),
        "Bytes of streams that arrived for the first time",
        rows(|view| view.received_bytes),
    )?;
    families.gauge(
        ("streams_backlog", Unit::Bytes),
        "Bytes of streams that wait for the link",
        rows(|view| view.backlog_bytes),
    )?;
    let events = state.shell.stream_events();
    let events = [
        ("opened", events.opened),
        ("accepted", events.accepted),
        ("refused", events.refused),
        ("closed", events.closed),
        ("reset-here", events.resets_sent),
        ("reset-by-peer", events.resets_received),
        ("violation", events.violations),
        ("expired", events.expired),
    ];
    families.counter(
        "stream_events",
        "What became of streams",
        events.map(|(event, count)| (vec![("event", event.to_owned())], count)),
    )
}

type OfCustody = (&'static str, &'static str, fn(&CustodyClassView) -> u64);

fn custody(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let custody = state.custody();
    let counts: [OfCustody; 2] = [
        ("held_bundles", "Bundles held", |view| view.bundles),
        (
            "custody_bundles",
            "Bundles in this node's custody",
            |view| view.custody_bundles,
        ),
    ];
    let sizes: [OfCustody; 2] = [
        ("held", "Payload of the bundles held", |view| view.bytes),
        (
            "custody",
            "Payload of the bundles in this node's custody",
            |view| view.custody_bytes,
        ),
    ];
    // A class without bundles has a row, too: a missing row would not mean zero.
    let classes: Vec<(String, CustodyClassView)> = (0..state.config.get().classes.len())
        .filter_map(|number| u8::try_from(number).ok())
        .map(|number| {
            let name = state.class_name(Class(number));
            let view = custody.classes.get(&name).copied().unwrap_or_default();
            (name, view)
        })
        .collect();
    let rows = |figure: fn(&CustodyClassView) -> u64| {
        let rows = classes.iter();
        rows.map(move |(class, view)| (of_class(class), figure(view)))
    };
    for (name, help, figure) in counts {
        families.gauge(name, help, rows(figure))?;
    }
    for (name, help, figure) in sizes {
        families.gauge((name, Unit::Bytes), help, rows(figure))?;
    }
    let ages = classes
        .iter()
        .map(|(class, view)| (of_class(class), view.oldest_s));
    families.gauge(
        ("held_oldest_age", Unit::Seconds),
        "For how long the oldest bundle has been held",
        ages,
    )?;
    families.gauge(
        ("store_used", Unit::Bytes),
        "Bytes of the store in use, as the quota counts them",
        [(vec![], custody.used_bytes)],
    )?;
    families.gauge(
        ("store_quota", Unit::Bytes),
        "Bytes that the store may use",
        [(vec![], custody.quota_bytes)],
    )?;
    let rows = |figure: fn(&CustodyNeighbourView) -> u64| {
        let rows = custody.neighbours.iter();
        rows.map(move |view| {
            let label = ("neighbour", view.neighbour.to_string());
            (vec![label], figure(view))
        })
    };
    families.gauge(
        "store_neighbour_bundles",
        "Bundles that wait for a neighbour",
        rows(|view| view.bundles),
    )?;
    families.gauge(
        ("store_neighbour_used", Unit::Bytes),
        "Bytes of the store in use for a neighbour, as the quota counts them",
        rows(|view| view.used_bytes),
    )?;
    families.gauge(
        ("store_neighbour_guaranteed", Unit::Bytes),
        "Bytes of the store that are guaranteed to a neighbour",
        rows(|view| view.guaranteed_bytes),
    )
}

fn losses(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let counts = state.shell.counts();
    families.counter(
        "deleted_bundles",
        "Bundles deleted without having been delivered or handed on",
        [(vec![], counts.deleted_bundles)],
    )?;
    families.counter(
        "refused_bundles",
        "Bundles that arrived and were refused",
        [(vec![], counts.refused_bundles)],
    )?;
    families.counter(
        "forged_bundles",
        "Bundles refused because they say what their neighbour may not say",
        [(vec![], counts.forged_bundles)],
    )?;
    families.counter(
        "foreign_clients",
        "Streams of peers refused because they name clients that are not the peer's",
        [(vec![], counts.foreign_clients)],
    )?;
    families.counter(
        "bad_payloads",
        "Payloads that broke the stream protocol",
        [(vec![], counts.bad_payloads)],
    )
}
