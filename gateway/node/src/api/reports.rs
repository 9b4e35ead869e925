//! GET /v1/reports: what nodes say of their links.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use underpass_reports::Status;

use super::ApiState;

/// This node's own status, and the latest of each terminal that reports.
#[derive(Debug, Serialize)]
pub struct ReportsView {
    own: StatusView,
    terminals: Vec<TerminalView>,
}

/// A status with its place among those of its node.
#[derive(Debug, Serialize)]
pub struct StatusView {
    incarnation: u64,
    uptime_ms: u64,
    #[serde(flatten)]
    status: Status,
}

/// A terminal's latest report.
#[derive(Debug, Serialize)]
pub struct TerminalView {
    node: u64,
    /// Since it was made, as far as bundles tell, s.
    age_s: f64,
    status: StatusView,
}

/// GET /v1/reports
pub async fn reports(State(state): State<Arc<ApiState>>) -> Json<ReportsView> {
    let latest = state.reports.as_ref().map(|intake| intake.latest());
    let terminals = latest.unwrap_or_default().into_iter();
    Json(ReportsView {
        own: StatusView {
            incarnation: state.incarnation,
            uptime_ms: u64::try_from(state.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            status: state.reporter.status(),
        },
        terminals: terminals
            .map(|(node, latest)| TerminalView {
                node,
                age_s: latest.at.elapsed().as_secs_f64(),
                status: StatusView {
                    incarnation: latest.incarnation,
                    uptime_ms: latest.uptime_ms,
                    status: latest.status,
                },
            })
            .collect(),
    })
}
