//! Bundles as coded datagrams: a loss costs no round trip.
//!
//! A [`Sender`] cuts bundles into *symbols*, one to a datagram, and gathers them into *blocks*.
//! After a block's own symbols follow *repair* symbols, by Reed–Solomon: any of them replaces any
//! lost one. Their number follows from the losses that the [`Receiver`] measures; a clean link
//! needs none. If repair does not suffice, the receiver requests what is missing, and only that is
//! sent again.
//!
//! Both sides are state machines without I/O and clock. Datagrams may be lost, reordered and
//! duplicated; a [`Message`] must be carried reliably and in order, beside them. `docs/quic.md` has
//! the formats.

mod arrivals;
mod assembly;
mod blocks;
mod code;
pub mod message;
pub mod parity;
mod received;
mod receiver;
mod sender;
mod sent;
mod sequence;
pub mod symbol;

pub use arrivals::Losses;
pub use message::Message;
pub use receiver::{Admit, Arrived, Receiver, ReceiverFigures};
pub use sender::{Datagram, Protection, Sender, SenderFigures};

use thiserror::Error;

/// The version of formats and code that both sides have to speak.
pub const VERSION: u8 = 1;

/// The most symbols of a block, repair not counted.
pub const MOST_SYMBOLS: u16 = 1024;

/// The largest bundle that is sent as symbols, bytes; symbols give its length in 24 bits.
pub const MOST_BUNDLE_BYTES: u64 = (1 << 24) - 1;

/// Most bundles, and most blocks, from the oldest to the newest that is not done.
pub const WINDOW: u64 = 4096;

/// What the peer has said cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A datagram that is no symbol.
    #[error("a datagram is no symbol: {0}")]
    Symbol(#[from] symbol::SymbolError),
    /// A bundle or block beyond the window.
    #[error("it begins a bundle or block too far ahead of those that are not done")]
    Window,
    /// More symbols than there is room for, although none of their bytes is
    /// kept.
    #[error("it has more blocks under way than there is room for")]
    Room,
    /// Symbols that do not fit to each other.
    #[error("symbols of one block or bundle contradict each other")]
    Contradiction,
    /// A verdict or a request on what was not sent.
    #[error("it tells of a bundle or block that it was not sent, or has told the end of")]
    Unknown,
    /// A request for symbols that were not lost, or too many requests.
    #[error("it asks for more than can be missing")]
    Excess,
}
