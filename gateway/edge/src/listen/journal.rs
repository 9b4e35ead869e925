//! What the log says of the connections of a listener.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode, Version};
use tokio::net::TcpStream;
use tokio::time::Instant;
use underpass_cla::Class;
use underpass_customer::customer;

use super::{Intake, Peer};
use crate::account::Ended;
use crate::config::ListenerProtocol;
use crate::flows::Owner;
use crate::relay::{HeldRelay, Moved, Relayed};
use crate::stream::{Conduit, Failure, OpenRequest, Protocol, Target};

impl Intake {
    /// Relays a client's connection to its end, or until another process goes
    /// on with it.
    pub async fn relay(
        &self,
        client: SocketAddr,
        target: &str,
        socket: TcpStream,
        conduit: Box<dyn Conduit>,
        early: Bytes,
    ) {
        let relayed = Relayed::Client {
            listener: self.name.to_string(),
            client,
            target: target.to_owned(),
        };
        let relays = &self.ways.relays;
        let ended = relays.relay(socket, conduit, early, &relayed).await;
        self.note_end(client, target, ended);
    }

    /// Continues a connection that another process has relayed so far.
    pub async fn resume(
        &self,
        client: SocketAddr,
        target: &str,
        held: HeldRelay,
        conduit: Box<dyn Conduit>,
    ) {
        let HeldRelay { state, socket } = held;
        match TcpStream::from_std(socket) {
            Ok(socket) => {
                let conduit = self.watch_again(client, target, conduit);
                let ended = self.ways.relays.resume(socket, conduit, state).await;
                self.note_end(client, target, ended);
            }
            Err(error) => tracing::error!(%client, target, %error, "connection not taken over"),
        }
    }

    fn watch_again(
        &self,
        client: SocketAddr,
        target: &str,
        conduit: Box<dyn Conduit>,
    ) -> Box<dyn Conduit> {
        let Some(target) = Target::from_display(target) else {
            return conduit;
        };
        let request = OpenRequest {
            target,
            client,
            listener: self.name.clone(),
            protocol: match self.config.protocol {
                ListenerProtocol::Socks5 => Protocol::Socks5,
                // Of HTTP, only tunnels go on in another process.
                ListenerProtocol::Http => Protocol::HttpConnect,
                ListenerProtocol::Transparent => Protocol::Transparent,
            },
            class: Class(0),
            awaits_outcome: false,
            trace: None,
        };
        let owner = Owner::Client(customer(client.ip()));
        self.ways.flows.watch_again(conduit, owner, &request)
    }

    fn note_end(
        &self,
        client: SocketAddr,
        target: &str,
        ended: Option<(Moved, Duration, Result<(), Failure>)>,
    ) {
        let Some((Moved { to_peer, from_peer }, took, result)) = ended else {
            return;
        };
        self.account(&Ended {
            took,
            to_peer_bytes: to_peer,
            from_peer_bytes: from_peer,
            failure: result.as_ref().err(),
            ..self.connection(client, target, StatusCode::OK)
        });
        let (listener, seconds) = (&*self.name, took.as_secs_f64());
        match result {
            Ok(()) => tracing::info!(
                listener, %client, target, to_peer_bytes = to_peer, from_peer_bytes = from_peer,
                seconds, "connection closed"
            ),
            Err(failure) => tracing::info!(
                listener, %client, target, to_peer_bytes = to_peer, from_peer_bytes = from_peer,
                seconds, %failure, "connection reset"
            ),
        }
    }

    fn account(&self, ended: &Ended<'_>) {
        if let Some(accounts) = self.ways.accounts.get() {
            accounts.ended(ended);
        }
    }

    /// A connection of which only the answer is known.
    fn connection<'a>(
        &'a self,
        client: SocketAddr,
        target: &'a str,
        status: StatusCode,
    ) -> Ended<'a> {
        Ended {
            listener: &self.name,
            client,
            method: "CONNECT",
            target,
            protocol: match self.config.protocol {
                ListenerProtocol::Socks5 => "SOCKS/5",
                ListenerProtocol::Http => "HTTP/1.1",
                ListenerProtocol::Transparent => "TCP",
            },
            status: status.as_u16(),
            to_peer_bytes: 0,
            from_peer_bytes: 0,
            took: Duration::ZERO,
            answered: None,
            failure: None,
            cut: false,
        }
    }

    /// The client's connection, which began then, could not reach its target.
    pub fn note_failure(
        &self,
        began: Instant,
        client: SocketAddr,
        target: &str,
        failure: &Failure,
    ) {
        self.account(&Ended {
            took: began.elapsed(),
            failure: Some(failure),
            ..self.connection(client, target, failure.status())
        });
        self.log_failure(client, target, failure);
    }

    fn log_failure(&self, client: SocketAddr, target: &str, failure: &Failure) {
        tracing::info!(listener = %self.name, %client, target, %failure, "cannot connect");
    }

    /// A client was sent away.
    pub fn note_refusal(&self, client: SocketAddr, reason: &str) {
        tracing::info!(listener = %self.name, %client, reason, "client refused");
    }
}

pub(crate) struct Asked {
    pub method: Method,
    /// Host and port.
    pub target: String,
    pub path: String,
    pub version: Version,
}

/// What an HTTP exchange has moved; the log has it when the last of its
/// bodies is dropped.
pub(crate) struct Exchange {
    intake: Arc<Intake>,
    peer: Peer,
    asked: Asked,
    started: Instant,
    /// The response's status, and how long it took.
    answered: OnceLock<(u16, Duration)>,
    cut: Arc<AtomicBool>,
    to_peer: AtomicU64,
    from_peer: AtomicU64,
}

impl Exchange {
    /// An exchange of `peer` that begins now; `cut` is set where the response breaks
    /// off.
    pub fn begin(intake: Arc<Intake>, peer: Peer, asked: Asked, cut: Arc<AtomicBool>) -> Exchange {
        Exchange {
            intake,
            peer,
            asked,
            started: Instant::now(),
            answered: OnceLock::new(),
            cut,
            to_peer: AtomicU64::new(0),
            from_peer: AtomicU64::new(0),
        }
    }

    /// The origin has answered.
    pub fn answered(&self, status: u16) {
        let _ = self.answered.set((status, self.started.elapsed()));
    }

    /// There is no answer.
    pub fn failed(&self, failure: &Failure) {
        self.account(failure.status().as_u16(), None, Some(failure));
        let (client, target) = (self.peer.address, &self.asked.target);
        self.intake.log_failure(client, target, failure);
    }

    /// The request itself is at fault, for this `reason`.
    pub fn refused(&self, status: StatusCode, reason: &str) {
        self.account(status.as_u16(), None, None);
        self.intake.note_refusal(self.peer.address, reason);
    }

    fn account(&self, status: u16, answered: Option<Duration>, failure: Option<&Failure>) {
        let Asked {
            method,
            target,
            path,
            version,
        } = &self.asked;
        let protocol = match *version {
            Version::HTTP_10 => "HTTP/1.0",
            _ => "HTTP/1.1",
        };
        self.intake.account(&Ended {
            method: method.as_str(),
            target: &format!("http://{target}{path}"),
            protocol,
            to_peer_bytes: self.to_peer.load(Ordering::Relaxed),
            from_peer_bytes: self.from_peer.load(Ordering::Relaxed),
            took: self.started.elapsed(),
            answered,
            failure,
            cut: self.cut.load(Ordering::Relaxed),
            status,
            ..self
                .intake
                .connection(self.peer.address, target, StatusCode::OK)
        });
    }

    /// A piece of the request's body.
    pub fn sent(&self, bytes: usize) {
        self.to_peer.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A piece of the response's body.
    pub fn received(&self, bytes: usize) {
        self.from_peer.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // A failure has a line of its own.
        let Some((status, answered)) = self.answered.get() else {
            return;
        };
        self.account(*status, Some(*answered), None);
        tracing::info!(
            listener = %self.intake.name,
            client = %self.peer.address,
            target = self.asked.target,
            status,
            to_peer_bytes = self.to_peer.load(Ordering::Relaxed),
            from_peer_bytes = self.from_peer.load(Ordering::Relaxed),
            seconds = self.started.elapsed().as_secs_f64(),
            cut = self.cut.load(Ordering::Relaxed),
            "request answered"
        );
    }
}
