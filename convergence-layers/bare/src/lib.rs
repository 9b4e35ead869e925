//! Convergence layers that authenticate nobody: STCP, MTCP, UDP, LTP over UDP, and the external
//! convergence layer of a daemon of dtn7-rs (ECLA). They serve only configured neighbours at
//! configured addresses: packets from other addresses are dropped.
//!
//! From the bytes upwards: [`framing`] splits streams into bundles, [`aggregated`] blocks of LTP,
//! and `spooled` keeps long blocks; `pace` says when bytes may be sent; `stream`, `datagrams`,
//! `licklider` and `ecla` are the sessions over TCP, UDP, LTP and WebSocket, `reading` those over
//! TCP that the neighbour begins; a [`Neighbour`] keeps them.

pub mod aggregated;
mod config;
mod datagrams;
mod ecla;
pub mod framing;
mod handle;
mod licklider;
mod neighbour;
mod pace;
mod reading;
mod socket;
mod spooled;
mod stream;

pub use config::{Config, Layer};
pub use neighbour::Neighbour;
pub use socket::{Place, bind};
pub use underpass_ltp::{CommonMemory as LtpMemory, Limits as LtpLimits};
