//! How long to wait before the next attempt.

use std::time::Duration;

/// Pauses that double up to a bound, each shortened by chance by up to a half,
/// so that many nodes do not come back at the same moment.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    base: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// From `base`, doubling up to `most`.
    pub fn new(base: Duration, most: Duration) -> Backoff {
        Backoff {
            base,
            most,
            next: base,
        }
    }

    /// The next pause; `chance` is any random number.
    pub fn pause(&mut self, chance: u64) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.most);
        let part = f64::from(u32::try_from(chance % 1024).unwrap_or(0)) / 1024.0;
        pause.mul_f64(1.0 - part / 2.0)
    }

    /// An attempt has led to something.
    pub fn reset(&mut self) {
        self.next = self.base;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pauses_grow_to_the_bound_and_keep_half_of_their_length(
            chances in prop::collection::vec(any::<u64>(), 1..40),
        ) {
            let (base, most) = (Duration::from_millis(500), Duration::from_secs(10));
            let mut backoff = Backoff::new(base, most);
            let mut whole = base;
            for chance in chances {
                let pause = backoff.pause(chance);
                prop_assert!(pause <= whole && pause >= whole.mul_f64(0.499));
                whole = (whole * 2).min(most);
            }
            backoff.reset();
            prop_assert!(backoff.pause(0) <= base);
        }
    }
}
