//! Plans: which are followed, and what they give.

use std::fmt;

use prometheus_client::registry::Unit;
use time::OffsetDateTime;

use super::super::ApiState;
use super::super::plans::PlanView;
use super::families::{Families, Labels, per_second};

pub fn encode(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let view = state.plans_view();
    let of = |plan: &PlanView| -> Labels {
        vec![
            ("beam", plan.beam.clone()),
            ("link", plan.link.clone()),
            ("role", plan.role.clone()),
        ]
    };
    let plans = || view.plans.iter();
    families.gauge(
        "plan_version",
        "Version of the newest plan that has begun",
        plans().map(|plan| (of(plan), plan.version)),
    )?;
    let now = view.control_time;
    let age = |issued: OffsetDateTime| now.map(|now| (now - issued).as_seconds_f64());
    families.gauge(
        ("plan_age", Unit::Seconds),
        "Since that plan was issued, by the control service's clock",
        plans().filter_map(|plan| Some((of(plan), age(plan.issued)?))),
    )?;
    families.gauge(
        "plan_stale",
        "Whether that plan is over",
        plans().map(|plan| (of(plan), u64::from(plan.state == "stale"))),
    )?;
    let rows = plans().flat_map(|plan| {
        plan.terminals.iter().filter_map(|terminal| {
            let mut labels = of(plan);
            labels.push(("terminal", terminal.terminal.to_string()));
            Some((labels, terminal.planned_bps? as f64 / 8.0))
        })
    });
    families.gauge(
        ("plan_rate", per_second()),
        "What the plan in force gives a terminal, as IP bytes; in a blockage of an own link what is guaranteed",
        rows,
    )?;
    families.gauge(
        ("clock_offset", Unit::Seconds),
        "This node's clock minus the control service's; absent if unknown",
        view.clock_offset_ms.map(|ms| (vec![], ms as f64 / 1e3)),
    )
}
