//! Whom a session is with, and how.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use underpass_backoff::Backoff;
use underpass_cla::{SessionId, SessionInfo};
use underpass_ltp::{CommonMemory, Limits};

use crate::ecla::MOST_SENT_BYTES;
use crate::socket::Place;

/// The largest payload of a UDP datagram over IPv4, bytes.
pub(crate) const MOST_DATAGRAM_BYTES: u64 = 65_507;

/// The IP header of a packet to an address, bytes.
fn ip_header_bytes(remote: SocketAddr) -> u64 {
    match remote.ip().to_canonical() {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    }
}

/// The convergence layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Bundles on TCP, each after its length, as in ION-DTN.
    Stcp,
    /// Bundles as CBOR byte strings on TCP.
    Mtcp,
    /// A bundle in each datagram.
    Udp,
    /// Licklider's protocol over UDP, a segment in each datagram.
    Ltp {
        /// This engine's number.
        local: u64,
        /// The neighbour's.
        remote: u64,
    },
    /// A daemon of dtn7-rs, as whose external convergence layer this node serves.
    Ecla,
}

impl Layer {
    /// Its name in configuration and API.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Stcp => "stcp",
            Layer::Mtcp => "mtcp",
            Layer::Udp => "udp",
            Layer::Ltp { .. } => "ltp",
            Layer::Ecla => "ecla",
        }
    }
}

/// A neighbour and its address.
#[derive(Clone, Debug)]
pub struct Config {
    /// The layer.
    pub layer: Layer,
    /// The configured path, as [`SessionInfo`] reports it.
    pub path: String,
    /// The node id that the neighbour is taken to have.
    pub peer_node_id: String,
    /// The address to send to; packets are accepted only from this host.
    pub remote: SocketAddr,
    /// The address to which the neighbour sends; with ECLA, the one from which this node dials.
    pub listen: SocketAddr,
    /// Where the socket bound to it stays; without one it ends with its session, or with the
    /// listening.
    pub place: Option<Arc<dyn Place>>,
    /// With ECLA: the nodes that are announced to the daemon as its peers.
    pub announced: Vec<u64>,
    /// The interface to use.
    pub interface: Option<String>,
    /// SO_MARK of its packets.
    pub mark: Option<u32>,
    /// The largest bundle that is taken into memory, bytes.
    pub transfer_mru_bytes: u64,
    /// With STCP, MTCP and, if it `spools`, LTP: the largest bundle that is taken, bytes,
    /// the longer ones piece by piece.
    pub long_mru_bytes: u64,
    /// With LTP: whether the parts of long blocks wait on disk until the blocks are complete
    /// ([`Node::spool`](underpass_cla::Node::spool)).
    pub spools: bool,
    /// With STCP, MTCP and LTP: the largest bundle that the neighbour takes, bytes; these protocols
    /// do not announce it. If it is not known: as much as this node takes.
    pub peer_transfer_mru_bytes: Option<u64>,
    /// The largest IP packet of the path, bytes.
    pub mtu_bytes: u32,
    /// The round trip before it is measured.
    pub rtt: Duration,
    /// With LTP: whether bundles that need not arrive go as green blocks, which are sent once.
    pub green: bool,
    /// With LTP: the bounds for this neighbour.
    pub ltp: Limits,
    /// With LTP: memory for incoming blocks beyond this neighbour's own part, shared by all
    /// neighbours.
    pub ltp_memory: Arc<CommonMemory>,
    /// Upper bound of the sending rate, bit/s of IP bytes, whatever is allocated.
    pub ceiling_bps: Option<u64>,
    /// When to dial again.
    pub backoff: Backoff,
    /// Where session ids come from, one source for all layers of the process.
    pub session_ids: Arc<AtomicU64>,
}

impl Config {
    pub(crate) fn next_id(&self) -> SessionId {
        SessionId(self.session_ids.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn info(&self) -> SessionInfo {
        let congestion_control = match self.layer {
            Layer::Stcp | Layer::Mtcp | Layer::Ecla => "",
            Layer::Udp | Layer::Ltp { .. } => "none",
        };
        SessionInfo {
            peer_node_id: self.peer_node_id.clone(),
            path: self.path.clone(),
            transfer_mru_bytes: match self.layer {
                Layer::Udp => MOST_DATAGRAM_BYTES,
                Layer::Ecla => MOST_SENT_BYTES,
                _ => self
                    .peer_transfer_mru_bytes
                    .unwrap_or(self.transfer_mru_bytes),
            },
            takes_files: true,
            hears_refusals: matches!(self.layer, Layer::Ltp { .. }),
            // Over LTP some bundles are sent once.
            acknowledges: false,
            congestion_control: congestion_control.to_owned(),
            ..SessionInfo::new(self.layer.name(), self.remote)
        }
    }

    /// The IP header of each packet to the neighbour, bytes.
    pub(crate) fn ip_header_bytes(&self) -> u64 {
        ip_header_bytes(self.remote)
    }

    /// Whether a packet from there is the neighbour's.
    pub(crate) fn is_from_peer(&self, source: SocketAddr) -> bool {
        source.ip().to_canonical() == self.remote.ip().to_canonical()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_the_header_of_their_addresses_family() {
        for (remote, bytes) in [
            ("192.0.2.1:1113", 20),
            ("[::ffff:192.0.2.1]:1113", 20),
            ("[2001:db8::1]:1113", 40),
        ] {
            assert_eq!(ip_header_bytes(remote.parse().unwrap()), bytes, "{remote}");
        }
    }
}
