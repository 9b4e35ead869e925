//! The last lines of the log.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use super::ApiState;
use super::problem::Query;
use crate::logging::Part;

/// From which line on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct From {
    #[serde(default)]
    from: u64,
}

/// GET /v1/log?from=N
pub async fn show(State(state): State<Arc<ApiState>>, Query(from): Query<From>) -> Json<Part> {
    Json(state.log.from(from.from))
}
