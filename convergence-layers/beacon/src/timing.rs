//! When a beacon is due.

use std::time::{Duration, Instant};

/// Time from one beacon to the next while nothing is heard; never less
/// otherwise. The datagram of 42 bytes makes 90 bytes of IPv6: 4.8 kbit/s.
pub const INTERVAL: Duration = Duration::from_millis(150);

/// A link is blocked once nothing was heard for a round trip and this.
pub const SILENCE: Duration = Duration::from_millis(500);

/// An idle link is told of so often before its silence would mean a blockage:
/// three beacons lost in a row do not make one by mistake.
const SIGNS_PER_SILENCE: u32 = 5;

/// Time from one beacon to the next at most, to a peer that has been away for
/// long: 500 of them take 45 kbit/s.
const LONGEST_INTERVAL: Duration = Duration::from_secs(8);

/// A peer that has been away beyond all patience is called each time that its
/// absence has grown by this part (1/n).
const CALLS_PER_ABSENCE: u32 = 16;

/// How long an end sends nothing, by any way, before a beacon.
pub fn idle_pause(rtt: Duration) -> Duration {
    ((rtt + SILENCE) / SIGNS_PER_SILENCE).max(INTERVAL)
}

/// What was sent and heard on one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    rtt: Duration,
    /// How long the peer may be silent before it is called ever more seldom.
    patience: Duration,
    /// The last sign of the peer.
    heard: Instant,
    /// The last sign given, by a beacon or by the convergence layer.
    sent: Instant,
    beaconed: Option<Instant>,
    /// The peer hears nothing.
    asked: bool,
}

impl Timing {
    /// A path whose beacons begin at once.
    pub fn new(now: Instant, rtt: Duration, patience: Duration) -> Timing {
        Timing {
            rtt,
            patience,
            heard: now,
            sent: now,
            beaconed: None,
            asked: true,
        }
    }

    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    pub fn heard(&mut self, at: Instant) {
        self.heard = self.heard.max(at);
    }

    pub fn sent(&mut self, at: Instant) {
        self.sent = self.sent.max(at);
    }

    /// The peer waits for an answer.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    pub fn beaconed(&mut self, now: Instant) {
        self.beaconed = Some(now);
        self.sent = now;
        self.asked = false;
    }

    /// Whether nothing was heard for a round trip.
    pub fn is_deaf(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) >= self.rtt
    }

    /// When the next beacon is due.
    pub fn due(&self) -> Instant {
        let idle = self.sent + idle_pause(self.rtt);
        let Some(beaconed) = self.beaconed else {
            return self.sent;
        };
        let absence = beaconed.saturating_duration_since(self.heard);
        let beyond = absence.saturating_sub(self.patience) / CALLS_PER_ABSENCE;
        let earliest = beaconed + beyond.clamp(INTERVAL, LONGEST_INTERVAL);
        if self.asked {
            return earliest;
        }
        idle.min(self.heard + self.rtt).max(earliest)
    }
}
