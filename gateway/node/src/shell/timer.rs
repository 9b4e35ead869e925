//! The engines' deadlines.

use std::sync::Arc;
use std::time::Instant;

use super::Shell;

/// The time that the engines are told: the runtime's, which simulations advance
/// by themselves.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Tasks that call the engines at each of their deadlines, one for each. They
/// run until dropped.
pub fn drivers(shell: &Arc<Shell>) -> Vec<impl Future<Output = ()> + Send + use<>> {
    let each = shell.numbers();
    each.map(|shard| drive(shell.clone(), shard)).collect()
}

async fn drive(shell: Arc<Shell>, shard: usize) {
    loop {
        let deadline = shell.arm(shard);
        tokio::select! {
            biased;
            () = sleep_until(deadline) => {
                shell.look_at_due_links(shard);
                shell.with_inner(shard, |inner, now| inner.engine.handle_timeout(now));
            }
            () = shell.shards[shard].timer.notified() => shell.with_inner(shard, |_, _| ()),
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

impl Shell {
    /// Sets a shard's timer to its engine's next deadline.
    fn arm(&self, shard: usize) -> Option<Instant> {
        let mut inner = self.lock(shard);
        inner.armed = inner.engine.next_timeout();
        inner.armed
    }
}
