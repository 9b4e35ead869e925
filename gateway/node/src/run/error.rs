//! Why a node does not start.

use thiserror::Error;
use underpass_deferred::store::StoreError;
use underpass_edge::EdgeError;
use underpass_edge::classify::UnknownClass;
use underpass_engine::EngineError;
use underpass_store::OpenError;

use super::control::ControlError;
use crate::api::ApiError;
use crate::bpsec::BpsecError;
use crate::config::ConfigError;
use crate::incarnation::IncarnationError;
use crate::modem::ModemError;
use crate::privileged::HelperError;
use crate::security::SecurityError;
use crate::traces::ExportError;
use crate::upgrade::TakeOverError;

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("log.level: {0}")]
    Log(#[from] tracing_subscriber::filter::ParseError),
    /// The access log cannot be written.
    #[error("{0}")]
    AccessLog(std::io::Error),
    #[error(transparent)]
    Traces(#[from] ExportError),
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
    #[error("node.state_dir: cannot make {path}: {source}")]
    StateDir {
        path: std::path::PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Incarnation(#[from] IncarnationError),
    #[error("custody: {0}")]
    Custody(#[from] OpenError),
    #[error("payloads on disk: {0}; payloads.quota_bytes = 0 does without")]
    Payloads(std::io::Error),
    #[error(transparent)]
    Mailbox(#[from] underpass_applications::MailboxError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Bpsec(#[from] BpsecError),
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error("listener {name:?}: cannot listen on {address}: {source}")]
    Listen {
        name: String,
        address: std::net::SocketAddr,
        source: std::io::Error,
    },
    #[error("path {name:?}: cannot listen on {address}: {source}")]
    PathListen {
        name: String,
        address: std::net::SocketAddr,
        source: std::io::Error,
    },
    #[error("beacons of {name:?}: cannot use UDP {address}: {source}")]
    Beacons {
        name: String,
        address: std::net::SocketAddr,
        source: std::io::Error,
    },
    #[error("beacons.key_file {path}: {reason}")]
    BeaconKey {
        path: std::path::PathBuf,
        reason: String,
    },
    #[error(transparent)]
    Modem(#[from] ModemError),
    #[error("edge.rule: {0}")]
    Class(#[from] UnknownClass),
    /// Requests cannot be kept for later.
    #[error(transparent)]
    Deferred(#[from] StoreError),
    #[error(transparent)]
    Edge(#[from] EdgeError),
    #[error("edge.interception: {0}")]
    Interception(HelperError),
    #[error(transparent)]
    Helper(#[from] HelperError),
    #[error("enrolment: {0}")]
    Enrolment(underpass_control_client::ConfigError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Cdni(#[from] underpass_cdni::ConfigError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("what starts the next program does not start: {0}")]
    Launcher(std::io::Error),
    #[error("the node is not taken over: {0}")]
    TakeOver(#[from] TakeOverError),
    #[error("the node is not taken over: {0}")]
    State(#[from] underpass_engine::TakeOverError),
}
