//! How long to wait before the next attempt.

use std::time::Duration;

/// Exponential back-off. With jitter, the terminals of a beam do not all come
/// back at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(500),
            max: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// The delay after `failures` failures in a row. No failure means no delay.
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max)
    }

    /// The same, spread over its upper half by `jitter` in 0..1.
    pub fn jittered(&self, failures: u32, jitter: f64) -> Duration {
        let part = 0.5 + 0.5 * jitter.clamp(0.0, 1.0);
        self.delay(failures).mul_f64(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let backoff = Backoff::default();
        let delays: Vec<u128> = (0..9)
            .map(|failures| backoff.delay(failures).as_millis())
            .collect();
        assert_eq!(
            delays,
            [0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]
        );
        assert_eq!(backoff.delay(u32::MAX), backoff.max);
    }

    #[test]
    fn jitter_takes_at_most_half() {
        let backoff = Backoff::default();
        assert_eq!(backoff.jittered(1, 0.0).as_millis(), 250);
        assert_eq!(backoff.jittered(1, 0.5).as_millis(), 375);
    }
}
