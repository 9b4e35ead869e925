//! Bundles as coded datagrams: a loss costs no round trip.
//!
//! A [`Sender`] cuts bundles into *symbols*, one to a datagram, and gathers
//! them into *blocks*. Behind a block's own symbols go *repair* symbols, by
//! Reed–Solomon: any of them stands in for any lost one. How many, follows
//! from the losses that the [`Receiver`] measures; a clean link has none. What
//! repair did not cover the receiver asks for, and only that is sent again.
//!
//! Both sides are state machines without I/O and clock. Datagrams may be lost,
//! reordered and duplicated; a [`Message`] is to be carried reliably and in
//! order, beside them. `docs/quic.md` has the formats.

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

/// The largest bundle that goes as symbols, bytes; symbols have its length in
/// 24 bits.
pub const MOST_BUNDLE_BYTES: u64 = (1 << 24) - 1;

/// Bundles, and blocks, that are not done, from the oldest to the newest.
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
    /// A request for what was not lost, or that does not end.
    #[error("it asks for more than can be missing")]
    Excess,
}
