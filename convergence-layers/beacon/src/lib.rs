//! Beacons: authenticated UDP datagrams beside a convergence layer, by which both ends of a hop
//! learn that the link works.
//!
//! TCP doubles its time-outs while a link is blocked, so nothing that relies on TCP notices soon
//! that the link is back. Beacons are sent at fixed intervals and cost very little; the first one
//! heard shows that the link is back.
//!
//! [`Endpoint`] is the protocol without socket and clock; [`Beacons`] moves
//! its datagrams over UDP. `docs/beacons.md` specifies both sides.

mod delay;
mod endpoint;
mod key;
mod net;
mod timing;
mod wire;

pub use endpoint::{Counters, Delayed, Endpoint, Event, PeerConfig, PeerId, Signs, Transmit};
pub use key::{Key, SECRET_BYTES, SecretError};
pub use net::{Beacons, Node, SocketConfig, bind};
pub use timing::{INTERVAL, REST_INTERVAL, REST_SILENCE, SILENCE};
pub use wire::{BEACON_BYTES, Beacon, KeyId, Kind, Late, Sequence};
