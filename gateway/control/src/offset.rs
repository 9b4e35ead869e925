//! The control service's clock, from the times in its answers.
//!
//! Four times of each exchange are known: when the post was sent and when the answer came (by this
//! node's steady clock), and when the service received the post and answered (by its own). The
//! network's delay is split equally between both directions (RFC 5905 § 8). The exchange with the
//! least delay has the least error, so the best of the last few counts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Exchanges that are compared: with one each second, a clock that drifts by 50 ppm moves by less
/// than half a millisecond over these.
const KEPT: usize = 8;

/// One exchange.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// The post was sent.
    pub sent: Instant,
    /// When the service received it, ms since the Unix epoch by its clock.
    pub received_ms: u64,
    /// The service answered, by its clock.
    pub answered_ms: u64,
    /// The answer was here.
    pub back: Instant,
}

impl Exchange {
    /// What the network took, both ways.
    fn round_trip(&self) -> Duration {
        let service = Duration::from_millis(self.answered_ms.saturating_sub(self.received_ms));
        self.back.duration_since(self.sent).saturating_sub(service)
    }
}

/// The last exchanges.
#[derive(Debug, Default)]
pub struct ClockFilter {
    last: VecDeque<Exchange>,
}

impl ClockFilter {
    /// Adds an exchange. Returns an instant and the service's time then, ms since the Unix epoch,
    /// by the best of the last exchanges.
    pub fn note(&mut self, exchange: Exchange) -> (Instant, u64) {
        self.last.truncate(KEPT - 1);
        self.last.push_front(exchange);
        let least = self
            .last
            .iter()
            .min_by_key(|exchange| exchange.round_trip());
        let best = least.unwrap_or(&exchange);
        let way = u64::try_from(best.round_trip().as_millis() / 2).unwrap_or(0);
        (best.back, best.answered_ms.saturating_add(way))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T0_MS: u64 = 1_795_230_000_000;

    /// An exchange with a service whose clock shows `T0_MS` at `start`.
    fn exchange(
        start: Instant,
        at_ms: u64,
        there_ms: u64,
        service_ms: u64,
        back_ms: u64,
    ) -> Exchange {
        let after = |ms| start + Duration::from_millis(ms);
        Exchange {
            sent: after(at_ms),
            received_ms: T0_MS + at_ms + there_ms,
            answered_ms: T0_MS + at_ms + there_ms + service_ms,
            back: after(at_ms + there_ms + service_ms + back_ms),
        }
    }

    #[test]
    fn the_least_delayed_exchange_tells_the_time() {
        let start = Instant::now();
        let mut filter = ClockFilter::default();
        // A handshake delays the first post, and a busy network the third answer.
        filter.note(exchange(start, 0, 190, 10, 10));
        filter.note(exchange(start, 1000, 10, 25, 10));
        let (at, ms) = filter.note(exchange(start, 2000, 10, 5, 400));
        assert_eq!(ms - T0_MS, u64::try_from((at - start).as_millis()).unwrap());
    }

    proptest! {
        #[test]
        fn error_is_at_most_half_of_the_least_round_trip(
            ways in prop::collection::vec((0u64..500, 0u64..300, 0u64..500), 1..20),
        ) {
            let start = Instant::now();
            let mut filter = ClockFilter::default();
            for (count, (there, service, back)) in ways.iter().enumerate() {
                let at_ms = count as u64 * 2000;
                let (at, ms) = filter.note(exchange(start, at_ms, *there, *service, *back));
                let last = &ways[count.saturating_sub(KEPT - 1)..=count];
                let least = last.iter().map(|(there, _, back)| there + back).min().unwrap();
                let true_ms = T0_MS + u64::try_from((at - start).as_millis()).unwrap();
                prop_assert!(ms.abs_diff(true_ms) <= least / 2 + 1);
            }
        }
    }
}
