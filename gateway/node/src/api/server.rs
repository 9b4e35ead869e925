//! The sockets of the local API. Connections are bounded in number, and a
//! caller has a bounded time for its request's head.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use axum::{Router, middleware};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use crate::config::ApiConfig;

use super::auth::{self, Token};
use super::{ApiState, router};

/// Connections at once to each socket; further ones wait.
const CONNECTIONS: usize = 64;
/// Time for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the local API cannot be served.
#[derive(Debug, Error)]
pub enum ApiError {
    /// The Unix socket cannot be made.
    #[error("api.socket {path}: {source}")]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another process answers at the socket.
    #[error("api.socket {0}: another node is running there")]
    Taken(PathBuf),
    /// The TCP address cannot be bound.
    #[error("api.listen {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The token cannot be read.
    #[error("api.token_file {path}: {source}")]
    Token {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The running servers; they end when this is dropped.
pub struct Servers {
    /// The TCP address in use, with the port that the system chose for 0.
    pub tcp: Option<SocketAddr>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// Serves the API.
///
/// # Errors
/// When a socket or the token file is not usable.
pub async fn serve(state: Arc<ApiState>) -> Result<Servers, ApiError> {
    let config = state.config.api.clone();
    let app = router(state);
    let unix = bind_unix(&config.socket)?;
    let mut servers = Servers {
        tcp: None,
        _tasks: vec![spawn(accept(unix, app.clone()))],
    };
    if let (Some(address), Some(token)) = (config.listen, token(&config)?) {
        let failed = |source| ApiError::Listen { address, source };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        servers.tcp = Some(tcp.local_addr().map_err(failed)?);
        let guarded = app.layer(middleware::from_fn_with_state(token, auth::require));
        servers._tasks.push(spawn(accept(tcp, guarded)));
    }
    Ok(servers)
}

fn spawn(server: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(server))
}

/// Accepts and serves connections until dropped.
async fn accept<L: Listener>(mut listener: L, app: Router) {
    let limit = Arc::new(Semaphore::new(CONNECTIONS));
    while let Ok(permit) = limit.clone().acquire_owned().await {
        let (socket, _) = listener.accept().await;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(socket), TowerToHyperService::new(app.clone()));
        tokio::spawn(async move {
            // A caller that goes away or breaks the protocol ends its own
            // connection only.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the local API broke off");
            }
            drop(permit);
        });
    }
}

/// The token that the configuration names.
///
/// # Errors
/// When its file cannot be read or holds none.
pub fn token(config: &ApiConfig) -> Result<Option<Token>, ApiError> {
    let path = config.token_file.clone();
    path.map(|path| Token::read(&path).map_err(|source| ApiError::Token { path, source }))
        .transpose()
}

/// Binds the socket, over the leftover of a process that is gone.
fn bind_unix(path: &Path) -> Result<UnixListener, ApiError> {
    let failed = |source| ApiError::Socket {
        path: path.to_owned(),
        source,
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(ApiError::Taken(path.to_owned()));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(failed)?;
    Ok(listener)
}
