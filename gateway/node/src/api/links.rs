//! What can be set of links: rates and blockages.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json as Reply};
use serde::{Deserialize, Deserializer, Serialize};
use underpass_engine::{Engine, HopId, HopSnapshot, MAX_PLANNED};
use underpass_reports::EFFICIENCIES;

use super::ApiState;
use super::auth::Actor;
use super::problem::{Json, Path, Problem, Query};
use super::view::{PathView, PlannedView};
use crate::config::RATES_BPS;
use crate::holds::{Held, Holds};

/// A change of a path; what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathChange {
    /// Rate from this node, bit/s of IP bytes; null is unlimited.
    #[serde(default, deserialize_with = "present")]
    rate_bps: Option<Option<u64>>,
    /// Whether the rate follows plan and configuration; false keeps the present rate. Not together
    /// with a rate, which overrides the plan.
    follow_plan: Option<bool>,
    /// Rate to this node, bit/s of IP bytes; null is unlimited.
    #[serde(default, deserialize_with = "present")]
    receive_rate_bps: Option<Option<u64>>,
    blocked: Option<bool>,
    /// For a path on demand: true brings it up, false releases it, null leaves it to the node.
    #[serde(default, deserialize_with = "present")]
    brought_up: Option<Option<bool>>,
}

/// Tells a null from a key that is left out.
fn present<'de, D, T>(source: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(source).map(Some)
}

/// A rate that is set does not follow a plan.
fn check_follow(follow_plan: Option<bool>, rate: Option<Option<u64>>) -> Result<(), Problem> {
    match (follow_plan, rate) {
        (Some(_), Some(_)) => Err(Problem::invalid(
            "give rate_bps, which counts over the plan, or follow_plan",
        )),
        _ => Ok(()),
    }
}

fn check_rate(rate_bps: Option<Option<u64>>) -> Result<(), Problem> {
    match rate_bps.flatten() {
        Some(bps) if !RATES_BPS.contains(&bps) => Err(Problem::invalid(
            "a rate must be 8000 to 100000000000, or null; use \"blocked\" to hold a path",
        )),
        _ => Ok(()),
    }
}

/// A rate that is kept must be one that can be set, since the next start sets it.
fn check_kept(rate_bps: Option<u64>) -> Result<(), Problem> {
    match rate_bps.filter(|bps| !RATES_BPS.contains(bps)) {
        Some(bps) => Err(Problem::invalid(format!(
            "the rate is {bps} bit/s at present, and only 8000 to 100000000000 can be kept"
        ))),
        None => Ok(()),
    }
}

/// PATCH /v1/paths/{name}
pub async fn change_path(
    State(state): State<Arc<ApiState>>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Json(change): Json<PathChange>,
) -> Result<Reply<PathView>, Problem> {
    check_rate(change.rate_bps)?;
    check_rate(change.receive_rate_bps)?;
    check_follow(change.follow_plan, change.rate_bps)?;
    let path = name.clone();
    let change = state
        .hold(move |state, holds| {
            let hop = state.hop(&path)?;
            if change.brought_up.is_some() && !state.dials_on_demand(hop) {
                return Err(Problem::invalid(
                    "this node does not bring the path up: it has no [path.on_demand]",
                ));
            }
            state.change_path(&path, hop, &change, holds, &actor)?;
            Ok(change)
        })
        .await?;
    tracing::info!(path = name, ?change, "path changed by the local API");
    state.path(&name).map(Reply)
}

/// What a modem says of the MODCOD in use.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Efficiency {
    /// Bits per unit of the beam's capacity; null withdraws an earlier value.
    efficiency: Option<f64>,
}

/// PUT /v1/paths/{name}/efficiency
pub async fn set_efficiency(
    State(state): State<Arc<ApiState>>,
    Path(name): Path<String>,
    Json(said): Json<Efficiency>,
) -> Result<Reply<PathView>, Problem> {
    let out_of_range = |efficiency: &f64| !EFFICIENCIES.contains(efficiency);
    if said.efficiency.as_ref().is_some_and(out_of_range) {
        return Err(Problem::invalid(
            "efficiency must be 0.001 to 1000 bits per unit of capacity, or null",
        ));
    }
    let hop = state.hop(&name)?;
    state
        .shell
        .with_hop(hop, |engine, _| engine.set_efficiency(hop, said.efficiency));
    tracing::debug!(
        path = name,
        efficiency = said.efficiency,
        "MODCOD told by the local API"
    );
    state.path(&name).map(Reply)
}

/// The beam's capacity.
#[derive(Debug, Serialize)]
pub struct BeamView {
    /// bit/s of IP bytes; null is unlimited.
    rate_bps: Option<u64>,
    /// The part of it that operator, plan or configuration allow, bit/s of IP bytes.
    allowed_bps: Option<u64>,
    /// Whether it follows plan and configuration: no operator has set it.
    follow_plan: bool,
}

/// GET /v1/beam
pub async fn beam(State(state): State<Arc<ApiState>>) -> Reply<BeamView> {
    Reply(state.shell.read_any(|engine| BeamView {
        rate_bps: engine.beam_rate_bps(),
        allowed_bps: engine.beam_allowed_bps(),
        follow_plan: !engine.beam_rate_by_operator(),
    }))
}

/// A change of the beam; fields that are left out do not change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeamChange {
    /// Rate that all paths share, bit/s of IP bytes; null is unlimited.
    #[serde(default, deserialize_with = "present")]
    rate_bps: Option<Option<u64>>,
    /// Whether it follows plan and configuration; false keeps the present rate. Not together with a
    /// rate, which overrides the plan.
    follow_plan: Option<bool>,
}

/// PATCH /v1/beam
pub async fn change_beam(
    State(state): State<Arc<ApiState>>,
    Extension(actor): Extension<Actor>,
    Json(change): Json<BeamChange>,
) -> Result<Reply<BeamView>, Problem> {
    check_rate(change.rate_bps)?;
    check_follow(change.follow_plan, change.rate_bps)?;
    state
        .hold(move |state, holds| {
            let allowed = || state.shell.read_any(Engine::beam_allowed_bps);
            let frozen = (change.follow_plan == Some(false)).then(allowed);
            check_kept(frozen.flatten())?;
            if let Some(rate_bps) = change.rate_bps.or(frozen) {
                let each = |engine: &mut Engine, now| engine.set_beam_rate(now, rate_bps);
                state.shell.with_each(each);
                holds.set(Held::BeamRate { rate_bps }, &actor);
            } else if change.follow_plan == Some(true) {
                state.shell.with_each(Engine::reset_beam_rate);
                holds.release(&Held::BeamRate { rate_bps: None });
            }
            tracing::info!(?change, "beam changed by the local API");
            Ok(())
        })
        .await?;
    Ok(beam(State(state)).await)
}

/// The blockages that are known beforehand.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blockages {
    blockages: Vec<PlannedView>,
}

/// PUT /v1/paths/{name}/blockages
pub async fn plan_blockages(
    State(state): State<Arc<ApiState>>,
    Path(name): Path<String>,
    Json(plan): Json<Blockages>,
) -> Result<Reply<PathView>, Problem> {
    if plan.blockages.len() > MAX_PLANNED {
        let text = format!("there may be {MAX_PLANNED} blockages at most");
        return Err(Problem::invalid(text));
    }
    let planned = plan.blockages.iter().map(PlannedView::planned);
    let planned = planned.collect::<Option<Vec<_>>>().ok_or_else(|| {
        Problem::invalid("entry and exit must lie after 1970, and exit behind entry")
    })?;
    let hop = state.hop(&name)?;
    tracing::info!(
        path = name,
        count = planned.len(),
        "blockages planned by the local API"
    );
    state
        .shell
        .with_hop(hop, |engine, now| engine.plan_blockages(now, hop, planned));
    state.path(&name).map(Reply)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sayer {
    #[default]
    Operator,
    Modem,
}

/// The path, all paths if none is named; and the source of the message.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    path: Option<String>,
    #[serde(default)]
    source: Sayer,
}

/// What was blocked or unblocked.
#[derive(Debug, Serialize)]
pub struct Blockage {
    paths: Vec<String>,
    /// What the caller has said of them.
    blocked: bool,
}

/// POST /v1/link/block?path=NAME&source=SOURCE
pub async fn block(
    State(state): State<Arc<ApiState>>,
    Extension(actor): Extension<Actor>,
    Query(named): Query<Named>,
) -> Result<Reply<Blockage>, Problem> {
    let done = state.hold(move |state, holds| state.set_blocked(&named, true, holds, &actor));
    done.await.map(Reply)
}

/// POST /v1/link/unblock?path=NAME&source=SOURCE
pub async fn unblock(
    State(state): State<Arc<ApiState>>,
    Extension(actor): Extension<Actor>,
    Query(named): Query<Named>,
) -> Result<Reply<Blockage>, Problem> {
    let done = state.hold(move |state, holds| state.set_blocked(&named, false, holds, &actor));
    done.await.map(Reply)
}

fn unknown_path(name: &str) -> Problem {
    Problem::not_found(format!("there is no path {name:?}"))
}

impl ApiState {
    pub(super) fn hop(&self, name: &str) -> Result<HopId, Problem> {
        let hop = self.shell.hop_named(name);
        hop.ok_or_else(|| unknown_path(name))
    }

    pub(super) fn path(&self, name: &str) -> Result<PathView, Problem> {
        let mut paths = self.paths().into_iter();
        let view = paths.find(|view| view.hop.name == name);
        view.ok_or_else(|| unknown_path(name))
    }

    fn dials_on_demand(&self, hop: HopId) -> bool {
        let snapshot = self.shell.read_hop(hop, |engine| engine.hop(hop));
        let on_demand = snapshot.and_then(|hop| hop.on_demand);
        on_demand.is_some_and(|of| of.dials)
    }

    fn change_path(
        &self,
        name: &str,
        hop: HopId,
        change: &PathChange,
        holds: &mut Holds,
        actor: &Actor,
    ) -> Result<(), Problem> {
        let path = || name.to_owned();
        let rate = |rate_bps| Held::Rate {
            path: path(),
            rate_bps,
        };
        self.shell.with_hop(hop, |engine, now| {
            if change.follow_plan == Some(false) {
                let present = engine.hop(hop).and_then(|hop| hop.send_rate_bps);
                check_kept(present)?;
            }
            if let Some(rate_bps) = change.rate_bps {
                engine.set_rate(now, hop, rate_bps);
                holds.set(rate(rate_bps), actor);
            }
            match change.follow_plan {
                Some(true) => {
                    engine.reset_rate(now, hop);
                    holds.release(&rate(None));
                }
                Some(false) => holds.set(rate(engine.freeze_rate(now, hop)), actor),
                None => {}
            }
            if let Some(rate_bps) = change.receive_rate_bps {
                engine.set_receive_rate(now, hop, rate_bps);
                let path = path();
                holds.set(Held::ReceiveRate { path, rate_bps }, actor);
            }
            if let Some(blocked) = change.blocked {
                engine.block(now, hop, blocked);
                holds.block(path(), blocked, actor);
            }
            if let Some(held) = change.brought_up {
                engine.hold_up(now, hop, held);
                let of = |up| Held::BroughtUp { path: path(), up };
                match held {
                    Some(up) => holds.set(of(up), actor),
                    None => holds.release(&of(false)),
                }
            }
            Ok(())
        })
    }

    fn set_blocked(
        &self,
        said: &Named,
        blocked: bool,
        holds: &mut Holds,
        actor: &Actor,
    ) -> Result<Blockage, Problem> {
        let path = said.path.as_deref();
        let named = path.map(|name| self.hop(name)).transpose()?;
        let hops: Vec<HopSnapshot> = match named {
            Some(id) => self
                .shell
                .read_hop(id, |engine| engine.hop(id))
                .into_iter()
                .collect(),
            None => self.shell.hops(),
        };
        for hop in &hops {
            let id = hop.id;
            self.shell.with_hop(id, |engine, now| match said.source {
                Sayer::Operator => engine.block(now, id, blocked),
                Sayer::Modem => engine.block_by_modem(now, id, blocked),
            });
            // Only an operator's word is held: a modem repeats its own.
            if said.source == Sayer::Operator {
                holds.block(hop.name.clone(), blocked, actor);
            }
        }
        tracing::info!(path, blocked, source = ?said.source, "blockage set by the local API");
        let paths = hops.into_iter().map(|hop| hop.name).collect();
        Ok(Blockage { paths, blocked })
    }
}
