//! Streams that the peer has opened.

use bytes::Bytes;

use super::Dialler;
use crate::relay::{Moved, relay};
use crate::stream::{Conduit, Connected, Failure, OpenRequest};

/// Dials the origin of a stream that the peer has opened and relays until
/// both directions have ended. A dial that fails resets the stream with its
/// reason.
///
/// # Errors
/// Why the dial failed or which side broke, for the log.
pub async fn serve_inbound(
    mut conduit: Box<dyn Conduit>,
    request: OpenRequest,
    dialler: &Dialler,
) -> (Moved, Result<(), Failure>) {
    let socket = match dialler.dial(&request.target, request.client).await {
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
