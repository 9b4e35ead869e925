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
    own: Status,
    terminals: Vec<TerminalView>,
}

/// A terminal's latest report.
#[derive(Debug, Serialize)]
pub struct TerminalView {
    node: u64,
    /// Since it was made, as far as bundles tell, s.
    age_s: f64,
    status: Status,
}

/// GET /v1/reports
pub async fn reports(State(state): State<Arc<ApiState>>) -> Json<ReportsView> {
    let latest = state.reports.as_ref().map(|intake| intake.latest());
    let terminals = latest.unwrap_or_default().into_iter();
    Json(ReportsView {
        own: state.reporter.status(),
        terminals: terminals
            .map(|(node, latest)| TerminalView {
                node,
                age_s: latest.at.elapsed().as_secs_f64(),
                status: latest.status,
            })
            .collect(),
    })
}
