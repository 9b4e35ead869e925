//! Sessions with neighbours that are known only by their addresses, as configured.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use underpass_bare::{Layer, Neighbour};
use underpass_cla::Node;

use super::links::{Sessions, backoff};
use crate::config::{Config, ConvergenceLayer, PathConfig};

/// Begins a session on a path; if it is held, not before it is released.
pub(super) fn open(
    sessions: &Sessions,
    config: &Config,
    path: &PathConfig,
    node: Arc<dyn Node>,
    held: bool,
) -> io::Result<Neighbour> {
    let layer = match path.convergence_layer {
        ConvergenceLayer::Stcp => Layer::Stcp,
        ConvergenceLayer::Mtcp => Layer::Mtcp,
        ConvergenceLayer::Udp => Layer::Udp,
        // An engine has its node's number, as with ION-DTN.
        ConvergenceLayer::Ltp => Layer::Ltp {
            local: config.node.number,
            remote: path.neighbour,
        },
        ConvergenceLayer::Ecla => Layer::Ecla,
        ConvergenceLayer::Tcpcl | ConvergenceLayer::Quic => {
            return Err(io::Error::other("this layer authenticates its peers"));
        }
    };
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
        announced: path.announces.clone(),
        interface: path.interface.clone(),
        mark: config.tcp.mark,
        transfer_mru_bytes: config.custody.quota_bytes / 4,
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
    Ok(match held {
        true => Neighbour::spawn_held(config, node),
        false => Neighbour::spawn(config, node),
    })
}
