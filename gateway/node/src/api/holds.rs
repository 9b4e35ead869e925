//! Holds: what operators have set and not released, since when, and by whom.

use std::sync::Arc;

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::ApiState;
use super::problem::{Path, Problem};
use crate::holds::{self, Held, Hold, Holds};

/// What an operator has set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldView {
    /// Its number in `DELETE`.
    pub id: u64,
    /// What is held, with the path, class, neighbour and rate that it is of.
    #[serde(flatten)]
    pub held: Held,
    /// Since when; null where the time was not known.
    #[serde(with = "time::serde::rfc3339::option")]
    pub since: Option<OffsetDateTime>,
    /// The caller that has set it: `uid 1000` at the socket, `token NAME` over TCP.
    pub by: String,
    /// Whether it is in force: the node has the path, and a class that is kept on it may use it.
    pub in_force: bool,
}

/// GET /v1/holds
pub async fn list(State(state): State<Arc<ApiState>>) -> Reply<Vec<HoldView>> {
    Reply(state.holds_view())
}

/// DELETE /v1/holds/{id}
pub async fn release(
    State(state): State<Arc<ApiState>>,
    Path(id): Path<u64>,
) -> Result<StatusCode, Problem> {
    state
        .hold(move |state, holds| {
            let found = holds.by_number().into_iter().find(|hold| hold.id == id);
            let found =
                found.ok_or_else(|| Problem::not_found(format!("nothing is held as {id}")))?;
            holds::lift(&found.held, &state.shell, &state.config.get());
            holds.release(&found.held);
            tracing::info!(id, held = ?found.held, "hold released by the local API");
            Ok(())
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

impl ApiState {
    /// Changes what is in force, and the holds. If they cannot be written to disk, the caller gets
    /// an error; the change is in force all the same.
    pub(super) async fn hold<R: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&ApiState, &mut Holds) -> Result<R, Problem> + Send + 'static,
    ) -> Result<R, Problem> {
        let state = self.clone();
        let changed = move || state.holds.change(|holds| act(&state, holds));
        let failed = |status, detail: String| Problem::new(status, detail);
        let changed = tokio::task::spawn_blocking(changed).await;
        let (done, written) = changed
            .map_err(|error| failed(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
        written.map_err(|error| {
            tracing::error!(%error, "what operators have set is not kept");
            let detail = format!("it is in force, but not kept for the next start: {error}");
            failed(StatusCode::INSUFFICIENT_STORAGE, detail)
        })?;
        Ok(done)
    }

    pub(super) fn holds_view(&self) -> Vec<HoldView> {
        let config = self.config.get();
        let view = |hold: Hold| {
            let since = hold.since_ms.and_then(|ms| {
                OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok()
            });
            HoldView {
                in_force: holds::is_in_force(&hold.held, &self.shell, &config),
                id: hold.id,
                held: hold.held,
                since,
                by: hold.by,
            }
        };
        self.holds.all().into_iter().map(view).collect()
    }
}
