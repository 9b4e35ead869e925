//! The sockets of the local API.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::middleware;
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::task::AbortOnDropHandle;

use super::auth::{self, Token};
use super::{ApiState, router};

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
        address: std::net::SocketAddr,
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

/// Serves the API until the handles are dropped.
///
/// # Errors
/// When a socket or the token file is not usable.
pub async fn serve(state: Arc<ApiState>) -> Result<Vec<AbortOnDropHandle<()>>, ApiError> {
    let config = state.config.api.clone();
    let app = router(state);
    let unix = bind_unix(&config.socket)?;
    let mut servers = vec![spawn(axum::serve(unix, app.clone()).into_future())];
    if let (Some(address), Some(path)) = (config.listen, config.token_file) {
        let token = Token::read(&path).map_err(|source| ApiError::Token { path, source })?;
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|source| ApiError::Listen { address, source })?;
        let guarded = app.layer(middleware::from_fn_with_state(token, auth::require));
        servers.push(spawn(axum::serve(tcp, guarded).into_future()));
    }
    Ok(servers)
}

fn spawn(server: impl Future<Output = io::Result<()>> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async {
        if let Err(error) = server.await {
            tracing::error!(%error, "the local API ended");
        }
    }))
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
