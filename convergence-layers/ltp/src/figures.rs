//! What a span measures and counts.

use std::time::Duration;

/// What a span has counted since its start, and the round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Smoothed round trip, from a checkpoint to its report.
    pub rtt: Duration,
    /// The least of them.
    pub min_rtt: Duration,
    /// Bytes of segments sent.
    pub sent_bytes: u64,
    /// Data bytes sent again.
    pub resent_bytes: u64,
    /// Segments sent.
    pub sent_segments: u64,
    /// Data segments among them.
    pub sent_data_segments: u64,
    /// Bytes of datagrams received.
    pub received_bytes: u64,
    /// Red bytes that the peer has reported.
    pub delivered_bytes: u64,
    /// Blocks to the peer that were cancelled, by either side.
    pub cancelled_sent: u64,
    /// Blocks from the peer that were cancelled, by either side.
    pub cancelled_received: u64,
}

/// Segments from the peer that were not taken, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The bytes are no segment.
    pub malformed: u64,
    /// The session is not this peer's.
    pub foreign: u64,
    /// The session is over, or never was.
    pub closed: u64,
    /// A segment contradicts its block, or a report contradicts what was sent.
    pub impossible: u64,
    /// There is no room: sessions, memory, gaps or reports.
    pub no_room: u64,
}

/// The round trip (RFC 6298, with checkpoints that were sent once only).
#[derive(Debug)]
pub(crate) struct RoundTrip {
    guessed: Duration,
    measured: Option<(Duration, Duration)>,
    least: Duration,
}

impl RoundTrip {
    pub(crate) fn new(guessed: Duration) -> RoundTrip {
        RoundTrip {
            guessed,
            measured: None,
            least: Duration::ZERO,
        }
    }

    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.measured = Some(match self.measured {
            None => {
                self.least = rtt;
                (rtt, rtt / 2)
            }
            Some((smoothed, variation)) => (
                (smoothed * 7 + rtt) / 8,
                (variation * 3 + smoothed.abs_diff(rtt)) / 4,
            ),
        });
        self.least = self.least.min(rtt);
    }

    pub(crate) fn smoothed(&self) -> Duration {
        self.measured.map_or(self.guessed, |(smoothed, _)| smoothed)
    }

    pub(crate) fn least(&self) -> Duration {
        if self.measured.is_some() {
            self.least
        } else {
            self.guessed
        }
    }

    /// How long an answer is waited for.
    pub(crate) fn wait(&self, margin: Duration) -> Duration {
        let variation = self
            .measured
            .map_or(Duration::ZERO, |(_, variation)| variation);
        self.smoothed() + margin.max(variation * 4)
    }
}
