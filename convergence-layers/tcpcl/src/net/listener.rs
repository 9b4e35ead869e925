//! The side that accepts: a hub.

use std::fmt;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};
use underpass_cla::Node;
use underpass_identity::{Registry, ServerTls, SourcePlace, Sources, Withdrawals};

use super::contact::{self, ContactFailure, TlsSide};
use super::driver::{Ended, OnUp, Surroundings};
use super::{SessionDefaults, now, task};
use crate::session::{Role, SessionCore};

/// Connections that wait in the kernel.
const BACKLOG: i32 = 1024;
/// The pause after an error that concerns the whole process.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a listener is to do.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Where to listen.
    pub local: SocketAddr,
    /// What its sessions have in common.
    pub session: SessionDefaults,
    /// TLS, or `None` for plain TCP.
    pub tls: Option<ServerTls>,
    /// The most connections that are not established sessions yet; more wait
    /// in the kernel.
    pub max_half_open: usize,
    /// The most of them from one source: an IPv4 address or an IPv6 prefix of 64 bits; a source
    /// from which a peer has proved its identity may have as many as it leaves free. A further one
    /// takes the place of the one that has been silent for longest; if all have sent something, it
    /// is closed at once.
    pub max_half_open_per_source: usize,
    /// The most connections in all; more are closed at once.
    pub max_connections: usize,
}

/// A running listener. Dropping it stops accepting; sessions continue.
#[derive(Debug)]
pub struct Listener {
    local: SocketAddr,
    shared: Arc<Shared>,
    connections: Arc<Semaphore>,
    tracker: TaskTracker,
}

impl Listener {
    /// Listens and accepts sessions. Must be called within a tokio runtime.
    pub fn bind(config: ListenerConfig, node: Arc<dyn Node>) -> io::Result<Self> {
        let listener = listen(&config)?;
        Self::accept_on(listener, config, node)
    }

    /// Accepts sessions on a socket that [`listen`] has made, possibly in another process. Must be
    /// called within a tokio runtime.
    pub fn accept_on(
        listener: std::net::TcpListener,
        config: ListenerConfig,
        node: Arc<dyn Node>,
    ) -> io::Result<Self> {
        let listener = TcpListener::from_std(listener)?;
        let local = listener.local_addr()?;
        let stop = CancellationToken::new();
        let tracker = TaskTracker::new();
        let connections = Arc::new(Semaphore::new(config.max_connections));
        let half_open = Arc::new(Semaphore::new(config.max_half_open));
        let sources = Sources::among(config.max_half_open, config.max_half_open_per_source);
        let shared = Arc::new(Shared {
            session: RwLock::new(Arc::new(config.session)),
            tls: config.tls,
            node,
            registry: Arc::new(Registry::default()),
            stop: stop.clone(),
            held: watch::Sender::new(false),
            withdrawals: Withdrawals::default(),
        });
        let acceptor = Acceptor {
            half_open,
            sources,
            connections: connections.clone(),
            tracker: tracker.clone(),
            shared: shared.clone(),
        };
        tokio::spawn(async move {
            stop.run_until_cancelled(acceptor.accept_all(&listener))
                .await;
        });
        Ok(Self {
            local,
            shared,
            connections,
            tracker,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sets the settings of sessions that begin from now on. The listening socket keeps its
    /// options; accepted ones get the new options.
    pub fn set_session(&self, session: SessionDefaults) {
        self.shared.set_session(session);
    }

    /// While held, accepts nothing more: connections wait in the kernel, or for another process
    /// that has the socket. Sessions continue.
    pub fn hold(&self, held: bool) {
        self.shared.held.send_replace(held);
    }

    /// Takes so many connections more in all.
    pub fn add_connections(&self, more: usize) {
        self.connections.add_permits(more);
    }

    /// Its sessions at present.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Stops accepting and ends all sessions in order.
    pub fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.registry.close_all();
        self.tracker.close();
    }

    /// Waits, after [`Self::shutdown`], until the last session has ended.
    pub async fn closed(&self) {
        self.tracker.wait().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

/// Listens where a configuration says, and accepts nothing yet.
///
/// # Errors
/// When the address cannot be bound.
pub fn listen(config: &ListenerConfig) -> io::Result<std::net::TcpListener> {
    let socket = config.session.socket.socket(config.local)?;
    socket.set_reuse_address(true)?;
    if config.local.is_ipv6() {
        // `[::]` takes IPv4 terminals in as well, whatever the host's default.
        socket.set_only_v6(false)?;
    }
    socket.bind(&config.local.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

struct Acceptor {
    shared: Arc<Shared>,
    half_open: Arc<Semaphore>,
    sources: Sources,
    connections: Arc<Semaphore>,
    tracker: TaskTracker,
}

/// A place among the connections that are not sessions yet.
struct HalfOpen {
    _permit: OwnedSemaphorePermit,
    source: SourcePlace,
    /// A newer contact has its place.
    replaced: CancellationToken,
}

impl HalfOpen {
    /// Waits until the peer has sent something, or has gone. Returns whether the place was kept
    /// until then. A peer that dials sends its contact header at once.
    async fn hear(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        // Readiness may be reported for a socket without anything to read.
        let mut first = [0];
        let heard = self
            .replaced
            .run_until_cancelled(tcp.peek(&mut first))
            .await;
        heard.transpose()?;
        Ok(self.source.speaks())
    }
}

struct Shared {
    session: RwLock<Arc<SessionDefaults>>,
    tls: Option<ServerTls>,
    node: Arc<dyn Node>,
    registry: Arc<Registry>,
    stop: CancellationToken,
    /// Nothing is accepted.
    held: watch::Sender<bool>,
    withdrawals: Withdrawals,
}

impl Acceptor {
    async fn accept_all(&self, listener: &TcpListener) {
        let mut held = self.shared.held.subscribe();
        loop {
            let Ok(half_open) = self.half_open.clone().acquire_owned().await else {
                return;
            };
            if held.wait_for(|held| !held).await.is_err() {
                return;
            }
            let accepted = tokio::select! {
                biased;
                _ = held.wait_for(|held| *held) => continue,
                accepted = listener.accept() => accepted,
            };
            let (tcp, remote) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let replaced = CancellationToken::new();
            let leave = replaced.clone();
            let leave = move || leave.cancel();
            let Some(source) = self.sources.enter_silent(remote.ip(), leave) else {
                warn!(%remote, "connection closed: there are too many contacts from there");
                continue;
            };
            let half_open = HalfOpen {
                _permit: half_open,
                source,
                replaced,
            };
            let Ok(connection) = self.connections.clone().try_acquire_owned() else {
                warn!(%remote, "connection closed: there are too many");
                continue;
            };
            let shared = self.shared.clone();
            self.tracker.spawn(async move {
                shared.serve(tcp, remote, half_open).await;
                drop(connection);
            });
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn session_defaults(&self) -> Arc<SessionDefaults> {
        self.session.read().unwrap().clone()
    }

    fn set_session(&self, session: SessionDefaults) {
        let mut current = self.session.write().unwrap();
        *current = Arc::new(session);
    }

    async fn serve(&self, tcp: TcpStream, remote: SocketAddr, half_open: HalfOpen) {
        match self.session(tcp, half_open).await {
            Ok(None) => {}
            Ok(Some(Ended { down, was_up: true })) => info!(%remote, %down, "session ended"),
            Ok(Some(ended)) if ended.lasts() => {
                warn!(%remote, down = %ended.down, "contact failed")
            }
            Ok(Some(Ended { down, .. })) => info!(%remote, %down, "contact failed"),
            Err(error) if error.is_withdrawal() => {
                if let Some(contacts) = self.withdrawals.add(now()) {
                    debug!(%remote, %error, contacts, "contacts withdrawn");
                }
            }
            // A blockage in the middle of a contact ends it like this.
            Err(error) if error.comes_and_goes() => info!(%remote, %error, "contact failed"),
            Err(error) => warn!(%remote, %error, "contact failed"),
        }
    }

    async fn session(
        &self,
        tcp: TcpStream,
        mut half_open: HalfOpen,
    ) -> Result<Option<Ended>, ContactFailure> {
        let defaults = self.session_defaults();
        defaults.socket.tune(tcp.as_fd())?;
        defaults.socket.narrow(tcp.as_fd())?;
        let config = defaults.session_config(Role::Passive, self.tls.is_some());
        let mut core = SessionCore::new(config, now());
        let heard = timeout_at(contact::deadline(&core), half_open.hear(&tcp));
        let Some(heard) = self.stop.run_until_cancelled(heard).await else {
            return Ok(None);
        };
        if !heard.map_err(|_| ContactFailure::TimedOut)?? {
            let remote = tcp.peer_addr().ok();
            debug!(?remote, "a newer contact has the place of a silent one");
            return Ok(None);
        }
        let tls = self.tls.as_ref().map(TlsSide::Server);
        let contact = contact::make(tcp, &mut core, tls);
        let Some(contact) = self.stop.run_until_cancelled(contact).await else {
            return Ok(None);
        };
        let contact = contact?;
        let mut half_open = Some(half_open);
        let key = contact.exported_key();
        let proves = key.is_some();
        let on_up: OnUp = Box::new(move |_| {
            if let Some(half_open) = half_open.take().filter(|_| proves) {
                half_open.source.proved();
            }
            Ok(())
        });
        let around = Surroundings {
            receive_buffer_bytes: defaults.socket.receive_buffer_bytes,
            ..Surroundings::new(&defaults, self.node.clone(), key, on_up)
        };
        Ok(Some(
            task::run(contact, core, around, &self.registry, pending()).await,
        ))
    }
}
