//! The link scheduler: what leaves a node, and when.
//!
//! A [`LinkScheduler`] is a tree. At a hub its root is the beam, and below it
//! are the terminals and their classes; at a terminal the children of the
//! root are its paths. (Streams, the last level, take turns inside the stream
//! layer, when a bundle is sealed.) It owns no socket and no clock: the node
//! says which leaves are backlogged ([`LinkScheduler::set_ready`]), asks what
//! may go ([`LinkScheduler::next`]) and tells what went
//! ([`LinkScheduler::sent`]).
//!
//! Invariants:
//! - **Rate.** The root and each child have a debt bucket: a bundle may leave
//!   while the level is not negative, and is charged with what was really
//!   sent. So in any window a child sends at most rate × time and two bundles,
//!   one of them saved up before. Over long times it has exactly its rate. A debt is paid at the rate in force: what left before a cut of the
//!   rate is still on the line.
//! - **Work conservation.** While any ready, unblocked child has a level that
//!   is not negative, and so has the root, something is granted.
//! - **Shares.** Children share the root, and classes of one priority share
//!   their child, by start-time fair queueing over weights (Goyal, Vin and
//!   Cheng 1996): two that stay backlogged differ from their weights' ratio by
//!   at most one bundle each. Deficit round robin has the same long-run shares,
//!   but a bundle may be 250 times the smallest, so its rounds would either
//!   scan debtors or burst.
//! - **Priority.** A class is never granted while one of a higher priority of
//!   the same child is ready. Class 0, signalling, goes before every other
//!   class of *all* children: custody signals free memory at the peer and
//!   plans free capacity, and what is charged for them still counts against
//!   their child's share and rate.
//!
//! Every operation costs O(log n) in the number of children.

mod bucket;
mod classes;
mod fair;
mod link;
mod terminal;
mod unscheduled;
mod wire_size;

pub use classes::{ClassConfig, ClassError};
pub use link::{Config, ConfigError, Decision, LinkScheduler, UnknownLeaf};
pub use terminal::{Leaf, TerminalId};
pub use unscheduled::UnscheduledTraffic;
pub use wire_size::TcpWire;
