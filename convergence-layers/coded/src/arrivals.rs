//! Counts the datagrams that have arrived, and those that were lost.

use crate::sequence::expand;
use crate::symbol::DATAGRAM_BITS;

/// A datagram counts as lost once this many later ones have overtaken it.
const PATIENCE: u64 = 128;

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Datagrams that have come.
    pub received: u64,
    /// Those that have not, and will not.
    pub lost: u64,
    /// Bursts of losses: losses in a row are one burst.
    pub bursts: u64,
}

/// Keeps the counts.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// One more than the highest number that has come.
    next: u64,
    /// Bit i: number `next - 1 - i` has come.
    seen: u128,
    counts: Losses,
    in_burst: bool,
}

impl Arrivals {
    /// A datagram has come whose number has these low bits. Returns whether it is the first with
    /// its number.
    pub(crate) fn arrived(&mut self, low: u32) -> bool {
        let number = expand(low.into(), DATAGRAM_BITS, self.next);
        if number < self.next {
            let bit = match self.next - 1 - number {
                age if age < PATIENCE => 1u128 << age,
                _ => return false,
            };
            let first = self.seen & bit == 0;
            self.seen |= bit;
            return first;
        }
        self.advance(number + 1);
        self.seen |= 1;
        true
    }

    /// Numbers below `next` have been sent.
    fn advance(&mut self, next: u64) {
        let steps = next - self.next;
        for _ in 0..steps.min(PATIENCE) {
            // At the beginning no number leaves.
            if self.next >= PATIENCE {
                self.leave(self.seen >> (PATIENCE - 1) != 0, 1);
            }
            self.seen <<= 1;
            self.next += 1;
        }
        let left = next - self.next;
        if left > 0 {
            self.leave(false, left);
            self.next = next;
        }
    }

    /// This many datagrams count from now on.
    fn leave(&mut self, has_come: bool, count: u64) {
        if has_come {
            self.counts.received += count;
        } else {
            self.counts.lost += count;
            self.counts.bursts += u64::from(!self.in_burst);
        }
        self.in_burst = !has_come;
    }

    pub(crate) fn counts(&self) -> Losses {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_of(numbers: impl Iterator<Item = u64>) -> Losses {
        let mut arrivals = Arrivals::default();
        for number in numbers {
            arrivals.arrived((number & 0xff_ffff) as u32);
        }
        arrivals.counts()
    }

    #[test]
    fn losses_and_their_bursts_are_counted() {
        let lost = [10..12, 40..41, 300..320];
        let come = (0..1000).filter(|number| !lost.iter().any(|range| range.contains(number)));
        let counts = counts_of(come);
        assert_eq!((counts.lost, counts.bursts), (23, 3));
        assert_eq!(counts.received, 1000 - 128 - 23);
    }

    #[test]
    fn what_is_overtaken_or_comes_twice_is_not_lost() {
        let swapped = (0..500).flat_map(|pair| [2 * pair + 1, 2 * pair, 2 * pair]);
        let counts = counts_of(swapped);
        assert_eq!((counts.lost, counts.received), (0, 1000 - 128));
        let mut arrivals = Arrivals::default();
        let firsts = [5, 3, 3, 5, 4].map(|number| arrivals.arrived(number));
        assert_eq!(firsts, [true, true, false, false, true]);
    }

    #[test]
    fn a_gap_of_any_length_is_one_burst_and_costs_no_time() {
        let counts = counts_of((0..300).chain(8_000_000..8_000_200));
        assert_eq!((counts.bursts, counts.lost), (1, 8_000_000 - 300));
    }
}
