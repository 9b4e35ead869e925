//! Opening a directory as a store, with a thread that works for it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use thiserror::Error;
use underpass_bundle::Restored;

use crate::directory::{Directory, DirectoryError};
use crate::queue::{Figures, Shared};
use crate::recovery::RecoveryError;
use crate::segment::Identity;
use crate::start::Report;
use crate::store::{DiskStore, Limits};

/// Why a store cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The directory is not usable.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The contents of the directory are not usable.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The thread does not start.
    #[error("cannot start: {0}")]
    Thread(std::io::Error),
}

/// Shows a store's figures.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Shared>);

impl Monitor {
    /// The store in figures.
    pub fn figures(&self) -> Figures {
        self.0.figures()
    }
}

/// The other end of the stores of a disk, to close them.
#[derive(Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// Opens a directory for a node. `notify` is called, from the store's thread, when the bundle node
/// should look at its store.
///
/// # Errors
/// When the directory cannot be used, is in use, or is another node's.
pub fn open(
    path: &Path,
    node: u64,
    limits: Limits,
    now: Instant,
    notify: impl Fn() + Send + Sync + 'static,
) -> Result<(DiskStore, Handle, Report), OpenError> {
    let notify = move |_| notify();
    let (mut stores, handle, report) = open_sharded(path, node, limits, now, 1, |_| 0, notify)?;
    Ok((stores.swap_remove(0), handle, report))
}

/// As [`open`], with a store for each of several shards: see [`DiskStore::sharded`]. `notify` is
/// called from the stores' thread, and from threads that call stores.
///
/// # Errors
/// When the directory cannot be used, is in use, or is another node's.
pub fn open_sharded(
    path: &Path,
    node: u64,
    limits: Limits,
    now: Instant,
    shards: usize,
    assign: impl Fn(&Restored) -> usize,
    notify: impl Fn(usize) + Send + Sync + 'static,
) -> Result<(Vec<DiskStore>, Handle, Report), OpenError> {
    let directory = Directory::open(path)?;
    let identity = identity(node);
    let opened = DiskStore::sharded(directory, identity, limits, now, shards, assign, notify)?;
    let (stores, worker, report) = opened;
    let shared = worker.shared();
    let thread = thread::Builder::new()
        .name("custody".to_owned())
        .spawn(move || worker.run())
        .map_err(OpenError::Thread)?;
    Ok((stores, Handle { shared, thread }, report))
}

impl Handle {
    /// The monitor of the store.
    pub fn monitor(&self) -> Monitor {
        Monitor(self.shared.clone())
    }

    /// Closes the stores. Returns when all that they were given is written or cannot be.
    pub fn close(self) {
        self.shared.stop();
        // A thread that panicked has nothing more to write.
        let _ = self.thread.join();
    }
}

fn identity(node: u64) -> Identity {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    Identity {
        node,
        boot: boot
            .ok()
            .and_then(|id| parse_boot(&id))
            .unwrap_or_else(unknown_boot),
        boot_ms: boot_ms().unwrap_or(0),
        seed: random(),
    }
}

fn random() -> u64 {
    // The hasher's keys are random, new for each.
    RandomState::new().build_hasher().finish()
}

/// A boot without a name is like no other.
fn unknown_boot() -> [u8; 16] {
    (u128::from(random()) << 64 | u128::from(random())).to_be_bytes()
}

fn parse_boot(id: &str) -> Option<[u8; 16]> {
    let digits: String = id.trim().chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16)
        .ok()
        .map(u128::to_be_bytes)
}

/// Time since the boot, suspension included: `/proc/uptime` is CLOCK_BOOTTIME.
fn boot_ms() -> Option<i64> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = uptime.split(' ').next()?.parse().ok()?;
    Some((seconds * 1e3) as i64)
}
