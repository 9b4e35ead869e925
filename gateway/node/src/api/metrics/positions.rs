//! The receiver that tells the position.

use std::fmt;

use prometheus_client::registry::Unit;

use super::families::Families;
use crate::positions::{Positions, SourceState};

pub fn encode(positions: &Positions, families: &mut Families<'_>) -> fmt::Result {
    let (view, figures) = (positions.view(), positions.figures());
    let state = view.source.state;
    families.gauge(
        "position_source_up",
        "Whether the receiver is reached",
        [(vec![], u64::from(state != SourceState::Connecting))],
    )?;
    families.gauge(
        "position_fixed",
        "Whether the receiver knows where it is",
        [(vec![], u64::from(state == SourceState::Fix))],
    )?;
    families.gauge(
        ("position_age", Unit::Seconds),
        "Since the latest fix; absent before the first",
        view.fix.as_ref().map(|fix| (vec![], fix.age_s)),
    )?;
    families.gauge(
        ("position_clock_difference", Unit::Seconds),
        "GNSS time of the latest fix minus the node's clock when it came; absent without either",
        view.fix.as_ref().and_then(|fix| {
            let (gnss, node) = (fix.position.gnss_time_ms?, fix.position.node_time_ms?);
            Some((vec![], (gnss as f64 - node as f64) / 1e3))
        }),
    )?;
    let counts = figures.counts;
    for (name, help, count) in [
        (
            "position_sentences",
            "Sound sentences or objects of the receiver",
            counts.sentences,
        ),
        ("position_fixes", "Fixes made of them", counts.fixes),
        ("position_reports", "Positions reported", figures.reported),
        (
            "position_source_losses",
            "Times that the receiver was lost, or not reached",
            figures.lost,
        ),
    ] {
        families.counter(name, help, [(vec![], count)])?;
    }
    let refused = [
        ("spoilt", counts.spoilt),
        ("rejected", counts.rejected),
        ("without-fix", counts.without_fix),
        ("foreign", figures.foreign),
    ];
    families.counter(
        "position_refused",
        "What of the receiver made no fix: lines that are no sentence, sentences or fixes that cannot be, epochs without a fix, datagrams of others",
        refused.map(|(reason, count)| (vec![("reason", reason.to_owned())], count)),
    )
}
