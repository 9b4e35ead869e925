//! The machine's time and the thread's claim to it.

use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::beam::Nanos;

/// The monotonic clock, which is the same for every program of the machine,
/// with its distance to the Unix epoch.
#[derive(Debug)]
pub(super) struct Clock {
    unix_offset: Duration,
}

impl Clock {
    pub(super) fn new() -> io::Result<Self> {
        let wall = Duration::from(clock_gettime(ClockId::CLOCK_REALTIME)?);
        let monotonic = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
        Ok(Clock {
            unix_offset: wall.saturating_sub(monotonic),
        })
    }

    pub(super) fn now(&self) -> Nanos {
        // The kernel always has this clock.
        clock_gettime(ClockId::CLOCK_MONOTONIC)
            .map(|time| time.tv_sec() as Nanos * 1_000_000_000 + time.tv_nsec() as Nanos)
            .unwrap_or_default()
    }

    /// A time by the wall clock, as it was set when the program began.
    pub(super) fn since_unix_epoch(&self, at: Nanos) -> Duration {
        self.unix_offset + Duration::from_nanos(at)
    }
}

/// Gives this thread priority over every ordinary one, and makes its timers exact. Without this, a
/// busy machine makes packets late by a scheduler's slice.
pub(super) fn ask_for_realtime() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is valid for the call; 0 is this thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
