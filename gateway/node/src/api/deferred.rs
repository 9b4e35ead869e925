//! Requests that are kept for later.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use underpass_cla::Class;
use underpass_deferred::{Document, Handle, Id, Owner, Refusal, Request, ServiceError};
use underpass_edge::http::deferred::response;

use super::ApiState;
use super::problem::{Path, Problem, Query};

const FOLDER: &str = "/v1/deferred";
const MOST_ROWS: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    #[serde(default = "default_limit")]
    limit: usize,
    after: Option<Id>,
    state: Option<underpass_deferred::State>,
}

fn default_limit() -> usize {
    100
}

/// A request as operators see it.
#[derive(Debug, Serialize)]
pub struct RequestView {
    #[serde(flatten)]
    document: Document,
    class: String,
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

impl ApiState {
    fn deferred(&self) -> Result<&Handle, Problem> {
        let text = "this node keeps no requests for later";
        let handle = self.deferred.as_ref();
        handle.ok_or_else(|| Problem::new(StatusCode::CONFLICT, text))
    }

    fn request_view(&self, request: &Request) -> RequestView {
        let Owner { client, user } = request.owner.clone();
        RequestView {
            document: Document::of(request, format!("{FOLDER}/{}", request.id)),
            class: self.class_name(Class(request.class)),
            client: client.to_string(),
            user,
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let status = match refusal {
            Refusal::Unknown => StatusCode::NOT_FOUND,
            Refusal::State => StatusCode::CONFLICT,
            Refusal::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Full => StatusCode::INSUFFICIENT_STORAGE,
        };
        Problem::new(status, refusal.to_string())
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Problem {
        Problem::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string())
    }
}

/// GET /v1/deferred
pub async fn list(
    State(state): State<Arc<ApiState>>,
    Query(page): Query<Page>,
) -> Result<Json<Vec<RequestView>>, Problem> {
    let limit = page.limit.min(MOST_ROWS);
    let found = state.deferred()?.call(move |node, _| {
        let found = node.requests(page.after, limit, page.state);
        Ok(found.into_iter().cloned().collect::<Vec<_>>())
    });
    let found = found.await?;
    Ok(Json(
        found.iter().map(|one| state.request_view(one)).collect(),
    ))
}

/// GET /v1/deferred/{id}
pub async fn show(
    State(state): State<Arc<ApiState>>,
    Path(id): Path<Id>,
) -> Result<Json<RequestView>, Problem> {
    let found = state.deferred()?;
    let found = found.call(move |node, _| Ok(node.request(id, None).cloned()));
    let found = found.await??;
    Ok(Json(state.request_view(&found)))
}

/// DELETE /v1/deferred/{id}: cancels one that has not ended, else deletes it.
pub async fn remove(
    State(state): State<Arc<ApiState>>,
    Path(id): Path<Id>,
) -> Result<Response, Problem> {
    let done = state.deferred()?;
    let done = done.call(move |node, now_ms| node.cancel(now_ms, id, None));
    tracing::info!(%id, "deferred request cancelled or deleted by the local API");
    Ok(match done.await?? {
        None => StatusCode::NO_CONTENT.into_response(),
        Some(left) => {
            let status = match left.cancelling {
                true => StatusCode::ACCEPTED,
                false => StatusCode::OK,
            };
            (status, Json(state.request_view(&left))).into_response()
        }
    })
}

/// POST /v1/deferred/{id}/repeat
pub async fn repeat(
    State(state): State<Arc<ApiState>>,
    Path(id): Path<Id>,
) -> Result<Response, Problem> {
    let done = state.deferred()?;
    let done = done.call(move |node, now_ms| node.repeat(now_ms, id, None));
    let begun = done.await??;
    tracing::info!(%id, "deferred request repeated by the local API");
    Ok((StatusCode::ACCEPTED, Json(state.request_view(&begun))).into_response())
}

/// GET /v1/deferred/{id}/response
pub async fn fetch(
    State(state): State<Arc<ApiState>>,
    Path(id): Path<Id>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let found = response(state.deferred()?, id, None, &method, &headers).await;
    Ok(found.map(Body::new))
}
