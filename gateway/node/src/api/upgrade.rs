//! Starts an upgrade in place of this node.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use super::ApiState;
use super::problem::Problem;

/// Who goes on.
#[derive(Debug, Serialize)]
pub struct Next {
    process: u32,
}

/// POST /v1/upgrade: the program that is installed now takes over, or nothing changes.
pub async fn upgrade(State(state): State<Arc<ApiState>>) -> Result<Json<Next>, Problem> {
    let upgraded = (state.upgrade)().await;
    let internal = |error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}"));
    let process = upgraded.map_err(internal)?;
    let process = process.map_err(|error| Problem::new(StatusCode::CONFLICT, error.to_string()))?;
    Ok(Json(Next { process }))
}
