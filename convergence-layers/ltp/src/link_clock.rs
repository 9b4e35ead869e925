//! Time on the link, which stops during blockages.

use std::time::{Duration, Instant};

/// Measures time on the link. All timers use it, so they stop during a blockage and then continue
/// (RFC 5326, 6.5 and 6.6), and keep their distances from each other.
#[derive(Debug)]
pub(crate) struct LinkClock {
    start: Instant,
    /// How long the link was blocked, over all blockages that have ended.
    blocked: Duration,
    /// When the present blockage began.
    since: Option<Instant>,
}

impl LinkClock {
    pub(crate) fn new(now: Instant) -> LinkClock {
        LinkClock {
            start: now,
            blocked: Duration::ZERO,
            since: None,
        }
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.since.is_some()
    }

    pub(crate) fn block(&mut self, now: Instant, blocked: bool) {
        match (self.since, blocked) {
            (None, true) => self.since = Some(now),
            (Some(since), false) => {
                self.blocked += now.saturating_duration_since(since);
                self.since = None;
            }
            _ => {}
        }
    }

    /// Time on the link since the start.
    pub(crate) fn at(&self, now: Instant) -> Duration {
        let until = self.since.map_or(now, |since| since.min(now));
        let passed = until.saturating_duration_since(self.start);
        passed.saturating_sub(self.blocked)
    }

    /// When the link's time will be `at`; unknown during a blockage.
    pub(crate) fn when(&self, at: Duration) -> Option<Instant> {
        let known = self.since.is_none();
        known.then(|| self.start + self.blocked + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_in_blockages() {
        let start = Instant::now();
        let s = Duration::from_secs;
        let mut clock = LinkClock::new(start);
        assert_eq!(clock.at(start + s(5)), s(5));
        clock.block(start + s(5), true);
        clock.block(start + s(8), true);
        assert_eq!((clock.at(start + s(9)), clock.when(s(6))), (s(5), None));
        clock.block(start + s(25), false);
        assert_eq!(clock.at(start + s(26)), s(6));
        assert_eq!(clock.when(s(7)), Some(start + s(27)));
    }
}
