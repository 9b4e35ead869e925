//! The custody store that the configuration asks for.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::statfs::{FsType, TMPFS_MAGIC};
use nix::unistd::AccessFlags;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use underpass_bundle::{MemoryStore, Restored, Store, destination_of};
use underpass_store::{DirectoryError, Handle, Limits, Monitor, OpenError, Report};

use crate::allocator;
use crate::config::{Config, Durability, FILES_PER_CUSTODY, SPARE_SEGMENTS};
use crate::shell::Shell;

/// As in linux/magic.h.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// How long after activity of the store freed memory is returned to the system: rarely enough that
/// pages which are needed again cost nothing.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(5);

/// The least quota worth a store on disk, bytes.
const LEAST_QUOTA_BYTES: u64 = 64 << 20;
/// What custody is kept in.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    pub durability: Durability,
    /// Bytes of bundles kept at most.
    pub quota_bytes: u64,
    /// Why it is less than the default.
    pub because: Option<String>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (durability, quota) = (self.durability.name(), self.quota_bytes);
        write!(f, "custody: {durability}, at most {quota} bytes")?;
        match &self.because {
            Some(because) => write!(f, ", since {because}"),
            None => Ok(()),
        }
    }
}

/// Decides where custody is kept: as configured, otherwise on disk if there is one with room. If
/// the disk has no room for the quota, the quota is lowered, unless durability is configured.
pub fn choose(config: &Config) -> Choice {
    let custody = &config.custody;
    let choice = |durability, quota_bytes, because| Choice {
        durability,
        quota_bytes,
        because,
    };
    if let Some(durability) = custody.durability {
        return choice(durability, custody.quota_bytes, None);
    }
    let memory = |because| choice(Durability::Memory, custody.quota_bytes, because);
    if config.paths.is_empty() && config.listeners.is_empty() {
        // A node without neighbours has nothing in custody.
        return memory(None);
    }
    let dir = custody.dir(&config.node.state_dir);
    let shown = dir.display();
    let free = match free_bytes(&dir) {
        Ok(Some(free)) => free,
        Ok(None) => return memory(Some(format!("{shown} is in memory, not on a disk"))),
        Err(error) => return memory(Some(format!("{shown} cannot be used: {error}"))),
    };
    let spare = SPARE_SEGMENTS * custody.segment_bytes;
    let room = free.saturating_sub(spare) / FILES_PER_CUSTODY;
    if room >= custody.quota_bytes {
        choice(Durability::Disk, custody.quota_bytes, None)
    } else if room >= LEAST_QUOTA_BYTES.min(custody.quota_bytes) {
        let because = format!("custody.quota_bytes is more than {shown} has room for");
        choice(Durability::Disk, room, Some(because))
    } else {
        memory(Some(format!("{shown} has only {free} bytes free")))
    }
}

/// As [`choose`]; but bundles that an earlier run has left on disk stay in custody there, even if
/// there is no room for more.
pub fn settle(config: &Config) -> Choice {
    let choice = choose(config);
    let Some(because) = &choice.because else {
        return choice;
    };
    if choice.durability == Durability::Disk || !has_bundles(config) {
        return choice;
    }
    Choice {
        durability: Durability::Disk,
        quota_bytes: LEAST_QUOTA_BYTES.min(config.custody.quota_bytes),
        because: Some(format!(
            "bundles of an earlier run are there, though {because}"
        )),
    }
}

/// Whether the store has bundles, or another process has the store.
fn has_bundles(config: &Config) -> bool {
    let dir = config.custody.dir(&config.node.state_dir);
    if !dir.is_dir() {
        return false;
    }
    let opened = underpass_store::open(
        &dir,
        config.node.number,
        limits(config),
        Instant::now(),
        || {},
    );
    match opened {
        Ok((_, handle, report)) => {
            handle.close();
            report.bundles > 0
        }
        Err(OpenError::Directory(DirectoryError::InUse(_))) => true,
        // Custody could not be kept there either.
        Err(_) => false,
    }
}

fn limits(config: &Config) -> Limits {
    let custody = &config.custody;
    Limits {
        segment_bytes: custody.segment_bytes,
        memory_bytes: custody.memory_bytes(config.node.role),
        write_behind: Duration::from_millis(custody.write_behind_ms),
    }
}

/// Bytes available to the store, including those that an earlier run's store already uses; none if
/// the folder is not on a disk. The folder need not exist yet.
fn free_bytes(dir: &Path) -> io::Result<Option<u64>> {
    let existing = dir.ancestors().find(|folder| folder.is_dir());
    let existing = existing.unwrap_or(Path::new("."));
    nix::unistd::access(existing, AccessFlags::W_OK)?;
    let system = nix::sys::statfs::statfs(existing)?;
    if [TMPFS_MAGIC, RAMFS_MAGIC].contains(&system.filesystem_type()) {
        return Ok(None);
    }
    let block = u64::try_from(system.block_size()).unwrap_or(0);
    let mut free = system.blocks_available().saturating_mul(block);
    if existing == dir {
        for entry in std::fs::read_dir(dir)? {
            match entry?.metadata() {
                Ok(file) => free = free.saturating_add(file.blocks() * 512),
                // Another process that still has the store has deleted the file meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Some(free))
}

/// The stores on a disk, seen from outside the engines.
pub struct Custody {
    handle: Handle,
    /// By shard: its store has something to hear.
    moved: Arc<[Moved]>,
    /// Any store has.
    any: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Moved(AtomicBool);

impl Moved {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

/// By shard.
type Stores = Vec<Box<dyn Store>>;

/// Opens a store for each shard; with a disk, restores what an earlier run has left. `shard_of`
/// gives the shard of a node.
pub fn open(
    config: &Config,
    shard_of: impl Fn(u64) -> usize,
) -> Result<(Stores, Option<Custody>), OpenError> {
    let custody = &config.custody;
    let shards = config.node.shards();
    if !custody.is_durable() {
        let stores = (0..shards).map(|_| Box::<MemoryStore>::default());
        return Ok((stores.map(|store| store as Box<dyn Store>).collect(), None));
    }
    let limits = limits(config);
    let any = Arc::new(Notify::new());
    let moved: Arc<[Moved]> = (0..shards).map(|_| Moved::default()).collect();
    let notify = {
        let (any, moved) = (any.clone(), moved.clone());
        move |shard: usize| {
            moved[shard].0.store(true, Ordering::Release);
            any.notify_one();
        }
    };
    let dir = custody.dir(&config.node.state_dir);
    let started = Instant::now();
    let node = config.node.number;
    let assign = |restored: &Restored| destination_of(&restored.record).map_or(0, &shard_of);
    let opened = underpass_store::open_sharded(&dir, node, limits, started, shards, assign, notify);
    let (stores, handle, report) = opened?;
    announce(&report, started.elapsed());
    let stores = stores
        .into_iter()
        .map(|store| Box::new(store) as Box<dyn Store>);
    Ok((stores.collect(), Some(Custody { handle, moved, any })))
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

/// Logs the unreadable files on the disk beyond the `known` ones.
fn tell_failed(monitor: &Monitor, known: &mut u64) {
    let failed = monitor.figures().failed_segments;
    if failed > *known {
        let files = failed - *known;
        tracing::error!(
            files,
            "the disk cannot read all of the custody store: what is left goes to other files"
        );
        *known = failed;
    }
}

impl Custody {
    /// What shows how the store fares.
    pub fn monitor(&self) -> Monitor {
        self.handle.monitor()
    }

    /// Tells the engines when their store has done something. Runs until dropped.
    pub fn watch(&self, shell: Arc<Shell>) -> impl Future<Output = ()> + Send + use<> {
        let (moved, any) = (self.moved.clone(), self.any.clone());
        let monitor = self.monitor();
        let mut failed = 0;
        let tell = move || {
            let moved = moved.iter().enumerate().filter(|(_, moved)| moved.take());
            moved.for_each(|(shard, _)| shell.store_moved(shard));
        };
        async move {
            loop {
                any.notified().await;
                let give_back_at = tokio::time::Instant::now() + GIVE_BACK_AFTER;
                tell_failed(&monitor, &mut failed);
                tell();
                while tokio::time::timeout_at(give_back_at, any.notified())
                    .await
                    .is_ok()
                {
                    tell();
                }
                let _ = tokio::task::spawn_blocking(allocator::trim).await;
            }
        }
    }

    /// Returns when all custody is durable, or cannot be.
    pub async fn close(self, shell: &Shell) {
        shell.with_each(|engine, _| engine.flush_store());
        let _ = tokio::task::spawn_blocking(move || self.close_now()).await;
    }

    /// As [`Custody::close`], for stores that have nothing left to write. Blocks.
    pub fn close_now(self) {
        // The store's thread ends when it has written all.
        self.handle.close();
    }
}

/// The custody of a running node. It is opened again if handing the node over fails.
#[derive(Default)]
pub struct OpenCustody(Mutex<Option<(Custody, AbortOnDropHandle<()>)>>);

impl OpenCustody {
    /// Reports events of this custody's stores to the engines.
    pub fn set(&self, custody: Custody, shell: &Arc<Shell>) {
        let watch = super::background(custody.watch(shell.clone()));
        *self.0.lock().unwrap() = Some((custody, watch));
    }

    /// Takes out the custody, if it is on a disk, to close it.
    pub fn take(&self) -> Option<(Custody, AbortOnDropHandle<()>)> {
        self.0.lock().unwrap().take()
    }

    /// What shows how it fares.
    pub fn monitor(&self) -> Option<Monitor> {
        let open = self.0.lock().unwrap();
        open.as_ref().map(|(custody, _)| custody.monitor())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use underpass_bundle::DurableRecord;

    use super::*;

    /// A terminal with a path whose store is in `dir`.
    fn config(dir: &Path) -> Config {
        let text = format!(
            "[node]\nnumber = 10\nrole = \"terminal\"\nstate_dir = {dir:?}\n\
             [[path]]\nname = \"geo\"\nneighbour = 1\nremote = \"192.0.2.1:4556\"\n\
             send_rate_bps = 2000000\nreceive_rate_bps = 40000000\nrtt_ms = 560\n"
        );
        toml::from_str(&text).expect("a valid configuration")
    }

    /// A folder of the build, which is on a disk.
    fn on_disk() -> tempfile::TempDir {
        let program = std::env::current_exe().expect("it runs");
        tempfile::tempdir_in(program.parent().expect("a folder")).expect("it is the build's")
    }

    #[test]
    fn custody_is_on_disk_unless_it_is_told_otherwise() {
        let dir = on_disk();
        let mut config = config(dir.path());
        config.custody.quota_bytes = 4 << 20;
        let choice = choose(&config);
        assert_eq!(choice.durability, Durability::Disk, "{choice}");
        assert_eq!((choice.quota_bytes, choice.because), (4 << 20, None));
        config.custody.durability = Some(Durability::Memory);
        assert_eq!(choose(&config).durability, Durability::Memory);
        assert!(!dir.path().join("custody").exists(), "it only looks");
    }

    #[test]
    fn a_quota_beyond_the_disk_is_lowered_and_said() {
        let dir = on_disk();
        let mut config = config(dir.path());
        config.custody.quota_bytes = u64::MAX / 4;
        let choice = choose(&config);
        assert_eq!(choice.durability, Durability::Disk, "{choice}");
        assert!(choice.quota_bytes < u64::MAX / 4);
        assert!(choice.to_string().contains("has room for"), "{choice}");
    }

    #[test]
    fn a_full_disk_keeps_the_bundles_that_lie_there() {
        let dir = on_disk();
        let mut config = config(dir.path());
        // No disk has room for segments of this size.
        config.custody.segment_bytes = 1 << 50;
        assert_eq!(settle(&config).durability, Durability::Memory);
        let store = config.custody.dir(dir.path());
        let open = || {
            let limits = Limits {
                segment_bytes: 1 << 20,
                ..Limits::default()
            };
            underpass_store::open(&store, 10, limits, Instant::now(), || {}).expect("it opens")
        };
        let (_, handle, _) = open();
        handle.close();
        assert_eq!(
            settle(&config).durability,
            Durability::Memory,
            "it is empty"
        );
        let (mut bundles, handle, _) = open();
        let durable = DurableRecord {
            record: Bytes::from_static(b"a bundle"),
            urgent: true,
            file: None,
        };
        let payload = vec![Bytes::from_static(b"its payload")];
        let id = bundles.first_free_id();
        bundles.put(Instant::now(), id, Some(durable), payload);
        assert_eq!(settle(&config).durability, Durability::Disk, "it is in use");
        handle.close();
        let choice = settle(&config);
        assert_eq!(choice.durability, Durability::Disk, "{choice}");
        assert_eq!(choice.quota_bytes, LEAST_QUOTA_BYTES);
        assert!(choice.to_string().contains("earlier run"), "{choice}");
        config.custody.durability = Some(Durability::Memory);
        assert_eq!(settle(&config).durability, Durability::Memory);
    }

    #[test]
    fn without_a_disk_custody_is_in_memory_and_says_why() {
        let choice = choose(&config(Path::new("/dev/shm/underpass")));
        assert_eq!(choice.durability, Durability::Memory);
        assert!(choice.to_string().contains("not on a disk"), "{choice}");
        let choice = choose(&config(Path::new("/proc/underpass")));
        assert_eq!(choice.durability, Durability::Memory, "{choice}");
        assert!(choice.because.is_some());
    }
}
