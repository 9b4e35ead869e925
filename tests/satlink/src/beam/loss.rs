//! Which transmitted packets are lost.

use super::profile::LossProfile;
use super::random::Random;

/// A link's loss process; decides packet by packet in order of transmission.
#[derive(Debug)]
pub(super) struct Loss {
    random: Random,
    /// State of the Gilbert–Elliott chain; the other models do not use it.
    bad: bool,
}

impl Loss {
    /// A process that begins in the good state.
    pub(super) fn new(random: Random) -> Self {
        Loss { random, bad: false }
    }

    /// Whether the next packet is lost.
    ///
    /// Gilbert–Elliott moves between its states once per packet, then draws
    /// with the loss probability of the state it is in (Elliott 1963).
    pub(super) fn takes(&mut self, profile: &LossProfile) -> bool {
        match *profile {
            LossProfile::None {} => false,
            LossProfile::Independent { probability } => self.random.chance(probability),
            LossProfile::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            } => {
                let change = if self.bad { to_good } else { to_bad };
                self.bad ^= self.random.chance(change);
                let loss = if self.bad { loss_bad } else { loss_good };
                self.random.chance(loss)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: usize = 1_000_000;

    fn pattern(profile: &LossProfile, seed: u64) -> Vec<bool> {
        let mut loss = Loss::new(Random::new(seed, "t1"));
        (0..PACKETS).map(|_| loss.takes(profile)).collect()
    }

    fn share(pattern: &[bool]) -> f64 {
        pattern.iter().filter(|lost| **lost).count() as f64 / pattern.len() as f64
    }

    #[test]
    fn independent_loss_has_its_probability_and_no_memory() {
        let pattern = pattern(&LossProfile::Independent { probability: 0.01 }, 5);
        assert!((share(&pattern) - 0.01).abs() < 0.0005);
        let after_loss: Vec<bool> = pattern
            .windows(2)
            .filter(|pair| pair[0])
            .map(|pair| pair[1])
            .collect();
        assert!((share(&after_loss) - 0.01).abs() < 0.004);
    }

    #[test]
    fn gilbert_elliott_has_its_mean_loss_and_burst_length() {
        let profile = LossProfile::GilbertElliott {
            to_bad: 0.002,
            to_good: 0.1,
            loss_good: 0.0,
            loss_bad: 1.0,
        };
        let pattern = pattern(&profile, 9);
        // The chain is in the bad state to_bad / (to_bad + to_good) of the time.
        let expected = 0.002 / 0.102;
        assert!((share(&pattern) - expected).abs() < 0.1 * expected);
        let bursts = pattern.windows(2).filter(|w| !w[0] && w[1]).count();
        let lost = pattern.iter().filter(|lost| **lost).count();
        let mean_burst = lost as f64 / bursts as f64;
        // With certain loss in the bad state a burst lasts 1 / to_good packets.
        assert!((mean_burst - 10.0).abs() < 1.0, "{mean_burst}");
    }

    #[test]
    fn seed_fixes_the_pattern() {
        let profile = LossProfile::Independent { probability: 0.1 };
        assert_eq!(pattern(&profile, 1), pattern(&profile, 1));
        assert_ne!(pattern(&profile, 1), pattern(&profile, 2));
    }
}
