//! The settings that all sessions of a dialer or listener share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quinn::{AckFrequencyConfig, IdleTimeout, TransportConfig, VarInt};
use underpass_cla::{Class, SessionId};

use crate::coding::{Coding, KnownLosses};
use crate::congestion::{Algorithm, Factory, Flow};
use crate::incoming::PeerRooms;
use crate::session::Intervals;
use crate::socket::SocketOptions;
use crate::wire::Hello;
use crate::{STREAMS, code};

/// RFC 9000, 14: a path that carries less cannot carry QUIC. Peers do not announce more than the
/// largest.
const DATAGRAM_BYTES: std::ops::RangeInclusive<u32> = 1200..=1452;
/// Headers of IPv6 and UDP.
const HEADER_BYTES: u32 = 48;
/// Packets that may share an acknowledgement: on a narrow return link, one for every other packet
/// would be a large part of its traffic.
const PACKETS_PER_ACK: u32 = 16;
/// Bytes of datagrams that the node has not read yet, and of those not sent yet: the second are
/// few, since datagrams leave ahead of everything else.
const DATAGRAMS_UNREAD_BYTES: usize = 2 << 20;
const DATAGRAMS_UNSENT_BYTES: usize = 128 << 10;
/// One stream has at most this part (1/n) of the connection's window, so that a bundle that waits
/// for a retransmission or for room does not stop others.
const STREAM_PART: u64 = 2;
/// What a peer may send before it has given its identity; a HELLO is shorter.
const STRANGER_WINDOW_BYTES: u64 = 16 << 10;

/// The settings that all sessions of a dialer or listener share.
#[derive(Clone, Debug)]
pub struct SessionDefaults {
    /// The configured path or listener, as [`underpass_cla::SessionInfo`]
    /// reports it.
    pub path: String,
    /// Our node id.
    pub node_id: String,
    /// This process' incarnation.
    pub incarnation: u64,
    /// The node ids that peers may have; `None` admits any.
    pub accepted_peers: Option<Arc<[String]>>,
    /// Keepalive interval, s; 0 for none. A peer that is silent for twice as
    /// long on a link that is not blocked is gone.
    pub keepalive_s: u16,
    /// The same while the link rests ([`underpass_cla::Session::rest`]), s; `keepalive_s`
    /// if that is longer or 0.
    pub resting_keepalive_s: u16,
    /// How long a peer may always be silent: at least the time for which a blocked link is held.
    pub hold: Duration,
    /// The largest bundle we take, bytes.
    pub transfer_mru_bytes: u64,
    /// The largest bundle that we take into memory, bytes; longer ones are taken
    /// piece by piece ([`underpass_cla::Node::intake`]).
    pub whole_mru_bytes: u64,
    /// The largest bundle that comes into memory at present, bytes: the node takes longer ones
    /// piece by piece. A peer has room for one of this length.
    pub in_memory_bytes: u64,
    /// Bytes that may be in flight to us on one session.
    pub receive_window_bytes: u64,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// How bundles are sent, by the numbers of their classes; those beyond are
    /// not coded.
    pub coding: Arc<[Coding]>,
    /// What is known of the losses towards each peer.
    pub known_losses: Arc<KnownLosses>,
    /// Room for the bundles in transfer from each peer, shared by all of its sessions.
    pub rooms: Arc<PeerRooms>,
    /// How long a bundle waits for room before it is refused.
    pub room_timeout: Duration,
    /// The round trip before it is measured.
    pub rtt: Duration,
    /// The largest IP packet of the path, bytes.
    pub mtu_bytes: u32,
    /// From connection to established session.
    pub contact_timeout: Duration,
    /// How long an ending session may take.
    pub ending_timeout: Duration,
    /// Options of the sockets.
    pub socket: SocketOptions,
    /// Where session ids come from, one source for all CLs of the process.
    pub session_ids: Arc<AtomicU64>,
}

impl SessionDefaults {
    /// The usual values.
    pub fn new(
        path: impl Into<String>,
        node_id: impl Into<String>,
        session_ids: Arc<AtomicU64>,
    ) -> Self {
        Self {
            path: path.into(),
            node_id: node_id.into(),
            incarnation: 0,
            accepted_peers: None,
            keepalive_s: 30,
            resting_keepalive_s: 30,
            hold: Duration::from_secs(3600),
            transfer_mru_bytes: 64 << 20,
            whole_mru_bytes: 64 << 20,
            in_memory_bytes: u64::MAX,
            receive_window_bytes: 8 << 20,
            algorithm: Algorithm::default(),
            coding: Arc::new([]),
            known_losses: Arc::default(),
            rooms: Arc::default(),
            room_timeout: Duration::from_secs(60),
            rtt: Duration::from_millis(600),
            mtu_bytes: 1500,
            contact_timeout: Duration::from_secs(20),
            ending_timeout: Duration::from_secs(10),
            socket: SocketOptions::default(),
            session_ids,
        }
    }

    pub(crate) fn next_id(&self) -> SessionId {
        SessionId(self.session_ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether a peer may have this node id.
    pub(crate) fn accepts(&self, node_id: &str) -> bool {
        let accepted = self.accepted_peers.as_ref();
        accepted.is_none_or(|accepted| accepted.iter().any(|id| id == node_id))
    }

    pub(crate) fn hello(&self, class: Option<Class>, standby: bool) -> Hello {
        Hello {
            node_id: self.node_id.clone(),
            class,
            standby,
            coded: true,
            incarnation: self.incarnation,
            transfer_mru_bytes: self.transfer_mru_bytes,
        }
    }

    /// How bundles of a class are sent.
    pub(crate) fn coding(&self, class: Option<Class>) -> Coding {
        let number = class.map(|class| usize::from(class.0));
        let coding = number.and_then(|number| self.coding.get(number));
        coding.copied().unwrap_or_default()
    }

    /// How often a session sends keepalives, if it does; often enough that QUIC does not end an
    /// idle connection.
    pub(crate) fn keepalives(&self) -> Option<Intervals> {
        let usual = Duration::from_secs(self.keepalive_s.into());
        let resting = usual.max(Duration::from_secs(self.resting_keepalive_s.into()));
        let most = self.hold / 2;
        (!usual.is_zero()).then(|| Intervals {
            usual: usual.min(most),
            resting: resting.min(most),
        })
    }

    /// Bytes that may be in flight to us on one session whose peer is known.
    pub(crate) fn window(&self) -> VarInt {
        limit(self.receive_window_bytes)
    }

    /// Room for all that a peer may have in transfer, on all of its sessions: a window, and a
    /// bundle of the largest size that comes into memory.
    pub(crate) fn room_bytes(&self) -> u64 {
        let window = self.receive_window_bytes.saturating_mul(2);
        let largest = self.whole_mru_bytes.min(self.in_memory_bytes);
        largest.saturating_add(window)
    }

    /// Gives as much room to the peers whose sessions are up already.
    pub(crate) fn widen_rooms(&self) {
        let peers = self.accepted_peers.as_deref();
        self.rooms.widen(peers, self.room_bytes());
    }

    /// QUIC's settings for one connection, whose flow this is. The dialled side takes one control
    /// stream, and only a few bytes before it knows the peer.
    pub(crate) fn transport(&self, flow: Arc<Flow>, is_dialled: bool) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let datagram = self.mtu_bytes.saturating_sub(HEADER_BYTES);
        let datagram = datagram.clamp(*DATAGRAM_BYTES.start(), *DATAGRAM_BYTES.end());
        let hold = IdleTimeout::try_from(self.hold).unwrap_or(VarInt::MAX.into());
        let window = match is_dialled {
            true => self.window().min(limit(STRANGER_WINDOW_BYTES)),
            false => self.window(),
        };
        let mut acks = AckFrequencyConfig::default();
        acks.ack_eliciting_threshold(VarInt::from_u32(PACKETS_PER_ACK - 1));
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(is_dialled.into()))
            .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
            .max_idle_timeout(Some(hold))
            .stream_receive_window(limit(self.receive_window_bytes / STREAM_PART))
            .receive_window(window)
            // A bundle that is sent alone arrives sooner than one among many.
            .send_fairness(false)
            .initial_rtt(self.rtt)
            .initial_mtu(u16::try_from(datagram).unwrap_or(u16::MAX))
            .datagram_receive_buffer_size(Some(DATAGRAMS_UNREAD_BYTES))
            .datagram_send_buffer_size(DATAGRAMS_UNSENT_BYTES)
            .ack_frequency_config(Some(acks))
            .allow_spin(false)
            .congestion_controller_factory(Arc::new(Factory(flow)));
        transport
    }
}

fn limit(bytes: u64) -> VarInt {
    VarInt::from_u64(bytes).unwrap_or(VarInt::MAX)
}

/// Says why a connection has ended.
pub(crate) fn down_of(error: &quinn::ConnectionError) -> underpass_cla::Down {
    use quinn::ConnectionError::{ApplicationClosed, LocallyClosed, TransportError};
    use underpass_cla::Down;
    match error {
        LocallyClosed => Down::Closed,
        ApplicationClosed(close) if close.error_code == code::CLOSED => Down::Closed,
        TransportError(error) => Down::Protocol(error.to_string()),
        other => Down::Broken(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_shows_life_before_it_ends_for_being_idle() {
        let mut session = SessionDefaults::new("beam", "ipn:1.0", Arc::default());
        let intervals = |session: &SessionDefaults| {
            let intervals = session.keepalives()?;
            Some((intervals.usual.as_secs(), intervals.resting.as_secs()))
        };
        assert_eq!(intervals(&session), Some((30, 30)));
        session.resting_keepalive_s = 150;
        assert_eq!(intervals(&session), Some((30, 150)));
        session.hold = Duration::from_secs(100);
        assert_eq!(intervals(&session), Some((30, 50)));
        (session.keepalive_s, session.resting_keepalive_s) = (40, 15);
        assert_eq!(intervals(&session), Some((40, 40)));
        session.keepalive_s = 0;
        assert_eq!(intervals(&session), None);
    }

    #[test]
    fn a_peer_has_room_for_what_comes_into_memory_and_for_more_once_that_may_come() {
        let mut session = SessionDefaults::new("beam", "ipn:1.0", Arc::default());
        session.accepted_peers = Some(["ipn:10.0".to_owned()].into());
        session.whole_mru_bytes = 256 << 20;
        session.in_memory_bytes = 16 << 20;
        session.receive_window_bytes = 4 << 20;
        let room = session.rooms.of("ipn:10.0", session.room_bytes());
        assert!(room.take(25 << 20).is_none() && room.take(24 << 20).is_some());
        let other = session.rooms.of("ipn:11.0", session.room_bytes());
        // From now on nothing is written to disk.
        session.in_memory_bytes = u64::MAX;
        session.widen_rooms();
        assert!(room.take(265 << 20).is_none() && room.take(264 << 20).is_some());
        assert!(other.take(25 << 20).is_none(), "it is not meant");
        session.accepted_peers = None;
        session.widen_rooms();
        assert!(other.take(264 << 20).is_some());
    }
}
