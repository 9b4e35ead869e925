//! When a session sends keepalives, and when its peer counts as gone.
//!
//! QUIC could send keepalives by itself, but only at one interval. Here the interval is longer
//! while the link rests: nothing moves on it then, and its bytes cost money. An address translator
//! may forget the idle connection meanwhile. So when the link no longer rests, a session that has
//! heard nothing for the usual interval sends a keepalive at once.

use std::time::{Duration, Instant};

/// How long nothing is done at most.
const PAUSE: Duration = Duration::from_secs(3600);

/// After how long a silence of the peer a session sends a keepalive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intervals {
    /// On most links.
    pub(crate) usual: Duration,
    /// While the link rests.
    pub(crate) resting: Duration,
}

/// What the time demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing before then.
    At(Instant),
    /// The peer is to be asked for a sign.
    Ask,
    /// The peer is gone.
    Silent,
}

/// The clock of a session's signs of life.
#[derive(Debug)]
pub(super) struct Keepalive {
    /// None where the peer may be silent.
    intervals: Option<Intervals>,
    rests: bool,
    /// When the link began to rest, or has ceased to.
    since: Instant,
    heard: Instant,
    /// By this time something has come from the peer; the exact time is unknown.
    seen: Instant,
    /// Whether the peer was asked since it was heard.
    asked: bool,
}

impl Keepalive {
    pub(super) fn new(intervals: Option<Intervals>, now: Instant) -> Keepalive {
        Keepalive {
            intervals,
            rests: false,
            since: now,
            heard: now,
            seen: now,
            asked: false,
        }
    }

    /// The peer was heard at that time.
    pub(super) fn heard(&mut self, at: Instant) {
        if at > self.heard {
            self.heard = at;
            self.asked = false;
        }
    }

    /// Something has come from the peer that only shows that it is alive.
    pub(super) fn seen(&mut self, now: Instant) {
        self.seen = now;
    }

    /// The link rests, or does not.
    pub(super) fn set_rests(&mut self, now: Instant, rests: bool) {
        if self.rests != rests {
            self.rests = rests;
            self.since = now;
            self.asked = false;
        }
    }

    /// What to do now. Asking the peer is returned only once for each silence.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        let Some(Intervals { usual, resting }) = self.intervals else {
            return Due::At(now + PAUSE);
        };
        let interval = if self.rests { resting } else { usual };
        let ask = self.heard + interval;
        // Before the link ceased to rest, the peer was free to be silent for longer.
        let silent = self.heard.max(self.seen).max(self.since) + 2 * interval;
        if now >= silent {
            return Due::Silent;
        }
        if self.asked {
            return Due::At(silent);
        }
        if now < ask {
            return Due::At(ask);
        }
        self.asked = true;
        Due::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn keepalive(begin: Instant) -> Keepalive {
        let intervals = Intervals {
            usual: 30 * SECOND,
            resting: 150 * SECOND,
        };
        Keepalive::new(Some(intervals), begin)
    }

    #[test]
    fn a_peer_is_asked_once_in_each_silence_and_is_gone_after_two_intervals() {
        let begin = Instant::now();
        let at = |seconds: u32| begin + seconds * SECOND;
        let mut keepalive = keepalive(begin);
        assert_eq!(keepalive.due(at(1)), Due::At(at(30)));
        assert_eq!(keepalive.due(at(30)), Due::Ask);
        assert_eq!(keepalive.due(at(30)), Due::At(at(60)));
        keepalive.heard(at(31));
        keepalive.heard(at(29));
        assert_eq!(keepalive.due(at(31)), Due::At(at(61)));
        // The peer must be asked all the same.
        keepalive.seen(at(40));
        assert_eq!(keepalive.due(at(61)), Due::Ask);
        assert_eq!(keepalive.due(at(99)), Due::At(at(100)));
        assert_eq!(keepalive.due(at(100)), Due::Silent);
    }

    #[test]
    fn signs_are_rare_while_the_link_rests_and_come_at_once_behind_that() {
        let begin = Instant::now();
        let at = |seconds: u32| begin + seconds * SECOND;
        let mut keepalive = keepalive(begin);
        keepalive.set_rests(at(10), true);
        assert_eq!(keepalive.due(at(10)), Due::At(at(150)));
        assert_eq!(keepalive.due(at(150)), Due::Ask);
        keepalive.heard(at(151));
        // Silence while the link rested does not count afterwards.
        keepalive.set_rests(at(290), false);
        assert_eq!(keepalive.due(at(290)), Due::Ask);
        assert_eq!(keepalive.due(at(290)), Due::At(at(350)));
        keepalive.heard(at(291));
        assert_eq!(keepalive.due(at(291)), Due::At(at(321)));
        // If the peer was heard recently, nothing needs to be asked.
        keepalive.set_rests(at(295), true);
        keepalive.set_rests(at(300), false);
        assert_eq!(keepalive.due(at(300)), Due::At(at(321)));
    }

    #[test]
    fn a_sign_that_was_not_heard_in_rest_is_asked_for_again_behind_it() {
        let begin = Instant::now();
        let at = |seconds: u32| begin + seconds * SECOND;
        let mut keepalive = keepalive(begin);
        keepalive.set_rests(at(0), true);
        assert_eq!(keepalive.due(at(150)), Due::Ask);
        keepalive.set_rests(at(200), false);
        assert_eq!(keepalive.due(at(200)), Due::Ask);
        assert_eq!(keepalive.due(at(260)), Due::Silent);
    }

    #[test]
    fn without_intervals_the_peer_may_be_silent() {
        let begin = Instant::now();
        let mut keepalive = Keepalive::new(None, begin);
        let later = begin + 100 * PAUSE;
        assert_eq!(keepalive.due(later), Due::At(later + PAUSE));
    }
}
