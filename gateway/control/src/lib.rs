//! A hub's client of the control service: [`Poster`] posts reports there and
//! keeps them while it is away, [`Follower`] takes plans from its stream.
//!
//! A queue without I/O and clock decides what is posted when and kept where. The parser of events,
//! the clock's filter and the pauses have no I/O and clock either. `docs/control-protocol.md`
//! specifies what goes over the wire.

mod contact;
mod document;
mod events;
mod follower;
mod offset;
mod poster;
mod queue;
mod service;
mod spool;
mod trust;

pub use contact::{Contact, State};
pub use follower::{Follower, Following, Planned};
pub use poster::{PostTrace, Poster, PosterConfig, Posting, Teller};
pub use queue::{Figures, Lane, Taken};
pub use service::{ConfigError, Service, ServiceConfig, ServiceError, read_token};
pub use spool::SpoolError;
pub use trust::Trust;
