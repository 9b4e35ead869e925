//! Checks whether a socket that nobody reads from is still connected.

use std::io;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::Socket;

/// How often a socket is checked.
const GLANCE: Duration = Duration::from_secs(5);

/// Checks now and then whether a socket is still connected, where neither a read nor a write would
/// show it.
#[derive(Debug, Default)]
pub(crate) struct Glances(Option<Interval>);

impl Glances {
    /// Fails once the socket's connection is gone. Wakes its task for the next check.
    pub fn poll(&mut self, cx: &mut Context<'_>, socket: &impl Socket) -> io::Result<()> {
        let interval = self.0.get_or_insert_with(|| {
            let mut interval = interval_at(Instant::now() + GLANCE, GLANCE);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        while interval.poll_tick(cx).is_ready() {
            socket.unacknowledged()?;
        }
        Ok(())
    }
}
