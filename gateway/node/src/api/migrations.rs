//! Classes that move between paths as one: where they go, and moving them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json as Reply};
use serde::{Deserialize, Serialize};
use underpass_engine::{MigrateError, MoveReason, TunnelSnapshot};

use super::ApiState;
use super::auth::Actor;
use super::problem::{Json, Problem};
use crate::config::class_named;
use crate::holds::{Held, Holds};

/// Where a class goes that moves between the paths to a neighbour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MigrationView {
    pub class: String,
    /// The neighbour's ipn node number.
    pub neighbour: u64,
    /// The path's or terminal's name.
    pub path: String,
    /// How long it has gone there, s.
    pub since_s: f64,
    /// Why it has moved there; null if it has not moved.
    pub reason: Option<String>,
    /// Whether an operator keeps it there.
    pub held: bool,
    /// What it sends to this neighbour, bit/s of bundles.
    pub sends_bps: u64,
    /// The path's round trip as measured, with its queue, ms; null while it is not known.
    #[serde(default)]
    pub rtt_ms: Option<f64>,
    /// Part of the packets that the path loses by itself, as measured.
    #[serde(default)]
    pub loss: f64,
    /// What of it waits for the neighbour, bytes.
    #[serde(default)]
    pub backlog_bytes: u64,
    /// Its streams that have something to be sealed.
    #[serde(default)]
    pub backlogged_streams: usize,
    /// Moves since the start by their reason.
    pub moves: BTreeMap<String, u64>,
}

/// What an operator wants of a class.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    class: String,
    /// The path's or terminal's name.
    path: String,
    /// Whether it is kept there until it is released; if false, the rule decides from then on.
    /// Default true.
    #[serde(default = "stays")]
    hold: bool,
}

fn stays() -> bool {
    true
}

/// GET /v1/migrations
pub async fn list(State(state): State<Arc<ApiState>>) -> Reply<Vec<MigrationView>> {
    Reply(state.migrations())
}

/// POST /v1/migrations
pub async fn migrate(
    State(state): State<Arc<ApiState>>,
    Extension(actor): Extension<Actor>,
    Json(order): Json<Order>,
) -> Result<Reply<Vec<MigrationView>>, Problem> {
    state
        .hold(move |state, holds| state.migrate(&order, holds, &actor))
        .await?;
    Ok(Reply(state.migrations()))
}

impl ApiState {
    fn migrate(&self, order: &Order, holds: &mut Holds, actor: &Actor) -> Result<(), Problem> {
        let class = class_named(&self.config.get().classes, &order.class);
        let class = class
            .ok_or_else(|| Problem::not_found(format!("there is no class {:?}", order.class)))?;
        let hop = self.hop(&order.path)?;
        let neighbour = self.shell.with_hop(hop, |engine, now| {
            engine.migrate(now, class, hop, order.hold)?;
            Ok(engine.neighbour_of(hop).unwrap_or_default())
        });
        let neighbour =
            neighbour.map_err(|error: MigrateError| Problem::invalid(error.to_string()))?;
        let held = Held::Migration {
            class: order.class.clone(),
            neighbour,
            path: order.path.clone(),
        };
        match order.hold {
            true => holds.set(held, actor),
            false => holds.release(&held),
        }
        tracing::info!(
            class = order.class,
            path = order.path,
            hold = order.hold,
            "class moved by the local API"
        );
        Ok(())
    }

    pub(super) fn migrations(&self) -> Vec<MigrationView> {
        let tunnels = self.shell.tunnels().into_iter();
        tunnels.map(|tunnel| self.migration_view(&tunnel)).collect()
    }

    fn migration_view(&self, tunnel: &TunnelSnapshot) -> MigrationView {
        let name = |reason: &MoveReason| reason.name().to_owned();
        let moves = tunnel.moves.iter();
        MigrationView {
            class: self.class_name(tunnel.class),
            neighbour: tunnel.neighbour,
            path: tunnel.path.clone(),
            since_s: tunnel.since.elapsed().as_secs_f64(),
            reason: tunnel.reason.as_ref().map(name),
            held: tunnel.held,
            sends_bps: tunnel.sends_bps,
            rtt_ms: tunnel.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            loss: tunnel.loss,
            backlog_bytes: tunnel.backlog_bytes,
            backlogged_streams: tunnel.backlogged_streams,
            moves: moves
                .map(|(reason, count)| (name(reason), *count))
                .collect(),
        }
    }
}
