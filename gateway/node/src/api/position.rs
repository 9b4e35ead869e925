//! GET /v1/position: where the node is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::ApiState;
use super::problem::Problem;
use crate::positions::PositionView;

/// GET /v1/position
pub async fn position(State(state): State<Arc<ApiState>>) -> Result<Json<PositionView>, Problem> {
    let positions = state.positions.as_ref();
    let positions = positions.ok_or_else(|| {
        Problem::not_found("this node has no receiver: no [positions] configured")
    })?;
    Ok(Json(positions.view()))
}
