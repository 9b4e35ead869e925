//! Applications of this node: programs that send and receive bundles over a
//! Unix socket (`docs/applications.md`).
//!
//! A bundle for an application is stored in the [`Mailbox`], on disk, before
//! whoever had custody of it is told that this node has it; it stays there
//! until the application has acknowledged it, or its lifetime ends. The
//! [`Desk`] decides, without I/O or clock, which client gets what next; a
//! [`Service`] runs both on a thread of its own; [`serve_client`] speaks the
//! protocol of [`wire`] with one client. The [`Echo`] answers by itself.

mod connection;
mod desk;
mod echo;
mod mailbox;
mod service;
mod upload;
pub mod wire;

pub use connection::{ClientError, Node, Outgoing, endpoint, serve_client, turn_away};
pub use desk::{ClientId, Desk, Item, Output, Taken};
pub use echo::Echo;
pub use mailbox::{Mailbox, MailboxError, NamedFile, Stored};
pub use service::{Confirm, Service};
pub use wire::Report;
