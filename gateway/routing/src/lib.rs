//! Contact plans and the routes through them (Schedule-Aware Bundle Routing,
//! CCSDS 734.3-B-1), without I/O or clock. [`text`] reads plans; a [`Router`] keeps one and
//! finds routes in it while it changes.

mod arrivals;
mod contact;
mod forwarding;
mod graph;
mod router;
mod search;
mod speakers;
pub mod text;

pub use contact::{Contact, MOST_CONTACTS, Node};
pub use forwarding::{Blocked, Change, Forwarding, NextHop, Table};
pub use router::{ContactId, Route, Router};
