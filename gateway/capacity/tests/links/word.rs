//! A modem's word on a link that carries its configured rate.

use super::*;

const CEILING_BPS: u64 = 40_000_000;
const RTT: Duration = Duration::from_millis(560);

/// A sender with a backlog on a link with a ceiling.
struct Busy {
    estimator: Estimator,
    now: Instant,
    reading: Reading,
}

impl Busy {
    /// The modem has said 4 from the start.
    fn new() -> Busy {
        let mut estimator = Estimator::new(Limits {
            ceiling_bps: Some(CEILING_BPS),
            ..Limits::default()
        });
        estimator.set_efficiency(Some(4.0));
        Busy {
            estimator,
            now: Instant::now(),
            reading: Reading::default(),
        }
    }

    /// Sends at `bps` for 5 s; all of it arrives.
    fn sends(mut self, bps: u64) -> Busy {
        let each = Duration::from_millis(EACH_MS);
        for _ in 0..200 {
            self.now += each;
            let bits = bps * EACH_MS / 1000;
            self.reading = Reading {
                sent_bits: self.reading.sent_bits + bits,
                delivered_bits: self.reading.delivered_bits + bits,
                in_flight_bits: bps * 56 / 100,
                rtt: Some(RTT),
                backlogged: true,
                allowed_bps: Some(CEILING_BPS),
                ..Reading::default()
            };
            self.estimator.read(self.now, self.reading);
        }
        self
    }

    /// The rate after the modem's next word.
    fn told(&mut self, efficiency: f64) -> Option<u64> {
        self.estimator.set_efficiency(Some(efficiency));
        self.estimator.rate_bps(self.now)
    }
}

#[test]
fn a_link_that_carries_its_ceiling_follows_the_modem_down_and_not_above() {
    let mut busy = Busy::new().sends(CEILING_BPS);
    assert_eq!(busy.estimator.capacity_bps(), None);
    assert_eq!(busy.told(1.0), Some(CEILING_BPS / 4));
    assert_eq!(busy.estimator.reason(), Some(Reason::Hint));
    assert_eq!(busy.told(2.0), Some(CEILING_BPS / 2));
    for efficiency in [4.0, 8.0] {
        assert_eq!(busy.told(efficiency), Some(CEILING_BPS));
        assert_eq!(busy.estimator.capacity_bps(), None);
    }
    // By the last word it carries twice the ceiling.
    assert_eq!(busy.told(4.0), Some(CEILING_BPS));
    assert_eq!(busy.told(1.0), Some(CEILING_BPS / 4));
}

/// Little that arrives says nothing of what the link carries.
#[test]
fn a_link_that_was_not_filled_to_its_ceiling_does_not_follow_the_modem() {
    let mut little = Busy::new().sends(CEILING_BPS / 2);
    assert_eq!(little.told(1.0), Some(CEILING_BPS));
}
