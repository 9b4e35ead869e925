//! Store-and-forward: requests with `Prefer: respond-async` (RFC 7240 §4.1)
//! are stored and answered 202; their status and responses are resources of
//! this proxy. At the other node they are sent to their origins.

mod exchange;
mod intake;
mod message;
mod prefer;
mod range;
mod resource;
mod retrieval;

pub use exchange::{Patience, serve as dispatch};
pub(super) use intake::{Asked, store};
pub(super) use resource::{Place, serve};
pub use retrieval::response;
