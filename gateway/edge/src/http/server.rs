//! One client connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioTimer;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use underpass_deferred::Handle;

use super::authority;
use super::client_io::{ClientIo, Left};
use super::connect::connect;
use super::deferred::{self, Place};
use super::forward::forward;
use super::interim::Outbox;
use super::refusal::Answers;
use super::reply::{self, Body};
use super::tunnel::Tunnel;
use super::upstream::Upstreams;
use crate::credentials::{Admission, THROTTLED};
use crate::listen::{Asked, Exchange, Intake, Peer, leave};

/// Most octets of a request head: more than common origins accept.
const MAX_HEAD: usize = 64 * 1024;
/// Most header fields of a request.
pub(super) const MAX_FIELDS: usize = 128;

/// A client's connection, as its requests see it.
pub(super) struct Client {
    pub intake: Arc<Intake>,
    pub peer: Peer,
    /// The address that the client has connected to.
    pub local: Option<SocketAddr>,
    pub upstreams: Upstreams,
    /// Set when a response could not be passed back whole.
    pub cut: Arc<AtomicBool>,
    /// Interim responses to the request that is being answered.
    pub outbox: Arc<Outbox>,
    tunnel: Mutex<Option<Tunnel>>,
}

/// An IPv4 address as such, also where the socket is of IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Client {
    /// The store of deferred requests, if there is one.
    pub fn deferred(&self) -> Option<&Handle> {
        self.intake.ways.peer.deferred()
    }

    /// Turns the connection into `tunnel` after the answer.
    pub fn tunnel(&self, tunnel: Tunnel) {
        if let Ok(mut slot) = self.tunnel.lock() {
            *slot = Some(tunnel);
        }
    }

    /// Begins an exchange.
    pub fn begin(&self, asked: Asked) -> Exchange {
        Exchange::begin(self.intake.clone(), self.peer, asked, self.cut.clone())
    }
}

/// Serves one client until its connection ends, or after its current request
/// once `stop` is cancelled.
pub(crate) async fn serve(
    intake: Arc<Intake>,
    socket: TcpStream,
    peer: Peer,
    stop: CancellationToken,
) {
    let _ = socket.set_nodelay(true);
    let handshake_timeout = intake.config.handshake_timeout();
    let client = Arc::new(Client {
        intake,
        peer,
        local: socket.local_addr().ok().map(canonical),
        upstreams: Upstreams::default(),
        cut: Arc::default(),
        outbox: Arc::default(),
        tunnel: Mutex::new(None),
    });
    let shared = client.clone();
    let left = Left::default();
    let answers = Arc::<Answers>::default();
    let begun = answers.clone();
    let service = service_fn(move |request| {
        let (client, answering) = (shared.clone(), begun.begin());
        async move {
            let response = answer(&client, request).await;
            Ok::<_, Infallible>(answering.until_the_end_of(response))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(handshake_timeout)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_FIELDS)
        .half_close(true)
        .preserve_header_case(true)
        .serve_connection(
            ClientIo::new(
                socket,
                client.cut.clone(),
                client.outbox.clone(),
                left.clone(),
                answers,
            ),
            service,
        )
        .with_upgrades();
    let ended = {
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(listener = %client.intake.name, client = %peer.address, %error,
            "HTTP connection ended");
    }
    let tunnel = client.tunnel.lock().ok().and_then(|mut slot| slot.take());
    if let Some(tunnel) = tunnel {
        tunnel.run(&client).await;
    }
    let left = left.lock().ok().and_then(|mut left| left.take());
    if let Some(socket) = left {
        leave(socket, &stop).await;
    }
}

async fn answer(client: &Arc<Client>, request: Request<Incoming>) -> Response<Body> {
    if let Some(fault) = authority::fault_of_host(request.version(), request.headers()) {
        return reply::page(StatusCode::BAD_REQUEST, fault);
    }
    if let Some(users) = &client.intake.users {
        // Clients ask without a password first, to learn that one is needed.
        let Some((user, password)) = authority::credentials(request.headers()) else {
            return reply::login();
        };
        let address = client.peer.address;
        match users.admit(address.ip(), &user, &password).await {
            Admission::Admitted => {}
            Admission::Refused => {
                let reason = "user or password refused";
                client.intake.note_refusal(address, reason);
                return reply::login();
            }
            Admission::Throttled(wait) => {
                client.intake.note_refusal(address, THROTTLED);
                return reply::throttled(wait);
            }
        }
    }
    if request.method() == Method::CONNECT {
        return connect(client, request).await;
    }
    if let Some(handle) = client.deferred()
        && let Some(below) = Place::of(client).below(request.uri())
    {
        return deferred::serve(client, handle, &request, below).await;
    }
    forward(client, request).await
}
