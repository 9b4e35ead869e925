//! The local API: HTTP on a Unix socket, and over TCP with a token.
//!
//! Who can open the socket may do everything, so its file mode is 0660; TCP
//! callers present a bearer token.

mod auth;
mod links;
mod queries;
mod server;
mod view;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::routing::{get, patch, post};
use underpass_edge::Edge;

use crate::config::Config;
use crate::shell::Shell;

pub use server::{ApiError, serve};
pub use view::Status;

/// What the handlers share.
pub struct ApiState {
    /// The engine's shell.
    pub shell: Arc<Shell>,
    /// Proxies and interception.
    pub edge: Arc<Edge>,
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
        .route("/v1/streams", get(queries::streams))
        .route("/v1/paths", get(queries::paths))
        .route("/v1/custody", get(queries::custody))
        .route("/v1/paths/{name}", patch(links::change))
        .route("/v1/link/block", post(links::block))
        .route("/v1/link/unblock", post(links::unblock))
        .route("/v1/classes", get(queries::classes))
        .with_state(state)
}
