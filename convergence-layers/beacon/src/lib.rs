//! Beacons: authenticated UDP datagrams beside a convergence layer, by which
//! both ends of a hop learn that the link is there.
//!
//! TCP doubles its time-outs while a link is blocked, so nothing that rests on
//! it can tell soon that the link is back. A beacon can: it is sent at fixed
//! intervals, costs next to nothing, and the first one heard is the news.
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
