//! Plans: which are in force, and what they give each terminal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Json as Reply;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use underpass_engine::{HopPlan, HopSnapshot, PlanSnapshot};
use underpass_plans::Plan;

use super::ApiState;
use super::problem::Problem;
use crate::run::plans::{PartView, TakeError};

#[derive(Debug, Serialize, Deserialize)]
pub struct PlansView {
    /// The control service's time as this node knows it; null if it does not.
    #[serde(with = "time::serde::rfc3339::option")]
    pub control_time: Option<OffsetDateTime>,
    /// This node's clock minus the control service's, ms; null if unknown.
    pub clock_offset_ms: Option<i64>,
    /// The plans that links of this node follow, and those that it passes on.
    pub plans: Vec<PlanView>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PlanView {
    pub beam: String,
    /// forward or return.
    pub link: String,
    pub version: u64,
    /// follow, or pass-on at a hub for its terminals.
    pub role: String,
    /// waiting (it has not begun), in-force or stale (it is over).
    pub state: String,
    /// When control made it.
    #[serde(with = "time::serde::rfc3339")]
    pub issued: OffsetDateTime,
    /// From when on it holds.
    #[serde(with = "time::serde::rfc3339")]
    pub start: OffsetDateTime,
    /// Until when it holds.
    #[serde(with = "time::serde::rfc3339")]
    pub end: OffsetDateTime,
    /// The link's capacity now, by the plan, bit/s of IP bytes.
    pub capacity_bps: Option<u64>,
    /// When anything changes next.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_change: Option<OffsetDateTime>,
    /// The version that takes its place later.
    pub next_version: Option<u64>,
    /// Its allocations for the terminals that concern this node.
    pub terminals: Vec<TerminalPlanView>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct TerminalPlanView {
    /// Its ipn node number.
    pub terminal: u64,
    /// The path of this node that follows; null where it is passed on.
    pub path: Option<String>,
    /// fair, borrowing, lending, repaying, repaid or blocked; null if it is
    /// not named, or no plan is in force.
    pub state: Option<String>,
    /// By the plan, bit/s of IP bytes.
    pub planned_bps: Option<u64>,
    /// Guaranteed by the last plan that names it.
    pub guaranteed_bps: Option<u64>,
    /// The rate in force on the path: an upper bound at a hub, the rate itself at a terminal.
    pub rate_bps: Option<u64>,
    /// Whether an operator has set that, over the plan.
    pub by_operator: bool,
    /// When its rate by the plan changes next.
    #[serde(with = "time::serde::rfc3339::option")]
    pub until: Option<OffsetDateTime>,
    /// Whether its part waits here to be sent; null if the link is this node's own.
    pub waits: Option<bool>,
}

/// GET /v1/plans
pub async fn plans(State(state): State<Arc<ApiState>>) -> Reply<PlansView> {
    Reply(state.plans_view())
}

/// PUT /v1/plans: takes a plan as if it came from the control service.
pub async fn take(
    State(state): State<Arc<ApiState>>,
    headers: HeaderMap,
    document: Bytes,
) -> Result<Reply<PlansView>, Problem> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("");
    if !kind.starts_with("application/json") {
        let text = "a plan is sent with Content-Type: application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    match state.plans.take(&document) {
        Ok(_) => Ok(Reply(state.plans_view())),
        Err(TakeError::Plan(error)) => Err(Problem::invalid(error.to_string())),
        Err(error) => Err(Problem::new(StatusCode::CONFLICT, error.to_string())),
    }
}

/// A time of a plan, which lies before the year 10000.
fn time_of(ms: u64) -> OffsetDateTime {
    let nanoseconds = i128::from(ms) * 1_000_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn view(plan: &Plan, role: &str, state: &str) -> PlanView {
    PlanView {
        beam: plan.beam().to_owned(),
        link: plan.link().name().to_owned(),
        version: plan.version(),
        role: role.to_owned(),
        state: state.to_owned(),
        issued: time_of(plan.issued_ms()),
        start: time_of(plan.start_ms()),
        end: time_of(plan.end_ms()),
        capacity_bps: None,
        next_change: None,
        next_version: None,
        terminals: Vec::new(),
    }
}

impl PlanView {
    fn of(followed: &PlanSnapshot, hops: &[HopSnapshot]) -> Option<PlanView> {
        let plan = followed.current.as_ref().or(followed.next.as_ref())?;
        let state = match (followed.in_force, &followed.current) {
            (true, _) => "in-force",
            (false, Some(_)) => "stale",
            (false, None) => "waiting",
        };
        let next = followed
            .next
            .as_ref()
            .filter(|next| !Arc::ptr_eq(next, plan));
        let hops = hops.iter().filter(|hop| followed.hops.contains(&hop.id));
        Some(PlanView {
            capacity_bps: followed.capacity_bps,
            next_change: followed.next_change_ms.map(time_of),
            next_version: next.map(|next| next.version()),
            terminals: hops
                .filter_map(|hop| TerminalPlanView::of(hop, hop.plan.as_ref()?))
                .collect(),
            ..view(plan, "follow", state)
        })
    }

    /// The parts that are passed on of one plan.
    fn of_parts(plan: &Plan, parts: &[&PartView], now_ms: Option<u64>) -> PlanView {
        let state = match now_ms {
            Some(now_ms) if plan.end_ms() <= now_ms => "stale",
            Some(now_ms) if plan.start_ms() <= now_ms => "in-force",
            _ => "waiting",
        };
        let parts = parts.iter().map(|part| {
            let line = plan.line(part.terminal);
            let segment = line.zip(now_ms).and_then(|(line, now_ms)| line.at(now_ms));
            TerminalPlanView {
                terminal: part.terminal,
                path: None,
                state: segment.map(|segment| segment.state.name().to_owned()),
                planned_bps: segment.map(|segment| segment.rate_bps),
                guaranteed_bps: line.map(|line| line.guaranteed_bps),
                rate_bps: None,
                by_operator: false,
                until: segment.map(|segment| time_of(segment.end_ms)),
                waits: Some(part.waits),
            }
        });
        PlanView {
            terminals: parts.collect(),
            capacity_bps: (state == "in-force").then(|| plan.capacity_at(now_ms.unwrap_or(0))),
            next_change: now_ms
                .and_then(|now_ms| plan.next_change(now_ms))
                .map(time_of),
            ..view(plan, "pass-on", state)
        }
    }
}

impl TerminalPlanView {
    fn of(hop: &HopSnapshot, plan: &HopPlan) -> Option<TerminalPlanView> {
        plan.plan.line(plan.terminal)?;
        Some(TerminalPlanView {
            terminal: plan.terminal,
            path: Some(hop.name.clone()),
            state: plan.state.map(|state| state.name().to_owned()),
            planned_bps: plan.planned_bps,
            guaranteed_bps: plan.guaranteed_bps,
            rate_bps: hop.send_rate_bps,
            by_operator: hop.rate_by_operator,
            until: plan.until_ms.map(time_of),
            waits: None,
        })
    }
}

impl ApiState {
    pub fn plans_view(&self) -> PlansView {
        let followed = self.shell.plans(Instant::now());
        let hops = self.shell.hops();
        let now_ms = self.control_clock.now_ms();
        let followed = followed.iter().filter_map(|plan| PlanView::of(plan, &hops));
        let mut plans: Vec<PlanView> = followed.collect();
        let parts = self.plans.passed_on();
        let mut by_plan: BTreeMap<(&str, u64), Vec<&PartView>> = BTreeMap::new();
        for part in &parts {
            let plan = (part.plan.beam(), part.plan.version());
            by_plan.entry(plan).or_default().push(part);
        }
        let passed_on = by_plan.values().filter_map(|parts| {
            let first = parts.first()?;
            Some(PlanView::of_parts(&first.plan, parts, now_ms))
        });
        plans.extend(passed_on);
        PlansView {
            control_time: now_ms.map(time_of),
            clock_offset_ms: self.control_clock.offset_ms(),
            plans,
        }
    }
}
