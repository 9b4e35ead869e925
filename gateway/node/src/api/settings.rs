//! Settings that a provider makes for this hub and, through it, for its terminals.

use std::sync::Arc;

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use toml::Table;
use underpass_reports::{SettingsOutcome, SettingsState};

use super::ApiState;
use super::problem::{Json, Path, Problem};
use crate::provider::Settings;
use crate::run::provider::OwnView;

/// What is set of a node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsBody {
    /// Keys of classes, each with the class' name.
    #[serde(default)]
    class: Vec<Table>,
    /// Keys of paths, each with the path's name.
    #[serde(default)]
    path: Vec<Table>,
    /// For the hub itself: keys of its terminals, each with the terminal's node.
    #[serde(default)]
    terminal: Vec<Table>,
}

/// The settings of a node, and their state.
#[derive(Debug, Serialize)]
pub struct SettingsView {
    /// The node, by its ipn number.
    node: u64,
    settings: u64,
    /// Keys of classes.
    class: Vec<Table>,
    /// Keys of paths.
    path: Vec<Table>,
    /// Keys of a hub's terminals.
    terminal: Vec<Table>,
    /// Whether they wait to be sent to the terminal, or to be applied here.
    waits: bool,
    /// The version that the node has reported last; null if none.
    reported: Option<u64>,
    applied: Option<bool>,
    /// The node's state with it; null if it does not report one.
    state: Option<SettingsState>,
    /// Why it is not.
    reason: Option<String>,
}

/// GET /v1/settings
pub async fn list(State(state): State<Arc<ApiState>>) -> Reply<Vec<SettingsView>> {
    Reply(state.settings())
}

/// PUT /v1/settings/{node}
pub async fn set(
    State(state): State<Arc<ApiState>>,
    Path(node): Path<u64>,
    Json(body): Json<SettingsBody>,
) -> Result<(StatusCode, Reply<Vec<SettingsView>>), Problem> {
    if !state.provider.is_set_here(node) {
        let text = format!("node {node} is neither this hub nor a terminal that it reaches");
        return Err(Problem::not_found(text));
    }
    let set = state
        .provider
        .set(node, body.class, body.path, body.terminal);
    let version = set.map_err(|error| Problem::invalid(error.to_string()))?;
    tracing::info!(node, version, "settings by the local API");
    // They are applied later, possibly much later.
    let mut views = state.settings();
    views.retain(|view| view.node == node);
    Ok((StatusCode::ACCEPTED, Reply(views)))
}

impl ApiState {
    fn settings(&self) -> Vec<SettingsView> {
        let heard = self.reports.as_ref().map(|reports| reports.heard());
        let heard = heard.unwrap_or_default();
        let own = self.provider.own_view();
        let own = own
            .map(|own| SettingsView::of(&own.settings, own.verdict.is_none(), own_outcome(&own)));
        let views = self.provider.passed_on().into_iter().map(|passed| {
            let node = passed.settings.node;
            let latest = heard.get(&node).and_then(|heard| heard.settings.as_ref());
            let outcome = latest.map(|latest| latest.body.clone());
            SettingsView::of(&passed.settings, passed.waits, outcome)
        });
        own.into_iter().chain(views).collect()
    }
}

impl SettingsView {
    fn of(settings: &Settings, waits: bool, outcome: Option<SettingsOutcome>) -> SettingsView {
        SettingsView {
            node: settings.node,
            settings: settings.settings,
            class: settings.class.clone(),
            path: settings.path.clone(),
            terminal: settings.terminal.clone(),
            waits,
            reported: outcome.as_ref().map(|outcome| outcome.settings),
            applied: outcome.as_ref().map(|outcome| outcome.applied),
            state: outcome.as_ref().and_then(|outcome| outcome.state),
            reason: outcome.and_then(|outcome| outcome.reason),
        }
    }
}

/// The outcome of this node's own settings, in the form that a terminal reports.
fn own_outcome(own: &OwnView) -> Option<SettingsOutcome> {
    own.verdict.as_ref()?.outcome(own.settings.settings)
}
