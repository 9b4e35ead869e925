//! Connections that have become tunnels: CONNECT, and upgrades such as
//! WebSocket's.

use bytes::Bytes;
use hyper::upgrade::{OnUpgrade, Parts, Upgraded};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::client_io::ClientIo;
use super::conduit_io::ConduitIo;
use super::server::Client;
use crate::stream::Conduit;

/// The origin's side of a tunnel.
pub(super) enum Far {
    /// A stream of its own.
    Conduit(Box<dyn Conduit>),
    /// A stream on which HTTP has been spoken so far.
    Upgraded(OnUpgrade),
}

/// A connection that is a tunnel once its answer has been written.
pub(super) struct Tunnel {
    pub near: OnUpgrade,
    pub far: Far,
    pub target: String,
}

impl Tunnel {
    /// Relays until the tunnel ends. Bytes that either side has sent right after its head belong to
    /// it.
    pub async fn run(self, client: &Client) {
        let Some((mut socket, early)) = self.near.await.ok().and_then(client_side) else {
            return;
        };
        let conduit = match self.far {
            Far::Conduit(conduit) => conduit,
            Far::Upgraded(upgrade) => {
                let Some((far, first)) = upgrade.await.ok().and_then(origin_side) else {
                    return crate::relay::abort(socket);
                };
                if socket.write_all(&first).await.is_err() {
                    return;
                }
                far.into_conduit()
            }
        };
        let (intake, address) = (&client.intake, client.peer.address);
        intake
            .relay(address, &self.target, socket, conduit, early)
            .await;
    }
}

fn client_side(upgraded: Upgraded) -> Option<(TcpStream, Bytes)> {
    let Parts { io, read_buf, .. } = upgraded.downcast::<ClientIo>().ok()?;
    Some((io.into_socket()?, read_buf))
}

fn origin_side(upgraded: Upgraded) -> Option<(ConduitIo, Bytes)> {
    let Parts { io, read_buf, .. } = upgraded.downcast().ok()?;
    Some((io, read_buf))
}
