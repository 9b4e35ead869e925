//! What can be asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use underpass_engine::StreamKey;

use super::ApiState;
use super::problem::Query;
use super::view::{CustodyView, PathView, Status};

/// GET /v1/status
pub async fn status(State(state): State<Arc<ApiState>>) -> Json<Status> {
    Json(state.status())
}

/// GET /v1/paths
pub async fn paths(State(state): State<Arc<ApiState>>) -> Json<Vec<PathView>> {
    Json(state.paths())
}

/// How many rows are wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    #[serde(default = "default_limit")]
    limit: usize,
}

fn default_limit() -> usize {
    100
}

const MOST_ROWS: usize = 10_000;

/// A stream as an operator sees it.
#[derive(Debug, Serialize)]
pub struct StreamView {
    peer: u64,
    epoch: u64,
    id: u64,
    target: Option<String>,
    class: String,
    state: &'static str,
    age_s: f64,
    sent_bytes: u64,
    read_bytes: u64,
    send_buffered_bytes: u64,
    unread_bytes: u64,
}

/// GET /v1/streams?limit=N
pub async fn streams(
    State(state): State<Arc<ApiState>>,
    Query(limit): Query<Limit>,
) -> Json<Vec<StreamView>> {
    let rows = state.shell.streams(limit.limit.min(MOST_ROWS));
    let keys = rows.iter().map(|(peer, epoch, info)| StreamKey {
        peer: *peer,
        epoch: *epoch,
        id: info.id,
    });
    let targets = state.shell.targets(keys);
    let rows = rows.into_iter().zip(targets);
    let views = rows.map(|((peer, epoch, info), target)| StreamView {
        peer,
        epoch: epoch.0,
        id: info.id.0,
        target,
        class: state.class_name(info.class),
        state: info.state.name(),
        age_s: info.opened_at.elapsed().as_secs_f64(),
        sent_bytes: info.sent_bytes,
        read_bytes: info.read_bytes,
        send_buffered_bytes: info.send_buffered_bytes,
        unread_bytes: info.unread_bytes,
    });
    Json(views.collect())
}

/// A bundle that the node holds.
#[derive(Debug, Serialize)]
pub struct BundleView {
    id: u64,
    source: String,
    destination: String,
    neighbour: u64,
    class: String,
    bytes: u64,
    held_s: f64,
    custody: bool,
    transmissions: u32,
    in_transmission: bool,
}

/// The store's figures with its oldest bundles.
#[derive(Debug, Serialize)]
pub struct CustodyList {
    #[serde(flatten)]
    figures: CustodyView,
    held: Vec<BundleView>,
}

/// GET /v1/custody?limit=N
pub async fn custody(
    State(state): State<Arc<ApiState>>,
    Query(limit): Query<Limit>,
) -> Json<CustodyList> {
    let now = Instant::now();
    let rows = state.shell.stored_bundles(now, limit.limit.min(MOST_ROWS));
    let held = rows.into_iter().map(|bundle| BundleView {
        id: bundle.id.0,
        source: bundle.source.to_string(),
        destination: bundle.destination.to_string(),
        neighbour: bundle.neighbour.0,
        class: state.class_name(bundle.class),
        bytes: bundle.bytes,
        held_s: bundle.stored_for.as_secs_f64(),
        custody: bundle.custody,
        transmissions: bundle.transmissions,
        in_transmission: bundle.in_transmission,
    });
    Json(CustodyList {
        figures: state.custody(),
        held: held.collect(),
    })
}

/// GET /v1/classes: names by number.
pub async fn classes(State(state): State<Arc<ApiState>>) -> Json<BTreeMap<usize, String>> {
    let config = state.config.get();
    let names = config.classes.iter().map(|class| class.name.clone());
    Json(names.enumerate().collect())
}
