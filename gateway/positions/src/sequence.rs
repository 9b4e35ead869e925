//! The order of fixes in time.

/// After this many fixes in a row that are older than an earlier one, the earlier one counts as
/// wrong.
const BELIEVED_AFTER: u32 = 10;

/// Skips fixes that repeat or go back in time: a talker that repeats another's epoch, a receiver
/// that once got its time wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequence {
    last_ms: Option<u64>,
    behind: u32,
}

impl Sequence {
    /// Whether a fix of this time follows those before.
    pub fn follows(&mut self, time_ms: u64) -> bool {
        if let Some(last_ms) = self.last_ms
            && time_ms <= last_ms
        {
            self.behind = self.behind.saturating_add(1);
            if self.behind < BELIEVED_AFTER || time_ms == last_ms {
                return false;
            }
        }
        self.behind = 0;
        self.last_ms = Some(time_ms);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_time_in_the_future_does_not_silence_all_later_ones() {
        let mut sequence = Sequence::default();
        assert!(sequence.follows(1_000_000));
        let taken = (1..=20).filter(|at| sequence.follows(*at)).count();
        assert_eq!(taken, 11);
    }

    #[test]
    fn what_repeats_is_never_believed() {
        let mut sequence = Sequence::default();
        assert!(sequence.follows(5));
        assert!((0..100).all(|_| !sequence.follows(5)));
        assert!(sequence.follows(6));
    }
}
