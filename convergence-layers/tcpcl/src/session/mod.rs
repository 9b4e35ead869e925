//! One end of a TCPCLv4 session (RFC 9174) as a state machine without I/O.
//!
//! Bytes and the time go in, bytes, events and the next deadline come out:
//! [`SessionCore::handle_input`], [`SessionCore::poll_output`], [`SessionCore::poll_event`],
//! [`SessionCore::poll_timeout`]. Two events need an answer, [`Event::Admit`] and
//! [`Event::Received`]; no input is taken until [`SessionCore::answer`] is called, so that
//! acknowledgements and refusals keep the order of the transfers.
//!
//! The sessions of a process share two things: [`PartialTransfers`] has the received parts of
//! transfers that broke ([`Event::Partial`]) until another session continues them
//! ([`SessionCore::resume`]), and [`UnfinishedTransfers`] counts what each peer has in progress.

mod config;
mod contact;
mod core;
mod event;
mod incoming;
mod keepalive;
mod label;
mod messages;
mod node_id;
mod outgoing;
mod partial;
mod resumption;
mod unfinished;

pub use self::core::SessionCore;
pub use config::{Role, SessionConfig};
pub use event::{Established, Event};
pub use keepalive::KeepaliveCount;
pub use label::{LABEL_EXTENSION, Label};
pub use node_id::same_node;
pub use outgoing::Wanted;
pub use partial::{Found, PartialLimits, PartialTransfers};
pub use resumption::{RESUMPTION_EXTENSION, Resumption};
pub use unfinished::UnfinishedTransfers;
