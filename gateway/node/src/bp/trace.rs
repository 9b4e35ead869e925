//! `underpass bp trace`: the status reports of a bundle.

use serde_json::json;
use tokio::time::Instant;
use underpass_applications::wire::{Event, Report, Reported};

use super::command::TraceCommand;
use super::connection::{Connection, waiting};
use super::error::BpError;

/// What a trace says.
const PAYLOAD: &[u8] = b"underpass bp trace";

const ALL: [Reported; 4] = [
    Reported::Received,
    Reported::Forwarded,
    Reported::Delivered,
    Reported::Deleted,
];

pub async fn execute(mut command: TraceCommand) -> Result<(), BpError> {
    let timeout = waiting("timeout", command.timeout)?;
    // Nobody waits for it any longer.
    command.sending.lifetime.get_or_insert(command.timeout);
    let mut connection =
        Connection::open(&command.common, command.sending.service.as_ref()).await?;
    let begun = Instant::now();
    let destination = &command.destination;
    let sent = connection.send(destination, &command.sending, &ALL, PAYLOAD);
    let Some(created) = sent.await? else {
        // The bundle was for this node, which delivers it at once and sends no report.
        let after_ms = begun.elapsed().as_secs_f64() * 1e3;
        let report = json!({
            "reporter": connection.endpoint, "events": [Reported::Delivered], "at_ms": null,
            "reason": 0, "heard_after_ms": after_ms,
        });
        let text = format!("{destination}: delivered at this node, after {after_ms:.1} ms");
        return connection.tell(&report, &text);
    };
    let until = begun + timeout;
    while let Some((event, _)) = connection.next(Some(until)).await? {
        let Event::Report(Report {
            reporter,
            time_ms,
            sequence,
            events,
            at_ms,
            reason,
            ..
        }) = event
        else {
            continue;
        };
        if created != (time_ms, sequence) {
            continue;
        }
        let after_ms = begun.elapsed().as_secs_f64() * 1e3;
        let at = at_ms.map(|at_ms| at_ms.saturating_sub(time_ms));
        let report = json!({
            "reporter": reporter, "events": events, "at_ms": at_ms, "reason": reason,
            "heard_after_ms": after_ms,
        });
        let names: Vec<_> = events.iter().map(|event| name(*event)).collect();
        let at = at.map_or_else(String::new, |ms| format!(" after {ms} ms by its clock"));
        let names = names.join(", ");
        let text = format!("{reporter}: {names}{at}, heard after {after_ms:.1} ms");
        connection.tell(&report, &text)?;
        if events.contains(&Reported::Delivered) {
            return Ok(());
        }
    }
    Err(BpError::NotDelivered(command.destination))
}

fn name(event: Reported) -> &'static str {
    match event {
        Reported::Received => "received",
        Reported::Forwarded => "forwarded",
        Reported::Delivered => "delivered",
        Reported::Deleted => "deleted",
    }
}
