//! Another program goes on for a running node: `docs/upgrade.md`.
//!
//! [`launcher`] starts it; [`hand_over`] is the side of the process that runs,
//! [`take_over`] that of the next one, and they talk over a [`channel`] in the
//! [`messages`]. [`sockets`] has what both are reached by; in the [`early_sessions`]
//! sessions wait that come up before the node is there.

mod channel;
pub mod command;
mod early_sessions;
mod hand_over;
pub mod launcher;
mod messages;
pub mod notify;
mod sockets;
mod take_over;

pub use channel::Channel;
pub use early_sessions::EarlySessions;
pub use hand_over::{HandOver, Parts, Upgrade, at_signals};
pub use launcher::Launcher;
pub use sockets::Sockets;
pub use take_over::{Connections, Predecessor, TakeOverError, lead};
