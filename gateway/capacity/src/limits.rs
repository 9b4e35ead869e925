//! What a link is told to carry.

use std::time::Duration;

use crate::view::LEAST_CAPACITY;

/// The first round trip is of another path than the hint if it is at most this part (1/n) of the
/// one that was saved with it, or more than so many times as long (RFC 9959, sections 3.2 and
/// 4.2.1).
const SHORTER_PART: u32 = 2;
const LONGER: u32 = 10;

/// What bounds the estimate. Rates are bit/s of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Where the estimate starts. `None`: at the ceiling, or else with what the
    /// first packets show.
    pub hint_bps: Option<u64>,
    /// The round trip without a queue that was measured with the hint: if the first one is of
    /// another path, the hint is not used. `None`: the hint is of any path.
    pub hint_rtt: Option<Duration>,
    /// The highest rate that is ever sent.
    pub ceiling_bps: Option<u64>,
    /// A lower estimate is not believed: it is given up, and nothing is estimated for a minute.
    pub least_bps: Option<u64>,
}

impl Limits {
    /// The estimate at the hint, bit/s.
    pub(crate) fn hinted(&self) -> Option<f64> {
        self.hint_bps.map(|bps| (bps as f64).max(LEAST_CAPACITY))
    }

    /// Whether the hint was measured on another path than one with this first round trip.
    pub(crate) fn hints_at_another_path(&self, first: Duration) -> bool {
        self.hint_rtt
            .is_some_and(|saved| first <= saved / SHORTER_PART || first > saved * LONGER)
    }
}
