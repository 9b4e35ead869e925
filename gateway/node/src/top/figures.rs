//! What the tables show of a node.

use time::OffsetDateTime;

use super::sheet::{Cell, Mood, Sheet, figures, words};
use super::traffic::{Throughput, Traffic};
use crate::api::{HopFields, PathView, SessionView, Status, rate, size, span};

/// A queue that delays packets for longer is highlighted, ms.
const QUEUE_MS: f64 = 50.0;
/// So is a link that loses more than this fraction of the packets.
const LOSS: f64 = 0.01;
/// So is a session that retransmits more than this fraction of its bytes.
const AGAIN: f64 = 0.05;

/// The paths, in the order of `paths`.
pub fn paths<'a>(
    paths: impl IntoIterator<Item = &'a PathView>,
    status: &Status,
    traffic: &Traffic,
    now: OffsetDateTime,
) -> Sheet {
    let mut sheet = Sheet::new([
        words("PATH", 0),
        words("TO", 6),
        words("LINK", 0),
        words("BLOCKED BY", 3),
        words("EXPECTED", 1),
        figures("RATE", 2),
        figures("CARRIES", 7),
        figures("RTT", 4),
        figures("QUEUE", 5),
        figures("LOSS", 5),
        figures("SENDS", 1),
        figures("RECEIVES", 1),
        figures("STORED", 4),
    ]);
    for path in paths {
        let hop = &path.hop;
        let measured = &hop.measured;
        let throughput = traffic.path(path);
        let stored = status.custody.neighbours.iter();
        let stored = stored.filter(|one| one.neighbour == hop.neighbour);
        let stored = stored.map(|one| one.used_bytes).next();
        sheet.row(vec![
            hop.name.as_str().into(),
            format!("ipn:{}.0", hop.neighbour).into(),
            link(hop),
            Cell::known(hop.link.blocked_by, |source| {
                let for_s = hop.link.blocked_s.unwrap_or_default();
                format!("{}, {}", source.name(), span(for_s))
            }),
            expected(hop, now),
            Cell::from(hop.rate_bps.map_or("unlimited".to_owned(), rate)),
            Cell::known(measured.capacity_bps, rate),
            Cell::known(measured.base_rtt_ms, ms),
            Cell::warning_if(measured.queue_ms > QUEUE_MS, ms(measured.queue_ms)),
            Cell::warning_if(measured.loss > LOSS, percent(measured.loss)),
            Cell::known(throughput, sent),
            Cell::known(throughput, received),
            Cell::known(stored, size),
        ]);
    }
    sheet
}

pub fn sessions(path: &PathView, traffic: &Traffic) -> Sheet {
    let mut sheet = Sheet::new([
        words("CLASS", 0),
        words("PART", 4),
        words("LAYER", 3),
        words("CONTROL", 5),
        figures("RTT", 1),
        figures("LEAST", 6),
        figures("DELIVERY", 3),
        figures("WINDOW", 7),
        figures("IN FLIGHT", 2),
        figures("AGAIN", 2),
        figures("SENDS", 1),
        figures("RECEIVES", 1),
    ]);
    for session in &path.sessions {
        sheet.row(session_row(session, traffic.session(session.id)));
    }
    sheet
}

fn session_row(session: &SessionView, throughput: Option<Throughput>) -> Vec<Cell> {
    let part = match (session.carrying, session.receives_only) {
        (true, _) => "carries",
        (false, true) => "receives",
        (false, false) => "stands by",
    };
    let again = match session.sent_bytes {
        0 => None,
        sent => Some(session.retransmitted_bytes as f64 / sent as f64),
    };
    let again = again.map_or("-".into(), |again| {
        Cell::warning_if(again > AGAIN, percent(again))
    });
    vec![
        session.class.as_deref().unwrap_or("all").into(),
        part.into(),
        session.convergence_layer.as_str().into(),
        session.congestion_control.as_str().into(),
        ms(session.rtt_ms).into(),
        ms(session.min_rtt_ms).into(),
        rate(session.delivery_rate_bps).into(),
        size(session.cwnd_bytes).into(),
        size(session.in_flight_bytes).into(),
        again,
        Cell::known(throughput, sent),
        Cell::known(throughput, received),
    ]
}

/// The classes: their streams, with what this node sends and receives on them, and their bundles in
/// custody. At a hub, clients of terminals receive what it sends.
pub fn classes(status: &Status, traffic: &Traffic) -> Sheet {
    let mut sheet = Sheet::new([
        words("CLASS", 0),
        figures("STREAMS", 1),
        figures("ENDING", 5),
        figures("SENDS", 1),
        figures("RECEIVES", 1),
        figures("WAITING", 2),
        figures("BUNDLES", 4),
        figures("IN CUSTODY", 3),
        figures("OLDEST", 4),
        words("GOES BY", 6),
    ]);
    for class in &status.classes {
        let streams = status.streams.get(class).copied().unwrap_or_default();
        let custody = &status.custody.classes;
        let custody = custody.get(class).copied().unwrap_or_default();
        let throughput = traffic.class(class);
        let moving = status.migrations.iter();
        let moving = moving.filter(|migration| migration.class == *class);
        let moving: Vec<&str> = moving.map(|migration| migration.path.as_str()).collect();
        sheet.row(vec![
            class.as_str().into(),
            streams.open.to_string().into(),
            (streams.half_closed + streams.draining).to_string().into(),
            Cell::known(throughput, sent),
            Cell::known(throughput, received),
            size(streams.backlog_bytes).into(),
            custody.bundles.to_string().into(),
            size(custody.custody_bytes).into(),
            format!("{:.1} s", custody.oldest_s).into(),
            Cell::known((!moving.is_empty()).then_some(moving), |paths| {
                paths.join(", ")
            }),
        ]);
    }
    sheet
}

fn link(hop: &HopFields) -> Cell {
    match (hop.blocked, hop.up) {
        (true, _) => Cell::new("blocked", Mood::Bad),
        (false, true) => Cell::new("up", Mood::Good),
        (false, false) => Cell::new("down", Mood::Bad),
    }
}

/// When the present blockage ends, or the next one begins.
pub fn expected(hop: &HopFields, now: OffsetDateTime) -> Cell {
    let until = |time: OffsetDateTime| span((time - now).as_seconds_f64().max(0.0));
    let mut planned = hop.link.planned.iter().filter(|one| now < one.exit);
    match (hop.blocked, planned.next()) {
        (false, Some(one)) if hop.link.plan_contradicted && one.entry <= now => {
            Cell::new("heard in a planned blockage", Mood::Warning)
        }
        (true, Some(one)) if one.entry <= now => {
            Cell::new(format!("ends in {}", until(one.exit)), Mood::Warning)
        }
        (true, _) => Cell::new("end not known", Mood::Warning),
        (false, Some(one)) if one.entry <= now => {
            Cell::new(format!("now, for {}", until(one.exit)), Mood::Warning)
        }
        (false, Some(one)) => {
            let lasts = span((one.exit - one.entry).as_seconds_f64());
            Cell::new(format!("in {}, for {lasts}", until(one.entry)), Mood::Plain)
        }
        (false, None) => "-".into(),
    }
}

/// bit/s for people; none below 0.5.
pub fn bps(throughput: f64) -> String {
    rate(throughput.round() as u64)
}

fn sent(throughput: Throughput) -> String {
    bps(throughput.sent_bps)
}

fn received(throughput: Throughput) -> String {
    bps(throughput.received_bps)
}

fn ms(ms: f64) -> String {
    format!("{ms:.0} ms")
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use underpass_engine::Source;

    use super::*;
    use crate::api::PlannedView;
    use crate::top::example::status;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn hop(blocked: bool, planned: &[(i64, i64)]) -> HopFields {
        let mut hop = status().paths.remove(0).hop;
        hop.blocked = blocked;
        hop.link.blocked_by = blocked.then_some(Source::Plan);
        let planned = planned.iter().map(|(entry_s, exit_s)| PlannedView {
            entry: NOW + Duration::seconds(*entry_s),
            exit: NOW + Duration::seconds(*exit_s),
        });
        hop.link.planned = planned.collect();
        hop
    }

    fn told(hop: &HopFields) -> String {
        expected(hop, NOW).text
    }

    #[test]
    fn the_expected_end_of_a_blockage_is_told() {
        assert_eq!(told(&hop(true, &[(-12, 23)])), "ends in 23 s");
        assert_eq!(told(&hop(true, &[])), "end not known");
        // A hop that is blocked before its planned blockage.
        assert_eq!(told(&hop(true, &[(10, 20)])), "end not known");
    }

    #[test]
    fn the_next_blockage_is_told_with_its_length() {
        assert_eq!(
            told(&hop(false, &[(65, 125)])),
            "in 1 min 5 s, for 1 min 0 s"
        );
        assert_eq!(told(&hop(false, &[])), "-");
    }

    #[test]
    fn a_planned_blockage_that_is_over_is_not_told() {
        assert_eq!(
            told(&hop(false, &[(-9, -1), (30, 40)])),
            "in 30 s, for 10 s"
        );
    }

    #[test]
    fn a_peer_that_is_heard_in_a_planned_blockage_is_told() {
        let mut hop = hop(false, &[(-5, 5)]);
        hop.link.plan_contradicted = true;
        assert_eq!(told(&hop), "heard in a planned blockage");
    }

    #[test]
    fn standing_queue_and_loss_stand_out() {
        let mut status = status();
        status.paths[0].hop.measured.queue_ms = 80.0;
        status.paths[0].hop.measured.loss = 0.02;
        let sheet = paths(&status.paths, &status, &Traffic::default(), NOW);
        let cell = |head| {
            let place = sheet.columns.iter().position(|column| column.head == head);
            &sheet.rows[0][place.unwrap()]
        };
        assert_eq!(*cell("QUEUE"), Cell::new("80 ms", Mood::Warning));
        assert_eq!(*cell("LOSS"), Cell::new("2.0 %", Mood::Warning));
        assert_eq!(*cell("RTT"), Cell::new("600 ms", Mood::Plain));
    }
}
