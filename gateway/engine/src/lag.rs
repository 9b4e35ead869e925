//! How much later a bundle leaves than its hop's rate suggests: it waits behind the bytes in the
//! session, its transport, and the queues up to the antenna.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use underpass_cla::{Class, SessionId};

use crate::engine::Engine;

/// So many mean deviations are added to the mean. To believe wrongly that a bundle has left costs a
/// round trip; to believe wrongly that it has not costs only the time to send it.
const DEVIATIONS: u32 = 2;

/// The lag of a hop's bundles, by the class of the session: smoothed, with its mean
/// deviation, as TCP does its round-trip time (RFC 6298).
#[derive(Clone, Debug, Default)]
pub(crate) struct Lags(BTreeMap<Option<Class>, (Duration, Duration)>);

impl Lags {
    /// Takes in a bundle that was answered `answered_in` after it should have left. An answer after
    /// more than two round trips counts as two: the bundle was repeated, or delayed by a blockage.
    fn note(&mut self, class: Option<Class>, answered_in: Duration, round_trip: Duration) {
        let lag = answered_in.saturating_sub(round_trip).min(round_trip);
        self.0
            .entry(class)
            .and_modify(|(mean, deviation)| {
                *deviation = (*deviation * 3 + mean.abs_diff(lag)) / 4;
                *mean = (*mean * 7 + lag) / 8;
            })
            .or_insert((lag, lag / 2));
    }

    /// The longest lag to expect; zero before any bundle was answered.
    pub fn most(&self, class: Option<Class>) -> Duration {
        let known = self.0.get(&class);
        known.map_or(Duration::ZERO, |(mean, deviation)| {
            *mean + *deviation * DEVIATIONS
        })
    }
}

impl Engine {
    /// Learns the lag from a bundle that was acknowledged on a session.
    pub(crate) fn learn_lag(&mut self, now: Instant, session: SessionId, key: u64) {
        let left_by = self.sessions.left_by(key);
        let Some((left_by, session)) = left_by.zip(self.sessions.get(session)) else {
            return;
        };
        if let Some(hop) = self.hops.get_mut(&session.hop) {
            let answered_in = now.saturating_duration_since(left_by);
            let round_trip = hop.round_trip();
            hop.lags.note(session.info.class, answered_in, round_trip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(560);

    fn ms(lag: Duration) -> u128 {
        lag.as_millis()
    }

    #[test]
    fn each_class_has_the_lag_of_its_own_bundles() {
        let mut lags = Lags::default();
        let of = |number| Some(Class(number));
        for _ in 0..50 {
            lags.note(of(2), ROUND_TRIP + Duration::from_millis(200), ROUND_TRIP);
            lags.note(of(1), ROUND_TRIP / 2, ROUND_TRIP);
        }
        assert_eq!((ms(lags.most(of(2))), ms(lags.most(of(1)))), (200, 0));
        assert_eq!(ms(lags.most(None)), 0);
    }

    #[test]
    fn one_that_was_held_up_for_long_counts_as_a_round_trip_and_passes() {
        let mut lags = Lags::default();
        let mut note = |answered_in| lags.note(None, answered_in, ROUND_TRIP);
        note(ROUND_TRIP);
        note(Duration::from_secs(600));
        (0..40).for_each(|_| note(ROUND_TRIP + Duration::from_millis(50)));
        assert!((50..55).contains(&ms(lags.most(None))));
    }
}
