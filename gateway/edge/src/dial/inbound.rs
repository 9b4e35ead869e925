//! Streams that the peer has opened.

use std::future::{pending, poll_fn};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{Dialled, Dialler, Party};
use crate::relay::{HeldRelay, Moved, Relayed, Relays};
use crate::stream::{Conduit, Connected, Failure, OpenRequest};

/// What a relay has moved, its duration and its result, if it has ended.
type Ended = Option<(Moved, Duration, Result<(), Failure>)>;

/// Dials the origin of a stream that node `peer` has opened, and relays until both directions have
/// ended or another process takes over. A failed dial resets the stream with its reason; a reset of
/// the stream ends its dial.
///
/// # Errors
/// Why the dial failed or which side broke; the log has it, too.
pub async fn serve_inbound(
    conduit: Box<dyn Conduit>,
    peer: u64,
    request: OpenRequest,
    dialler: &Dialler,
    relays: &Relays,
) -> Result<(), Failure> {
    let target = request.target.to_string();
    let ended = serve(conduit, peer, &request, dialler, relays).await;
    note_end(peer, &target, ended)
}

/// Continues a connection to an origin that another process has dialled.
///
/// # Errors
/// Which side broke; the log has it, too.
pub(crate) async fn resume_inbound(
    held: HeldRelay,
    peer: u64,
    target: &str,
    conduit: Box<dyn Conduit>,
    relays: &Relays,
) -> Result<(), Failure> {
    let HeldRelay { state, socket } = held;
    let socket = TcpStream::from_std(socket);
    let socket = socket.map_err(|error| Failure::of_socket("the server", &error))?;
    let ended = relays.resume(socket, conduit, state).await;
    note_end(peer, target, ended)
}

fn note_end(peer: u64, target: &str, ended: Ended) -> Result<(), Failure> {
    let Some((Moved { to_peer, from_peer }, took, result)) = ended else {
        return Ok(());
    };
    let seconds = took.as_secs_f64();
    match &result {
        Ok(()) => tracing::info!(
            peer, %target, to_peer_bytes = to_peer, from_peer_bytes = from_peer, seconds,
            "stream closed"
        ),
        Err(failure) => tracing::info!(
            peer, %target, to_peer_bytes = to_peer, from_peer_bytes = from_peer, seconds,
            %failure, "stream reset"
        ),
    }
    result
}

async fn serve(
    mut conduit: Box<dyn Conduit>,
    peer: u64,
    request: &OpenRequest,
    dialler: &Dialler,
    relays: &Relays,
) -> Ended {
    let started = Instant::now();
    let failed = |failure| Some((Moved::default(), started.elapsed(), Err(failure)));
    let dial = dialler.dial(&request.target, request.client, Party::Peer(peer));
    let dialled = tokio::select! {
        dialled = dial => dialled,
        failure = broken(conduit.as_mut()) => return failed(failure),
    };
    let Dialled { socket, resolved } = match dialled {
        Ok(dialled) => dialled,
        Err(failure) => {
            conduit.reset(failure.clone());
            return failed(failure);
        }
    };
    conduit.connected(Connected {
        origin: socket.peer_addr().ok(),
        resolved: Some(resolved),
    });
    let relayed = Relayed::Origin {
        peer,
        target: request.target.to_string(),
    };
    relays.relay(socket, conduit, Bytes::new(), &relayed).await
}

/// Waits until the stream breaks. Its far edge does not dial, so its outcome can only be a failure.
async fn broken(conduit: &mut dyn Conduit) -> Failure {
    match poll_fn(|cx| conduit.poll_outcome(cx)).await {
        Ok(_) => pending().await,
        Err(failure) => failure,
    }
}
