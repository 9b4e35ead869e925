//! Upgrade in place: another program takes over a running node (`docs/upgrade.md`).
//!
//! [`launcher`] starts it. [`hand_over`] is the side of the running process, [`take_over`] that of
//! the next one, and they exchange [`messages`] over a [`channel`]. [`sockets`] has the sockets by
//! which both are reached. In [`early_sessions`] wait the sessions that come up before this process
//! has the node.

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
pub use hand_over::{HandOver, Parts, Upgrade, at_signals, lasting_obstacle};
pub use launcher::Launcher;
pub use sockets::Sockets;
pub use take_over::{Connections, Predecessor, TakeOverError, lead};
