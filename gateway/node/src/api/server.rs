//! The sockets of the local API. Connections are bounded in number, and a
//! caller has a bounded time for its TLS handshake and its request's head.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use axum::{Extension, Router, middleware};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use underpass_identity::{SourcePlace, Sources};

use crate::config::{ApiConfig, ApiRole};
use crate::upgrade::Sockets;

use super::auth::{self, Actor, Caller, Tokens};
use super::tls::Tls;
use super::{ApiState, history, page, router};

/// Connections at once to each socket; further ones wait.
const CONNECTIONS: usize = 64;
/// Connections of one address over TCP at once. Nobody is authenticated yet when opening them. If
/// one address or all together have too many, one by which no known token has come gives way.
const CONNECTIONS_OF_CALLER: usize = 32;
/// Time for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for a caller over TCP to present a token that is known. Otherwise somebody who reads no
/// answers, or asks for the page again and again, could keep a place for ever.
const IDENTIFIED_WITHIN: Duration = Duration::from_secs(30);

/// Why the local API cannot be served.
#[derive(Debug, Error)]
pub enum ApiError {
    /// The Unix socket cannot be made.
    #[error("{key} {path}: {source}")]
    Socket {
        /// What gives its path.
        key: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{0} {1}: another node is running there")]
    Taken(&'static str, PathBuf),
    /// The TCP address cannot be bound.
    #[error("api.listen {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    /// A token cannot be read.
    #[error("api.token {name:?}: {path}: {source}")]
    Token {
        name: String,
        path: PathBuf,
        source: io::Error,
    },
    /// Certificate or key cannot be used.
    #[error("api: {path}: {reason}")]
    Tls { path: PathBuf, reason: String },
}

/// The running servers; they end when this is dropped.
pub struct Servers {
    /// The TCP address in use, with the port that the system chose for 0.
    pub tcp: Option<SocketAddr>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// Checks that the API could be served: reads tokens and certificate.
///
/// # Errors
/// When one of them is not usable.
pub fn check(config: &ApiConfig) -> Result<(), ApiError> {
    Tokens::load(config)?;
    Tls::load(config).map(drop)
}

/// Serves the API.
///
/// # Errors
/// When a socket, a token or the certificate is not usable.
pub async fn serve(state: Arc<ApiState>) -> Result<Servers, ApiError> {
    let config = state.config.get().api.clone();
    let sockets = state.sockets.clone();
    let kept = spawn(history::keep(state.clone()));
    let app = router(state);
    let unix = unix_socket("api.socket", &config.socket, &sockets)?;
    let local = app.clone().layer(Extension(ApiRole::Operate));
    let serve = move |socket: UnixStream, _| {
        let actor = Actor::of(&socket);
        exchange(socket, local.clone(), actor)
    };
    let mut servers = Servers {
        tcp: None,
        _tasks: vec![kept, spawn(accept(unix, || {}, serve))],
    };
    if let Some(address) = config.listen {
        let tokens = Arc::new(Tokens::load(&config)?);
        let remote = app.layer(middleware::from_fn_with_state(tokens, auth::identify));
        // A browser requests the page before its user can enter a token.
        let remote = page::before(remote);
        let tls = Tls::load(&config)?;
        let tcp = tcp_socket(address, &sockets)?;
        let local = tcp.local_addr();
        servers.tcp = Some(local.map_err(|source| ApiError::Listen { address, source })?);
        servers
            ._tasks
            .extend(tls.clone().map(|tls| spawn(tls.watch())));
        let callers = Sources::new(CONNECTIONS_OF_CALLER);
        let full = callers.clone();
        let make_room = move || full.make_room();
        let serve = move |socket: TcpStream, from: SocketAddr| {
            let caller = Caller::new(from.ip());
            let leave = CancellationToken::new();
            let asked = leave.clone();
            let place = callers.enter_silent(from.ip(), move || asked.cancel());
            let (remote, tls) = (remote.clone(), tls.as_ref().map(|tls| tls.current()));
            async move {
                let Some(place) = place else {
                    tracing::debug!(%from, "a caller of the local API has too many connections");
                    return;
                };
                let served = exchange_over_tcp(socket, tls, remote, caller.clone());
                while_identified(&caller, place, &leave, served).await;
            }
        };
        servers._tasks.push(spawn(accept(tcp, make_room, serve)));
    }
    Ok(servers)
}

fn spawn(server: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(server))
}

/// Accepts connections and has them served until dropped. While as many are served as may be, the
/// next one waits, and `make_room` may end another.
async fn accept<L, F>(mut listener: L, make_room: impl Fn(), serve: impl Fn(L::Io, L::Addr) -> F)
where
    L: Listener,
    F: Future<Output = ()> + Send + 'static,
{
    let limit = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let (socket, from) = listener.accept().await;
        if limit.available_permits() == 0 {
            make_room();
        }
        let Ok(permit) = limit.clone().acquire_owned().await else {
            return;
        };
        let served = serve(socket, from);
        tokio::spawn(async move {
            served.await;
            drop(permit);
        });
    }
}

/// Goes on with a connection, but with that of a caller who is not identified only for a limited
/// time, and only until it is asked to `leave`.
async fn while_identified(
    caller: &Caller,
    mut place: SourcePlace,
    leave: &CancellationToken,
    served: impl Future<Output = ()>,
) {
    let mut served = pin!(served);
    tokio::select! {
        biased;
        () = &mut served => return,
        () = caller.identified() => {
            // Unless another connection has its place since a moment ago.
            if place.speaks() {
                return served.await;
            }
        }
        _ = timeout(IDENTIFIED_WITHIN, leave.cancelled()) => {}
    }
    tracing::debug!(?caller, "a caller of the local API presents no known token");
}

/// Serves one connection over TCP, by TLS if there is a certificate.
async fn exchange_over_tcp(
    socket: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    app: Router,
    caller: Caller,
) {
    let Some(tls) = tls else {
        return exchange(socket, app, caller).await;
    };
    match timeout(HEAD_TIMEOUT, TlsAcceptor::from(tls).accept(socket)).await {
        Ok(Ok(socket)) => exchange(socket, app, caller).await,
        Ok(Err(error)) => tracing::debug!(%error, "no TLS with a caller of the local API"),
        Err(_) => tracing::debug!("a caller of the local API is slow at TLS"),
    }
}

/// Serves one connection; its requests carry their caller.
async fn exchange<S, C>(socket: S, app: Router, caller: C)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: Clone + Send + Sync + 'static,
{
    let app = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        app.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(socket), service);
    // A caller that goes away or breaks the protocol ends its own connection
    // only.
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection to the local API broke off");
    }
}

/// Binds the sockets of the API that the previous process has not passed on.
///
/// # Errors
/// When one of them cannot be made.
pub fn bind(config: &ApiConfig, sockets: &Sockets) -> Result<(), ApiError> {
    unix_socket("api.socket", &config.socket, sockets)?;
    config
        .listen
        .map_or(Ok(()), |address| tcp_socket(address, sockets).map(drop))
}

/// The TCP socket: the existing one if it has this address, otherwise a new one.
fn tcp_socket(address: SocketAddr, sockets: &Sockets) -> Result<TcpListener, ApiError> {
    let bound = sockets.bind("api tcp", address, || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound
        .and_then(TcpListener::from_std)
        .map_err(|source| ApiError::Listen { address, source })
}

/// The Unix socket: the existing one if it is at this path, otherwise a new one.
///
/// # Errors
/// When it cannot be made; `key` is the configuration key of its path.
pub fn unix_socket(
    key: &'static str,
    path: &Path,
    sockets: &Sockets,
) -> Result<UnixListener, ApiError> {
    let name = format!("{} {}", key.trim_end_matches(".socket"), path.display());
    let failed = |source| ApiError::Socket {
        key,
        path: path.to_owned(),
        source,
    };
    if let Some(bound) = sockets.inherit(&name).map_err(failed)? {
        return UnixListener::from_std(bound.into()).map_err(failed);
    }
    let socket = bind_unix(key, path)?;
    sockets.keep(&name, &socket).map_err(failed)?;
    Ok(socket)
}

/// Binds the socket, replacing a leftover file of a process that is gone.
fn bind_unix(key: &'static str, path: &Path) -> Result<UnixListener, ApiError> {
    let failed = |source| ApiError::Socket {
        key,
        path: path.to_owned(),
        source,
    };
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(ApiError::Taken(key, path.to_owned()));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(failed)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_lasts_only_if_a_known_token_comes_by_it() {
        let address = [192, 0, 2, 1].into();
        let (callers, leave) = (Sources::new(2), CancellationToken::new());
        let place = || callers.enter_silent(address, || {}).expect("a place");
        while_identified(&Caller::new(address), place(), &leave, pending()).await;
        let caller = Caller::new(address);
        let served = async {
            caller.identify();
            pending().await
        };
        let a_day = Duration::from_secs(86_400);
        let connection = while_identified(&caller, place(), &leave, served);
        let ended = timeout(a_day, connection).await;
        assert!(ended.is_err());
    }
}
