//! Serves diverted connections.

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::listen::{Intake, Peer};
use crate::relay::abort;
use crate::stream::{Protocol, Target};

/// Serves one diverted connection. Its destination is the local address of its socket. A connection
/// to the listener itself was not diverted. It is closed; otherwise it would be opened to the
/// listener again and again.
pub(crate) async fn serve(intake: &Intake, socket: TcpStream, peer: Peer) {
    let Ok(local) = socket.local_addr() else {
        return;
    };
    let destination = SocketAddr::new(local.ip().to_canonical(), local.port());
    if destination.port() == intake.config.address.port() && is_of_this_host(destination) {
        let reason = "it has connected to a transparent listener itself";
        intake.note_refusal(peer.address, reason);
        return abort(socket);
    }
    let began = Instant::now();
    let target = Target::Address(destination);
    let verdict = intake.classify(Protocol::Transparent, &target, &peer, None);
    let opened = intake.open(Protocol::Transparent, target, &peer, verdict, None);
    match opened {
        Ok(conduit) => {
            let shown = destination.to_string();
            intake
                .relay(peer.address, &shown, socket, conduit, Bytes::new())
                .await;
        }
        Err(failure) => {
            intake.note_failure(began, peer.address, &destination.to_string(), &failure);
            abort(socket);
        }
    }
}

/// Whether `address` is one of the host's own: only those can be bound
/// without IP_TRANSPARENT.
fn is_of_this_host(address: SocketAddr) -> bool {
    std::net::UdpSocket::bind((address.ip(), 0)).is_ok()
}
