//! The contract between the node and its convergence layers.
//!
//! A convergence layer (CL) moves bundles over one kind of transport. Its
//! adapter keeps *sessions*; each session carries bundles of one class, both
//! ways. The node implements [`Node`], a session implements [`Session`]; both
//! are called from any thread and neither may block.
//!
//! The flow of a bundle: the session calls [`Node::ready`] when it can take
//! one; the node answers, at once or later, with [`Session::offer`]; the
//! session reports [`Node::progress`] as the peer acknowledges bytes and
//! [`Node::finished`] exactly once.

mod activity;
mod class;
mod key;
mod node;
mod session;
mod socket;

pub use activity::Activity;
pub use class::Class;
pub use key::ExportedKey;
pub use node::{Intake, Node, Outcome, Refusal};
pub use session::{
    BUNDLE_OVERHEAD_BYTES, CodedFigures, Down, EXPRESS_ROOM_BYTES, LtpFigures, PathFigures, Resume,
    SHORT_BUNDLE_BYTES, Session, SessionId, SessionInfo, Transfer, comes_and_goes,
};
pub use socket::set_buffers;
