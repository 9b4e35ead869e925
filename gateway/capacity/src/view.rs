//! What the readings of the last window show about the link.

use std::time::Duration;

use crate::{Reading, WayThere};

/// The threshold from which a queue is noticed, as a part (1/n) of the base round trip, within
/// bounds. A drain goes on down to half of it; a smaller queue is the sender's own bursts.
const NOTICED_PART: u32 = 16;
const LEAST_NOTICED: Duration = Duration::from_millis(12);
const MOST_NOTICED: Duration = Duration::from_millis(30);
/// The threshold is so many times as high beside a queue of others or of the way back, since those
/// were measured at another moment.
pub(crate) const NOTICED_BESIDE: u32 = 2;
/// The factor on the threshold where the peer reports this direction's queue: delays of single
/// beacons add noise to the report.
pub(crate) const NOTICED_TOLD: f64 = 1.5;

/// While a queue is drained, capacity × round trip may be in flight, and beyond that so long at the
/// link's rate.
pub(crate) const SLACK: Duration = Duration::from_millis(5);

/// So many bits may be in flight in addition, whatever the rate.
pub(crate) const SOME_PACKETS: f64 = 4.0 * 12_000.0;
/// On a short way `SOME_PACKETS` would be a queue, so there it is less, but at least so many bits.
const LEAST_PACKETS: f64 = 2.0 * 12_000.0;

/// An estimate that is too high by more than this part of it is noticed.
pub(crate) const TOO_MUCH: f64 = 0.05;

/// Where less was sent than this part of what was allowed, the arrivals may be all that was sent,
/// and then do not show the capacity.
const NEARLY_ALL: f64 = 0.9;

/// The least estimate, bit/s: what arrivals are counted over comes in the longest window at this
/// rate. A lower estimate would rise by a quarter in half a minute at best, so a link that others
/// have filled for a while would seem dead long after they end.
pub(crate) const LEAST_CAPACITY: f64 = 64_000.0;

/// What the last window shows about the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub base: Duration,
    pub window: Duration,
    /// The rate of pure ACKs, bit/s.
    pub other: f64,
    /// The rate at which packets arrive, bit/s: the link's capacity if it is full.
    pub carried: f64,
    /// What may be sent, bit/s; `None` is unlimited.
    pub allowed_bps: Option<u64>,
    /// The rate at which the packets that arrive in the window were sent, bit/s, and whether a
    /// transport's congestion window limited that rate.
    pub sent: f64,
    pub window_full: bool,
    /// Whether, when these packets were sent, there was a backlog and the allowed rate was used.
    pub backlogged: bool,
    /// Whether the way back has had no queue, which would shift the times of acknowledgements.
    pub steady: bool,
    /// If it has had one: what the peer reports about the queue in this direction.
    pub told: Option<WayThere>,
    /// The delay by the queue on the way back.
    pub way_back: Duration,
    /// The length from which on a queue is noticed.
    pub noticed: Duration,
    /// The latest round trip.
    pub latest: Duration,
    /// By how much the least round trip in the window exceeds the base; zero if none is known.
    pub queue: Duration,
    /// Whether a round trip is known in the window.
    pub heard: bool,
}

impl View {
    /// Whether less arrived than was sent, or the sender used all that it was allowed. Otherwise
    /// the arrivals do not show what the link carries.
    pub fn falls_short(&self) -> bool {
        let all = |bps: u64| self.sent >= NEARLY_ALL * bps as f64;
        self.window_full
            || self.allowed_bps.is_none_or(all)
            || self.carried < self.sent * (1.0 - TOO_MUCH)
    }

    /// Notes what the peer reports; without round trips, that is all that shows a queue. `aside` is
    /// the part that counts as round trip.
    pub fn tell(&mut self, told: WayThere, aside: Duration) {
        self.told = Some(told);
        if !self.heard {
            self.queue = told.late.saturating_sub(aside);
        }
    }

    /// Whether nearly `bps` arrives, and leaves no queue. Acknowledgements that a queue on the way
    /// back has bunched show that only if the peer reports the queue of this direction.
    pub fn carries(&self, bps: f64) -> bool {
        (self.steady || self.told.is_some())
            && self.queue <= self.noticed
            && self.carried >= NEARLY_ALL * bps
    }
}

/// The length from which on a queue is noticed.
pub(crate) fn noticed(base: Duration) -> Duration {
    (base / NOTICED_PART).clamp(LEAST_NOTICED, MOST_NOTICED)
}

/// A way with a shorter round trip is terrestrial or leads through a low orbit. There a queue of
/// others ends within a few round trips, and a probe for that costs little.
const SHORT: Duration = Duration::from_millis(150);

/// Whether a way is short in that sense.
pub(crate) fn is_short(base: Duration) -> bool {
    base < SHORT
}

/// What is in flight beyond what the link itself holds, bits.
pub(crate) fn excess(capacity: Option<f64>, view: &View, reading: &Reading) -> f64 {
    let Some(capacity) = capacity else {
        return 0.0;
    };
    let of_data = (capacity - view.other).max(LEAST_CAPACITY);
    let way_back = view.told.map_or(Duration::ZERO, |_| view.way_back);
    let mut some = SOME_PACKETS;
    let mut slack = SLACK;
    if is_short(view.base) {
        // A drain must leave less than what still counts as a queue.
        slack = slack.min(view.noticed / 4);
        some = some.min(of_data * slack.as_secs_f64()).max(LEAST_PACKETS);
    }
    let held = of_data * (view.base + way_back + slack).as_secs_f64() + some;
    (reading.in_flight_bits as f64 - held).max(0.0)
}
