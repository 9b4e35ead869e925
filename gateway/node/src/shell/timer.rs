//! The engines' deadlines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shell;
use super::shard::Inner;

/// The engines' time: the runtime's, which simulations advance by themselves.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// An engine with more hops than this is called at most once each `ROUND`: it has so many deadlines
/// that a wake-up for each would cost more than the work itself. Its hops' rates save up what they
/// do not send meanwhile.
const FEW_HOPS: usize = 32;
const ROUND: Duration = Duration::from_millis(5);

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
                shell.with_inner(shard, |inner, now| {
                    inner.called = now;
                    inner.engine.handle_timeout(now);
                });
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
        inner.armed = inner.due();
        inner.armed
    }
}

impl Inner {
    /// When the engine is to be called for a deadline.
    pub(super) fn due(&self) -> Option<Instant> {
        let deadline = self.engine.next_timeout();
        match self.engine.hop_count() > FEW_HOPS {
            true => deadline.map(|deadline| deadline.max(self.called + ROUND)),
            false => deadline,
        }
    }
}
