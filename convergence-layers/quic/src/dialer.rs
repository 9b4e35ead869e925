//! The side that dials: a terminal.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, EndpointConfig, TokioRuntime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use underpass_backoff::Backoff;
use underpass_cla::{Class, Node};
use underpass_identity::{ClientTls, Registry};

use crate::congestion::Flow;
use crate::contact::{self, Contact, ContactFailure, Trust, within};
use crate::defaults::SessionDefaults;
use crate::lane::Lane;
use crate::listener::is_ipv6;
use crate::wire;

/// Connections begun and not through, at most.
const MOST_ATTEMPTS: usize = 20;
/// Once a peer has answered, the dialer waits this many times as long as that took for the rest of
/// the contact before it begins the next connection.
const CONTACT_ROUND_TRIPS: u32 = 3;

/// What a dialer is to do.
#[derive(Clone, Debug)]
pub struct DialerConfig {
    /// Whom to dial.
    pub remote: SocketAddr,
    /// The local address to dial from; port 0 for any.
    pub local: Option<SocketAddr>,
    /// What its sessions have in common.
    pub session: SessionDefaults,
    /// Certificates: there is no QUIC without.
    pub tls: ClientTls,
    /// The classes, the most important first; each has its own session. With
    /// none there is one session for all.
    pub classes: Vec<Class>,
    /// Whether each class has a standby session beside its active one.
    pub standby: bool,
    /// How long a connection may take; meanwhile others are begun.
    pub connect_timeout: Duration,
    /// When to dial again after a refusal. If nobody answers, a connection is begun each `base`,
    /// without back-off.
    pub backoff: Backoff,
}

impl DialerConfig {
    /// A dialer to `remote` with the usual values and no classes.
    pub fn new(remote: SocketAddr, session: SessionDefaults, tls: ClientTls) -> Self {
        Self {
            remote,
            local: None,
            session,
            tls,
            classes: Vec::new(),
            standby: false,
            connect_timeout: Duration::from_secs(10),
            backoff: Backoff::default(),
        }
    }
}

/// Keeps sessions to one peer over one path. Dropping it stops dialling; sessions continue.
#[derive(Debug)]
pub struct Dialer {
    shared: Arc<Shared>,
    tracker: TaskTracker,
}

/// What the lanes of a dialer share.
pub(crate) struct Shared {
    pub(crate) config: DialerConfig,
    session: RwLock<Arc<SessionDefaults>>,
    pub(crate) node: Arc<dyn Node>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) stop: CancellationToken,
    /// Nothing is dialled.
    pub(crate) held: watch::Sender<bool>,
    /// Why the last attempt or session of each class ended.
    errors: Mutex<BTreeMap<Option<Class>, String>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("remote", &self.config.remote)
            .finish_non_exhaustive()
    }
}

impl Dialer {
    /// Begins to dial. Must be called within a tokio runtime.
    pub fn spawn(config: DialerConfig, node: Arc<dyn Node>) -> Self {
        let mut classes: Vec<_> = config.classes.iter().copied().map(Some).collect();
        if classes.is_empty() {
            classes.push(None);
        }
        let shared = Arc::new(Shared {
            session: RwLock::new(Arc::new(config.session.clone())),
            config,
            node,
            registry: Arc::new(Registry::default()),
            stop: CancellationToken::new(),
            held: watch::Sender::new(false),
            errors: Mutex::default(),
        });
        let tracker = TaskTracker::new();
        for class in classes {
            tracker.spawn(Lane::new(shared.clone(), class).run());
        }
        tracker.close();
        Self { shared, tracker }
    }

    /// Sets the settings of sessions that begin from now on. More room for bundles also applies to
    /// existing sessions.
    pub fn set_session(&self, session: SessionDefaults) {
        session.widen_rooms();
        *self.shared.session.write().unwrap() = Arc::new(session);
    }

    /// While held, dials nothing more; sessions continue, and so do those that are being set up.
    pub fn hold(&self, held: bool) {
        self.shared.held.send_replace(held);
    }

    /// Its sessions at present.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Why the last attempt or session of a class ended.
    pub fn last_error(&self, class: Option<Class>) -> Option<String> {
        self.shared.errors.lock().unwrap().get(&class).cloned()
    }

    /// Stops dialling, ends all sessions in order and waits for their end.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.registry.close_all();
        self.tracker.wait().await;
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

/// A contact with what belongs to it.
pub(crate) struct Reached {
    pub(crate) contact: Contact,
    pub(crate) flow: Arc<Flow>,
    pub(crate) defaults: Arc<SessionDefaults>,
    /// Its socket lives as long as this.
    pub(crate) endpoint: Endpoint,
}

impl Shared {
    pub(crate) fn set_error(&self, class: Option<Class>, error: String) {
        self.errors.lock().unwrap().insert(class, error);
    }

    /// Dials until a peer answers; an error is the peer's answer, or this host's refusal. While a
    /// link is blocked, packets are lost, and QUIC retransmits more and more rarely. So a fresh
    /// connection is begun at short intervals, and the first one that completes the contact wins.
    pub(crate) async fn dial(
        self: &Arc<Self>,
        class: Option<(Class, bool)>,
    ) -> Result<Reached, ContactFailure> {
        let defaults = self.session.read().unwrap().clone();
        let endpoint = self.endpoint(&defaults)?;
        let patient_until = Arc::new(Mutex::new(Instant::now()));
        let mut attempts: JoinSet<Result<_, ContactFailure>> = JoinSet::new();
        let (mut next, mut refused) = (Instant::now(), 0);
        loop {
            let due = next.max(*patient_until.lock().unwrap());
            tokio::select! {
                Some(ended) = attempts.join_next() => match ended {
                    Ok(Ok((contact, flow))) => {
                        return Ok(Reached { contact, flow, defaults, endpoint });
                    }
                    Ok(Err(failure)) if failure.is_silence() => {
                        self.set_error(class.map(|(class, _)| class), failure.to_string());
                    }
                    // The end of a connection from before a blockage, which comes only now, says
                    // nothing of those that were begun since. A peer that ends them all is dialled
                    // more and more rarely.
                    Ok(Err(failure)) if failure.comes_and_goes() && !attempts.is_empty() => {
                        self.set_error(class.map(|(class, _)| class), failure.to_string());
                        refused += 1;
                        let now = Instant::now();
                        *patient_until.lock().unwrap() = now;
                        next = now + self.pause(refused);
                    }
                    Ok(Err(failure)) => return Err(failure),
                    Err(broken) => return Err(io::Error::other(broken).into()),
                },
                () = sleep_until(due.into()) => {
                    let patient = *patient_until.lock().unwrap() > Instant::now();
                    if !patient && attempts.len() < MOST_ATTEMPTS {
                        let attempt = Attempt {
                            shared: self.clone(),
                            defaults: defaults.clone(),
                            endpoint: endpoint.clone(),
                            class,
                            patient_until: patient_until.clone(),
                        };
                        attempts.spawn(attempt.run());
                    }
                    next = Instant::now() + self.pause(refused);
                }
            }
        }
    }

    /// The time between two connections of a dial, after this many refusals.
    fn pause(&self, refused: u32) -> Duration {
        let backoff = self.config.backoff;
        let pause = backoff.jittered(refused, fastrand::f64());
        pause.max(backoff.base)
    }

    /// Each session has its own socket, so that ports distinguish the classes, and an interface
    /// that is created again is found.
    fn endpoint(&self, defaults: &SessionDefaults) -> io::Result<Endpoint> {
        let any = match self.config.remote {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let local = self.config.local.unwrap_or(SocketAddr::new(any, 0));
        let socket = defaults.socket.bind(local)?;
        Endpoint::new(
            EndpointConfig::default(),
            None,
            socket,
            Arc::new(TokioRuntime),
        )
    }

    /// Uses the present certificates, so that renewed ones take effect.
    fn crypto(&self) -> io::Result<ClientConfig> {
        let mut config = (*(self.config.tls.source)()).clone();
        config.alpn_protocols = vec![wire::ALPN.to_vec()];
        let crypto = QuicClientConfig::try_from(config).map_err(io::Error::other)?;
        Ok(ClientConfig::new(Arc::new(crypto)))
    }
}

struct Attempt {
    shared: Arc<Shared>,
    defaults: Arc<SessionDefaults>,
    endpoint: Endpoint,
    class: Option<(Class, bool)>,
    patient_until: Arc<Mutex<Instant>>,
}

impl Attempt {
    async fn run(self) -> Result<(Contact, Arc<Flow>), ContactFailure> {
        let config = &self.shared.config;
        let begun = Instant::now();
        let flow = Flow::new(self.defaults.algorithm, is_ipv6(config.remote), begun);
        let mut client = self.shared.crypto()?;
        client.transport_config(Arc::new(self.defaults.transport(flow.clone(), false)));
        let name = config.remote.ip().to_string();
        let connecting = self.endpoint.connect_with(client, config.remote, &name);
        let mut connecting = connecting.map_err(io::Error::other)?;
        let connected = async {
            connecting.handshake_data().await?;
            self.extend_patience(begun.elapsed());
            Ok(connecting.await?)
        };
        let connection = within(config.connect_timeout, connected).await?;
        let trust = Trust {
            uris: config.tls.uris,
            is_revoked: config.tls.is_revoked.clone(),
        };
        let contact = contact::ask(connection, &self.defaults, self.class, trust).await?;
        Ok((contact, flow))
    }
    /// The peer has answered after this time, so it is reachable and no other connection is begun
    /// for a while.
    fn extend_patience(&self, answered_after: Duration) {
        let base = self.shared.config.backoff.base;
        let patience = answered_after * CONTACT_ROUND_TRIPS + base;
        let mut until = self.patient_until.lock().unwrap();
        *until = (*until).max(Instant::now() + patience);
    }
}
