//! The last lines of the log.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::ApiState;
use super::problem::Query;

/// From which line on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct From {
    #[serde(default)]
    from: u64,
}

/// Lines of the log in their order.
#[derive(Debug, Serialize)]
pub struct LogView {
    /// The number of the first of them.
    first: u64,
    /// The number of the line that comes next.
    next: u64,
    /// As the log has them.
    lines: Vec<String>,
}

/// GET /v1/log?from=N
pub async fn show(State(state): State<Arc<ApiState>>, Query(from): Query<From>) -> Json<LogView> {
    let part = state.log.from(from.from);
    Json(LogView {
        first: part.first,
        next: part.next,
        lines: part.lines,
    })
}
