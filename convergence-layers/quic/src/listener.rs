//! The side that accepts: a hub.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, RwLock};
use std::time::Instant;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming, ServerConfig, TokioRuntime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};
use underpass_cla::{Down, Node};
use underpass_identity::{Registry, ServerTls, SourcePlace, Sources, Withdrawals};

use crate::congestion::Flow;
use crate::contact::{self, Contact, ContactFailure, Trust, within};
use crate::defaults::SessionDefaults;
use crate::handed_over::{ListenerKey, SharedSocket};
use crate::session::{self, Surroundings};
use crate::{code, wire};

/// Bytes of a connection that wait until it is accepted, behind its first packet; others are
/// dropped, and the peer sends them again.
const UNACCEPTED_BYTES: u64 = 16 << 10;

/// What a listener is to do.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Where to listen.
    pub local: SocketAddr,
    /// What its sessions have in common.
    pub session: SessionDefaults,
    /// Certificates: there is no QUIC without.
    pub tls: ServerTls,
    /// The most connections that are not established sessions yet; as many
    /// more wait, and others are refused.
    pub max_half_open: usize,
    /// The most of them from one source: an IPv4 address or an IPv6 prefix of 64 bits; a source
    /// from which a peer has proved its identity may have as many as it leaves free. More are
    /// refused at once.
    pub max_half_open_per_source: usize,
    /// The most connections in all; more are refused at once.
    pub max_connections: usize,
    /// What it has in common with listeners of other processes that have its socket before or
    /// after.
    pub key: ListenerKey,
}

/// A running listener. Dropping it stops accepting; sessions continue.
#[derive(Debug)]
pub struct Listener {
    local: SocketAddr,
    shared: Arc<Shared>,
    connections: Arc<Semaphore>,
    tracker: TaskTracker,
}

struct Shared {
    endpoint: Endpoint,
    socket: Arc<SharedSocket>,
    session: RwLock<Arc<SessionDefaults>>,
    tls: ServerTls,
    node: Arc<dyn Node>,
    registry: Arc<Registry>,
    stop: CancellationToken,
    /// Nothing is accepted.
    held: watch::Sender<bool>,
    withdrawals: Withdrawals,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// A place among the connections that are not sessions yet.
struct HalfOpen {
    _permit: OwnedSemaphorePermit,
    source: SourcePlace,
}

impl HalfOpen {
    /// Frees the place. `proved` says whether the peer has proved its identity.
    fn end(self, proved: bool) {
        if proved {
            self.source.proved();
        }
    }
}

impl Listener {
    /// Listens and accepts sessions. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the address cannot be bound, or the certificate cannot be used.
    pub fn bind(config: ListenerConfig, node: Arc<dyn Node>) -> io::Result<Self> {
        Self::accept_on(bind(&config)?, config, node, true)
    }

    /// As [`Self::bind`], on a socket that is bound already; if it does not read yet
    /// ([`Self::read`]), accepts nothing.
    ///
    /// # Errors
    /// When the socket or the certificate cannot be used.
    pub fn accept_on(
        socket: UdpSocket,
        config: ListenerConfig,
        node: Arc<dyn Node>,
        reads: bool,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let socket = SharedSocket::new(socket, reads)?;
        let first = before_acceptance(&config.tls, config.max_half_open)?;
        let endpoint = Endpoint::new_with_abstract_socket(
            config.key.endpoint(),
            Some(first),
            socket.clone(),
            Arc::new(TokioRuntime),
        )?;
        let stop = CancellationToken::new();
        let tracker = TaskTracker::new();
        let connections = Arc::new(Semaphore::new(config.max_connections));
        let shared = Arc::new(Shared {
            endpoint,
            socket,
            session: RwLock::new(Arc::new(config.session)),
            tls: config.tls,
            node,
            registry: Arc::new(Registry::default()),
            stop: stop.clone(),
            held: watch::Sender::new(!reads),
            withdrawals: Withdrawals::default(),
        });
        let acceptor = Acceptor {
            shared: shared.clone(),
            half_open: Arc::new(Semaphore::new(config.max_half_open)),
            max_half_open: config.max_half_open,
            sources: Sources::among(config.max_half_open, config.max_half_open_per_source),
            connections: connections.clone(),
            tracker: tracker.clone(),
        };
        tokio::spawn(async move {
            stop.run_until_cancelled(acceptor.accept_all()).await;
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

    /// Sets the settings of sessions that begin from now on. More room for bundles also applies to
    /// existing sessions.
    pub fn set_session(&self, session: SessionDefaults) {
        session.widen_rooms();
        *self.shared.session.write().unwrap() = Arc::new(session);
    }

    /// Whether this process reads what comes, or leaves it to another one that has the socket, too.
    /// Without it no session comes up, and none hears its peer; they can still end.
    pub fn read(&self, reads: bool) {
        self.shared.held.send_replace(!reads);
        self.shared.socket.read(reads);
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

/// Binds the address of a listener.
///
/// # Errors
/// When the address or the interface cannot be used.
pub fn bind(config: &ListenerConfig) -> io::Result<UdpSocket> {
    config.session.socket.bind(config.local)
}

struct Acceptor {
    shared: Arc<Shared>,
    half_open: Arc<Semaphore>,
    max_half_open: usize,
    sources: Sources,
    connections: Arc<Semaphore>,
    tracker: TaskTracker,
}

impl Acceptor {
    async fn accept_all(&self) {
        let mut held = self.shared.held.subscribe();
        loop {
            let Ok(half_open) = self.half_open.clone().acquire_owned().await else {
                return;
            };
            if held.wait_for(|held| !held).await.is_err() {
                return;
            }
            let incoming = tokio::select! {
                biased;
                _ = held.wait_for(|held| *held) => continue,
                incoming = self.shared.endpoint.accept() => incoming,
            };
            let Some(incoming) = incoming else {
                return;
            };
            self.take(incoming, half_open);
        }
    }

    fn take(&self, incoming: Incoming, half_open: OwnedSemaphorePermit) {
        let remote = incoming.remote_address();
        // A possibly forged address must not take a place that others need.
        let scarce = self.half_open.available_permits() < self.max_half_open / 2;
        if scarce && !incoming.remote_address_validated() && incoming.may_retry() {
            // It may, so this cannot fail.
            let _ = incoming.retry();
            return;
        }
        let Some(source) = self.sources.enter(remote.ip()) else {
            warn!(%remote, "connection refused: there are too many contacts from there");
            incoming.refuse();
            return;
        };
        let Ok(connection) = self.connections.clone().try_acquire_owned() else {
            warn!(%remote, "connection refused: there are too many");
            incoming.refuse();
            return;
        };
        let half_open = HalfOpen {
            _permit: half_open,
            source,
        };
        let shared = self.shared.clone();
        self.tracker.spawn(async move {
            shared.serve(incoming, remote, half_open).await;
            drop(connection);
        });
    }
}

impl Shared {
    async fn serve(&self, incoming: Incoming, remote: SocketAddr, half_open: HalfOpen) {
        let defaults = self.session.read().unwrap().clone();
        let flow = Flow::new(defaults.algorithm, is_ipv6(remote), Instant::now());
        let contact = self.contact(incoming, &defaults, &flow);
        let contact = self.stop.run_until_cancelled(contact).await;
        half_open.end(matches!(contact, Some(Ok(_))));
        let contact = match contact {
            Some(Ok(contact)) => contact,
            Some(Err(error)) if error.is_withdrawal() => {
                if let Some(contacts) = self.withdrawals.add(Instant::now()) {
                    debug!(%remote, %error, contacts, "contacts withdrawn");
                }
                return;
            }
            // A blockage in the middle of a contact ends it like this.
            Some(Err(error)) if error.is_silence() => {
                info!(%remote, %error, "contact failed");
                return;
            }
            Some(Err(error)) => {
                warn!(%remote, %error, "contact failed");
                return;
            }
            None => return,
        };
        let around = Surroundings {
            defaults,
            node: self.node.clone(),
            flow,
            registry: self.registry.clone(),
            renew: None,
        };
        let down: Down = session::run(contact, around).await;
        info!(%remote, %down, "session ended");
    }

    async fn contact(
        &self,
        incoming: Incoming,
        defaults: &Arc<SessionDefaults>,
        flow: &Arc<Flow>,
    ) -> Result<Contact, ContactFailure> {
        let mut config = crypto(&self.tls)?;
        config.transport_config(Arc::new(defaults.transport(flow.clone(), true)));
        let connecting = incoming.accept_with(Arc::new(config))?;
        let connected = async { Ok(connecting.await?) };
        let connection = within(defaults.contact_timeout, connected).await?;
        let trust = Trust {
            uris: self.tls.uris,
            is_revoked: self.tls.is_revoked.clone(),
        };
        contact::answer(connection, defaults, trust).await
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.endpoint.close(code::CLOSED, b"");
    }
}

/// IPv4 peers of an IPv6 socket count as IPv4.
pub(crate) fn is_ipv6(remote: SocketAddr) -> bool {
    remote.ip().to_canonical().is_ipv6()
}

/// What applies until a connection is accepted, while `most` of them wait: nobody has proved
/// anything by then.
fn before_acceptance(tls: &ServerTls, most: usize) -> io::Result<ServerConfig> {
    let mut config = crypto(tls)?;
    config
        .max_incoming(most)
        .incoming_buffer_size(UNACCEPTED_BYTES)
        .incoming_buffer_size_total(UNACCEPTED_BYTES * most as u64);
    Ok(config)
}

/// Uses the present certificates, so that renewed ones take effect.
fn crypto(tls: &ServerTls) -> io::Result<ServerConfig> {
    let mut config = (*(tls.source)()).clone();
    config.alpn_protocols = vec![wire::ALPN.to_vec()];
    let crypto = QuicServerConfig::try_from(config).map_err(io::Error::other)?;
    Ok(ServerConfig::with_crypto(Arc::new(crypto)))
}

#[cfg(test)]
mod tests {
    use underpass_cla_testing::pki::{Ca, Naming, nothing_revoked};

    use super::*;

    #[test]
    fn little_is_kept_of_connections_that_wait_to_be_accepted() {
        let ca = Ca::new();
        let node = ca.node("ipn:2.0", 2, Naming::OtherName);
        let config = before_acceptance(&ca.server(&node, nothing_revoked()), 256);
        let told = format!("{:?}", config.expect("a certificate"));
        for limit in [
            "max_incoming: 256",
            "incoming_buffer_size: 16384",
            "incoming_buffer_size_total: 4194304",
        ] {
            assert!(told.contains(limit), "{limit} is missing in {told}");
        }
    }
}
