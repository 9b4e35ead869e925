//! HTTP store-and-forward: requests that outlive their connection, the link
//! and the nodes.
//!
//! A client's node keeps a request in its [`store`] until the node that dispatches it to the origin
//! has it ([`Node`]'s *queue* side); that node keeps it until it is answered, and the response
//! until the client's node has it (the *dispatch* side). Their messages are in [`wire`]. The state
//! machine has no I/O and no clock: time is milliseconds since 1970, and its outputs leave only
//! after [`Node::commit`]. [`start`] runs it on a thread of its own.

mod agenda;
mod dispatch;
mod document;
mod id;
mod node;
mod object;
mod queue;
mod record;
mod service;
pub mod store;
mod transfer;
pub mod wire;

pub use dispatch::{Answer, Dispatched, JobKey};
pub use document::Document;
pub use id::{BadId, Id};
pub use node::{Figures, Limits, Name, NameKind, Node, Order, Output, Refusal};
pub use object::Object;
pub use queue::Submission;
pub use record::{Owner, Request, State};
pub use service::{Carrier, Handle, ServiceError, Settings, start};
