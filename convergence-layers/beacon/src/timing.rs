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

/// Where the rate is small, beacons of an idle link are this part of that time
/// apart at most: two that are lost in a row do not make a blockage by mistake,
/// and the third may be late by a seventh of it.
const SPARING: (u32, u32) = (2, 7);

/// Time from one beacon to the next at most, to a peer that has been away for
/// long: 500 of them take 45 kbit/s.
const LONGEST_INTERVAL: Duration = Duration::from_secs(8);

/// Probes, and answers to a peer that hears nothing, are so far apart at the least,
/// however short the hop.
const LEAST_PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// A peer that has been away beyond all patience is called each time that its
/// absence has grown by this part (1/n).
const CALLS_PER_ABSENCE: u32 = 16;

/// A peer whose beacons are wanted is told so this often, and that counts for so
/// long: some are lost.
const WISH: Duration = Duration::from_secs(1);
const WISH_COUNTS: Duration = Duration::from_secs(4);

/// How long an end sends nothing, by any way, before a beacon: longer where its
/// rate sets its beacons further apart.
fn idle_pause(rtt: Duration, pace: Duration) -> Duration {
    let silence = rtt + SILENCE;
    let usual = (silence / SIGNS_PER_SILENCE).max(INTERVAL);
    let (part, of) = SPARING;
    usual.max(pace.min(silence * part / of))
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
    /// Until when the peer's beacons are wanted beside other traffic, and until
    /// when the peer wants this end's.
    wants_until: Option<Instant>,
    wanted_until: Option<Instant>,
    /// How far apart this end's beacons are by its rate.
    pace: Duration,
    /// How far apart probes and answers are, by the hop's round trip.
    probe_interval: Duration,
    /// The peer owes an answer: it is probed until it is heard, or until then.
    probing_until: Option<Instant>,
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
            wants_until: None,
            wanted_until: None,
            pace: INTERVAL,
            probe_interval: INTERVAL,
            probing_until: None,
        }
    }

    /// Begins anew, at the pace that is set.
    pub fn restart(&mut self, now: Instant) {
        let (pace, probe_interval) = (self.pace, self.probe_interval);
        *self = Timing {
            pace,
            probe_interval,
            ..Timing::new(now, self.rtt, self.patience)
        };
    }

    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    pub fn heard(&mut self, at: Instant) {
        if at > self.heard {
            self.heard = at;
            self.probing_until = None;
        }
    }

    pub fn sent(&mut self, at: Instant) {
        self.sent = self.sent.max(at);
    }

    /// The peer waits for an answer.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// This end wants the peer's beacons.
    pub fn want(&mut self, now: Instant) {
        self.wants_until = Some(now + 2 * WISH);
    }

    /// Whether this end wants the peer's beacons.
    pub fn wants(&self, now: Instant) -> bool {
        self.wants_until.is_some_and(|until| now < until)
    }

    /// The peer wants this end's beacons.
    pub fn wanted(&mut self, now: Instant) {
        self.wanted_until = Some(now + WISH_COUNTS);
    }

    pub fn set_probe_interval(&mut self, interval: Duration) {
        self.probe_interval = interval.clamp(LEAST_PROBE_INTERVAL, INTERVAL);
    }

    /// The peer owes an answer: it is probed until it is heard, or until then.
    pub fn probe(&mut self, until: Instant) {
        self.probing_until = Some(until);
    }

    pub fn set_pace(&mut self, pace: Duration) {
        self.pace = pace.max(INTERVAL);
    }

    /// How far apart this end's beacons are at present, at the most.
    pub fn pause(&self, now: Instant) -> Duration {
        let holds = |until: Option<Instant>| until.is_some_and(|until| now < until);
        if holds(self.wanted_until) {
            self.pace
        } else if holds(self.wants_until) {
            WISH
        } else {
            idle_pause(self.rtt, self.pace)
        }
    }

    pub fn beaconed(&mut self, now: Instant) {
        self.beaconed = Some(now);
        self.sent = now;
        self.asked = false;
    }

    /// Whether nothing was heard for a round trip.
    pub fn is_deaf(&self, now: Instant) -> bool {
        self.probing_until.is_some_and(|until| now < until)
            || now.saturating_duration_since(self.heard) >= self.rtt
    }

    /// When the next beacon is due.
    pub fn due(&self) -> Instant {
        let idle = self.sent + idle_pause(self.rtt, self.pace);
        let Some(beaconed) = self.beaconed else {
            return self.sent;
        };
        let absence = beaconed.saturating_duration_since(self.heard);
        let beyond = absence.saturating_sub(self.patience) / CALLS_PER_ABSENCE;
        let earliest = beaconed + beyond.clamp(INTERVAL, LONGEST_INTERVAL);
        if self.asked {
            // It is asked by who was heard just now.
            return earliest.min(beaconed + self.probe_interval);
        }
        let before = |pause, until: Option<Instant>| {
            let at = beaconed + pause;
            until.filter(|until| at < *until).map(|_| at)
        };
        let wish = before(WISH, self.wants_until);
        let wanted = before(self.pace, self.wanted_until);
        let due = wish.into_iter().chain(wanted).fold(idle, Instant::min);
        let due = due.min(self.heard + self.rtt).max(earliest);
        let probe = beaconed + self.probe_interval;
        let probes = self.probing_until.is_some_and(|until| probe < until);
        if probes { due.min(probe) } else { due }
    }
}
