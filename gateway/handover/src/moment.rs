//! Moments of one process in another one.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A moment, as its distance from one that both processes know: the time at which the state was
/// handed over. Nanoseconds; those of the past are negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(i64);

impl Moment {
    /// `at`, seen from `now`: within 292 years.
    pub fn of(at: Instant, now: Instant) -> Moment {
        let nanos = |distance: Duration| i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
        Moment(match at.checked_duration_since(now) {
            Some(ahead) => nanos(ahead),
            None => -nanos(now.saturating_duration_since(at)),
        })
    }

    /// The instant, if the state was handed over at `now`. If this machine's clock cannot express
    /// it, `now` itself.
    pub fn instant(self, now: Instant) -> Instant {
        let distance = Duration::from_nanos(self.0.unsigned_abs());
        let at = match self.0 {
            0.. => now.checked_add(distance),
            _ => now.checked_sub(distance),
        };
        at.unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_the_same_from_the_same_now() {
        let now = Instant::now();
        for at in [
            now,
            now + Duration::from_nanos(1),
            now + Duration::from_secs(1 << 33),
        ] {
            assert_eq!(Moment::of(at, now).instant(now), at);
            let moved = Duration::from_secs(5);
            assert_eq!(Moment::of(at, now).instant(now + moved), at + moved);
            assert_eq!(Moment::of(now, at).instant(at), now);
        }
        for extreme in [i64::MIN, i64::MAX] {
            let _ = Moment(extreme).instant(now);
        }
    }
}
