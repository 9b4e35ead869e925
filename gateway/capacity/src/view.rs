//! What the readings of the last window show.

use std::time::Duration;

use crate::{Reading, WayThere};

/// A queue is noticed from this part of the base round trip (1/n) on, within
/// bounds; from half of it, it is one; less is the sender's own bursts.
const NOTICED_PART: u32 = 16;
const LEAST_NOTICED: Duration = Duration::from_millis(12);
const MOST_NOTICED: Duration = Duration::from_millis(30);
/// Beside a queue of others or of the way back, so many times as much: it is
/// known of another moment.
pub(crate) const NOTICED_BESIDE: u32 = 2;
/// Where the peer tells of this direction's: what keeps single beacons is in it.
pub(crate) const NOTICED_TOLD: f64 = 1.5;

/// What may be on its way beyond the link's own product while a queue is
/// drained.
pub(crate) const SLACK: Duration = Duration::from_millis(5);

/// And so many bits at any rate.
pub(crate) const SOME_PACKETS: f64 = 4.0 * 12_000.0;
/// And on a short way, where they are a queue, so many.
const LEAST_PACKETS: f64 = 2.0 * 12_000.0;

/// After a drain, an estimate that is too high by this part of it shows.
pub(crate) const TOO_MUCH: f64 = 0.05;

/// Where less was sent than this part of what was allowed, what arrives may be all that
/// was sent.
const NEARLY_ALL: f64 = 0.9;

/// No estimate is below this, bit/s: less cannot carry what measures it.
pub(crate) const LEAST_CAPACITY: f64 = 8_000.0;

/// What the last window shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub base: Duration,
    pub window: Duration,
    /// How fast else is sent, bit/s.
    pub other: f64,
    /// What the link carries, if it carries as much as it can, bit/s.
    pub carried: f64,
    /// What may be sent, bit/s; `None` is unlimited.
    pub allowed_bps: Option<u64>,
    /// How fast was sent what arrives in the window, bit/s, and whether it was a
    /// transport's window that bounded it.
    pub sent: f64,
    pub window_full: bool,
    /// Whether as much was sent as was allowed when that was sent which arrives
    /// in the window.
    pub backlogged: bool,
    /// No queue on the way back changes when arrivals are told.
    pub steady: bool,
    /// Otherwise, what the peer tells of the queue in this direction.
    pub told: Option<WayThere>,
    /// How long the queue on the way back holds up what comes from there.
    pub way_back: Duration,
    /// From when on a queue is noticed.
    pub noticed: Duration,
    /// The last round trip.
    pub latest: Duration,
    /// By how much the least in the window is above the base; zero if none is known.
    pub queue: Duration,
    /// Whether one is known.
    pub heard: bool,
}

impl View {
    /// Whether the link has carried less than was sent, or was sent as much as was allowed:
    /// else what arrived does not show what it carries.
    pub fn falls_short(&self) -> bool {
        let all = |bps: u64| self.sent >= NEARLY_ALL * bps as f64;
        self.window_full
            || self.allowed_bps.is_none_or(all)
            || self.carried < self.sent * (1.0 - TOO_MUCH)
    }
}

/// From when on a queue is noticed.
pub(crate) fn noticed(base: Duration) -> Duration {
    (base / NOTICED_PART).clamp(LEAST_NOTICED, MOST_NOTICED)
}

/// A way with a shorter round trip is a terrestrial one or to a low orbit. A queue of others
/// is over there within some of its round trips, and little is lost by looking for that.
const SHORT: Duration = Duration::from_millis(150);

/// Whether a way is as short as that.
pub(crate) fn is_short(base: Duration) -> bool {
    base < SHORT
}

/// What is on its way beyond what the link itself holds, bits.
pub(crate) fn excess(capacity: Option<f64>, view: &View, reading: &Reading) -> f64 {
    let Some(capacity) = capacity else {
        return 0.0;
    };
    let of_data = (capacity - view.other).max(LEAST_CAPACITY);
    let way_back = view.told.map_or(Duration::ZERO, |_| view.way_back);
    let mut some = SOME_PACKETS;
    let mut slack = SLACK;
    if is_short(view.base) {
        // What is left is less than what still counts as a queue.
        slack = slack.min(view.noticed / 4);
        some = some.min(of_data * slack.as_secs_f64()).max(LEAST_PACKETS);
    }
    let held = of_data * (view.base + way_back + slack).as_secs_f64() + some;
    (reading.in_flight_bits as f64 - held).max(0.0)
}
