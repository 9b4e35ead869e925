//! What can be ended: streams and bundles.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use underpass_bundle::BundleId;
use underpass_engine::StreamKey;
use underpass_streams::{Epoch, StreamId};

use super::ApiState;
use super::problem::{Path, Problem, Query};

/// The run of the peer; its present one if none is named.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    epoch: Option<u64>,
}

/// DELETE /v1/streams/{peer}/{id}: both applications see a reset.
pub async fn reset_stream(
    State(state): State<Arc<ApiState>>,
    Path((peer, id)): Path<(u64, u64)>,
    Query(run): Query<Run>,
) -> Result<StatusCode, Problem> {
    let stream = StreamId(id);
    let key = match run.epoch.map(Epoch) {
        Some(epoch) => StreamKey {
            peer,
            epoch,
            id: stream,
        },
        None => state
            .shell
            .read_peer(peer, |engine| engine.key(peer, stream)),
    };
    let missing = |_| Problem::not_found(format!("there is no stream {id} with node {peer}"));
    state.shell.reset_stream(key).map_err(missing)?;
    tracing::info!(peer, stream = id, "stream reset by the local API");
    Ok(StatusCode::NO_CONTENT)
}

/// DELETE /v1/custody/{id}: streams of this node whose bytes are in the
/// bundle are reset.
pub async fn cancel_bundle(
    State(state): State<Arc<ApiState>>,
    Path(id): Path<u64>,
) -> Result<StatusCode, Problem> {
    if !state.shell.cancel(BundleId(id)) {
        return Err(Problem::not_found(format!("there is no bundle {id}")));
    }
    tracing::info!(bundle = id, "bundle given up by the local API");
    Ok(StatusCode::NO_CONTENT)
}
