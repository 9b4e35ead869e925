//! Streams that the peer has opened.

use std::future::{pending, poll_fn};

use bytes::Bytes;
use tokio::time::Instant;

use super::{Dialler, Party};
use crate::line_limit::LineLimit;
use crate::relay::{Moved, relay};
use crate::stream::{Conduit, Connected, Failure, OpenRequest};

static CLOSED: LineLimit = LineLimit::new("streams closed");
static RESET: LineLimit = LineLimit::new("streams reset");

/// Dials the origin of a stream that node `peer` has opened and relays until
/// both directions have ended. A dial that fails resets the stream with its
/// reason; a stream that is reset ends its dial.
///
/// # Errors
/// Why the dial failed or which side broke; the log has it, too.
pub async fn serve_inbound(
    conduit: Box<dyn Conduit>,
    peer: u64,
    request: OpenRequest,
    dialler: &Dialler,
) -> Result<(), Failure> {
    let started = Instant::now();
    let (moved, result) = serve(conduit, peer, &request, dialler).await;
    let (target, seconds) = (request.target, started.elapsed().as_secs_f64());
    let Moved { to_peer, from_peer } = moved;
    match &result {
        Ok(()) if CLOSED.admits() => tracing::info!(
            peer, %target, to_peer_bytes = to_peer, from_peer_bytes = from_peer, seconds,
            "stream closed"
        ),
        Err(failure) if RESET.admits() => tracing::info!(
            peer, %target, to_peer_bytes = to_peer, from_peer_bytes = from_peer, seconds,
            %failure, "stream reset"
        ),
        _ => {}
    }
    result
}

async fn serve(
    mut conduit: Box<dyn Conduit>,
    peer: u64,
    request: &OpenRequest,
    dialler: &Dialler,
) -> (Moved, Result<(), Failure>) {
    let dial = dialler.dial(&request.target, request.client, Party::Peer(peer));
    let dialled = tokio::select! {
        dialled = dial => dialled,
        failure = broken(conduit.as_mut()) => return (Moved::default(), Err(failure)),
    };
    let socket = match dialled {
        Ok(socket) => socket,
        Err(failure) => {
            conduit.reset(failure.clone());
            return (Moved::default(), Err(failure));
        }
    };
    conduit.connected(Connected {
        origin: socket.peer_addr().ok(),
    });
    relay(socket, conduit, Bytes::new()).await
}

/// Waits until the stream breaks. Its far edge does not dial, so all that can
/// come of its outcome is a failure.
async fn broken(conduit: &mut dyn Conduit) -> Failure {
    match poll_fn(|cx| conduit.poll_outcome(cx)).await {
        Ok(_) => pending().await,
        Err(failure) => failure,
    }
}
