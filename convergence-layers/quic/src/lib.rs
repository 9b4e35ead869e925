//! Bundles over QUIC (RFC 9000), a stream for each, or as coded datagrams.
//!
//! From the bytes upwards: [`wire`] holds the messages of a session's control stream; `outgoing`,
//! `incoming` and `pace` the state of a session, without I/O; `congestion` the congestion controls;
//! `session` the task that carries one session over one connection. A [`Dialer`] at the terminal
//! and a [`Listener`] at the hub make the connections. `docs/quic.md` has the protocol.

mod coding;
mod congestion;
mod contact;
mod defaults;
mod dialer;
mod handed_over;
mod incoming;
mod lane;
mod listener;
mod outgoing;
mod pace;
mod session;
mod socket;
pub mod wire;

pub use coding::{Coding, KnownLosses};
pub use congestion::Algorithm;
pub use defaults::SessionDefaults;
pub use dialer::{Dialer, DialerConfig};
pub use handed_over::ListenerKey;
pub use incoming::PeerRooms;
pub use listener::{Listener, ListenerConfig, bind};
pub use socket::SocketOptions;

/// Bundles that a peer may have under way on one session.
const STREAMS: u32 = 256;

/// Why a connection is closed, as its code tells the peer (RFC 9000, 20.2).
mod code {
    use quinn::VarInt;

    /// In order, or a dial that is no longer needed.
    pub(crate) const CLOSED: VarInt = VarInt::from_u32(0);
    /// The peer has violated the protocol.
    pub(crate) const PROTOCOL: VarInt = VarInt::from_u32(1);
    /// The peer is not who it claims to be, or is not accepted.
    pub(crate) const IDENTITY: VarInt = VarInt::from_u32(2);
    /// At once, for a reason of this node's own.
    pub(crate) const ABORTED: VarInt = VarInt::from_u32(3);
}
