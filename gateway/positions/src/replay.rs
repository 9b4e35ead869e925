//! A recorded drive, driven now.

use crate::fix::Fix;

/// A step back of this much begins the drive anew, ms.
const BACK_MS: u64 = 5_000;
/// Fixes further apart than any tunnel takes, ms, are of two drives, or a date was wrong:
/// the later one begins the drive anew. The control service's replay has the same bound.
const APART_MS: u64 = 30 * 60_000;

/// Shifts all times so that the first fix is now.
#[derive(Debug, Default)]
pub struct Replay {
    /// A time of the recording, and what it is now.
    anchor: Option<(u64, u64)>,
    last_ms: u64,
}

impl Replay {
    /// The fix at its time of now; `node_ms` is the node's clock, UTC, ms
    /// since 1970. Without a clock there is no now, and the fix loses its time.
    pub fn shift(&mut self, fix: Fix, node_ms: Option<u64>) -> Fix {
        let shifted = fix.time_ms.zip(node_ms).map(|(recorded, now)| {
            let again = recorded.saturating_add(BACK_MS) < self.last_ms
                || recorded > self.last_ms.saturating_add(APART_MS);
            self.last_ms = recorded;
            let anchor = self.anchor.filter(|_| !again);
            let (began, then) = *self.anchor.insert(anchor.unwrap_or((recorded, now)));
            (then + recorded).saturating_sub(began)
        });
        Fix {
            time_ms: shifted,
            ..fix
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ms: u64) -> Fix {
        Fix {
            time_ms: Some(time_ms),
            ..Fix::default()
        }
    }

    #[test]
    fn the_first_fix_is_now_and_the_gaps_stay() {
        let mut replay = Replay::default();
        let recorded = [1_000_000, 1_001_000, 1_090_000];
        let shifted = recorded.map(|ms| replay.shift(at(ms), Some(5_000_000_000)).time_ms);
        assert_eq!(
            shifted,
            [5_000_000_000, 5_000_001_000, 5_000_090_000].map(Some)
        );
    }

    #[test]
    fn a_recording_that_begins_anew_is_now_again() {
        let mut replay = Replay::default();
        replay.shift(at(1_000_000), Some(10_000_000));
        replay.shift(at(1_100_000), Some(10_100_000));
        let again = replay.shift(at(1_000_000), Some(10_101_000));
        assert_eq!(again.time_ms, Some(10_101_000));
        // The times of an interleaved talker do not.
        let back = replay.shift(at(999_000), Some(10_102_000));
        assert_eq!(back.time_ms, Some(10_100_000));
    }

    #[test]
    fn a_second_drive_hours_later_and_a_first_date_too_early_are_now() {
        let mut replay = Replay::default();
        replay.shift(at(1_000_000), Some(50_000_000_000));
        let later = replay.shift(at(1_000_000 + 3 * 3_600_000), Some(50_000_001_000));
        assert_eq!(later.time_ms, Some(50_000_001_000));
        let years = replay.shift(at(1_700_000_000_000), Some(50_000_002_000));
        assert_eq!(years.time_ms, Some(50_000_002_000));
        // A gap that is no longer than a tunnel takes stays.
        let tunnel = replay.shift(at(1_700_001_800_000), Some(50_001_802_000));
        assert_eq!(tunnel.time_ms, Some(50_001_802_000));
        let next = replay.shift(at(1_700_001_801_000), Some(50_001_900_000));
        assert_eq!(next.time_ms, Some(50_001_803_000));
    }

    #[test]
    fn without_a_clock_there_is_no_now() {
        let mut replay = Replay::default();
        assert_eq!(replay.shift(at(1_000_000), None).time_ms, None);
        assert_eq!(
            replay.shift(at(1_001_000), Some(7_000)).time_ms,
            Some(7_000)
        );
    }
}
