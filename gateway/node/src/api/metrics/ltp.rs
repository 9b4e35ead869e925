//! What LTP has in progress with its neighbours, and what it has given up.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::registry::Unit;
use underpass_cla::{Class, LtpFigures};
use underpass_engine::HopId;

use super::super::view::PathView;
use super::families::Families;
use crate::shell::TransportTotals;

type OfLtp = (&'static str, fn(&LtpFigures) -> u64);

const CANCELLED: [OfLtp; 2] = [
    ("sent", |ltp| ltp.cancelled_sent_blocks),
    ("received", |ltp| ltp.cancelled_received_blocks),
];

const REFUSED: [OfLtp; 5] = [
    ("malformed", |ltp| ltp.malformed_segments),
    ("foreign", |ltp| ltp.foreign_segments),
    ("closed", |ltp| ltp.closed_segments),
    ("impossible", |ltp| ltp.impossible_segments),
    ("no-room", |ltp| ltp.no_room_segments),
];

/// What LTP has given up and refused, on the paths that have spoken it.
pub fn counts(
    names: &BTreeMap<HopId, String>,
    totals: &BTreeMap<(HopId, Option<Class>), TransportTotals>,
    families: &mut Families<'_>,
) -> fmt::Result {
    let rows = |label: &'static str, kinds: &'static [OfLtp]| {
        let spoken = totals.iter().filter(|(_, totals)| totals.speaks_ltp);
        spoken.flat_map(move |((hop, _), totals)| {
            let path = names.get(hop).cloned().unwrap_or_default();
            kinds.iter().map(move |(kind, count)| {
                let labels = vec![("path", path.clone()), (label, (*kind).to_owned())];
                (labels, count(&totals.ltp))
            })
        })
    };
    families.counter(
        "ltp_cancelled_blocks",
        "Blocks of LTP that either side has given up",
        rows("direction", &CANCELLED),
    )?;
    families.counter(
        "ltp_refused_segments",
        "Segments of LTP that were not taken from the neighbour",
        rows("reason", &REFUSED),
    )
}

/// What LTP has under way.
pub fn present(paths: &[PathView], families: &mut Families<'_>) -> fmt::Result {
    let all = || {
        let each = paths.iter().flat_map(|path| {
            let sessions = path.sessions.iter();
            sessions.map(move |session| (path.hop.name.clone(), session))
        });
        each.filter_map(|(path, session)| Some((path, session.ltp?)))
    };
    let blocks = all().flat_map(|(path, ltp)| {
        let counts = [
            ("sent", ltp.sending_blocks),
            ("received", ltp.receiving_blocks),
        ];
        counts.map(|(direction, count)| {
            let labels = vec![("path", path.clone()), ("direction", direction.to_owned())];
            (labels, count)
        })
    });
    families.gauge("ltp_blocks", "Blocks of LTP under way", blocks)?;
    families.gauge(
        ("ltp_receiving", Unit::Bytes),
        "Memory for blocks of LTP from the neighbour that are not taken yet",
        all().map(|(path, ltp)| (vec![("path", path)], ltp.receiving_bytes)),
    )
}
