//! GET /v1/reports: the nodes' reports of their links and positions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use underpass_reports::{Position, Status};

use super::ApiState;
use crate::run::reports::Latest;

/// This node's own status, and the latest of each terminal that reports.
#[derive(Debug, Serialize)]
pub struct ReportsView {
    own: PlacedView<Status>,
    terminals: Vec<TerminalView>,
}

/// A report of a node, with its place among its reports.
#[derive(Debug, Serialize)]
pub struct PlacedView<T> {
    incarnation: u64,
    uptime_ms: u64,
    #[serde(flatten)]
    body: T,
}

/// A terminal's latest reports.
#[derive(Debug, Serialize)]
pub struct TerminalView {
    node: u64,
    /// Age of the status, as far as the bundles show it, s.
    age_s: f64,
    status: PlacedView<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<PositionView>,
}

/// A terminal's latest position.
#[derive(Debug, Serialize)]
pub struct PositionView {
    /// Time since it was reported, as far as the bundles show it, s.
    age_s: f64,
    #[serde(flatten)]
    report: PlacedView<Position>,
}

impl<T> From<Latest<T>> for PlacedView<T> {
    fn from(latest: Latest<T>) -> PlacedView<T> {
        PlacedView {
            incarnation: latest.incarnation,
            uptime_ms: latest.uptime_ms,
            body: latest.body,
        }
    }
}

/// GET /v1/reports
pub async fn reports(State(state): State<Arc<ApiState>>) -> Json<ReportsView> {
    let heard = state.reports.as_ref().map(|intake| intake.heard());
    let terminals = heard.unwrap_or_default().into_iter();
    Json(ReportsView {
        own: PlacedView {
            incarnation: state.incarnation,
            uptime_ms: u64::try_from(state.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            body: state.reporter.status(),
        },
        // A terminal reports its status first, and again each second.
        terminals: terminals
            .filter_map(|(node, heard)| {
                let status = heard.status?;
                Some(TerminalView {
                    node,
                    age_s: status.at.elapsed().as_secs_f64(),
                    status: status.into(),
                    position: heard.position.map(|position| PositionView {
                        age_s: position.at.elapsed().as_secs_f64(),
                        report: position.into(),
                    }),
                })
            })
            .collect(),
    })
}
