//! Streams that the peer has opened.

use std::future::{pending, poll_fn};

use bytes::Bytes;

use super::{Dialler, Party};
use crate::relay::{Moved, relay};
use crate::stream::{Conduit, Connected, Failure, OpenRequest};

/// Dials the origin of a stream that node `peer` has opened and relays until
/// both directions have ended. A dial that fails resets the stream with its
/// reason; a stream that is reset ends its dial.
///
/// # Errors
/// Why the dial failed or which side broke, for the log.
pub async fn serve_inbound(
    mut conduit: Box<dyn Conduit>,
    peer: u64,
    request: OpenRequest,
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
