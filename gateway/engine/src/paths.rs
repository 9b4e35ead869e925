//! Which of several hops to one neighbour takes the next bundle.
//!
//! Bundles wait for the neighbour, not for a hop: a hop takes the next one when its link can carry
//! it. With that rule alone, a hop with a long delay would take the last bundle of an object and
//! delay its end. So a hop takes a bundle only if it delivers it no later than the hops that
//! deliver their next bundle sooner would deliver *all* that waits (after the Earliest Completion
//! First scheduler of Lim et al., CoNEXT 2017). While much waits, every hop is busy and the rates
//! add up. The hop of least delay alone carries the tail, and whatever is short.
//!
//! Hops that deliver later do not count: otherwise several like hops would wait for each other. The
//! hop that delivers a bundle before all others always may take it, so something is sent as long as
//! any hop can.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A hop that can take bundles, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// From a bundle's departure to its arrival, queues of the link included.
    pub delay: Duration,
    /// Bit/s of IP bytes; `None` while nothing has shown a limit.
    pub rate_bps: Option<u64>,
    /// Until all that it was given has left.
    pub busy: Duration,
    /// The largest bundle that it takes.
    pub bundle_bytes: u64,
}

/// Whether a hop takes the next bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It does.
    Now,
    /// Others deliver all that waits sooner. If they do not move, it is this hop's turn after so
    /// long.
    Later(Duration),
}

impl Way {
    /// Whether `own` takes the next bundle of a backlog of `waiting_bytes`, which
    /// `others` carry too.
    pub fn turn(&self, others: &[Way], waiting_bytes: u64) -> Turn {
        let arrives = self.delivers_first(waiting_bytes);
        let others = others.iter().copied();
        let before: Vec<Way> = others
            .filter(|other| other.delivers_first(waiting_bytes) < arrives)
            .collect();
        if before.is_empty() {
            return Turn::Now;
        }
        let done = all_delivered(&before, waiting_bytes);
        match arrives.checked_sub(done) {
            None | Some(Duration::ZERO) => Turn::Now,
            Some(late) => Turn::Later(late),
        }
    }

    /// How many bytes the other ways deliver before this one delivers its next bundle. This way
    /// takes what lies behind these bytes, so that it arrives in its turn in a stream.
    pub fn lead(&self, others: &[Way], waiting_bytes: u64) -> u64 {
        let arrives = self.delivers_first(waiting_bytes);
        let ahead = others.iter().map(|other| {
            let time = arrives.saturating_sub(other.delivers_first(waiting_bytes));
            if time.is_zero() {
                return 0;
            }
            let bits = time.as_nanos() * u128::from(other.rate_bps.unwrap_or(u64::MAX));
            let more = u64::try_from(bits / 8_000_000_000).unwrap_or(u64::MAX);
            more.saturating_add(other.bundle_bytes.min(waiting_bytes))
        });
        ahead.fold(0, u64::saturating_add)
    }

    /// When it delivers its next bundle.
    fn delivers_first(&self, waiting_bytes: u64) -> Duration {
        let bytes = self.bundle_bytes.min(waiting_bytes);
        self.begins() + line_time(bytes.saturating_mul(8).into(), self.rate_bps)
    }

    /// When the first byte that it is given now arrives.
    fn begins(&self) -> Duration {
        self.busy + self.delay
    }
}

/// When all that waits has arrived by these ways: each carries at its rate from its beginning on,
/// and bundles arrive whole.
fn all_delivered(ways: &[Way], waiting_bytes: u64) -> Duration {
    let first = ways.iter().map(|way| way.delivers_first(waiting_bytes));
    let first = first.min().unwrap_or_default();
    let mut beginnings: BinaryHeap<_> = ways
        .iter()
        .map(|way| Reverse((way.begins(), way.rate_bps)))
        .collect();
    let mut left_bits = u128::from(waiting_bytes) * 8;
    let mut rate_bps = Some(0);
    let mut at = Duration::ZERO;
    while let Some(Reverse((begins, of_way))) = beginnings.pop() {
        at = begins;
        rate_bps = rate_bps.zip(of_way).map(|(sum, rate)| sum + rate);
        let Some(sum) = rate_bps else {
            break;
        };
        let until = beginnings.peek().map(|Reverse((next, _))| *next - at);
        let carried = until.map(|time| time.as_nanos() * u128::from(sum) / 1_000_000_000);
        match carried {
            Some(carried) if carried < left_bits => left_bits -= carried,
            _ => break,
        }
    }
    first.max(at + line_time(left_bits, rate_bps))
}

fn line_time(bits: u128, rate_bps: Option<u64>) -> Duration {
    let Some(rate) = rate_bps else {
        return Duration::ZERO;
    };
    let nanos = bits.saturating_mul(1_000_000_000) / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn way(delay_ms: u64, rate_bps: u64) -> Way {
        Way {
            delay: Duration::from_millis(delay_ms),
            rate_bps: Some(rate_bps),
            busy: Duration::ZERO,
            bundle_bytes: (rate_bps * 60 / 8000).clamp(4 << 10, 1 << 20),
        }
    }

    /// A terrestrial path of 10 Mbit/s, and a satellite path of 40 Mbit/s.
    fn pair() -> [Way; 2] {
        [way(15, 10_000_000), way(265, 40_000_000)]
    }

    /// Sends `bytes`; each path takes a bundle when it is free and it is its turn.
    /// Returns when the last bundle arrives, and what each path carried.
    fn deliver(ways: &[Way], bytes: u64) -> (Duration, Vec<u64>) {
        let mut left = bytes;
        let mut free = vec![Duration::ZERO; ways.len()];
        let mut carried = vec![0; ways.len()];
        let (mut now, mut last) = (Duration::ZERO, Duration::ZERO);
        while left > 0 {
            let at = |place: usize| Way {
                busy: free[place].saturating_sub(now),
                ..ways[place]
            };
            let all: Vec<Way> = (0..ways.len()).map(at).collect();
            let mut others = all.clone();
            let mut sent = false;
            for place in 0..ways.len() {
                others.clone_from(&all);
                let own = others.remove(place);
                if own.busy == Duration::ZERO && own.turn(&others, left) == Turn::Now {
                    let bundle = own.bundle_bytes.min(left);
                    free[place] = now + line_time(u128::from(bundle) * 8, own.rate_bps);
                    last = last.max(free[place] + own.delay);
                    (left, carried[place]) = (left - bundle, carried[place] + bundle);
                    sent = true;
                    break;
                }
            }
            if !sent {
                let next = free.iter().filter(|at| **at > now).min();
                now = *next.expect("a free way that refuses, and none is busy");
            }
        }
        (last, carried)
    }

    #[test]
    fn what_is_short_goes_by_the_way_of_least_delay() {
        let [terrestrial, satellite] = pair();
        assert_eq!(terrestrial.turn(&[satellite], 20_000), Turn::Now);
        // 16 ms and 15 ms beside 4 ms and 265 ms.
        let Turn::Later(late) = satellite.turn(&[terrestrial], 20_000) else {
            panic!("the satellite carries what the other delivers before");
        };
        assert!(late > 237 * MS && late < 239 * MS, "{late:?}");
        let (_, carried) = deliver(&pair(), 100_000);
        assert_eq!(carried, [100_000, 0]);
    }

    #[test]
    fn of_a_long_download_the_rates_add_up() {
        let (last, carried) = deliver(&pair(), 100_000_000);
        // 800 Mbit: 10 (t - 0.015) + 40 (t - 0.265) = 800.
        assert!(last < Duration::from_millis(16_215 + 61), "{last:?}");
        assert!(carried[1] > 79_000_000 && carried[1] < 81_000_000);
    }

    #[test]
    fn a_slow_way_takes_what_lies_behind_that_of_the_fast_one() {
        let [terrestrial, satellite] = pair();
        // A bundle in 75 ms, and 10 Mbit/s until 325 ms.
        assert_eq!(satellite.lead(&[terrestrial], 10_000_000), 387_500);
        assert_eq!(terrestrial.lead(&[satellite], 10_000_000), 0);
    }

    #[test]
    fn a_way_that_does_not_move_makes_it_the_others_turn() {
        let [mut terrestrial, satellite] = pair();
        let Turn::Later(late) = satellite.turn(&[terrestrial], 20_000) else {
            panic!("it would wait");
        };
        terrestrial.busy += late;
        assert_eq!(satellite.turn(&[terrestrial], 20_000), Turn::Now);
    }

    #[test]
    fn of_a_way_without_a_known_limit_only_the_delay_counts() {
        let unknown = Way {
            rate_bps: None,
            ..way(15, 1)
        };
        let satellite = way(265, 40_000_000);
        assert_eq!(unknown.turn(&[satellite], u64::MAX / 16), Turn::Now);
        let later = satellite.turn(&[unknown], u64::MAX / 16);
        assert!(matches!(later, Turn::Later(_)));
        let near = way(5, 1_000);
        assert!(matches!(near.turn(&[unknown], 1 << 20), Turn::Later(_)));
    }

    /// Each of the three would arrive too late compared with the other two together.
    #[test]
    fn ways_that_are_alike_do_not_wait_for_each_other() {
        let slow = way(206, 1_680_573);
        let alike = [
            way(597, 56_874_134),
            way(651, 46_765_506),
            way(610, 81_666_800),
        ];
        let (last, carried) = deliver(&[&[slow], &alike[..]].concat(), 1_658_094);
        let (alone, _) = deliver(&alike[2..], 1_658_094);
        assert!(last < alone, "{last:?} {alone:?}");
        assert!(carried[0] < 200_000, "{carried:?}");
    }

    #[test]
    fn alone_a_way_takes_all() {
        assert_eq!(pair()[1].turn(&[], 1), Turn::Now);
    }

    prop_compose! {
        fn any_way()(delay in 1..700u64, rate in 50_000..100_000_000u64) -> Way {
            way(delay, rate)
        }
    }

    proptest! {
        /// Whatever the paths are like, bytes are sent, and arrive no later than by the
        /// best path alone.
        #[test]
        fn never_slower_than_the_best_way_alone(
            ways in proptest::collection::vec(any_way(), 1..5),
            bytes in 1..5_000_000u64,
        ) {
            let (last, carried) = deliver(&ways, bytes);
            prop_assert_eq!(carried.iter().sum::<u64>(), bytes);
            let alone = ways.iter().map(|way| deliver(&[*way], bytes).0);
            let alone = alone.min().expect("one");
            let bundle = ways.iter().map(|way| {
                line_time(u128::from(way.bundle_bytes) * 8, way.rate_bps)
            });
            // Whole bundles are sent, and are not taken back.
            let grain = bundle.max().expect("one");
            prop_assert!(last <= alone + grain, "{last:?} {alone:?}");
        }
    }
}
