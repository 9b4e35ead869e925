//! What reads the configuration again.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use super::ApiState;
use super::problem::Problem;
use crate::run::reload::ReloadError;

#[derive(Debug, Serialize)]
pub struct Changes {
    /// A line for each key.
    changes: Vec<String>,
}

/// POST /v1/reload: all of the configuration as it is written now, or nothing.
pub async fn reload(State(state): State<Arc<ApiState>>) -> Result<Json<Changes>, Problem> {
    let reloaded = (state.reload)().await;
    let internal = |error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}"));
    let changes = reloaded.map_err(internal)?.map_err(|error| match error {
        ReloadError::Restart(_) | ReloadError::Alone => {
            Problem::new(StatusCode::CONFLICT, error.to_string())
        }
        error => Problem::invalid(error.to_string()),
    })?;
    Ok(Json(Changes { changes }))
}
