//! Reports: a terminal's own, and those that a hub has had.

use std::fmt;

use prometheus_client::registry::Unit;

use super::super::ApiState;
use super::families::Families;

pub fn encode(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    if let Some(sent) = &state.reports_sent {
        families.gauge(
            "reports_waiting",
            "Reports that wait to be sent",
            [(vec![], sent.waiting())],
        )?;
        families.counter(
            "reports_dropped",
            "Reports given up for want of room",
            [(vec![], sent.dropped())],
        )?;
    }
    if let Some(sender) = &state.report_sender {
        families.counter(
            "reports_refused",
            "What was to be reported and had no room or sense",
            [(vec![], sender.refused())],
        )?;
    }
    let Some(intake) = &state.reports else {
        return Ok(());
    };
    let heard = intake.heard();
    let ages = heard.iter().filter_map(|(node, heard)| {
        let labels = vec![("terminal", node.to_string())];
        Some((labels, heard.status.as_ref()?.at.elapsed().as_secs_f64()))
    });
    families.gauge(
        ("report_age", Unit::Seconds),
        "Since a terminal's latest report was made",
        ages,
    )
}
