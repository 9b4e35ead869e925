//! The running edge.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use underpass_cla::Class;

use crate::account::Accounts;
use crate::classify::Classifier;
use crate::config::{DialConfig, EdgeConfig, ListenerConfig};
use crate::credentials::{UserError, Users};
use crate::dial::{Dialler, resume_inbound};
use crate::direct::DirectOutlet;
use crate::flows::{Flows, Owner};
use crate::listen::{self, Admitted, Clients, Entrance, Listener, Ways};
use crate::relay::{HeldRelay, Relayed, Relays};
use crate::stream::{Conduit, OpenRequest, Outlet, Protocol, Target};
use crate::switch::Switch;
use crate::throttle::Throttle;
use crate::traces::Traces;

/// Why an edge cannot start.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum EdgeError {
    #[error("two listeners are named {0:?}")]
    Name(String),
    #[error("edge.listener {listener:?}: {source}")]
    Users { listener: String, source: UserError },
    #[error("cannot listen on {address} for {listener:?}: {source}")]
    Listen {
        listener: String,
        address: SocketAddr,
        source: io::Error,
    },
}

/// Counts a connection to an origin of a peer until the returned value is dropped.
type CountOrigin = dyn Fn(u64) -> Box<dyn Send> + Send + Sync;

/// All listeners of a node, accepting.
pub struct Edge {
    stop: CancellationToken,
    connections: TaskTracker,
    entrances: Vec<Arc<Entrance>>,
    dialler: Arc<Dialler>,
    addresses: Vec<(String, SocketAddr)>,
    switch: Arc<RwLock<Switch>>,
    /// Wrong passwords at all listeners.
    failures: Arc<Mutex<Throttle>>,
    relays: Arc<Relays>,
    flows: Arc<Flows>,
    accounts: Arc<OnceLock<Arc<dyn Accounts>>>,
    traces: Arc<OnceLock<Arc<dyn Traces>>>,
    /// Of connections that it goes on with.
    origins: OnceLock<Box<CountOrigin>>,
    paused: watch::Sender<bool>,
    /// The listening sockets, by the listeners' names.
    sockets: Vec<(String, OwnedFd)>,
}

/// Another configuration, ready to be gone by.
pub struct Prepared {
    listeners: Vec<(ListenerConfig, Admitted)>,
    dial: DialConfig,
}

impl Edge {
    /// Whether the users of all listeners could be told apart: files with
    /// passwords are read.
    ///
    /// # Errors
    /// When one cannot be used.
    pub fn check_users(config: &EdgeConfig) -> Result<(), EdgeError> {
        let mut listeners = config.listener.iter();
        listeners.try_for_each(|listener| users(listener, &Arc::default()).map(drop))
    }

    /// Binds the address of a listener: a socket for [`Edge::start_on`].
    ///
    /// # Errors
    /// When it is taken, or an option needs a privilege that the process lacks.
    pub fn bind(listener: &ListenerConfig) -> Result<std::net::TcpListener, EdgeError> {
        listen::bind(listener).map_err(|source| EdgeError::Listen {
            listener: listener.name.clone(),
            address: listener.address,
            source,
        })
    }

    /// Binds every listener of `config` and serves them on the current tokio
    /// runtime; connections get their class from `classifier` and leave
    /// through `outlet`, or from this node itself where a rule says `direct`.
    ///
    /// # Errors
    /// When a listener cannot be bound; none is then left listening.
    pub fn start(
        config: &EdgeConfig,
        classifier: Classifier,
        outlet: Arc<dyn Outlet>,
    ) -> Result<Edge, EdgeError> {
        Edge::start_on(config, classifier, outlet, HashMap::new())
    }

    /// As [`Edge::start`], with the sockets of listeners, by their names, that
    /// are bound already.
    ///
    /// # Errors
    /// As [`Edge::start`].
    pub fn start_on(
        config: &EdgeConfig,
        classifier: Classifier,
        outlet: Arc<dyn Outlet>,
        mut bound: HashMap<String, std::net::TcpListener>,
    ) -> Result<Edge, EdgeError> {
        let dialler = Arc::new(Dialler::new(config.dial.clone()));
        let classifier = Arc::new(classifier);
        let switch = Arc::<RwLock<Switch>>::default();
        let ways = Ways {
            peer: outlet,
            direct: Arc::new(DirectOutlet::new(dialler.clone())),
            switch: switch.clone(),
            relays: Arc::default(),
            flows: Arc::new(Flows::new(classifier.clone())),
            accounts: Arc::default(),
            traces: Arc::default(),
        };
        let accounts = ways.accounts.clone();
        let traces = ways.traces.clone();
        let relays = ways.relays.clone();
        let flows = ways.flows.clone();
        let failures = Arc::<Mutex<Throttle>>::default();
        let mut listeners = Vec::new();
        let mut sockets = Vec::new();
        let mut addresses: Vec<(String, SocketAddr)> = Vec::new();
        for listener in &config.listener {
            let name = listener.name.clone();
            if addresses.iter().any(|(known, _)| *known == name) {
                return Err(EdgeError::Name(name));
            }
            let admitted = admitted(config, listener, &failures)?;
            let (config, ways) = (listener.clone(), ways.clone());
            let there = bound.remove(&name);
            let bound = Listener::bind(config, admitted, ways, classifier.clone(), there)
                .and_then(|bound| Ok((bound.local_addr()?, bound.socket()?, bound)));
            let (address, socket, bound) = bound.map_err(|source| EdgeError::Listen {
                listener: name.clone(),
                address: listener.address,
                source,
            })?;
            sockets.push((name.clone(), socket));
            addresses.push((name, address));
            listeners.push(bound);
        }
        let edge = Edge {
            stop: CancellationToken::new(),
            connections: TaskTracker::new(),
            entrances: listeners.iter().map(|l| l.entrance().clone()).collect(),
            dialler,
            addresses,
            switch,
            failures,
            relays,
            flows,
            accounts,
            traces,
            origins: OnceLock::new(),
            paused: watch::Sender::new(false),
            sockets,
        };
        for listener in listeners {
            let (stop, paused) = (edge.stop.clone(), edge.paused.subscribe());
            tokio::spawn(listener.serve(stop, paused, edge.connections.clone()));
        }
        Ok(edge)
    }

    /// Reads what another configuration names, such as files with passwords;
    /// nothing changes yet.
    ///
    /// # Errors
    /// When the users of a listener cannot be told apart.
    pub fn prepare(&self, config: &EdgeConfig) -> Result<Prepared, EdgeError> {
        let listeners = config.listener.iter().map(|listener| {
            let admitted = admitted(config, listener, &self.failures)?;
            Ok((listener.clone(), admitted))
        });
        Ok(Prepared {
            listeners: listeners.collect::<Result<_, EdgeError>>()?,
            dial: config.dial.clone(),
        })
    }

    /// Uses another configuration from the next connection on. Open connections continue, and their
    /// flows follow the new rules. The listeners keep their protocols and addresses.
    pub fn reconfigure(&self, prepared: Prepared, mut classifier: Classifier) {
        classifier.count_on(&self.flows.rules());
        let classifier = Arc::new(classifier);
        self.flows.set_rules(classifier.clone());
        for (listener, admitted) in prepared.listeners {
            let mut entrances = self.entrances.iter();
            if let Some(entrance) = entrances.find(|e| e.name() == listener.name) {
                entrance.reconfigure(listener, admitted, classifier.clone());
            }
        }
        self.dialler.reconfigure(prepared.dial);
    }

    /// Names and addresses of the listeners, with the ports that the system
    /// chose where the configuration says 0.
    pub fn addresses(&self) -> &[(String, SocketAddr)] {
        &self.addresses
    }

    /// Connections that are open.
    pub fn open_connections(&self) -> usize {
        self.connections.len()
    }

    /// What the proxies do not take in at present.
    pub fn switch(&self) -> Switch {
        self.switch.read().unwrap().clone()
    }

    /// Changes which connections SOCKS5 and HTTP listeners take in. New connections that they do
    /// not take in leave from this node itself; open ones continue.
    pub fn set_switch(&self, switch: Switch) {
        *self.switch.write().unwrap() = switch;
    }

    /// The relays of this edge.
    pub fn relays(&self) -> &Arc<Relays> {
        &self.relays
    }

    /// What the flows of its connections share.
    pub fn flows(&self) -> &Arc<Flows> {
        &self.flows
    }

    /// Reports ended connections to `accounts` from now on. Only the first call has an effect.
    pub fn account_to(&self, accounts: Arc<dyn Accounts>) {
        let _ = self.accounts.set(accounts);
    }

    /// Traces exchanges by `traces` from now on. Only the first call has an effect.
    pub fn trace_by(&self, traces: Arc<dyn Traces>) {
        let _ = self.traces.set(traces);
    }

    /// Counts the connections to origins that this edge continues, by their peers: the value that
    /// `count` returns is dropped at their end. Only the first call has an effect.
    pub fn count_origins(&self, count: impl Fn(u64) -> Box<dyn Send> + Send + Sync + 'static) {
        let _ = self.origins.set(Box::new(count));
    }

    /// The listening sockets, by the listeners' names.
    pub fn sockets(&self) -> &[(String, OwnedFd)] {
        &self.sockets
    }

    /// Lets new connections wait in the kernel, or accepts them again.
    pub fn pause(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    /// Continues a connection that another process, or this one, has relayed so far. It is reset if
    /// its listener no longer exists.
    pub fn resume(&self, held: HeldRelay, conduit: Box<dyn Conduit>) {
        match held.state.relayed.clone() {
            Relayed::Client {
                listener,
                client,
                target,
            } => {
                let mut entrances = self.entrances.iter();
                if let Some(entrance) = entrances.find(|e| e.name() == listener) {
                    let entrance = entrance.clone();
                    self.connections.spawn(async move {
                        entrance.resume(client, &target, held, conduit).await;
                    });
                }
            }
            Relayed::Origin { peer, target } => {
                let relays = self.relays.clone();
                let conduit = self.watch_inbound_again(peer, &target, conduit);
                let place = self.origins.get().map(|count| count(peer));
                tokio::spawn(async move {
                    let _until_its_end = place;
                    // Its end is in the log.
                    let _ = resume_inbound(held, peer, &target, conduit, &relays).await;
                });
            }
            Relayed::Process => {
                let relays = self.relays.clone();
                tokio::spawn(async move {
                    let HeldRelay { state, socket } = held;
                    if let Ok(socket) = TcpStream::from_std(socket) {
                        relays.resume(socket, conduit, state).await;
                    }
                });
            }
        }
    }

    fn watch_inbound_again(
        &self,
        peer: u64,
        target: &str,
        conduit: Box<dyn Conduit>,
    ) -> Box<dyn Conduit> {
        let Some(target) = Target::from_display(target) else {
            return conduit;
        };
        let request = OpenRequest {
            target,
            client: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            listener: "peer".into(),
            protocol: Protocol::Transparent,
            class: Class(0),
            awaits_outcome: false,
            trace: None,
        };
        self.flows.watch_again(conduit, Owner::Peer(peer), &request)
    }

    /// Stops accepting and waits until the last open connection has ended.
    pub async fn drain(&self) {
        self.stop.cancel();
        self.connections.close();
        self.connections.wait().await;
    }
}

/// A listener's own client networks, or those of all, and its users.
fn admitted(
    config: &EdgeConfig,
    listener: &ListenerConfig,
    failures: &Arc<Mutex<Throttle>>,
) -> Result<Admitted, EdgeError> {
    let networks = listener.client_networks.as_ref();
    Ok(Admitted {
        clients: Clients::new(networks.unwrap_or(&config.client_networks).clone()),
        users: users(listener, failures)?,
    })
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edge")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

fn users(
    listener: &ListenerConfig,
    failures: &Arc<Mutex<Throttle>>,
) -> Result<Option<Users>, EdgeError> {
    let loaded = Users::load(&listener.users, failures);
    if listener.users.iter().any(|user| user.password.is_some()) {
        tracing::warn!(
            listener = listener.name,
            "passwords stand in the configuration as they are: `underpass hash-password` makes hashes"
        );
    }
    loaded.map_err(|source| EdgeError::Users {
        listener: listener.name.clone(),
        source,
    })
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
