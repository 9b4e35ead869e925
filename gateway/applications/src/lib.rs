//! Applications of this node: programs that send and receive bundles over a
//! Unix socket (`docs/applications.md`).
//!
//! A bundle for an application is stored on disk in the [`Mailbox`] before this node
//! tells the bundle's custodian that it has it. The bundle stays there until the
//! application acknowledges it or its lifetime ends. The [`Desk`] decides, without I/O or
//! clock, which client gets which bundle next; a [`Service`] runs both on a thread of its
//! own; [`serve_client`] speaks the protocol of [`wire`] with one client. The [`Echo`]
//! answers by itself.

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
