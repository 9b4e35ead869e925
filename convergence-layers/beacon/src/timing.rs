//! When a beacon is due.

use std::time::{Duration, Instant};

/// The interval of beacons while nothing is heard; it is never shorter otherwise. The datagram of
/// 42 bytes makes 90 bytes of IPv6: 4.8 kbit/s.
pub const INTERVAL: Duration = Duration::from_millis(150);

/// A link counts as blocked once nothing was heard for a round trip plus this.
pub const SILENCE: Duration = Duration::from_millis(500);

/// The interval of beacons on a link that both ends let rest.
pub const REST_INTERVAL: Duration = Duration::from_secs(8);

/// How long an end that hears nothing on such a link waits before it asks: one beacon may be lost.
/// Silence begins to count a round trip later, when the answer is due.
pub const REST_SILENCE: Duration = Duration::from_secs(20);

/// How many signs an idle end gives within the silence that would mean a blockage: the loss of
/// three beacons in a row must not look like one.
const SIGNS_PER_SILENCE: u32 = 5;

/// If the rate is small, the interval of beacons on an idle link is at most this part of that
/// silence: the loss of two in a row does not look like a blockage, and the third may be late by a
/// seventh of the silence.
const SPARING: (u32, u32) = (2, 7);

/// The longest interval of beacons to a peer that has been away for long: beacons to 500 such peers
/// take 45 kbit/s.
const LONGEST_INTERVAL: Duration = Duration::from_secs(8);

/// The shortest interval of probes, and of answers to a peer that hears nothing, however short the
/// hop.
const LEAST_PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// A peer that has been away for longer than its patience gets a beacon each time that its absence
/// has grown by this part (1/n).
const CALLS_PER_ABSENCE: u32 = 16;

/// A peer whose beacons are wanted is told so this often, and each time it counts for
/// `WISH_COUNTS`, since some beacons are lost.
const WISH: Duration = Duration::from_secs(1);
const WISH_COUNTS: Duration = Duration::from_secs(4);

/// How long an end may send nothing at all before a beacon is due; longer if its rate requires a
/// longer interval.
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
    /// How long the peer may be silent before beacons to it become rarer and rarer.
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
    /// The interval of this end's beacons by its rate.
    pace: Duration,
    /// The interval of probes and answers, by the hop's round trip.
    probe_interval: Duration,
    /// The peer owes an answer: this end probes it until it is heard, or until then.
    probing_until: Option<Instant>,
    /// Whether this end lets the link rest, and whether the peer does, by its last beacon.
    may_rest: bool,
    peer_rests: bool,
    /// The peer's run in which it has let the link rest, if that is the present run and the peer
    /// has heard something since: it then understands such beacons.
    knows_rest: Option<u64>,
    /// When the peer could last be told that the link rests, or no longer rests: silence counts
    /// from then.
    woken: Instant,
    /// When a peer that may not understand rest was last told that this end lets the link rest.
    offered: Option<Instant>,
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
            may_rest: false,
            peer_rests: false,
            knows_rest: None,
            woken: now,
            offered: None,
        }
    }

    /// Begins anew, at the pace that is set.
    pub fn restart(&mut self, now: Instant) {
        let (pace, probe_interval) = (self.pace, self.probe_interval);
        *self = Timing {
            pace,
            probe_interval,
            may_rest: self.may_rest,
            offered: self.offered,
            ..Timing::new(now, self.rtt, self.patience)
        };
    }

    /// This end lets the link rest, or wakes it.
    pub fn let_rest(&mut self, now: Instant, may: bool) {
        self.set_rest(now, may, self.peer_rests);
    }

    /// Takes from the peer's last beacon, of this run, whether that end lets the link rest, and
    /// whether it hears nothing.
    pub fn peer_rests(&mut self, now: Instant, run: u64, rests: bool, hears_nothing: bool) {
        // An upgrade in place, even to an older build, continues the run; and an older build drops
        // beacons that it does not understand, so it hears nothing.
        let known = self.knows_rest.filter(|of| *of == run && !hears_nothing);
        self.knows_rest = rests.then_some(run).or(known);
        self.set_rest(now, self.may_rest, rests);
    }

    fn set_rest(&mut self, now: Instant, may: bool, peer: bool) {
        let before = self.rests();
        (self.may_rest, self.peer_rests) = (may, peer);
        if self.rests() != before {
            // The peer must learn this at once, whatever else is sent, and then answers.
            self.asked = true;
            self.woken = self.beaconed.map_or(now, |at| now.max(at + INTERVAL));
        }
    }

    /// Whether beacons say that this end lets the link rest: only if the peer understands it.
    pub fn tells_rest(&self) -> bool {
        self.may_rest && self.knows_rest.is_some()
    }

    /// Whether both ends do.
    pub fn rests(&self) -> bool {
        self.may_rest && self.peer_rests
    }

    /// Whether a peer that may not understand rest is told now that this end lets the link rest,
    /// once each `REST_INTERVAL`. If so, notes that it was told.
    pub fn offers(&mut self, now: Instant) -> bool {
        let lately = self.offered.is_some_and(|at| now < at + REST_INTERVAL);
        let offers = self.may_rest && !lately;
        if offers {
            self.offered = Some(now);
        }
        offers
    }

    /// How long this end may send nothing at all before a beacon is due.
    fn idle_pause(&self) -> Duration {
        // Until the peer has heard that the link rests, it misses this end after the usual time,
        // and some of the beacons that say so may be lost.
        let told_by = self.woken + self.rtt + SILENCE;
        let is_told = self.beaconed.is_some_and(|at| at >= told_by);
        match self.rests() && is_told {
            true => REST_INTERVAL,
            false => idle_pause(self.rtt, self.pace),
        }
    }

    /// From when on this end hears nothing, if there is no sign of the peer until then.
    fn deaf_at(&self) -> Instant {
        // On a resting link, silence counts only after a further round trip for the answer.
        let patience = match self.rests() {
            true => REST_SILENCE,
            false => self.rtt,
        };
        self.heard.max(self.woken) + patience
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

    /// The peer owes an answer: this end probes it until it is heard, or until then.
    pub fn probe(&mut self, until: Instant) {
        self.probing_until = Some(until);
    }

    pub fn set_pace(&mut self, pace: Duration) {
        self.pace = pace.max(INTERVAL);
    }

    /// The present longest interval of this end's beacons.
    pub fn pause(&self, now: Instant) -> Duration {
        let holds = |until: Option<Instant>| until.is_some_and(|until| now < until);
        if holds(self.wanted_until) {
            self.pace
        } else if holds(self.wants_until) {
            WISH
        } else {
            self.idle_pause()
        }
    }

    pub fn beaconed(&mut self, now: Instant) {
        self.beaconed = Some(now);
        self.sent = now;
        self.asked = false;
    }

    /// Whether nothing was heard for a round trip; on a resting link, for longer.
    pub fn is_deaf(&self, now: Instant) -> bool {
        self.probing_until.is_some_and(|until| now < until) || now >= self.deaf_at()
    }

    /// When the next beacon is due.
    pub fn due(&self) -> Instant {
        let idle = self.sent + self.idle_pause();
        let Some(beaconed) = self.beaconed else {
            return self.sent;
        };
        let absence = beaconed.saturating_duration_since(self.heard);
        let beyond = absence.saturating_sub(self.patience) / CALLS_PER_ABSENCE;
        let earliest = beaconed + beyond.clamp(INTERVAL, LONGEST_INTERVAL);
        if self.asked {
            // The peer that asks was heard just now.
            return earliest.min(beaconed + self.probe_interval);
        }
        let before = |pause, until: Option<Instant>| {
            let at = beaconed + pause;
            until.filter(|until| at < *until).map(|_| at)
        };
        let wish = before(WISH, self.wants_until);
        let wanted = before(self.pace, self.wanted_until);
        let due = wish.into_iter().chain(wanted).fold(idle, Instant::min);
        let due = due.min(self.deaf_at()).max(earliest);
        let probe = beaconed + self.probe_interval;
        let probes = self.probing_until.is_some_and(|until| probe < until);
        if probes { due.min(probe) } else { due }
    }
}
