//! A network namespace of the measurement's own.

use std::sync::mpsc::{self, Sender};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

use super::{SelftestError, failed};

type Work = Box<dyn FnOnce() + Send>;

/// A thread in a namespace without a name, which goes when the thread does:
/// nothing is left behind however the program ends.
pub(super) struct Station {
    /// Where the namespace is found while the thread lives.
    pub(super) path: String,
    work: Sender<Work>,
}

impl Station {
    pub(super) fn new() -> Result<Self, SelftestError> {
        let (work, orders) = mpsc::channel::<Work>();
        let (ready, started) = mpsc::channel();
        thread::spawn(move || {
            let made = unshare(CloneFlags::CLONE_NEWNET).map(|()| gettid());
            // Whoever asked has stopped waiting only if it has ended.
            let _ = ready.send(made);
            for order in orders {
                order();
            }
        });
        let thread = started
            .recv()
            .unwrap_or(Err(nix::Error::ECHILD))
            .map_err(|errno| failed("make a network namespace (root needed)")(errno.into()))?;
        let path = format!("/proc/{}/task/{thread}/ns/net", std::process::id());
        Ok(Station { path, work })
    }

    /// Has something done in the namespace; the receiver gets the outcome.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (done, outcome) = mpsc::channel();
        let order = Box::new(move || {
            // An outcome nobody waits for is of no use.
            let _ = done.send(work());
        });
        // The thread takes orders as long as the station is there.
        let _ = self.work.send(order);
        outcome
    }
}
