//! Metered paths: what is spent, and how an operator changes it.

use std::sync::Arc;

use axum::Json as Reply;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use underpass_engine::{MeterSnapshot, Period};

use super::ApiState;
use super::problem::{Json, Path, Problem};
use super::view::PathView;
use crate::config::BUDGETS_BYTES;

/// What is spent on a metered path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeterView {
    /// Bytes of IP in both directions in this period.
    pub spent_bytes: u64,
    /// What may be spent in this period, including what was added; null is no limit.
    pub budget_bytes: Option<u64>,
    /// What an operator has added to it.
    pub added_bytes: u64,
    pub exhausted: bool,
    /// day, month or once.
    pub period: String,
    /// When this period began; null while the time is not known, or if the budget is never renewed.
    #[serde(with = "time::serde::rfc3339::option")]
    pub begun: Option<OffsetDateTime>,
    /// The classes that may use the path although its budget is spent.
    pub beyond: Vec<String>,
}

/// A change of a budget by an operator: exactly one of the two fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetChange {
    /// Adds this many bytes to what may be spent in this period.
    add_bytes: Option<u64>,
    /// Sets what was spent and what was added in this period to zero.
    #[serde(default)]
    reset: bool,
}

/// POST /v1/paths/{name}/budget
pub async fn change(
    State(state): State<Arc<ApiState>>,
    Path(name): Path<String>,
    Json(change): Json<BudgetChange>,
) -> Result<Reply<PathView>, Problem> {
    if change.add_bytes.is_some() == change.reset {
        return Err(Problem::invalid("give add_bytes, or reset = true"));
    }
    if let Some(bytes) = change.add_bytes
        && !BUDGETS_BYTES.contains(&bytes)
    {
        return Err(Problem::invalid("add_bytes must be 1 to 1000000000000000"));
    }
    let hop = state.hop(&name)?;
    let budgeted = state.shell.with_hop(hop, |engine, now| {
        let budgeted = engine.meter(hop)?.budget_bytes?;
        match change.add_bytes {
            Some(bytes) => engine.add_to_budget(now, hop, bytes),
            None => engine.reset_budget(now, hop),
        }
        Some(budgeted)
    });
    if budgeted.is_none() {
        return Err(Problem::invalid(
            "the path has no budget: set meter.budget_bytes in its configuration",
        ));
    }
    tracing::info!(path = name, ?change, "budget changed by the local API");
    state.path(&name).map(Reply)
}

impl ApiState {
    pub(super) fn meter_view(&self, meter: &MeterSnapshot) -> MeterView {
        let begun_ms = meter.spent.begun_ms.map(|ms| i128::from(ms) * 1_000_000);
        let beyond = meter.config.beyond.iter();
        MeterView {
            spent_bytes: meter.spent.spent_bytes,
            budget_bytes: meter.budget_bytes,
            added_bytes: meter.spent.added_bytes,
            exhausted: meter.exhausted,
            period: match meter.config.period {
                Period::Once => "once",
                Period::Day => "day",
                Period::Month(_) => "month",
            }
            .to_owned(),
            begun: begun_ms.and_then(|ns| OffsetDateTime::from_unix_timestamp_nanos(ns).ok()),
            beyond: beyond.map(|class| self.class_name(*class)).collect(),
        }
    }
}
