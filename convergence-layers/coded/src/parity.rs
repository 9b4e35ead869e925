//! How much repair a block gets: as much as the measured losses and their bursts require, so that
//! it is insufficient with at most a given probability.
//!
//! The model: bursts begin as a Poisson process over the datagrams, and their lengths are
//! geometric, so the losses of a block follow the Pólya–Aeppli distribution (Johnson, Kemp and
//! Kotz, *Univariate Discrete Distributions*, 3rd ed., 9.7). A burst may have begun before the
//! block.

use crate::Losses;

/// Datagrams after which earlier observations count half.
const HALF_LIFE: f64 = 20_000.0;
/// If more losses than this are expected, the maximum is used.
const MOST_EXPECTED: f64 = 500.0;
/// A risk counts up to so many repair symbols.
const MOST: usize = 256;

/// The losses of a path, from the receiver's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossEstimate {
    seen: Losses,
    /// Recent datagrams, losses among them, and bursts of losses.
    total: f64,
    lost: f64,
    bursts: f64,
}

impl LossEstimate {
    /// Takes the receiver's counts, which never decrease.
    pub fn observe(&mut self, counts: Losses) {
        let step = |new: u64, old: u64| new.saturating_sub(old) as f64;
        let received = step(counts.received, self.seen.received);
        let lost = step(counts.lost, self.seen.lost);
        let bursts = step(counts.bursts, self.seen.bursts);
        self.seen = counts;
        let kept = 0.5f64.powf((received + lost) / HALF_LIFE);
        self.total = self.total * kept + received + lost;
        self.lost = self.lost * kept + lost;
        self.bursts = self.bursts * kept + bursts;
    }

    /// The same estimate for a receiver that counts from 0 again.
    #[must_use]
    pub fn counted_anew(self) -> LossEstimate {
        LossEstimate {
            seen: Losses::default(),
            ..self
        }
    }

    /// The fraction of datagrams that is lost, one standard deviation above the count, since a few
    /// bursts are an uncertain sample.
    pub fn rate(&self) -> f64 {
        if self.total < 1.0 || self.bursts <= 0.0 {
            return 0.0;
        }
        let more = 1.0 + 1.0 / self.bursts.sqrt();
        (self.lost * more / self.total).min(1.0)
    }

    /// The mean length of a burst, datagrams: at least 1.
    pub fn mean_burst(&self) -> f64 {
        if self.bursts <= 0.0 {
            return 1.0;
        }
        (self.lost / self.bursts).max(1.0)
    }

    /// How many repair symbols, at most `most`, a block of `symbols` needs so that they do not
    /// suffice with a probability of at most `risk`.
    pub fn repair(&self, symbols: u16, risk: f64, most: u16) -> u16 {
        let rate = self.rate();
        if rate <= 0.0 {
            return 0;
        }
        let mut repair = 0;
        // Repair is lost, too.
        for _ in 0..3 {
            let datagrams = f64::from(symbols) + f64::from(repair);
            let needed = least_covering(datagrams, rate, self.mean_burst(), risk);
            let needed = u16::try_from(needed).unwrap_or(u16::MAX).min(most);
            if needed <= repair {
                break;
            }
            repair = needed;
        }
        repair
    }
}

/// The least number that the losses among `datagrams` exceed with a probability of at most `risk`.
fn least_covering(datagrams: f64, rate: f64, mean_burst: f64, risk: f64) -> usize {
    let expected = datagrams * rate;
    if expected > MOST_EXPECTED {
        return MOST;
    }
    let bursts = expected / mean_burst;
    let ends = 1.0 / mean_burst;
    let goes_on = 1.0 - ends;
    // Probabilities of n and of n - 1 losses in bursts that begin here, and of
    // n with one burst that began before, given that there is one.
    let (mut now, mut before) = ((-bursts).exp(), 0.0);
    let mut behind = 0.0;
    let mut below = 0.0;
    for n in 0..MOST {
        if n > 0 {
            let count = n as f64;
            let next = ((bursts * ends + 2.0 * (count - 1.0) * goes_on) * now
                - (count - 2.0).max(0.0) * goes_on * goes_on * before)
                / count;
            behind = goes_on * behind + ends * now;
            (before, now) = (now, next.max(0.0));
        }
        below += (1.0 - rate) * now + rate * behind;
        if 1.0 - below <= risk {
            return n;
        }
    }
    MOST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(received: u64, lost: u64, bursts: u64) -> LossEstimate {
        let mut estimate = LossEstimate::default();
        estimate.observe(Losses {
            received,
            lost,
            bursts,
        });
        estimate
    }

    #[test]
    fn a_clean_link_gets_no_repair() {
        assert_eq!(LossEstimate::default().repair(1024, 0.002, 100), 0);
        assert_eq!(estimate(100_000, 0, 0).repair(1024, 0.002, 100), 0);
        let mut cleaned = estimate(100_000, 1_000, 50);
        assert!(cleaned.repair(1024, 0.002, 200) > 20);
        for hundred_thousands in 2..10 {
            cleaned.observe(Losses {
                received: hundred_thousands * 100_000,
                lost: 1_000,
                bursts: 50,
            });
        }
        assert_eq!(cleaned.repair(1024, 0.002, 200), 0, "it has become clean");
    }

    #[test]
    fn single_losses_need_little_and_bursts_as_much_as_they_are_long() {
        // 0.05 % single losses: of 1024 datagrams, more than 3 are lost in 0.2 % of
        // cases.
        let single = estimate(2_000_000, 1_000, 1_000);
        let repair = single.repair(1024, 0.002, 150);
        assert!((3..=4).contains(&repair), "{repair}");
        // 1 % in bursts of 20.
        let bursts = estimate(990_000, 10_000, 500);
        let repair = bursts.repair(720, 0.005, 200);
        assert!((85..=130).contains(&repair), "{repair}");
        assert_eq!(bursts.repair(720, 0.002, 100), 100, "the bound");
    }

    /// Draws the losses among `datagrams` from the model's own process.
    fn drawn(random: &mut fastrand::Rng, datagrams: u32, rate: f64, mean_burst: f64) -> usize {
        let into = rate / mean_burst / (1.0 - rate);
        let mut bad = random.f64() < rate;
        let mut lost = 0;
        for _ in 0..datagrams {
            lost += usize::from(bad);
            bad = if bad {
                random.f64() >= 1.0 / mean_burst
            } else {
                random.f64() < into
            };
        }
        lost
    }

    #[test]
    fn the_risk_is_kept_in_a_gilbert_channel() {
        let mut random = fastrand::Rng::with_seed(7);
        for (datagrams, rate, mean_burst) in
            [(1000, 0.01, 20.0), (1000, 0.002, 1.0), (100, 0.05, 3.0)]
        {
            let covered = least_covering(f64::from(datagrams), rate, mean_burst, 0.02);
            let draws = 4_000;
            let exceeded = (0..draws)
                .filter(|_| drawn(&mut random, datagrams, rate, mean_burst) > covered)
                .count();
            let risk = exceeded as f64 / f64::from(draws);
            assert!(
                risk < 0.03,
                "{datagrams} {rate} {mean_burst}: {covered}, {risk}"
            );
            assert!(risk > 0.002, "too much repair: {covered}, {risk}");
        }
    }

    #[test]
    fn counts_that_lie_get_no_more_than_the_bound() {
        let liar = estimate(0, u64::MAX, u64::MAX);
        assert_eq!(liar.repair(1024, 0.002, 143), 143);
        let mut falling = estimate(1_000, 10, 10);
        falling.observe(Losses::default());
        assert!(falling.repair(10, 0.002, 5) <= 5);
        assert!(estimate(u64::MAX, 3, u64::MAX).mean_burst() >= 1.0);
    }
}
