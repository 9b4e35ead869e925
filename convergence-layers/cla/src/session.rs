//! What a convergence layer's session offers to the node.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_payloads::PayloadFile;

use crate::activity::Activity;
use crate::class::Class;
use crate::key::ExportedKey;

/// Names one session for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// What is known of a session when it is up.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The peer's node id as it was announced and, under TLS, certified.
    pub peer_node_id: String,
    /// The configured path (terminal) or listener (hub) it runs over.
    pub path: String,
    /// The remote address.
    pub remote: SocketAddr,
    /// The class it carries, or `None` if the peer does not support classes: then it carries all.
    pub class: Option<Class>,
    /// A standby session: set up beforehand, with nothing in flight, used
    /// only when the active session of its class is gone.
    pub standby: bool,
    /// Only the peer sends on it: nothing is ever offered to it, and it does not make the peer
    /// reachable.
    pub receives_only: bool,
    /// Whether the peer learns that one of its bundles was not taken.
    pub hears_refusals: bool,
    /// Whether a transfer that ends as acknowledged shows that the peer has the bundle; if not, the
    /// transport may only have sent it.
    pub acknowledges: bool,
    /// The peer process' incarnation, if the peer announced one.
    pub incarnation: Option<u64>,
    /// A time at which no process of the previous run (the next lower incarnation) was left, if the
    /// peer has said so.
    pub former_over_by: Option<Instant>,
    /// Whether a bundle whose transfer broke can be continued here from the middle
    /// ([`Transfer::resume`]).
    pub resumes: bool,
    /// The largest bundle the peer takes, bytes.
    pub transfer_mru_bytes: u64,
    /// Whether bundles with a payload on disk can be offered
    /// ([`Transfer::file`]).
    pub takes_files: bool,
    /// Whether the session is authenticated by TLS.
    pub tls: bool,
    /// The secret that both ends share, if the session is secured.
    pub exported_key: Option<ExportedKey>,
    /// The convergence layer, as configuration and API name it.
    pub convergence_layer: &'static str,
    /// The congestion control in use, as the kernel names it.
    pub congestion_control: String,
}

impl SessionInfo {
    /// A session that is not secured, and of whose peer nothing is known.
    pub fn new(convergence_layer: &'static str, remote: SocketAddr) -> SessionInfo {
        SessionInfo {
            peer_node_id: String::new(),
            path: String::new(),
            remote,
            class: None,
            standby: false,
            receives_only: false,
            hears_refusals: true,
            acknowledges: true,
            incarnation: None,
            former_over_by: None,
            resumes: false,
            transfer_mru_bytes: u64::MAX,
            takes_files: false,
            tls: false,
            exported_key: None,
            convergence_layer,
            congestion_control: String::new(),
        }
    }
}

/// One bundle to be sent.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The node's name for the transfer, never used again in this process:
    /// the peer may keep what it has of a broken transfer under this name.
    pub key: u64,
    /// The whole encoded bundle, in pieces that are sent one after the other.
    pub chunks: Vec<Bytes>,
    /// A payload on disk, which is sent after the first piece; only if
    /// [`SessionInfo::takes_files`].
    pub file: Option<Arc<PayloadFile>>,
    /// The broken transfer of the same bytes that this one continues. If the session or the peer
    /// cannot do that, all bytes are sent.
    pub resume: Option<Resume>,
    /// Whether the layer is to see that it arrives, if it can: somebody has custody of the bundle,
    /// or it signals custody. If not, a layer may be configured to send it once.
    pub reliable: bool,
}

/// How far an earlier transfer of the same bytes came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The key of the first transfer of these bytes.
    pub key: u64,
    /// Bytes the peer has acknowledged, less than the bundle's.
    pub offset: u64,
}

impl Transfer {
    /// A transfer from the first byte on.
    pub fn new(key: u64, chunks: Vec<Bytes>) -> Self {
        Self {
            key,
            chunks,
            file: None,
            resume: None,
            reliable: true,
        }
    }

    /// The bundle's size, bytes.
    pub fn len(&self) -> u64 {
        let here: u64 = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        here + self.file.as_ref().map_or(0, |file| file.len())
    }

    /// Whether the bundle has no byte at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A path's figures, as the transport measures them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathFigures {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// The least round-trip time seen.
    pub min_rtt: Duration,
    /// Delivery rate of payload, bit/s.
    pub delivery_rate_bps: u64,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Bytes handed to the transport and not yet acknowledged by it.
    pub in_flight_bytes: u64,
    /// Of these, bytes that it has not sent yet.
    pub unsent_bytes: u64,
    /// Payload bytes sent in all, retransmissions included.
    pub sent_bytes: u64,
    /// Payload bytes retransmitted in all.
    pub retransmitted_bytes: u64,
    /// Payload bytes that the peer's transport has in all, including those after a gap.
    pub delivered_bytes: u64,
    /// Payload bytes in flight at present: sent, and known neither to have arrived nor to be lost.
    pub on_their_way_bytes: u64,
    /// Payload bytes that are known to be lost and were not sent again yet.
    pub lost_bytes: u64,
    /// Payload of a full segment, bytes.
    pub segment_bytes: u32,
    /// Segments sent in all, pure acknowledgements included.
    pub segments_sent: u64,
    /// Segments with payload sent in all.
    pub data_segments_sent: u64,
    /// Payload bytes received in all.
    pub received_bytes: u64,
    /// Segments received out of order, in all: acknowledgements report these, and are larger
    /// meanwhile.
    pub out_of_order_segments: u64,
    /// Keepalives of the convergence layer sent in all, and received, where it counts them.
    pub keepalives_sent: u64,
    /// See there.
    pub keepalives_received: u64,
    /// Subflows of the MPTCP connection that was requested; 0 if it is plain TCP, since the peer or
    /// the kernel has no MPTCP; `None` if MPTCP was not requested.
    pub subflows: Option<u32>,
    /// What coding has done, if the session uses it.
    pub coded: CodedFigures,
    /// What LTP has in progress and has refused, if the session uses LTP.
    pub ltp: LtpFigures,
    /// The peer has begun a bundle and not ended it: more is due from it.
    pub receiving: bool,
    /// How long ago data or an acknowledgement last came, if that is known.
    pub heard_ago: Option<Duration>,
    /// Whether they are *still*: all of them stay valid, except `heard_ago`, which grows, until
    /// bytes come or go on the session.
    pub still: bool,
}

impl PathFigures {
    /// Whether the peer's transport owes an acknowledgement.
    pub fn is_unanswered(&self) -> bool {
        self.in_flight_bytes > self.unsent_bytes
    }

    /// Whether more waits to be sent than the congestion window has room for. A nearly full window
    /// counts as full, since a sender waits until there is room for some segments.
    pub fn is_window_full(&self) -> bool {
        let window = self.cwnd_bytes;
        window > 0 && self.unsent_bytes > 0 && self.on_their_way_bytes >= window - window / 10
    }
}

/// What coding has done on a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodedFigures {
    /// Symbols of bundles sent, each counted once.
    pub symbols_sent: u64,
    /// Repair symbols sent unasked.
    pub repair_symbols_sent: u64,
    /// Symbols sent because the peer lacked them.
    pub asked_symbols_sent: u64,
    /// Symbols that repair has recovered here without a round trip.
    pub symbols_recovered: u64,
}

/// What is in progress with a neighbour over LTP, and what either side has refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LtpFigures {
    /// Blocks in transfer to the neighbour, at present.
    pub sending_blocks: u64,
    /// Blocks under way from it, at present.
    pub receiving_blocks: u64,
    /// Memory for blocks from it that are not taken yet, bytes, at present.
    pub receiving_bytes: u64,
    /// Blocks to it that were given up, by either side, in all.
    pub cancelled_sent_blocks: u64,
    /// Blocks from it that were given up, by either side, in all.
    pub cancelled_received_blocks: u64,
    /// Datagrams from it that are no segments, in all.
    pub malformed_segments: u64,
    /// Segments from it of sessions that are not with this node, in all.
    pub foreign_segments: u64,
    /// Segments from it of sessions that are over, in all.
    pub closed_segments: u64,
    /// Segments from it that contradict others, in all.
    pub impossible_segments: u64,
    /// Segments from it beyond a bound, in all: sessions, memory, gaps, reports.
    pub no_room_segments: u64,
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// Both sides ended it in order.
    Closed,
    /// The transport broke or the peer fell silent.
    Broken(String),
    /// The peer violated the protocol or failed authentication.
    Protocol(String),
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Down::Closed => f.write_str("ended in order"),
            Down::Broken(reason) | Down::Protocol(reason) => f.write_str(reason),
        }
    }
}

/// Whether an error of dialling is temporary, depending on link and peer. Other errors, such as a
/// missing interface, last until somebody fixes them.
pub fn comes_and_goes(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable,
        Interrupted, NetworkDown, NetworkUnreachable, TimedOut, UnexpectedEof,
    };
    let kind = error.kind();
    matches!(
        kind,
        BrokenPipe
            | ConnectionAborted
            | ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
            | TimedOut
            | UnexpectedEof
    )
}

/// Bytes of short bundles that a session takes each time it is ready, so that bundles that become
/// due at the same instant need not wait for each other.
pub const EXPRESS_ROOM_BYTES: u64 = 32 << 10;

/// The longest short bundle, bytes: it has few segments, so few of them are lost.
pub const SHORT_BUNDLE_BYTES: u64 = 16 << 10;

/// The most that a bundle adds to its payload: primary block, age, hop count, previous node,
/// custody, CRCs.
pub const BUNDLE_OVERHEAD_BYTES: u64 = 512;

/// What a session offers to the node. Calls never block.
pub trait Session: Send + Sync {
    /// Takes a bundle; called only after [`crate::Node::ready`], once for each such call, or for
    /// several short bundles of together at most [`EXPRESS_ROOM_BYTES`].
    fn offer(&self, transfer: Transfer);

    /// Sets the rate allocated to the path, bit/s counted as IP bytes on the hop; the session
    /// converts it to its transport's own count. At 0 nothing is sent; `None` lifts the limit, as
    /// at the start.
    fn set_rate(&self, ip_bps: Option<u64>);

    /// The path's figures at present.
    fn figures(&self) -> PathFigures;

    /// Counts what moves from now on in `activity`, too. A session whose figures are never still
    /// has nothing to do here.
    fn share(&self, _activity: Arc<Activity>) {}

    /// Reports that the link is known to be blocked, or free again: during a blockage, the peer's
    /// silence does not mean that it is gone. A session without keepalives has nothing to do here.
    fn suspend(&self, _blocked: bool) {}

    /// Reports that the link rests, since nothing moves on it and its bytes cost money, or no
    /// longer rests: while it rests, signs of life may be rare. A session that sends few anyway has
    /// nothing to do here.
    fn rest(&self, _rests: bool) {}

    /// Sends something that the peer's transport acknowledges, if it may, to find out whether the
    /// peer is still there. A transport that detects this by itself has nothing to do here.
    fn ask(&self) {}

    /// Sets up another session like this one, if this end has dialled it. This one continues until
    /// the new one is up; then the node ends it.
    fn renew(&self) {}

    /// Ends the session in order: transfers in progress finish, no new one
    /// begins.
    fn close(&self);

    /// Ends the session at once; transfers in progress are reported broken.
    fn abort(&self, reason: &str);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_full_when_it_keeps_what_waits_from_being_sent() {
        let full = |unsent_bytes, on_their_way_bytes, cwnd_bytes| {
            let figures = PathFigures {
                unsent_bytes,
                on_their_way_bytes,
                cwnd_bytes,
                ..PathFigures::default()
            };
            figures.is_window_full()
        };
        assert!(full(1_000, 100_000, 100_000));
        assert!(full(1_000, 90_000, 100_000));
        assert!(!full(1_000, 80_000, 100_000));
        assert!(!full(0, 100_000, 100_000));
        // A session without a window never has a full one.
        assert!(!full(1_000, 0, 0));
    }
}
