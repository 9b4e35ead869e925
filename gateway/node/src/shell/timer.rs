//! The engine's deadlines.

use std::sync::Arc;
use std::time::Instant;

use super::Shell;

/// The time that the engine is told: the runtime's, which simulations advance
/// by themselves.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Calls the engine at each of its deadlines. Runs until dropped.
pub async fn drive(shell: Arc<Shell>) {
    loop {
        let deadline = shell.arm();
        tokio::select! {
            biased;
            () = sleep_until(deadline) => {
                shell.look_at_due_links();
                shell.with(|engine, now| engine.handle_timeout(now));
            }
            () = shell.timer.notified() => {}
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
    /// Sets the timer to the engine's next deadline.
    fn arm(&self) -> Option<Instant> {
        let mut inner = self.lock();
        inner.armed = inner.engine.next_timeout();
        inner.armed
    }
}
