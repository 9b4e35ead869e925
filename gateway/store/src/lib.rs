//! Durable custody: bundles in append-only segment files.
//!
//! What the bundle node has custody of outlives the process and a loss of
//! power. Three parts, from the node down:
//!
//! - [`DiskStore`] is the bundle node's [`underpass_bundle::Store`]: it knows
//!   which payload is where, keeps in memory what is not durable yet or is sent
//!   soon, and never waits. Each shard of a node has its own, all over one disk.
//! - [`Worker`] takes what the stores have queued, writes it as one group, makes
//!   it durable, and says so. It runs on a thread of its own.
//! - [`Log`] is the format: records with checksums, an index of what is kept,
//!   recovery, compaction. It sees a [`Disk`], which is a directory, or in
//!   simulations a model of one that loses and tears what it was given.
//!
//! Invariants: a bundle is reported as committed only when it and all before it in the log are on
//! stable storage. A release never reaches the disk before the bundle. A segment is deleted only if
//! no bundle in it is kept, and no release in it is needed.

mod budget;
mod directory;
mod disk;
mod group;
mod log;
mod memory;
mod open;
mod pending;
mod queue;
mod reclaim;
mod record;
mod recovery;
mod salvage;
mod segment;
mod segments;
#[cfg(feature = "simulation")]
pub mod simulated;
mod start;
mod store;
mod tasks;
mod turns;
mod untold;
#[cfg(feature = "simulation")]
pub mod watched;
mod worker;

pub use directory::{Directory, DirectoryError};
pub use disk::Disk;
pub use log::{Log, Put, ReadError};
pub use open::{Handle, Monitor, OpenError, open, open_sharded};
pub use queue::Figures;
pub use reclaim::Moved;
pub use recovery::{Damage, Found, Recovered, RecoveryError};
pub use segment::Identity;
pub use start::Report;
pub use store::{DiskStore, Limits};
pub use worker::{Next, Worker};
