//! Contacts that their diallers give up.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The least time between two lines of the log.
const PAUSE: Duration = Duration::from_secs(10);

/// Counts contacts that are withdrawn before the peer has given its identity, so that one line of
/// the log tells of many: a dialler that begins another connection each half second withdraws nearly
/// all of them.
#[derive(Debug, Default)]
pub struct Withdrawals(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// When the last line was written.
    told: Option<Instant>,
    since: u64,
}

impl Withdrawals {
    /// Counts another one, at `now`. When a line is due, returns the number since the last one.
    pub fn add(&self, now: Instant) -> Option<u64> {
        let mut counted = self.0.lock().unwrap();
        counted.since += 1;
        let told = counted.told;
        if told.is_some_and(|told| now.saturating_duration_since(told) < PAUSE) {
            return None;
        }
        counted.told = Some(now);
        Some(std::mem::take(&mut counted.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_tells_of_all_in_its_pause() {
        let withdrawals = Withdrawals::default();
        let start = Instant::now();
        assert_eq!(withdrawals.add(start), Some(1));
        for number in 1..20 {
            let at = start + number * PAUSE / 20;
            assert_eq!(withdrawals.add(at), None);
        }
        assert_eq!(withdrawals.add(start + PAUSE), Some(20));
        assert_eq!(withdrawals.add(start + 3 * PAUSE), Some(1));
    }
}
