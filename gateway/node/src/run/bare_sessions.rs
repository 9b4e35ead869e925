//! Sessions with neighbours that are known only by their addresses, as configured.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use underpass_bare::{Layer, Neighbour};
use underpass_cla::Node;

use super::links::{Sessions, backoff};
use super::{RunError, on_demand};
use crate::config::{Config, ConvergenceLayer, PathConfig};
use crate::upgrade::Sockets;

/// Where the socket stays to which the neighbour of a path sends.
#[derive(Debug)]
struct Place {
    sockets: Arc<Sockets>,
    name: String,
    listen: SocketAddr,
}

impl underpass_bare::Place for Place {
    fn bound(&self) -> io::Result<Option<OwnedFd>> {
        self.sockets.bound(&self.name, self.listen)
    }

    fn keep(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.keep(&self.name, &socket)
    }

    fn forget(&self) {
        self.sockets.forget(&self.name);
    }
}

impl Place {
    fn of(path: &PathConfig, listen: SocketAddr, sockets: &Arc<Sockets>) -> Place {
        Place {
            sockets: sockets.clone(),
            name: socket_name(&path.name),
            listen,
        }
    }
}

/// The name of that socket.
pub(super) fn socket_name(path: &str) -> String {
    format!("path {path}")
}

/// Binds the addresses to which neighbours send that the previous process has not bound; of the
/// paths on demand only those that are `up`.
///
/// # Errors
/// When one is taken.
pub(super) fn bind_all(
    config: &Config,
    up: &BTreeSet<String>,
    sockets: &Arc<Sockets>,
) -> Result<(), RunError> {
    for path in on_demand::dialled(config, up) {
        let (Some(layer), Some(listen)) = (layer_of(config, path), path.listen) else {
            continue;
        };
        let (interface, mark) = (path.interface.as_deref(), config.tcp.mark);
        let place = Place::of(path, listen, sockets);
        let bound = underpass_bare::bind(layer, listen, interface, mark, Some(&place));
        bound.map_err(|source| RunError::PathListen {
            name: path.name.clone(),
            address: listen,
            source,
        })?;
    }
    Ok(())
}

/// The layer of a path, unless it authenticates its peers.
fn layer_of(config: &Config, path: &PathConfig) -> Option<Layer> {
    match path.convergence_layer {
        ConvergenceLayer::Stcp => Some(Layer::Stcp),
        ConvergenceLayer::Mtcp => Some(Layer::Mtcp),
        ConvergenceLayer::Udp => Some(Layer::Udp),
        // An engine has its node's number, as with ION-DTN.
        ConvergenceLayer::Ltp => Some(Layer::Ltp {
            local: config.node.number,
            remote: path.neighbour,
        }),
        ConvergenceLayer::Ecla => Some(Layer::Ecla),
        ConvergenceLayer::Tcpcl | ConvergenceLayer::Quic => None,
    }
}

/// Begins a session on a path; if it is early, with what two processes can have at once.
pub(super) fn open(
    sessions: &Sessions,
    config: &Config,
    path: &PathConfig,
    node: Arc<dyn Node>,
    sockets: &Arc<Sockets>,
    early: bool,
) -> io::Result<Neighbour> {
    let layer = layer_of(config, path)
        .ok_or_else(|| io::Error::other("this layer authenticates its peers"))?;
    // The configuration's check has refused a path that lacks one.
    let listen = match (path.listen, layer) {
        (None, Layer::Ecla) => match path.remote {
            SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
            SocketAddr::V6(_) => SocketAddr::from(([0; 16], 0)),
        },
        (listen, _) => listen.ok_or_else(|| io::Error::other("no listen"))?,
    };
    let config = underpass_bare::Config {
        layer,
        path: path.name.clone(),
        peer_node_id: format!("ipn:{}.0", path.neighbour),
        remote: path.remote,
        listen,
        place: path.listen.map(|listen| {
            let place = Place::of(path, listen, sockets);
            Arc::new(place) as Arc<dyn underpass_bare::Place>
        }),
        announced: path.announces.clone(),
        interface: path.interface.clone(),
        mark: config.tcp.mark,
        transfer_mru_bytes: config.whole_mru_bytes(),
        long_mru_bytes: match layer {
            Layer::Ltp { .. } => config.spooled_mru_bytes(),
            _ => config.transfer_mru_bytes(),
        },
        spools: sessions.has_payloads,
        peer_transfer_mru_bytes: path.transfer_mru_bytes,
        mtu_bytes: path.mtu_bytes,
        rtt: path.rtt(),
        green: path.green,
        ltp: config.ltp.limits(),
        ltp_memory: sessions.ltp_memory.clone(),
        ceiling_bps: path.send_rate_bps,
        backoff: backoff(config),
        session_ids: sessions.ids.clone(),
    };
    Ok(match early {
        true => Neighbour::spawn_early(config, node),
        false => Neighbour::spawn(config, node),
    })
}
