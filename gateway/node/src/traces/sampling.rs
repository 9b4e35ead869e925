//! Decides which exchanges are traced: a part of the clients', and those that a peer or a client
//! traces already, within this node's own limit.

use std::collections::HashMap;
use std::time::Instant;

/// Part of the limit that the exchanges of one peer may use, so that a peer that traces everything
/// leaves room for others and for this node's own.
const PEER_PART: f64 = 0.5;
/// Most peers that are distinguished; further ones are not traced while these trace.
const MOST_PEERS: usize = 4096;

/// This many a second, and as many at once.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    per_s: f64,
    left: f64,
    at: Instant,
}

impl Allowance {
    fn new(per_s: f64, now: Instant) -> Allowance {
        Allowance {
            per_s,
            left: per_s.max(1.0),
            at: now,
        }
    }

    fn earn(&mut self, now: Instant) {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * self.per_s;
        self.left = (self.left + earned).min(self.per_s.max(1.0));
        self.at = now;
    }

    fn admits(&mut self, now: Instant) -> bool {
        self.earn(now);
        self.left >= 1.0
    }

    fn is_full(&mut self, now: Instant) -> bool {
        self.earn(now);
        self.left >= self.per_s.max(1.0)
    }
}

/// Limits tracing to a number of exchanges a second.
#[derive(Debug)]
pub struct Sampler {
    own: Allowance,
    peers: HashMap<u64, Allowance>,
}

impl Sampler {
    /// At most `per_s` exchanges a second in all.
    pub fn new(per_s: f64, now: Instant) -> Sampler {
        Sampler {
            own: Allowance::new(per_s, now),
            peers: HashMap::new(),
        }
    }

    /// Whether one more of this node's clients is traced.
    pub fn client(&mut self, now: Instant) -> bool {
        let admitted = self.own.admits(now);
        if admitted {
            self.own.left -= 1.0;
        }
        admitted
    }

    /// Whether one is traced that a peer traces.
    pub fn peer(&mut self, now: Instant, node: u64) -> bool {
        if !self.own.admits(now) {
            return false;
        }
        if !self.peers.contains_key(&node) {
            if self.peers.len() >= MOST_PEERS {
                self.peers.retain(|_, allowance| !allowance.is_full(now));
            }
            if self.peers.len() >= MOST_PEERS {
                return false;
            }
        }
        let per_s = self.own.per_s * PEER_PART;
        let allowance = self.peers.entry(node);
        let allowance = allowance.or_insert_with(|| Allowance::new(per_s, now));
        let admitted = allowance.admits(now);
        if admitted {
            allowance.left -= 1.0;
            self.own.left -= 1.0;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_peer_has_more_traced_than_its_part_and_all_together_than_the_limit() {
        let mut now = Instant::now();
        let mut sampler = Sampler::new(10.0, now);
        let (mut loud, mut others, mut own) = (0, 0, 0);
        for _ in 0..1_000 {
            for _ in 0..50 {
                loud += u32::from(sampler.peer(now, 1));
            }
            others += u32::from(sampler.peer(now, 2));
            own += u32::from(sampler.client(now));
            now += Duration::from_millis(10);
        }
        // Ten seconds, and the burst that may come at once.
        assert!((45..=55).contains(&loud), "{loud}");
        assert!(own + others >= 45, "{own} {others}");
        assert!(loud + others + own <= 110, "{loud} {others} {own}");
    }

    #[test]
    fn peers_that_are_counted_are_bounded_and_forgotten_when_they_are_quiet() {
        let now = Instant::now();
        let mut sampler = Sampler::new(1e6, now);
        for node in 0..2 * MOST_PEERS as u64 {
            assert_eq!(sampler.peer(now, node), node < MOST_PEERS as u64, "{node}");
        }
        assert_eq!(sampler.peers.len(), MOST_PEERS);
        assert!(sampler.peer(now + Duration::from_secs(2), 1_000_000));
        assert_eq!(sampler.peers.len(), 1);
    }

    #[test]
    fn less_than_one_a_second_is_one_now_and_then() {
        let now = Instant::now();
        let mut sampler = Sampler::new(0.1, now);
        assert!(sampler.client(now));
        assert!(!sampler.client(now + Duration::from_secs(9)));
        assert!(sampler.client(now + Duration::from_secs(20)));
    }
}
