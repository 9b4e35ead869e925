//! Connections to origins, kept for the next request of the same client.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use tokio::task::AbortHandle;

use super::conduit_io::{Cause, ConduitIo};
use super::reply::{self, Body};
use crate::classify::Verdict;
use crate::stream::{Conduit, Failure, FailureCode, Target};
use crate::words;

/// Idle connections kept per client connection.
const KEPT: usize = 8;
/// How long hyper may take, after a connection's last response, to report it as free.
const SETTLE: Duration = Duration::from_millis(50);
/// Read buffer per busy connection, in bytes: one batch of a busy stream.
const BUFFER: usize = 256 * 1024;
/// Most header fields of a response.
const MAX_FIELDS: usize = 256;

/// Identifies an upstream: a request may reuse a connection only if these are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub target: Target,
    pub verdict: Verdict,
}

/// One HTTP connection to an origin.
pub(super) struct Upstream {
    way: Way,
    sender: SendRequest<Body>,
    cause: Cause,
    connection: AbortHandle,
}

/// Why a request has no answer of its origin.
pub(super) enum Unanswered {
    /// The origin, or the way to it, failed.
    Failed(Failure),
    /// The client's body is broken, in this way.
    BrokenBody(&'static str),
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Unanswered {
        Unanswered::Failed(failure)
    }
}

/// Ends the connection to an origin that it came from when it is dropped.
pub(super) struct Ending(AbortHandle);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// For a client that reads the heads of answers as RFC 9112 asks of a proxy: white space before a
/// colon is removed (§5.1), and folded lines become one (§5.2).
pub(super) fn client_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true);
    builder
}

impl Upstream {
    /// Starts HTTP on a stream; nothing is sent before the first request.
    pub async fn start(way: Way, conduit: Box<dyn Conduit>) -> Result<Upstream, Failure> {
        let cause = Cause::default();
        let handshake = client_builder()
            .preserve_header_case(true)
            .max_buf_size(BUFFER)
            .max_headers(MAX_FIELDS)
            .handshake(ConduitIo::new(conduit, cause.clone()));
        let (sender, connection) = handshake.await.map_err(|error| describe(&error))?;
        // Its errors reach the request that is under way, or `cause`.
        let connection = tokio::spawn(connection.with_upgrades()).abort_handle();
        Ok(Upstream {
            way,
            sender,
            cause,
            connection,
        })
    }

    /// Sends a request and waits for the head of the response.
    pub async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, Unanswered> {
        let sent = self.sender.send_request(request).await;
        sent.map_err(|error| match (self.cause.get(), error_of_body(&error)) {
            (Some(failure), _) => failure.clone().into(),
            (None, Some(of_body)) => Unanswered::BrokenBody(reply::fault_of_body(of_body)),
            (None, None) => describe(&error).into(),
        })
    }

    /// What ends the connection.
    pub fn abort_handle(&self) -> AbortHandle {
        self.connection.clone()
    }

    /// For a request whose body will not be sent: the connection can carry only the rest of its
    /// response.
    pub fn last(self) -> Ending {
        Ending(self.connection)
    }
}

/// The idle upstreams of one client connection.
#[derive(Default)]
pub(super) struct Upstreams(Arc<Mutex<Vec<Upstream>>>);

impl Upstreams {
    /// Takes an idle connection to `way` that still lives.
    pub async fn take(&self, way: &Way) -> Option<Upstream> {
        let mut upstream = {
            let mut idle = self.0.lock().ok()?;
            idle.retain(|upstream| !upstream.sender.is_closed());
            let at = idle.iter().position(|upstream| upstream.way == *way)?;
            idle.swap_remove(at)
        };
        let ready = tokio::time::timeout(SETTLE, upstream.sender.ready()).await;
        matches!(ready, Ok(Ok(()))).then_some(upstream)
    }

    /// Keeps `upstream` in place of another one to the same origin, which has been idle for longer;
    /// the oldest one goes if there are too many.
    pub fn keep(&self, upstream: Upstream) {
        if let Ok(mut idle) = self.0.lock() {
            idle.retain(|older| older.way != upstream.way);
            if idle.len() >= KEPT {
                idle.remove(0);
            }
            idle.push(upstream);
        }
    }
}

/// The error of the request's own body, if it has ended the exchange: hyper's client wraps that of
/// hyper's server.
fn error_of_body(error: &hyper::Error) -> Option<&hyper::Error> {
    let source = error.source().filter(|_| error.is_user())?;
    source.downcast_ref()
}

/// The failure behind an error of hyper's client.
fn describe(error: &hyper::Error) -> Failure {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(failure) = inner.downcast_ref::<Failure>() {
            return failure.clone();
        }
        if let Some(io) = inner.downcast_ref::<std::io::Error>()
            && let Some(failure) = io.get_ref().and_then(|e| e.downcast_ref::<Failure>())
        {
            return failure.clone();
        }
        source = inner.source();
    }
    Failure::new(FailureCode::Reset, words::of_answer(error, MAX_FIELDS))
}
