//! The local API: HTTP on a Unix socket, and over TCP with a token.
//!
//! Whoever can open the socket may do everything, so its file mode is 0660. TCP callers present a
//! bearer token, which has a role. Queries are in `queries`, changes in `links`, `holds`, `edge`,
//! `reload`, `upgrade` and `removals`; `docs/local-api.md` describes them.

mod announcements;
mod auth;
mod budgets;
mod contact_plan;
mod control;
mod decisions;
mod deferred;
mod edge;
mod history;
mod holds;
mod links;
mod log;
mod metrics;
mod migrations;
mod mptcp;
mod page;
mod plain;
mod plans;
mod position;
mod problem;
mod queries;
mod reload;
mod removals;
mod reports;
mod routes;
mod server;
mod settings;
mod speed_test;
mod text;
mod tls;
mod upgrade;
mod view;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use underpass_bpsec::Guard;
use underpass_deferred::Handle;
use underpass_edge::Edge;

use crate::accounts::Accounts;
use crate::clock::ControlClock;
use crate::config::{ApiRole, Current};
use crate::confinement::Confinement;
use crate::holds::KeptHolds;
use crate::interception::Interceptor;
use crate::logging::Excerpt;
use crate::positions::Positions;
use crate::run::OpenCustody;
use crate::run::contacts::ContactRouting;
use crate::run::control::Contacts;
use crate::run::mptcp::Mptcp;
use crate::run::plans::Plans;
use crate::run::provider::Provider;
use crate::run::reload::Reload;
use crate::run::reports::{Intake, ReportSender, Reporter, Sent};
use crate::security::Security;
use crate::shell::Shell;
use crate::speed_test::SpeedTest;
use crate::traces::Tracer;
use crate::upgrade::{Sockets, Upgrade};
use problem::Problem;
use routes::Routes;

pub use announcements::Announced;
pub use contact_plan::RouteView;
pub use decisions::{ComparedView, DecisionView, FlowView};
pub use edge::{EdgeSwitches, SwitchView};
pub use history::History;
pub use holds::HoldView;
pub use migrations::MigrationView;
pub use server::{ApiError, Servers, bind, check, serve, unix_socket};
pub use text::{counted, holds as holds_table, rate, size, span};
#[cfg(test)]
pub use view::PlannedView;
pub use view::{HopFields, PathView, SessionView, Status};

/// What the handlers share.
pub struct ApiState {
    /// The engine's shell.
    pub shell: Arc<Shell>,
    /// The custody store, where it is on a disk.
    pub custody: Arc<OpenCustody>,
    pub edge: Arc<Edge>,
    /// What clients' connections came to.
    pub accounts: Arc<Accounts>,
    /// What traces exchanges, if anything does.
    pub tracer: Option<Arc<Tracer>>,
    /// Transparent interception, where it is configured.
    pub interceptor: Option<Arc<Interceptor>>,
    /// The store of deferred requests, if there is one.
    pub deferred: Option<Handle>,
    /// What this node says of itself.
    pub reporter: Arc<Reporter>,
    /// Where it is, where it has a receiver.
    pub positions: Option<Arc<Positions>>,
    /// Takes what it has to report, where it does.
    pub report_sender: Option<ReportSender>,
    pub announced: Announced,
    /// The control service's clock.
    pub control_clock: Arc<ControlClock>,
    /// The contact with the control service, where there is one.
    pub control: Option<Contacts>,
    /// Follows the contact plan.
    pub contacts: Arc<ContactRouting>,
    /// What operators have set.
    pub holds: Arc<KeptHolds>,
    pub plans: Arc<Plans>,
    pub provider: Arc<Provider>,
    /// The outcome of its reports, if it sends any.
    pub reports_sent: Option<Arc<Sent>>,
    /// Reports of terminals, at a hub.
    pub reports: Option<Arc<Intake>>,
    /// The configuration in force.
    pub config: Arc<Current>,
    /// Whether a path is dialled without extension items.
    pub without_items: Box<dyn Fn(&str) -> bool + Send + Sync>,
    pub security: Security,
    /// What secures bundles.
    pub bpsec: Arc<Guard>,
    /// Reads the configuration again.
    pub reload: Reload,
    /// Has the next program go on for this node.
    pub upgrade: Upgrade,
    /// What the node is reached by.
    pub sockets: Arc<Sockets>,
    pub incarnation: u64,
    pub started: Instant,
    pub congestion_controls: Vec<String>,
    /// The source of objects' sizes, if there is one.
    pub cdni: Option<Arc<underpass_cdni::Client>>,
    pub mptcp: Arc<Mptcp>,
    /// What the process may still do.
    pub confinement: Confinement,
    /// The clients' throughput in the last minutes.
    pub history: Arc<Mutex<History>>,
    /// The last lines of the log.
    pub log: Arc<Excerpt>,
    pub speed_test: SpeedTest,
}

/// The routes, each with the least role that may use it.
fn routes() -> Routes {
    use ApiRole::{Metrics, Operate, Read};
    Routes::default()
        .get(Read, "/v1/status", queries::status)
        .get(Read, "/v1/classes", queries::classes)
        .get(Read, "/v1/streams", queries::streams)
        .delete(Operate, "/v1/streams/{peer}/{id}", removals::reset_stream)
        .get(Read, "/v1/throughput", history::throughput)
        .get(Read, "/v1/log", log::show)
        .get(Read, "/v1/custody", queries::custody)
        .delete(Operate, "/v1/custody/{id}", removals::cancel_bundle)
        .get(Read, "/v1/paths", queries::paths)
        .patch(Operate, "/v1/paths/{name}", links::change_path)
        .put(Operate, "/v1/paths/{name}/blockages", links::plan_blockages)
        .put(
            Operate,
            "/v1/paths/{name}/efficiency",
            links::set_efficiency,
        )
        .post(Operate, "/v1/paths/{name}/budget", budgets::change)
        .get(Read, "/v1/routes/{node}", contact_plan::route)
        .get(Read, "/v1/migrations", migrations::list)
        .post(Operate, "/v1/migrations", migrations::migrate)
        .get(Read, "/v1/decisions", decisions::follow)
        .get(Read, "/v1/holds", holds::list)
        .delete(Operate, "/v1/holds/{id}", holds::release)
        .get(Read, "/v1/beam", links::beam)
        .patch(Operate, "/v1/beam", links::change_beam)
        .post(Operate, "/v1/link/block", links::block)
        .post(Operate, "/v1/link/unblock", links::unblock)
        .get(Read, "/v1/edge", edge::show)
        .patch(Operate, "/v1/edge", edge::change)
        .post(Operate, "/v1/reload", reload::reload)
        .post(Operate, "/v1/upgrade", upgrade::upgrade)
        .get(Read, "/v1/reports", reports::reports)
        .get(Read, "/v1/position", position::position)
        .get(Read, "/v1/plans", plans::plans)
        .get(Read, "/v1/settings", settings::list)
        .put(Operate, "/v1/settings/{node}", settings::set)
        .put(Operate, "/v1/plans", plans::take)
        .body_bytes("/v1/plans", underpass_plans::MAX_DOCUMENT_BYTES)
        .get(Read, "/v1/announcements", announcements::list)
        .post(Operate, "/v1/announcements", announcements::announce)
        .get(Read, "/v1/control", control::show)
        .get(Read, "/v1/deferred", deferred::list)
        .get(Read, "/v1/deferred/{id}", deferred::show)
        .delete(Operate, "/v1/deferred/{id}", deferred::remove)
        // A client's data.
        .get(Operate, "/v1/deferred/{id}/response", deferred::fetch)
        .post(Operate, "/v1/deferred/{id}/repeat", deferred::repeat)
        .get(Read, "/v1/speed-test", speed_test::show)
        .post(Operate, "/v1/speed-test", speed_test::begin)
        .delete(Operate, "/v1/speed-test", speed_test::end)
        .get(Metrics, "/metrics", metrics::scrape)
}

/// The API for callers whose requests carry their role.
fn router(state: Arc<ApiState>) -> Router {
    routes()
        .into_router()
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
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
