//! What can be set of links: rates and blockages.

use std::sync::Arc;

use axum::Json as Reply;
use axum::extract::State;
use serde::{Deserialize, Deserializer, Serialize};
use underpass_engine::{Engine, HopId};

use super::ApiState;
use super::problem::{Json, Path, Problem, Query};
use super::view::PathView;
use crate::config::RATES_BPS;

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

fn check_rate(rate_bps: Option<Option<u64>>) -> Result<(), Problem> {
    match rate_bps.flatten() {
        Some(bps) if !RATES_BPS.contains(&bps) => Err(Problem::invalid(
            "rate_bps must be 8000 to 100000000000, or null; use \"blocked\" to hold a path",
        )),
        _ => Ok(()),
    }
}

/// PATCH /v1/paths/{name}
pub async fn change_path(
    State(state): State<Arc<ApiState>>,
    Path(name): Path<String>,
    Json(change): Json<PathChange>,
) -> Result<Reply<PathView>, Problem> {
    check_rate(change.rate_bps)?;
    let hop = state.hop(&name)?;
    state.shell.with(|engine, now| {
        if let Some(rate) = change.rate_bps {
            engine.set_rate(now, hop, rate);
        }
        if let Some(blocked) = change.blocked {
            engine.set_blocked(now, hop, blocked);
        }
    });
    tracing::info!(path = name, ?change, "path changed by the local API");
    let mut paths = state.paths().into_iter();
    let view = paths.find(|view| view.hop.name == name);
    view.map(Reply).ok_or_else(|| unknown_path(&name))
}

/// The beam's capacity.
#[derive(Debug, Serialize)]
pub struct BeamView {
    /// bit/s of IP bytes; null is unlimited.
    rate_bps: Option<u64>,
}

/// GET /v1/beam
pub async fn beam(State(state): State<Arc<ApiState>>) -> Reply<BeamView> {
    let rate_bps = state.shell.read(Engine::beam_rate_bps);
    Reply(BeamView { rate_bps })
}

/// A change of the beam; what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeamChange {
    /// Rate that all paths share, bit/s of IP bytes; null is unlimited.
    #[serde(default, deserialize_with = "present")]
    rate_bps: Option<Option<u64>>,
}

/// PATCH /v1/beam
pub async fn change_beam(
    state: State<Arc<ApiState>>,
    Json(change): Json<BeamChange>,
) -> Result<Reply<BeamView>, Problem> {
    check_rate(change.rate_bps)?;
    if let Some(rate) = change.rate_bps {
        state
            .shell
            .with(|engine, now| engine.set_beam_rate(now, rate));
        tracing::info!(rate_bps = rate, "beam changed by the local API");
    }
    Ok(beam(state).await)
}

/// Which path is meant; all if none is named.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    path: Option<String>,
}

/// What was blocked or unblocked.
#[derive(Debug, Serialize)]
pub struct Blockage {
    /// The paths' names.
    paths: Vec<String>,
    /// What they are now.
    blocked: bool,
}

/// POST /v1/link/block?path=NAME
pub async fn block(
    State(state): State<Arc<ApiState>>,
    Query(named): Query<Named>,
) -> Result<Reply<Blockage>, Problem> {
    state.set_blocked(named.path.as_deref(), true).map(Reply)
}

/// POST /v1/link/unblock?path=NAME
pub async fn unblock(
    State(state): State<Arc<ApiState>>,
    Query(named): Query<Named>,
) -> Result<Reply<Blockage>, Problem> {
    state.set_blocked(named.path.as_deref(), false).map(Reply)
}

fn unknown_path(name: &str) -> Problem {
    Problem::not_found(format!("there is no path {name:?}"))
}

impl ApiState {
    fn hop(&self, name: &str) -> Result<HopId, Problem> {
        let hop = self.shell.read(|engine| engine.hop_named(name));
        hop.ok_or_else(|| unknown_path(name))
    }

    fn set_blocked(&self, path: Option<&str>, blocked: bool) -> Result<Blockage, Problem> {
        let named = path.map(|name| self.hop(name)).transpose()?;
        let mut hops = self.shell.read(Engine::hops);
        hops.retain(|hop| named.is_none_or(|named| named == hop.id));
        self.shell.with(|engine, now| {
            for hop in &hops {
                engine.set_blocked(now, hop.id, blocked);
            }
        });
        tracing::info!(path, blocked, "blockage set by the local API");
        let paths = hops.into_iter().map(|hop| hop.name).collect();
        Ok(Blockage { paths, blocked })
    }
}
