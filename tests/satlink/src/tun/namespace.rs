//! Work inside another network namespace.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns};

use super::TunError;

/// Runs `work` in a network namespace, on a thread of its own so that the
/// caller's stays where it is. What the work opens remains usable outside.
pub(super) fn within<T: Send>(
    namespace: Option<&str>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, TunError> {
    let Some(name) = namespace else {
        return Ok(work());
    };
    let path = path_of(name);
    let failed = |source| TunError::Namespace {
        path: path.clone(),
        source,
    };
    let file = File::open(&path).map_err(failed)?;
    thread::scope(|scope| {
        scope
            .spawn(|| {
                setns(&file, CloneFlags::CLONE_NEWNET).map_err(|errno| failed(errno.into()))?;
                Ok(work())
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn path_of(name: &str) -> PathBuf {
    // `ip netns` keeps its namespaces here; an absolute path stays as it is.
    Path::new("/run/netns").join(name)
}
