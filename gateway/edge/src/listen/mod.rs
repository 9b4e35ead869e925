//! Takes connections in: listening sockets, who may enter, how many at once.

mod clients;
mod journal;
mod leave;
mod places;
mod socket;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use underpass_customer::customer;

use crate::account::Accounts;
use crate::classify::{Classifier, Facts, FlowFacts, Verdict};
use crate::config::{Answer, ListenerConfig, ListenerProtocol};
use crate::credentials::Users;
use crate::flows::{Flows, Owner};
use crate::relay::{HeldRelay, Relays};
use crate::stream::{Conduit, Failure, OpenRequest, Outlet, Protocol, Target};
use crate::switch::Switch;
use crate::traces::{self, Beginning, Traces};
use crate::{http, order, socks5, transparent};
pub(crate) use clients::Clients;
pub(crate) use journal::{Asked, Exchange};
pub(crate) use leave::leave;
use places::{Place, Places};
pub(crate) use socket::{bind, set_keepalive};

/// The ways that a connection may leave by.
#[derive(Clone)]
pub(crate) struct Ways {
    /// To the peer node.
    pub peer: Arc<dyn Outlet>,
    /// From this node itself.
    pub direct: Arc<dyn Outlet>,
    /// Which of them proxies take at present.
    pub switch: Arc<RwLock<Switch>>,
    pub relays: Arc<Relays>,
    pub flows: Arc<Flows>,
    /// The receiver of ended connections, if there is one.
    pub accounts: Arc<OnceLock<Arc<dyn Accounts>>>,
    /// Who traces exchanges, if anybody does.
    pub traces: Arc<OnceLock<Arc<dyn Traces>>>,
}

/// What every connection of one listener shares.
pub(crate) struct Intake {
    pub config: ListenerConfig,
    pub name: Arc<str>,
    /// Who may enter with a password; none where nobody is asked for one.
    pub users: Option<Users>,
    pub ways: Ways,
    pub classifier: Arc<Classifier>,
}

/// Who may enter by a listener, as a configuration says.
pub(crate) struct Admitted {
    pub clients: Clients,
    pub users: Option<Users>,
}

impl Intake {
    fn new(
        config: ListenerConfig,
        users: Option<Users>,
        ways: Ways,
        classifier: Arc<Classifier>,
    ) -> Intake {
        Intake {
            name: config.name.as_str().into(),
            config,
            users,
            ways,
            classifier,
        }
    }

    /// The decision of the rules and the switch for a connection to `target`; `content_length` is
    /// in bytes, if HTTP gives it.
    pub fn classify(
        &self,
        protocol: Protocol,
        target: &Target,
        peer: &Peer,
        content_length: Option<u64>,
    ) -> Verdict {
        let mut verdict = self.classifier.classify(&Facts {
            listener: &self.name,
            protocol,
            target,
            client: peer.address,
            dscp: peer.dscp,
            content_length,
            flow: FlowFacts::default(),
        });
        // For these connections the kernel has already applied the other switch.
        if protocol != Protocol::Transparent {
            let switch = self.ways.switch.read().unwrap();
            verdict.direct |= !switch.takes_in(peer.address.ip(), target);
        }
        verdict
    }

    /// Opens a stream for a client, which has sent this `traceparent` header.
    pub fn open(
        &self,
        protocol: Protocol,
        target: Target,
        peer: &Peer,
        verdict: Verdict,
        traceparent: Option<&HeaderValue>,
    ) -> Result<Box<dyn Conduit>, Failure> {
        let outlet = if verdict.direct {
            &self.ways.direct
        } else {
            &self.ways.peer
        };
        let traces = self.ways.traces.get().filter(|_| !verdict.direct);
        let traced = traces.and_then(|traces| {
            let traceparent = traceparent.and_then(|header| header.to_str().ok());
            let span = traces.begin(Beginning::Client { traceparent })?;
            Some((traces.clone(), span))
        });
        let request = OpenRequest {
            target,
            client: peer.address,
            listener: self.name.clone(),
            protocol,
            class: verdict.class,
            awaits_outcome: self.config.answer == Answer::AfterDial
                && protocol != Protocol::HttpForward,
            trace: traced.as_ref().map(|(_, span)| span.context),
        };
        let conduit = outlet.open(request.clone())?;
        if verdict.direct {
            return Ok(conduit);
        }
        let conduit = match traced {
            Some((traces, span)) => traces::trace(traces, span, request.clone(), conduit),
            None => conduit,
        };
        let owner = Owner::Client(customer(peer.address.ip()));
        Ok(self
            .ways
            .flows
            .watch(conduit, owner, &request, peer.dscp, Some(verdict)))
    }
}

/// What is known of a client from its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub address: SocketAddr,
    pub dscp: Option<u8>,
}

/// The settings of a listener for its next connections.
struct Gate {
    intake: Arc<Intake>,
    clients: Clients,
}

/// Who may enter by a listener, and the settings of their connections. A change of configuration
/// replaces it; open connections keep theirs.
pub(crate) struct Entrance {
    name: Arc<str>,
    ways: Ways,
    gate: RwLock<Arc<Gate>>,
    places: Arc<Places>,
}

impl Entrance {
    fn gate(&self) -> Arc<Gate> {
        self.gate.read().unwrap().clone()
    }

    /// The listener's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Continues a client's connection that another process has relayed so far.
    pub async fn resume(
        &self,
        client: SocketAddr,
        target: &str,
        held: HeldRelay,
        conduit: Box<dyn Conduit>,
    ) {
        let place = self.places.take_open(client.ip());
        let intake = self.gate().intake.clone();
        intake.resume(client, target, held, conduit).await;
        drop(place);
    }

    /// Uses another configuration from the next connection on. Protocol, address and interface are
    /// those of the listening socket.
    pub fn reconfigure(
        &self,
        config: ListenerConfig,
        admitted: Admitted,
        classifier: Arc<Classifier>,
    ) {
        let Admitted { clients, users } = admitted;
        self.places.set_most(config.max_connections);
        let intake = Intake::new(config, users, self.ways.clone(), classifier);
        let mut gate = self.gate.write().unwrap();
        *gate = Arc::new(Gate {
            intake: Arc::new(intake),
            clients,
        });
    }
}

/// One listening socket, ready to be served.
pub(crate) struct Listener {
    entrance: Arc<Entrance>,
    socket: TcpListener,
}

impl Listener {
    /// The listener of `config`, by a socket that another process has bound,
    /// if there is one.
    ///
    /// # Errors
    /// When the socket cannot be bound, or an option needs a privilege that
    /// the process lacks.
    pub fn bind(
        config: ListenerConfig,
        admitted: Admitted,
        ways: Ways,
        classifier: Arc<Classifier>,
        bound: Option<std::net::TcpListener>,
    ) -> io::Result<Listener> {
        let socket = match bound {
            Some(bound) => TcpListener::from_std(bound)?,
            None => socket::listen(&config)?,
        };
        let places = Places::new(config.max_connections);
        let Admitted { clients, users } = admitted;
        let intake = Arc::new(Intake::new(config, users, ways.clone(), classifier));
        let entrance = Entrance {
            name: intake.name.clone(),
            ways,
            gate: RwLock::new(Arc::new(Gate { intake, clients })),
            places,
        };
        Ok(Listener {
            entrance: Arc::new(entrance),
            socket,
        })
    }

    /// Who may enter by it.
    pub fn entrance(&self) -> &Arc<Entrance> {
        &self.entrance
    }

    /// The address in use, with the port that the system chose for port 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The listening socket once more.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Accepts connections until `stop` is cancelled, except while they are `paused`. Open
    /// connections continue under `connections`.
    pub async fn serve(
        self,
        stop: CancellationToken,
        mut paused: watch::Receiver<bool>,
        connections: TaskTracker,
    ) {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                _ = paused.wait_for(|paused| *paused) => None,
                accepted = self.accept() => Some(accepted),
            };
            let Some(accepted) = accepted else {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = paused.wait_for(|paused| !paused) => continue,
                }
            };
            let (socket, peer, intake, place) = match accepted {
                Ok(Some(accepted)) => accepted,
                Ok(None) => continue,
                Err(error) => {
                    // Descriptors or memory have run out; an open connection may end soon and free
                    // some.
                    tracing::warn!(listener = self.entrance.name(), %error, "cannot accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let stop = stop.clone();
            let connection = connections.track_future(async move {
                match intake.config.protocol {
                    ListenerProtocol::Socks5 => socks5::serve(&intake, socket, peer, &stop).await,
                    ListenerProtocol::Http => http::serve(intake, socket, peer, stop).await,
                    ListenerProtocol::Transparent => {
                        transparent::serve(&intake, socket, peer).await
                    }
                }
                drop(place);
            });
            order::begin(connection).await;
        }
    }

    async fn accept(&self) -> io::Result<Option<(TcpStream, Peer, Arc<Intake>, Place)>> {
        let place = self.entrance.places.take().await;
        let (socket, address) = self.socket.accept().await?;
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let gate = self.entrance.gate();
        if !gate.clients.admit(address.ip()) {
            let reason = "it is outside the client networks";
            gate.intake.note_refusal(address, reason);
            crate::relay::abort(socket);
            return Ok(None);
        }
        let Some(place) = place.of(address.ip()) else {
            let reason = "it has too many connections at once";
            gate.intake.note_refusal(address, reason);
            crate::relay::abort(socket);
            return Ok(None);
        };
        let dscp = socket::syn_dscp(&socket);
        let peer = Peer { address, dscp };
        Ok(Some((socket, peer, gate.intake.clone(), place)))
    }
}
