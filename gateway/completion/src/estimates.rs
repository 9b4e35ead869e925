//! The two estimates of a flow's completion time.

use std::time::Duration;

/// Payload of a full segment, bytes: *mss* of the paper.
pub const SEGMENT_BYTES: u64 = 1448;
/// Segments that a new connection sends at once: *initcwnd* of the paper, and
/// RFC 6928.
pub const INITIAL_WINDOW_SEGMENTS: u64 = 10;

/// Greater loss counts as this: the estimates divide by the rest.
const MOST_LOSS: f64 = 0.9;

/// A greater load of a path counts as this: the waiting time of others grows without bound as a
/// path becomes full.
const MOST_LOAD: f64 = 0.8;

/// The estimate by which a flow's path is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimate {
    /// [`of_open_session`].
    #[default]
    OpenSession,
    /// [`of_new_connection`].
    NewConnection,
}

/// A path at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathState {
    /// One way: half of the round trip (*d*).
    pub delay: Duration,
    /// Its capacity, bit/s (*c*); `None` while nothing has shown a limit.
    pub capacity_bps: Option<u64>,
    /// Part of its packets that it loses, 0 to 1 (*τ*).
    pub loss: f64,
    /// How long until all that was given to its sessions has left.
    pub busy: Duration,
}

/// What else is to be sent by a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Competition {
    /// Flows that compete (*n*).
    pub flows: u64,
    /// What these send while the flow is sent, bytes: the sum, over these flows, of the lesser of
    /// what is left of each and the flow's own size (Σ min(*r*, *s*)).
    pub bytes: u64,
    /// What goes before all of them, bytes.
    pub before_bytes: u64,
    /// The rate that new flows bring to the path, bit/s, counting of each at most the flow's own
    /// size.
    pub arriving_bps: u64,
}

impl PathState {
    /// How often a packet is sent on average: *T* of the paper.
    fn sendings(&self) -> f64 {
        let loss = match self.loss.is_finite() {
            true => self.loss.clamp(0.0, MOST_LOSS),
            false => 0.0,
        };
        1.0 / (1.0 - loss)
    }

    /// How long so many bits take, s.
    fn time_of(&self, bits: f64) -> f64 {
        self.capacity_bps
            .map_or(0.0, |bps| bits / bps.max(1) as f64)
    }
}

/// The completion time of a flow of `size_bytes` on a TCP connection that begins
/// with it: equations 1 to 7 of the paper.
pub fn of_new_connection(path: &PathState, others: &Competition, size_bytes: u64) -> Duration {
    let delay_s = path.delay.as_secs_f64();
    let sendings = path.sendings();
    let (mss, initial) = (SEGMENT_BYTES as f64, INITIAL_WINDOW_SEGMENTS as f64);
    let size = size_bytes as f64 * sendings;
    let sharers = others.flows as f64 + 1.0;

    let emission_s = sharers * path.time_of(8.0 * size);
    // Without a known limit the window grows until the flow ends.
    let largest_window = path.capacity_bps.map_or(f64::INFINITY, |bps| {
        2.0 * delay_s / (8.0 * mss) * bps as f64 / sharers
    });
    let rounds_to_full = (largest_window / initial).max(1.0).log2().ceil();
    let rounds_to_end = (1.0 + size / mss / initial).log2().floor();
    let slow_start_s = 2.0 * delay_s * rounds_to_full.min(rounds_to_end);
    let competition_s = path.time_of(8.0 * others.bytes as f64 * sendings);
    let loss_s = 2.0 * delay_s * sendings;

    seconds(4.0 * delay_s + emission_s + slow_start_s + competition_s + loss_s)
}

/// The completion time of a flow of `size_bytes` among the flows of a session that is up and paced:
/// no handshake and no start-up. The flow waits for what was given to the session and for what goes
/// before it, takes turns with the flows that compete, and travels the path. If a packet of its
/// last round trip is lost, its end waits for the repair.
pub fn of_open_session(path: &PathState, others: &Competition, size_bytes: u64) -> Duration {
    let delay_s = path.delay.as_secs_f64();
    let bytes = size_bytes as f64 + others.bytes as f64 + others.before_bytes as f64;
    let sending_s = path.time_of(8.0 * bytes * path.sendings());

    let of_round_trip = path
        .capacity_bps
        .map_or(f64::INFINITY, |bps| bps as f64 * 2.0 * delay_s / 8.0);
    let exposed = of_round_trip.min(size_bytes as f64) / SEGMENT_BYTES as f64;
    let kept = 1.0 / path.sendings();
    let repair_s = 2.0 * delay_s * (1.0 - kept.powf(exposed.ceil()));

    seconds(path.busy.as_secs_f64() + sending_s + delay_s + repair_s)
}

impl Estimate {
    /// The completion time of a flow of `size_bytes`.
    pub fn of(self, path: &PathState, others: &Competition, size_bytes: u64) -> Duration {
        match self {
            Estimate::OpenSession => of_open_session(path, others, size_bytes),
            Estimate::NewConnection => of_new_connection(path, others, size_bytes),
        }
    }

    /// By how much a flow of `size_bytes` delays other flows, in all. Each flow that competes waits
    /// for as much of the flow as it sends itself meanwhile; so do those that begin while the flow
    /// is sent. Where flows take turns on a path with load *ρ*, a flow that takes *t* to send
    /// delays those that begin meanwhile by *t* · *ρ* / (1 − *ρ*) in all. The paper's estimate does
    /// not count this.
    pub fn others_wait(self, path: &PathState, others: &Competition, size_bytes: u64) -> Duration {
        match self {
            Estimate::OpenSession => {
                let load = path.time_of(others.arriving_bps as f64 * path.sendings());
                let load = load.min(MOST_LOAD);
                let of_next = size_bytes as f64 * load / (1.0 - load);
                let bytes = others.bytes as f64 + of_next;
                seconds(path.time_of(8.0 * bytes * path.sendings()))
            }
            Estimate::NewConnection => Duration::ZERO,
        }
    }
}

fn seconds(time_s: f64) -> Duration {
    Duration::try_from_secs_f64(time_s).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
