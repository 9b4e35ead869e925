//! TCPCLv4 (RFC 9174): bundles over TCP, with TLS 1.3.
//!
//! From the bytes upwards: [`wire`] holds the messages, [`session`] the protocol of one session
//! without I/O, and [`net`] the sockets and tasks that carry sessions: a [`Dialer`] at the
//! terminal, a [`Listener`] at the hub. `underpass-identity` checks the peer's identity.

mod exercise;
pub mod net;
pub mod session;
pub mod wire;

pub use exercise::exercise;
pub use net::{
    Dialer, DialerConfig, DialerStatus, LaneStatus, Listener, ListenerConfig, SessionDefaults,
    SharedPartials, SlotStatus, SocketOptions, listen,
};
