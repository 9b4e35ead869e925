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
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log cannot be started.
    #[error("log.level: {0}")]
    Log(#[from] tracing_subscriber::filter::ParseError),
    /// The access log cannot be written.
    #[error("{0}")]
    AccessLog(std::io::Error),
    /// Traces cannot be exported.
    #[error(transparent)]
    Traces(#[from] ExportError),
    /// The runtime does not start.
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
    /// The state folder cannot be made.
    #[error("node.state_dir: cannot make {path}: {source}")]
    StateDir {
        /// The folder.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The state folder is not usable.
    #[error(transparent)]
    Incarnation(#[from] IncarnationError),
    /// The custody store cannot be used.
    #[error("custody: {0}")]
    Custody(#[from] OpenError),
    /// The folder of long payloads cannot be used.
    #[error("payloads on disk: {0}; payloads.quota_bytes = 0 does without")]
    Payloads(std::io::Error),
    /// The mailbox of applications cannot be used.
    #[error(transparent)]
    Mailbox(#[from] underpass_applications::MailboxError),
    /// Rates, classes or custody contradict themselves.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Keys of bundles cannot be used.
    #[error(transparent)]
    Bpsec(#[from] BpsecError),
    /// Certificates cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// An address for sessions cannot be bound.
    #[error("listener {name:?}: cannot listen on {address}: {source}")]
    Listen {
        /// The listener.
        name: String,
        /// Its address.
        address: std::net::SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An address to which a neighbour sends cannot be bound.
    #[error("path {name:?}: cannot listen on {address}: {source}")]
    PathListen {
        /// The path.
        name: String,
        /// Its address.
        address: std::net::SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A socket for beacons cannot be opened.
    #[error("beacons of {name:?}: cannot use UDP {address}: {source}")]
    Beacons {
        /// The path or listener.
        name: String,
        /// The local address.
        address: std::net::SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The key of beacons cannot be used.
    #[error("beacons.key_file {path}: {reason}")]
    BeaconKey {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A modem cannot be waited for.
    #[error(transparent)]
    Modem(#[from] ModemError),
    /// A rule names no class.
    #[error("edge.rule: {0}")]
    Class(#[from] UnknownClass),
    /// Requests cannot be kept for later.
    #[error(transparent)]
    Deferred(#[from] StoreError),
    /// Proxies cannot start.
    #[error(transparent)]
    Edge(#[from] EdgeError),
    /// Interception cannot be set up.
    #[error("edge.interception: {0}")]
    Interception(HelperError),
    /// The helper for privileged work cannot start.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// The service that renews the certificate cannot be asked.
    #[error("enrolment: {0}")]
    Enrolment(underpass_control_client::ConfigError),
    /// The control service cannot be worked with.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The source of objects' sizes cannot be asked.
    #[error(transparent)]
    Cdni(#[from] underpass_cdni::ConfigError),
    /// The local API cannot start.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// What starts the next program cannot start.
    #[error("what starts the next program does not start: {0}")]
    Launcher(std::io::Error),
    /// The node of another process is not taken over.
    #[error("the node is not taken over: {0}")]
    TakeOver(#[from] TakeOverError),
    /// Its state is not.
    #[error("the node is not taken over: {0}")]
    State(#[from] underpass_engine::TakeOverError),
}
