//! Pauses between attempts to reach a source.

use std::time::Duration;

/// A receiver that is plugged in again is found soon.
const LEAST: Duration = Duration::from_millis(500);
/// And one that is gone costs little.
const MOST: Duration = Duration::from_secs(5);

/// Doubles the pause with each failure.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { next: LEAST }
    }
}

impl Backoff {
    /// The source has answered: failures begin anew.
    pub fn reset(&mut self) {
        self.next = LEAST;
    }

    /// How long to wait after this failure.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(MOST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_five_seconds_and_begin_anew_after_an_answer() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..7).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000]);
        backoff.reset();
        assert_eq!(backoff.pause(), LEAST);
    }
}
