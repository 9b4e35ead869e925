//! Probes look for more capacity: for a short time more is sent than the link is known to carry,
//! and a round trip later it shows whether that arrived as fast.

use std::time::{Duration, Instant};

/// What a probe sends above the estimate, as a part of it: at first; at most,
/// after others that found more; and at least, where the last one showed that
/// there is little more.
const FIRST_GAIN: f64 = 0.25;
pub(crate) const MOST_GAIN: f64 = 1.0;
const LEAST_GAIN: f64 = 0.05;
/// The gain behind a first flight that has left no queue.
const STEEP_GAIN: f64 = 6.0;
/// The most above an old estimate, and how long after the backlog's begin.
const FAR_GAIN: f64 = 3.0;
const BEFORE_FAR: Duration = Duration::from_millis(150);

/// A probe of the first gain lasts a quarter of the round trip, within these bounds, and long
/// enough to send `LEAST_BITS`. One with a smaller gain lasts up to `MOST_STRETCH` times as long,
/// since it shows less.
const LEAST_LENGTH: Duration = Duration::from_millis(60);
const MOST_LENGTH: Duration = Duration::from_millis(120);
/// Where arrivals come in bunches, it lasts longer than the time between them.
const MOST_OF_BUNCHES: Duration = Duration::from_millis(150);
const MOST_STRETCH: f64 = 5.0;
const LEAST_BITS: f64 = 24.0 * 12_000.0;

/// The time from one probe that found nothing to the next: so many round trips,
/// within bounds.
const ROUND_TRIPS: u32 = 2;
const LEAST_PAUSE: Duration = Duration::from_millis(200);
const MOST_PAUSE: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub began: Instant,
    pub ends: Instant,
    /// When its answer should have arrived.
    pub answered: Instant,
    pub gain: f64,
    /// The estimate when it began, bit/s.
    pub capacity: f64,
    /// The queue when it began, and whether the peer reports that.
    pub queue: Duration,
    pub told: bool,
    /// Whether it looks far above an old estimate.
    pub far: bool,
}

/// What the way to the peer and back is like when a probe begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    pub rtt: Duration,
    pub queue: Duration,
    /// If the peer reports the queue: how much later than acknowledgements do.
    pub told_later: Option<Duration>,
}

/// Decides when a probe is sent, and how much it sends.
#[derive(Clone, Debug)]
pub(crate) struct Probing {
    gain: f64,
    /// The estimate is old, and probes look for what the link carried before.
    far: bool,
    current: Option<Probe>,
    next_at: Option<Instant>,
}

impl Probing {
    pub fn new() -> Probing {
        Probing {
            gain: FIRST_GAIN,
            far: false,
            current: None,
            next_at: None,
        }
    }

    /// Makes a probe due that doubles the estimate, which is likely too low.
    pub fn double(&mut self, now: Instant) {
        self.look_for(now, MOST_GAIN);
    }

    /// Makes a steep probe due: the estimate comes from a short flight that left no queue.
    pub fn multiply(&mut self, now: Instant) {
        self.gain = STEEP_GAIN;
        self.current = None;
        self.next_at = Some(now);
    }

    /// Whether the present probe is so steep that it leaves a queue when it reaches the capacity.
    pub fn is_steep(&self) -> bool {
        self.current.is_some_and(|probe| probe.gain > MOST_GAIN)
    }

    /// Keeps the next probe from being steep.
    pub fn flatten(&mut self) {
        self.gain = self.gain.min(MOST_GAIN);
    }

    /// Makes a probe due that sends up to `gain` above an estimate that is old. It comes a little
    /// later than the backlog, since what arrives is counted from one arrival to another.
    pub fn look_far(&mut self, now: Instant, gain: f64) {
        self.gain = gain.clamp(FIRST_GAIN, FAR_GAIN);
        self.far = true;
        self.current = None;
        self.next_at = Some(now + BEFORE_FAR);
    }

    /// Makes a probe due that sends `gain` above the estimate, as a part of it, within bounds.
    pub fn look_for(&mut self, now: Instant, gain: f64) {
        self.gain = gain.clamp(LEAST_GAIN, MOST_GAIN);
        self.current = None;
        self.next_at = Some(now);
    }

    /// Ends a probe in progress, since the link carries less than estimated. The next is due after
    /// a pause.
    pub fn step_back(&mut self, now: Instant, rtt: Duration) {
        self.gain = FIRST_GAIN;
        self.pause(now, rtt);
    }

    /// Ends a probe in progress. The next is due after a pause.
    pub fn pause(&mut self, now: Instant, rtt: Duration) {
        self.current = None;
        self.far = false;
        let pause = (rtt * ROUND_TRIPS).clamp(LEAST_PAUSE, MOST_PAUSE);
        self.next_at = Some(now + pause);
    }

    /// Begins a probe if one is due. It sends no faster than `most`, bit/s.
    pub fn begin(&mut self, now: Instant, capacity: f64, most: f64, trip: Trip, bunch: Duration) {
        if self.current.is_some() || self.next_at.is_some_and(|at| now < at) {
            return;
        }
        let gain = self.gain.min(most / capacity - 1.0);
        if gain <= 0.0 {
            return;
        }
        // Far up, what is sent beyond the estimate shows the answer.
        let rate = match self.far {
            true => capacity * (1.0 + gain),
            false => capacity,
        };
        let packets = Duration::from_secs_f64((LEAST_BITS / rate).min(60.0));
        let length = (trip.rtt / 4).clamp(LEAST_LENGTH, MOST_LENGTH);
        let bunches = (bunch * 3 / 2).min(MOST_OF_BUNCHES);
        let length = length.max(packets).max(bunches);
        let length = length.mul_f64((FIRST_GAIN / gain).clamp(1.0, MOST_STRETCH));
        let ends = now + length;
        self.current = Some(Probe {
            began: now,
            ends,
            // The probe's own queue delays the last of it.
            answered: ends
                + trip.rtt
                + length.mul_f64(gain).min(length) / 2
                + trip.told_later.map_or(Duration::ZERO, |later| {
                    later + trip.queue + length.mul_f64(gain)
                }),
            gain,
            capacity,
            queue: trip.queue,
            told: trip.told_later.is_some(),
            far: self.far,
        });
    }

    /// How long the present probe takes, up to its answer.
    pub fn span(&self) -> Duration {
        self.current
            .map_or(Duration::ZERO, |probe| probe.answered - probe.began)
    }

    /// The probe that is being sent.
    pub fn sending(&self, now: Instant) -> Option<Probe> {
        self.current.filter(|probe| now < probe.ends)
    }

    /// The probe whose answer should have arrived.
    pub fn answered(&self, now: Instant) -> Option<Probe> {
        self.current.filter(|probe| probe.answered <= now)
    }

    /// More arrived: the next probe is due at once, with twice the gain. After a steep probe it has
    /// half the gain, since the capacity is known better then.
    pub fn found(&mut self, now: Instant) {
        self.gain = match self.gain > MOST_GAIN {
            true => (self.gain / 2.0).max(MOST_GAIN),
            false => (2.0 * self.gain).min(MOST_GAIN),
        };
        self.current = None;
        self.next_at = Some(now);
    }

    /// Less arrived than was sent: `more` above the estimate, as a part of it. The next probe has
    /// that gain. After a probe that had so small a gain the next has the first gain again, since
    /// the link may have changed.
    pub fn found_less(&mut self, now: Instant, rtt: Duration, more: f64) {
        self.pause(now, rtt);
        self.gain = match self.gain < FIRST_GAIN {
            true => FIRST_GAIN,
            false => more.clamp(LEAST_GAIN, FIRST_GAIN),
        };
    }

    /// Too little was sent to learn anything. The next probe has half the gain, down to the first,
    /// so that less is enough for it.
    pub fn inconclusive(&mut self, now: Instant) {
        self.gain = (self.gain / 2.0).max(FIRST_GAIN.min(self.gain));
        self.current = None;
        self.next_at = Some(now);
    }
}
