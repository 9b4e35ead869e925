//! The custody store that the configuration asks for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use underpass_bundle::{MemoryStore, Store};
use underpass_store::{Handle, Limits, Monitor, OpenError, Report};

use crate::config::{Config, Durability};
use crate::shell::Shell;

/// How long after the store has moved what it no longer has in memory is given
/// back: seldom enough that pages which are needed again cost nothing.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(5);

/// A store on disk, seen from outside the engine.
pub struct Custody {
    handle: Handle,
    moved: Arc<Notify>,
}

/// Opens the store; with a disk, restores what an earlier run has left.
pub fn open(config: &Config) -> Result<(Box<dyn Store>, Option<Custody>), OpenError> {
    let custody = &config.custody;
    if custody.durability == Durability::Memory {
        return Ok((Box::new(MemoryStore::default()), None));
    }
    let limits = Limits {
        segment_bytes: custody.segment_bytes,
        memory_bytes: custody.memory_bytes,
        write_behind: Duration::from_millis(custody.write_behind_ms),
    };
    let moved = Arc::new(Notify::new());
    let notify = moved.clone();
    let dir = custody.dir(&config.node.state_dir);
    let started = Instant::now();
    let opened = underpass_store::open(&dir, config.node.number, limits, started, move || {
        notify.notify_one();
    });
    let (store, handle, report) = opened?;
    announce(&report, started.elapsed());
    Ok((Box::new(store), Some(Custody { handle, moved })))
}

fn announce(report: &Report, took: Duration) {
    for damage in &report.damaged {
        tracing::error!(%damage, "damaged in the custody store, dropped");
    }
    tracing::info!(
        bundles = report.bundles,
        bytes = report.bytes,
        damaged = report.damaged.len(),
        took_ms = took.as_millis(),
        "custody restored"
    );
}

impl Custody {
    /// What shows how the store fares.
    pub fn monitor(&self) -> Monitor {
        self.handle.monitor()
    }

    /// Tells the engine when its store has done something. Runs until dropped.
    pub fn watch(&self, shell: Arc<Shell>) -> impl Future<Output = ()> + Send + use<> {
        let moved = self.moved.clone();
        async move {
            loop {
                moved.notified().await;
                let give_back_at = tokio::time::Instant::now() + GIVE_BACK_AFTER;
                shell.with(|engine, now| engine.store_moved(now));
                while tokio::time::timeout_at(give_back_at, moved.notified())
                    .await
                    .is_ok()
                {
                    shell.with(|engine, now| engine.store_moved(now));
                }
                let _ = tokio::task::spawn_blocking(give_back_memory).await;
            }
        }
    }

    /// Returns when all custody is durable, or cannot be.
    pub async fn close(self, shell: &Shell) {
        shell.with(|engine, _| engine.flush_store());
        // The store's thread ends when it has written all.
        let _ = tokio::task::spawn_blocking(move || self.handle.close()).await;
    }
}

/// Gives the system the memory of payloads that are on the disk by now. They
/// leave holes between those that stay, and glibc keeps these by itself.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_back_memory() {
    // SAFETY: malloc_trim(3) may be called by any thread at any time; it takes
    // the allocator's own locks.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators give back what is free.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back_memory() {}
