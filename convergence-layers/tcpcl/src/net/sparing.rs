//! When spare connections are begun, and when they are dropped.
//!
//! A peer that restarts while the link is blocked loses its sessions, and this end learns that only
//! when the link is back: a connection begun then costs one more round trip. So while the link is
//! blocked, connections are begun in advance, and the first one that gets through is kept for the
//! next session. Nothing is sent on them: for the peer they are silent contacts, of which it allows
//! only a limited number, so a connection that is not needed soon is dropped.

use std::time::{Duration, Instant};

/// A connection is begun only after this many times `base` of a blockage: a peer that restarts
/// within it is seldom back sooner.
const BEGINS_AFTER: u32 = 4;
/// Connections are begun at intervals of 5/4 of `base`. TCP repeats a SYN after 1 s (RFC 6298,
/// section 2), so with 0.5 s the repetitions fall between later connections, so that some SYN
/// leaves each 0.38 s.
const APART: (u32, u32) = (5, 4);
/// Connections that are being made, at most.
const MOST_OPEN: usize = 4;
/// After this time in a blockage, the intervals grow in proportion to its duration.
const STEADY: Duration = Duration::from_secs(30);
/// After a blockage has lasted this long, no more are begun: they would save little in comparison.
const TOO_LONG: Duration = Duration::from_secs(600);
/// If the node does not use a connection within this time, the link works and is only declared
/// blocked: no more are begun in this blockage.
const UNUSED: Duration = Duration::from_secs(3);
/// When the link is back, a session that the peer no longer knows is reset within this time.
const BACK: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Begin one more connection.
    Begin,
    /// Drop all there are.
    Drop,
}

/// When to begin spare connections in a blockage, and when to drop them.
#[derive(Debug)]
pub(super) struct Sparing {
    base: Duration,
    blocked: bool,
    state: State,
    /// What there is, is of no use.
    stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// The link is blocked, and this many are being made.
    Beginning {
        since: Instant,
        next: Instant,
        open: usize,
    },
    /// Existing ones may be used; none are begun.
    Keeping {
        until: Instant,
    },
}

impl Sparing {
    pub(super) fn new(base: Duration) -> Self {
        Self {
            base,
            blocked: false,
            state: State::Idle,
            stale: false,
        }
    }

    /// The link is believed to be blocked, or free.
    pub(super) fn set_blocked(&mut self, now: Instant, blocked: bool) {
        if std::mem::replace(&mut self.blocked, blocked) == blocked {
            return;
        }
        let back = now + BACK;
        self.state = match self.state {
            before if blocked => {
                self.stale |= before != State::Idle;
                State::Beginning {
                    since: now,
                    next: now + self.base * BEGINS_AFTER,
                    open: 0,
                }
            }
            State::Beginning { open: 1.., .. } => State::Keeping { until: back },
            State::Keeping { until } => State::Keeping {
                until: until.min(back),
            },
            State::Beginning { .. } | State::Idle => State::Idle,
        };
    }

    /// Spare connections are not needed until the link is reported blocked again.
    pub(super) fn end(&mut self) {
        self.blocked = false;
        self.stale |= self.state != State::Idle;
        self.state = State::Idle;
    }

    /// One is through; the others are dropped.
    pub(super) fn connected(&mut self, now: Instant) {
        match self.state {
            State::Beginning { .. } => {
                let until = now + UNUSED;
                self.state = State::Keeping { until };
            }
            State::Keeping { .. } => {}
            State::Idle => self.stale = true,
        }
    }

    /// One came to nothing.
    pub(super) fn failed(&mut self) {
        if let State::Beginning { open, .. } = &mut self.state {
            *open = open.saturating_sub(1);
        }
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<Step> {
        if std::mem::take(&mut self.stale) {
            return Some(Step::Drop);
        }
        match self.state {
            State::Beginning { since, next, open } if next <= now && open < MOST_OPEN => {
                let lasts = now - since;
                if lasts >= TOO_LONG {
                    self.state = State::Idle;
                    return None;
                }
                self.state = State::Beginning {
                    since,
                    next: now + self.apart(lasts),
                    open: open + 1,
                };
                Some(Step::Begin)
            }
            State::Keeping { until } if until <= now => {
                self.state = State::Idle;
                Some(Step::Drop)
            }
            _ => None,
        }
    }

    /// When [`Self::poll`] has something to do without another event.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Beginning { next, open, .. } => (open < MOST_OPEN).then_some(next),
            State::Keeping { until } => Some(until),
            State::Idle => None,
        }
    }

    /// The interval at which they are begun when a blockage has lasted for `lasts`.
    fn apart(&self, lasts: Duration) -> Duration {
        let (times, parts) = APART;
        let longer = lasts.as_secs_f64() / STEADY.as_secs_f64();
        (self.base * times / parts).mul_f64(longer.max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(500);

    /// A link that is blocked from the start.
    struct Blocked {
        start: Instant,
        sparing: Sparing,
    }

    impl Blocked {
        fn new() -> Self {
            let (start, mut sparing) = (Instant::now(), Sparing::new(BASE));
            sparing.set_blocked(start, true);
            Self { start, sparing }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        /// Steps until `until`, ms, with their times; each connection fails at once.
        fn fails_until(&mut self, until: u64) -> Vec<(u128, Step)> {
            let mut steps = Vec::new();
            let mut now = self.start;
            loop {
                while let Some(step) = self.sparing.poll(now) {
                    steps.push(((now - self.start).as_millis(), step));
                    self.sparing.failed();
                }
                match self.sparing.poll_timeout() {
                    Some(due) if due <= self.at(until) => now = due,
                    _ => return steps,
                }
            }
        }
    }

    #[test]
    fn a_short_blockage_gets_none() {
        let mut link = Blocked::new();
        assert!(link.fails_until(1999).is_empty());
        link.sparing.set_blocked(link.at(1999), false);
        assert_eq!(link.sparing.poll_timeout(), None);
        assert_eq!(link.sparing.poll(link.at(9000)), None);
    }

    #[test]
    fn they_are_begun_at_a_steady_pace() {
        let steps = Blocked::new().fails_until(4000);
        let expected = [2000u128, 2625, 3250, 3875].map(|at| (at, Step::Begin));
        assert_eq!(steps, expected);
    }

    #[test]
    fn that_the_link_is_blocked_still_changes_nothing() {
        let mut link = Blocked::new();
        link.sparing.set_blocked(link.at(1500), true);
        assert_eq!(link.fails_until(2000), [(2000u128, Step::Begin)]);
    }

    #[test]
    fn only_so_many_are_being_made() {
        let mut link = Blocked::new();
        for _ in 0..MOST_OPEN {
            let due = link.sparing.poll_timeout().expect("there is room");
            assert_eq!(link.sparing.poll(due), Some(Step::Begin));
            assert_eq!(link.sparing.poll(due), None);
        }
        assert_eq!(link.sparing.poll_timeout(), None);
        assert_eq!(link.sparing.poll(link.at(60_000)), None);
        link.sparing.failed();
        assert_eq!(link.sparing.poll(link.at(60_000)), Some(Step::Begin));
    }

    #[test]
    fn a_long_blockage_costs_a_bounded_number() {
        let steps = Blocked::new().fails_until(86_400_000);
        assert!(steps.iter().all(|(_, step)| *step == Step::Begin));
        let times: Vec<u128> = steps.into_iter().map(|(at, _)| at).collect();
        assert!((150..=200).contains(&times.len()), "{}", times.len());
        assert!(times.last().is_some_and(|last| *last < 600_000));
        let apart: Vec<u128> = times.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(apart.is_sorted(), "{apart:?}");
        let at_a_minute = times.iter().position(|at| *at >= 60_000);
        let at_a_minute = at_a_minute.expect("they go on");
        assert!((1200..1350).contains(&apart[at_a_minute]));
    }

    #[test]
    fn one_that_is_through_is_kept_and_no_other_begun() {
        let mut link = Blocked::new();
        assert_eq!(link.sparing.poll(link.at(2000)), Some(Step::Begin));
        link.sparing.connected(link.at(2600));
        assert_eq!(link.sparing.poll(link.at(5599)), None);
        assert_eq!(link.sparing.poll_timeout(), Some(link.at(5600)));
        // Nobody used the spare connection: the link carries it, though it counts as
        // blocked.
        assert_eq!(link.sparing.poll(link.at(5600)), Some(Step::Drop));
        assert_eq!(link.sparing.poll_timeout(), None);
        link.sparing.set_blocked(link.at(6000), true);
        assert_eq!(link.sparing.poll_timeout(), None);
        // The next blockage starts anew.
        link.sparing.set_blocked(link.at(7000), false);
        link.sparing.set_blocked(link.at(8000), true);
        assert_eq!(link.sparing.poll_timeout(), Some(link.at(10_000)));
    }

    #[test]
    fn those_that_are_being_made_outlast_the_blockage_for_a_moment() {
        let mut link = Blocked::new();
        assert_eq!(link.sparing.poll(link.at(2000)), Some(Step::Begin));
        link.sparing.set_blocked(link.at(2100), false);
        link.sparing.connected(link.at(2500));
        assert_eq!(link.sparing.poll(link.at(3099)), None);
        assert_eq!(link.sparing.poll(link.at(3100)), Some(Step::Drop));
    }

    #[test]
    fn one_that_is_through_is_kept_no_longer_for_the_links_return() {
        let mut link = Blocked::new();
        assert_eq!(link.sparing.poll(link.at(2000)), Some(Step::Begin));
        link.sparing.connected(link.at(2600));
        link.sparing.set_blocked(link.at(2700), false);
        assert_eq!(link.sparing.poll_timeout(), Some(link.at(3700)));
    }

    #[test]
    fn the_next_blockage_has_none_of_the_one_before() {
        let mut link = Blocked::new();
        assert_eq!(link.sparing.poll(link.at(2000)), Some(Step::Begin));
        link.sparing.connected(link.at(2600));
        link.sparing.set_blocked(link.at(2700), false);
        link.sparing.set_blocked(link.at(3000), true);
        assert_eq!(link.sparing.poll(link.at(3000)), Some(Step::Drop));
        assert_eq!(link.sparing.poll_timeout(), Some(link.at(5000)));
    }

    #[test]
    fn all_are_dropped_once_there_is_no_use_for_any() {
        let mut link = Blocked::new();
        assert_eq!(link.sparing.poll(link.at(2000)), Some(Step::Begin));
        link.sparing.end();
        assert_eq!(link.sparing.poll(link.at(2000)), Some(Step::Drop));
        // The lane repeats this again and again.
        link.sparing.end();
        assert_eq!(link.sparing.poll(link.at(2000)), None);
        assert_eq!(link.sparing.poll_timeout(), None);
        link.sparing.set_blocked(link.at(3000), true);
        assert_eq!(link.sparing.poll_timeout(), Some(link.at(5000)));
    }

    #[test]
    fn one_that_is_through_too_late_is_dropped() {
        let mut link = Blocked::new();
        assert_eq!(link.sparing.poll(link.at(2000)), Some(Step::Begin));
        assert_eq!(link.sparing.poll(link.at(602_000)), None);
        link.sparing.connected(link.at(602_000));
        assert_eq!(link.sparing.poll(link.at(602_000)), Some(Step::Drop));
    }
}
