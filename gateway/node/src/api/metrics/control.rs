//! The contact with the control service.

use std::fmt;

use prometheus_client::registry::Unit;

use super::super::ApiState;
use super::families::Families;

pub fn encode(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let Some(control) = state.control() else {
        return Ok(());
    };
    let contacts = [("reports", &control.reports), ("plans", &control.plans)];
    let of = |what: &str| vec![("what", what.to_owned())];
    families.gauge(
        "control_up",
        "Whether the control service answers: to posts of reports, and by its stream of plans",
        contacts.map(|(what, contact)| (of(what), u64::from(contact.state == "well"))),
    )?;
    let ages = contacts.into_iter();
    families.gauge(
        ("control_contact_age", Unit::Seconds),
        "Since it was last seen to",
        ages.filter_map(|(what, contact)| Some((of(what), contact.well_s?))),
    )?;
    let places = [
        ("memory", control.waiting - control.spooled),
        ("disk", control.spooled),
    ];
    families.gauge(
        "control_reports_waiting",
        "Reports that wait for the control service",
        places.map(|(place, count)| (vec![("place", place.to_owned())], count)),
    )?;
    families.gauge(
        ("control_reports_waiting", Unit::Bytes),
        "Their size",
        [(vec![], control.waiting_bytes)],
    )?;
    let outcomes = [
        ("accepted", control.accepted),
        ("refused", control.refused),
        ("dropped", control.dropped),
    ];
    families.counter(
        "control_reports",
        "Reports by what became of them: dropped are those given up for want of room",
        outcomes.map(|(outcome, count)| (vec![("outcome", outcome.to_owned())], count)),
    )?;
    families.counter(
        "control_events_passed_over",
        "Plans and settings from the control service that were too large to be taken",
        [(vec![], control.events_passed_over)],
    )
}
