//! When to show life and when to give the peer up (RFC 9174, 5.1.1).

use std::time::{Duration, Instant};

/// The clock of keepalives.
#[derive(Debug)]
pub(super) struct Keepalive {
    interval: Option<Duration>,
    last_sent: Instant,
    last_heard: Instant,
    suspended: bool,
}

/// What the time demands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Send,
    PeerSilent,
}

impl Keepalive {
    /// The interval in force is the least that both sides announce; 0 on
    /// either side switches it off.
    pub(super) fn new(ours_s: u16, theirs_s: u16, now: Instant) -> Self {
        let interval_s = ours_s.min(theirs_s);
        Self {
            interval: (interval_s > 0).then(|| Duration::from_secs(interval_s.into())),
            last_sent: now,
            last_heard: now,
            suspended: false,
        }
    }

    pub(super) fn sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// While the link is known to be blocked, silence says nothing about the
    /// peer, and what is sent would only queue.
    pub(super) fn suspend(&mut self, now: Instant, suspended: bool) {
        if self.suspended && !suspended {
            self.last_heard = now;
        }
        self.suspended = suspended;
    }

    fn active(&self) -> Option<Duration> {
        self.interval.filter(|_| !self.suspended)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let interval = self.active()?;
        Some((self.last_sent + send_after(interval)).min(self.last_heard + 2 * interval))
    }

    pub(super) fn due(&self, now: Instant) -> Due {
        match self.active() {
            Some(interval) if now >= self.last_heard + 2 * interval => Due::PeerSilent,
            Some(interval) if now >= self.last_sent + send_after(interval) => Due::Send,
            _ => Due::Nothing,
        }
    }
}

/// Somewhat sooner than agreed: there are peers that give up after a single
/// interval without a message, the time of its journey included.
fn send_after(interval: Duration) -> Duration {
    interval * 3 / 4
}
