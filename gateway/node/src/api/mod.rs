//! The local API: HTTP on a Unix socket, and over TCP with a token.
//!
//! Who can open the socket may do everything, so its file mode is 0660; TCP
//! callers present a bearer token. What can be asked is in `queries`, what can
//! be set in `links`, `edge` and `removals`; `docs/local-api.md` describes it.

mod announcements;
mod auth;
mod control;
mod deferred;
mod edge;
mod links;
mod metrics;
mod plans;
mod position;
mod problem;
mod queries;
mod removals;
mod reports;
mod server;
mod text;
mod view;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{delete, get, patch, post, put};
use underpass_deferred::Handle;
use underpass_edge::Edge;
use underpass_store::Monitor;

use crate::clock::ControlClock;
use crate::config::Config;
use crate::interception::Interceptor;
use crate::positions::Positions;
use crate::run::control::Contacts;
use crate::run::plans::Plans;
use crate::run::reports::{Intake, ReportSender, Reporter, Sent};
use crate::shell::Shell;
use problem::Problem;

pub use announcements::Announced;
pub use edge::{EdgeSwitches, SwitchView};
pub use server::{ApiError, serve, token};
pub use view::Status;

/// The largest body a request may have, bytes.
const BODY_BYTES: usize = 64 << 10;

/// What the handlers share.
pub struct ApiState {
    /// The engine's shell.
    pub shell: Arc<Shell>,
    /// The custody store, where it is on a disk.
    pub custody: Option<Monitor>,
    /// Proxies.
    pub edge: Arc<Edge>,
    /// Transparent interception, where it is configured.
    pub interceptor: Option<Arc<Interceptor>>,
    /// Requests that are kept for later, where they are.
    pub deferred: Option<Handle>,
    /// What this node says of itself.
    pub reporter: Arc<Reporter>,
    /// Where it is, where it has a receiver.
    pub positions: Option<Arc<Positions>>,
    /// Takes what it has to report, where it does.
    pub report_sender: Option<ReportSender>,
    /// What an integrator has announced.
    pub announced: Announced,
    /// The control service's clock.
    pub control_clock: Arc<ControlClock>,
    /// The contact with the control service, where there is one.
    pub control: Option<Contacts>,
    /// The plans of this node.
    pub plans: Arc<Plans>,
    /// What became of its reports, where it sends any.
    pub reports_sent: Option<Arc<Sent>>,
    /// Reports of terminals, at a hub.
    pub reports: Option<Arc<Intake>>,
    /// The configuration in force.
    pub config: Arc<Config>,
    /// This process' incarnation.
    pub incarnation: u64,
    /// Start of the process.
    pub started: Instant,
    /// What was found of congestion controls.
    pub congestion_controls: Vec<String>,
}

/// The routes.
fn router(state: Arc<ApiState>) -> Router {
    Router::new()
        .route("/v1/status", get(queries::status))
        .route("/v1/classes", get(queries::classes))
        .route("/v1/streams", get(queries::streams))
        .route("/v1/streams/{peer}/{id}", delete(removals::reset_stream))
        .route("/v1/custody", get(queries::custody))
        .route("/v1/custody/{id}", delete(removals::cancel_bundle))
        .route("/v1/paths", get(queries::paths))
        .route("/v1/paths/{name}", patch(links::change_path))
        .route("/v1/paths/{name}/blockages", put(links::plan_blockages))
        .route("/v1/paths/{name}/efficiency", put(links::set_efficiency))
        .route("/v1/beam", get(links::beam).patch(links::change_beam))
        .route("/v1/link/block", post(links::block))
        .route("/v1/link/unblock", post(links::unblock))
        .route("/v1/edge", get(edge::show).patch(edge::change))
        .route("/v1/reports", get(reports::reports))
        .route("/v1/position", get(position::position))
        .route(
            "/v1/plans",
            get(plans::plans)
                .put(plans::take)
                .layer(DefaultBodyLimit::max(underpass_plans::MAX_DOCUMENT_BYTES)),
        )
        .route(
            "/v1/announcements",
            get(announcements::list).post(announcements::announce),
        )
        .route("/v1/control", get(control::show))
        .route("/v1/deferred", get(deferred::list))
        .route(
            "/v1/deferred/{id}",
            get(deferred::show).delete(deferred::remove),
        )
        .route("/v1/deferred/{id}/response", get(deferred::fetch))
        .route("/v1/deferred/{id}/repeat", post(deferred::repeat))
        .route("/metrics", get(metrics::scrape))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(state)
}

async fn unknown(uri: Uri) -> Problem {
    Problem::not_found(format!("there is no {}", uri.path()))
}

async fn not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

#[cfg(test)]
mod tests;
