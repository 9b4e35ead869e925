//! A hub's requests for its terminals' certificates, on their way to the
//! control service.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use thiserror::Error;
use underpass_backoff::Backoff;

/// A terminal asks once in its interval, which is 4.5 s at the least.
const REFILL: Duration = Duration::from_secs(4);

/// Questions that a terminal may ask at once, as after a restart or a blockage.
const BURST: u32 = 4;

/// While the service does not answer.
const AGAIN: Backoff = Backoff {
    base: Duration::from_millis(500),
    max: Duration::from_secs(60),
};

/// A terminal that has not asked for this long has its certificate, or is gone. Longer than its
/// longest interval, a day.
const KEPT: Duration = Duration::from_secs(3 * 24 * 3600);

/// A terminal asks more often than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it asks too often")]
pub struct TooOften;

/// A request to be passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The terminal that asks.
    pub node: u64,
    /// Its request, PEM.
    pub request: String,
}

#[derive(Debug)]
struct Waiting {
    request: String,
    since: Instant,
}

/// What a terminal may still ask.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    fn take(&mut self, now: Instant) -> Result<(), TooOften> {
        while self.left < BURST && now.saturating_duration_since(self.since) >= REFILL {
            self.left += 1;
            self.since += REFILL;
        }
        if self.left == BURST {
            self.since = now;
        }
        self.left = self.left.checked_sub(1).ok_or(TooOften)?;
        Ok(())
    }
}

/// The requests of a hub's terminals: at most one of each, its newest. They are sent to the service
/// one at a time, in turn. Memory is bounded by the number of terminals, since the caller lets no
/// others ask.
#[derive(Debug, Default)]
pub struct Desk {
    waiting: BTreeMap<u64, Waiting>,
    /// Nodes of `waiting` in their turn; others are passed over.
    turn: VecDeque<u64>,
    /// What is asked of the service now.
    under_way: Option<Pending>,
    failures: u32,
    not_before: Option<Instant>,
    allowances: BTreeMap<u64, Allowance>,
}

impl Desk {
    /// Counts a question of a terminal.
    ///
    /// # Errors
    /// When it asks too often: the question must be ignored.
    pub fn admit(&mut self, now: Instant, node: u64) -> Result<(), TooOften> {
        let full = Allowance {
            left: BURST,
            since: now,
        };
        self.allowances.entry(node).or_insert(full).take(now)
    }

    /// Takes a terminal's request, in the place of its last one.
    pub fn request(&mut self, now: Instant, node: u64, request: String) {
        let waiting = Waiting {
            request,
            since: now,
        };
        let waits = self.waiting.insert(node, waiting).is_some();
        let is_asked = self.under_way.as_ref().is_some_and(|one| one.node == node);
        if !waits && !is_asked {
            self.turn.push_back(node);
        }
    }

    /// The next request to ask of the service, until [`Desk::answered`] or
    /// [`Desk::failed`] says what became of it.
    pub fn next(&mut self, now: Instant) -> Option<Pending> {
        if self.under_way.is_some() || self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        while let Some(node) = self.turn.pop_front() {
            let Some(waiting) = self.waiting.remove(&node) else {
                continue;
            };
            if now.saturating_duration_since(waiting.since) > KEPT {
                continue;
            }
            let pending = Pending {
                node,
                request: waiting.request.clone(),
            };
            self.under_way = Some(pending.clone());
            // It is answered, or comes back with its age.
            self.waiting.insert(node, waiting);
            return Some(pending);
        }
        None
    }

    /// The service has answered, and the answer is good for a newer request of
    /// the same terminal, too: it is of the same key.
    pub fn answered(&mut self) {
        if let Some(asked) = self.under_way.take() {
            self.waiting.remove(&asked.node);
        }
        self.failures = 0;
        self.not_before = None;
    }

    /// The service has not answered, or cannot: the request is tried again later, after the others.
    /// `jitter` is random, 0 to 1.
    pub fn failed(&mut self, now: Instant, jitter: f64) {
        if let Some(asked) = self.under_way.take() {
            self.turn.push_back(asked.node);
        }
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + AGAIN.jittered(self.failures, jitter));
    }

    /// When [`Desk::next`] has something without another request.
    pub fn next_timeout(&self) -> Option<Instant> {
        let waits = self.under_way.is_none() && !self.turn.is_empty();
        self.not_before.filter(|_| waits)
    }

    /// Forgets terminals that are none of this hub's any more.
    pub fn retain(&mut self, is_ours: impl Fn(u64) -> bool) {
        self.waiting.retain(|node, _| is_ours(*node));
        self.allowances.retain(|node, _| is_ours(*node));
        self.turn.retain(|node| is_ours(*node));
    }

    /// Requests that wait for an answer of the service.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(desk: &mut Desk, now: Instant) -> Option<(u64, String)> {
        desk.next(now).map(|one| (one.node, one.request))
    }

    #[test]
    fn of_each_terminal_the_newest_is_asked_and_one_at_a_time() {
        let (mut desk, now) = (Desk::default(), Instant::now());
        desk.request(now, 10, "old".to_owned());
        desk.request(now, 11, "other".to_owned());
        desk.request(now, 10, "new".to_owned());
        assert_eq!(asked(&mut desk, now), Some((10, "new".to_owned())));
        assert_eq!(asked(&mut desk, now), None, "one is under way");
        // The request has arrived again meanwhile: the same key, so the same answer.
        desk.request(now, 10, "again".to_owned());
        desk.answered();
        assert_eq!(asked(&mut desk, now), Some((11, "other".to_owned())));
        desk.answered();
        assert_eq!((asked(&mut desk, now), desk.is_empty()), (None, true));
    }

    #[test]
    fn one_that_fails_holds_nobody_up_for_good_and_none_is_lost() {
        let (mut desk, start) = (Desk::default(), Instant::now());
        for node in 10..13 {
            desk.request(start, node, String::new());
        }
        let mut now = start;
        let mut seen = Vec::new();
        for _ in 0..6 {
            seen.push(asked(&mut desk, now).unwrap().0);
            desk.failed(now, 1.0);
            assert_eq!(asked(&mut desk, now), None);
            now = desk.next_timeout().unwrap();
        }
        assert_eq!(seen, [10, 11, 12, 10, 11, 12]);
        assert_eq!(desk.len(), 3);
        for _ in 0..20 {
            asked(&mut desk, now).unwrap();
            desk.failed(now, 1.0);
            now = desk.next_timeout().unwrap();
        }
        asked(&mut desk, now).unwrap();
        desk.failed(now, 1.0);
        let pause = desk.next_timeout().unwrap() - now;
        assert_eq!(pause, Duration::from_secs(60));
    }

    #[test]
    fn who_asks_no_more_is_forgotten() {
        let (mut desk, now) = (Desk::default(), Instant::now());
        desk.request(now, 10, String::new());
        let late = now + KEPT + Duration::from_secs(1);
        assert_eq!((asked(&mut desk, late), desk.is_empty()), (None, true));
        desk.request(now, 10, String::new());
        desk.retain(|node| node != 10);
        assert_eq!((asked(&mut desk, now), desk.is_empty()), (None, true));
    }

    #[test]
    fn a_terminal_that_asks_without_end_is_heard_as_often_as_it_may() {
        let (mut desk, start) = (Desk::default(), Instant::now());
        let millis = |ms| start + Duration::from_millis(ms);
        let heard = (0..40_000).filter(|ms| desk.admit(millis(*ms), 10).is_ok());
        assert_eq!(heard.count(), 4 + 9);
        assert_eq!(desk.admit(start, 11), Ok(()), "others are not concerned");
        let shortest = (0..1000).all(|n| desk.admit(millis(n * 4_500), 12).is_ok());
        assert!(shortest, "the shortest interval is allowed for ever");
    }
}
