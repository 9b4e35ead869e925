//! What can be set: rates, blockages, interception.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use underpass_engine::HopId;

use super::ApiState;

/// A change of a path; what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathChange {
    /// Rate from this node, bit/s of IP bytes; null is unlimited.
    #[serde(default, deserialize_with = "present")]
    rate_bps: Option<Option<u64>>,
    /// Whether sending is held.
    blocked: Option<bool>,
}

/// Tells a null from a key that is left out.
fn present<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(source).map(Some)
}

/// PATCH /v1/paths/{name}
pub async fn change(
    State(state): State<Arc<ApiState>>,
    Path(name): Path<String>,
    Json(change): Json<PathChange>,
) -> Response {
    if let Some(Some(rate)) = change.rate_bps
        && rate < 8_000
    {
        return problem(
            StatusCode::UNPROCESSABLE_ENTITY,
            "rate_bps must be at least 8000; use \"blocked\" to hold a path",
        );
    }
    let Some(hop) = state.shell.read(|engine| engine.hop_named(&name)) else {
        return problem(StatusCode::NOT_FOUND, &format!("there is no path {name:?}"));
    };
    state.shell.with(|engine, now| {
        if let Some(rate) = change.rate_bps {
            engine.set_rate(now, hop, rate);
        }
        if let Some(blocked) = change.blocked {
            engine.set_blocked(now, hop, blocked);
        }
    });
    tracing::info!(path = name, ?change, "path changed by the local API");
    Json(json!({ "path": name })).into_response()
}

/// Which path is meant; all if none is named.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    path: Option<String>,
}

/// POST /v1/link/block?path=NAME
pub async fn block(state: State<Arc<ApiState>>, named: Query<Named>) -> Response {
    set_blocked(&state, named.0, true)
}

/// POST /v1/link/unblock?path=NAME
pub async fn unblock(state: State<Arc<ApiState>>, named: Query<Named>) -> Response {
    set_blocked(&state, named.0, false)
}

fn set_blocked(state: &ApiState, named: Named, blocked: bool) -> Response {
    let hops: Vec<HopId> = match &named.path {
        None => state.shell.read(|engine| engine.hop_ids()),
        Some(name) => match state.shell.read(|engine| engine.hop_named(name)) {
            Some(hop) => vec![hop],
            None => {
                return problem(StatusCode::NOT_FOUND, &format!("there is no path {name:?}"));
            }
        },
    };
    state.shell.with(|engine, now| {
        for hop in &hops {
            engine.set_blocked(now, *hop, blocked);
        }
    });
    tracing::info!(path = named.path, blocked, "blockage set by the local API");
    Json(json!({ "paths": hops.len(), "blocked": blocked })).into_response()
}

fn problem(status: StatusCode, detail: &str) -> Response {
    let body =
        json!({ "title": status.canonical_reason(), "status": status.as_u16(), "detail": detail });
    let kind = [(axum::http::header::CONTENT_TYPE, "application/problem+json")];
    (status, kind, body.to_string()).into_response()
}
