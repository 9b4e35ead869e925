//! When to send a keepalive and when to give the peer up (RFC 9174, 5.1.1).

use std::time::{Duration, Instant};

/// During a transfer the interval is at most this: longer ones are agreed on for idle sessions.
const BUSY_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Keepalive {
    interval: Option<Duration>,
    /// The same while a transfer is under way.
    busy_interval: Option<Duration>,
    last_sent: Instant,
    last_heard: Instant,
    /// Since when transfers have been under way without a pause.
    busy_since: Option<Instant>,
    suspended: bool,
}

/// Keepalives in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepaliveCount {
    /// Sent in all.
    pub sent: u64,
    /// Received in all.
    pub received: u64,
}

/// What the time demands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Send,
    PeerSilent,
}

impl Keepalive {
    /// The interval in force is the least that both sides announce; 0 on either side switches it
    /// off. During a transfer, an Underpass peer sends keepalives as often as this side.
    pub(super) fn new(ours_s: u16, theirs_s: u16, to_underpass: bool, now: Instant) -> Self {
        let interval_s = ours_s.min(theirs_s);
        let interval = (interval_s > 0).then(|| Duration::from_secs(interval_s.into()));
        let busy_interval = match to_underpass {
            true => interval.map(|interval| interval.min(BUSY_INTERVAL)),
            false => interval,
        };
        Self {
            interval,
            busy_interval,
            last_sent: now,
            last_heard: now,
            busy_since: None,
            suspended: false,
        }
    }

    /// Whether both sides want them.
    pub(super) fn is_agreed(&self) -> bool {
        self.interval.is_some()
    }

    pub(super) fn sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// Whether a transfer is under way, in either direction.
    pub(super) fn set_busy(&mut self, now: Instant, busy: bool) {
        self.busy_since = busy.then(|| self.busy_since.unwrap_or(now));
    }

    /// While the link is known to be blocked, silence means nothing, and keepalives would only
    /// queue.
    pub(super) fn suspend(&mut self, now: Instant, suspended: bool) {
        if self.suspended && !suspended {
            self.last_heard = now;
        }
        self.suspended = suspended;
    }

    /// When to send a keepalive, and when to give the peer up.
    fn times(&self) -> Option<(Instant, Instant)> {
        let interval = self.interval.filter(|_| !self.suspended)?;
        let send = self.last_sent + send_after(interval);
        let give_up = self.last_heard + 2 * interval;
        let Some((since, busy)) = self.busy_since.zip(self.busy_interval) else {
            return Some((send, give_up));
        };
        // Before a transfer began, each side was free to be silent for longer.
        let busy_send = self.last_sent.max(since) + send_after(busy);
        let busy_give_up = self.last_heard.max(since) + 2 * busy;
        Some((send.min(busy_send), give_up.min(busy_give_up)))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let (send, give_up) = self.times()?;
        Some(send.min(give_up))
    }

    pub(super) fn due(&self, now: Instant) -> Due {
        match self.times() {
            Some((_, give_up)) if now >= give_up => Due::PeerSilent,
            Some((send, _)) if now >= send => Due::Send,
            _ => Due::Nothing,
        }
    }
}

/// Somewhat sooner than agreed: some peers give up after a single interval without a message,
/// including its time in transit.
fn send_after(interval: Duration) -> Duration {
    interval * 3 / 4
}
