//! A speed test through the hop.

use std::sync::Arc;
use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;

use super::ApiState;
use super::problem::{Json, Problem};
use crate::config::class_named;
use crate::speed_test::{Report, Wanted};

/// How long each direction may be loaded, s.
const SECONDS: std::ops::RangeInclusive<u64> = 1..=30;

/// What a test is to be like.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Asked {
    seconds: u64,
    /// By its name; default: the class of connections that match no rule.
    class: Option<String>,
}

impl Default for Asked {
    fn default() -> Self {
        Asked {
            seconds: 8,
            class: None,
        }
    }
}

/// GET /v1/speed-test
pub async fn show(State(state): State<Arc<ApiState>>) -> Result<Reply<Report>, Problem> {
    let latest = state.speed_test.latest();
    let none = || Problem::not_found("no speed test was run since the node's start");
    latest.map(Reply).ok_or_else(none)
}

/// POST /v1/speed-test
pub async fn begin(
    State(state): State<Arc<ApiState>>,
    Json(asked): Json<Asked>,
) -> Result<(StatusCode, Reply<Report>), Problem> {
    if !SECONDS.contains(&asked.seconds) {
        return Err(Problem::invalid("seconds must be 1 to 30"));
    }
    let config = state.config.get();
    let usual = || config.streams.default_class.clone();
    let name = asked.class.unwrap_or_else(usual);
    let class = class_named(&config.classes, &name);
    let class = class.ok_or_else(|| Problem::invalid(format!("there is no class {name:?}")))?;
    let wanted = Wanted {
        class: (class, name),
        lasts: Duration::from_secs(asked.seconds),
    };
    let begun = state.speed_test.begin(wanted);
    let report = begun.map_err(|error| Problem::new(StatusCode::CONFLICT, error.to_string()))?;
    Ok((StatusCode::ACCEPTED, Reply(report)))
}

/// DELETE /v1/speed-test
pub async fn end(State(state): State<Arc<ApiState>>) -> StatusCode {
    state.speed_test.end();
    StatusCode::NO_CONTENT
}
