//! Serves diverted connections.

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::net::TcpStream;

use crate::listen::{Intake, Peer};
use crate::relay::{abort, relay_logged};
use crate::stream::{Protocol, Target};

/// Serves one diverted connection. Its destination is the local address of
/// its socket. A connection to the listener itself was not diverted and is
/// closed, or it would be opened towards the listener again and again.
pub(crate) async fn serve(intake: &Intake, socket: TcpStream, peer: Peer) {
    let Ok(local) = socket.local_addr() else {
        return;
    };
    let destination = SocketAddr::new(local.ip().to_canonical(), local.port());
    if destination.port() == intake.config.address.port() && is_of_this_host(destination) {
        tracing::info!(listener = %intake.name, client = %peer.address,
            "closed a connection that was made to a transparent listener itself");
        return abort(socket);
    }
    let target = Target::Address(destination);
    let verdict = intake.classify(Protocol::Transparent, &target, &peer, None);
    let opened = intake.open(Protocol::Transparent, target, &peer, verdict);
    match opened {
        Ok(conduit) => {
            let shown = destination.to_string();
            relay_logged(
                &intake.name,
                peer.address,
                &shown,
                socket,
                conduit,
                Bytes::new(),
            )
            .await;
        }
        Err(failure) => {
            tracing::info!(listener = %intake.name, client = %peer.address, target = %destination,
                %failure, "cannot connect");
            abort(socket);
        }
    }
}

/// Whether `address` is one of the host's own: only those can be bound
/// without IP_TRANSPARENT.
fn is_of_this_host(address: SocketAddr) -> bool {
    std::net::UdpSocket::bind((address.ip(), 0)).is_ok()
}
