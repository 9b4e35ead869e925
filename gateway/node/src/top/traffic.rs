//! Throughput from the counters of two answers.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::api::{PathView, Status};

/// Answers whose throughput is shown as a curve.
pub const CURVE: usize = 240;

/// bit/s of payload in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throughput {
    /// From this node.
    pub sent_bps: f64,
    /// To this node.
    pub received_bps: f64,
}

/// What counts bytes since some start.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    sent_bytes: u64,
    received_bytes: u64,
}

impl Counter {
    /// Counters that decrease were restarted: nothing is known of that interval.
    fn since(self, before: Counter, interval_s: f64) -> Throughput {
        let bps = |now: u64, before: u64| now.saturating_sub(before) as f64 * 8.0 / interval_s;
        Throughput {
            sent_bps: bps(self.sent_bytes, before.sent_bytes),
            received_bps: bps(self.received_bytes, before.received_bytes),
        }
    }
}

/// The counters of one answer.
#[derive(Debug)]
struct Reading {
    incarnation: u64,
    uptime_s: f64,
    sessions: HashMap<u64, Counter>,
    classes: BTreeMap<String, Counter>,
}

impl Reading {
    fn of(status: &Status) -> Reading {
        let sessions = status.paths.iter().flat_map(|path| &path.sessions);
        let sessions = sessions.map(|session| {
            let counter = Counter {
                sent_bytes: session.sent_bytes,
                received_bytes: session.received_bytes,
            };
            (session.id, counter)
        });
        let classes = status.streams.iter().map(|(class, streams)| {
            let counter = Counter {
                sent_bytes: streams.sent_bytes,
                received_bytes: streams.received_bytes,
            };
            (class.clone(), counter)
        });
        Reading {
            incarnation: status.incarnation,
            uptime_s: status.uptime_s,
            sessions: sessions.collect(),
            classes: classes.collect(),
        }
    }
}

/// Throughput of sessions and classes between the latest two answers, by the
/// node's own clock, and that of all classes before.
#[derive(Debug, Default)]
pub struct Traffic {
    latest: Option<Reading>,
    sessions: HashMap<u64, Throughput>,
    classes: BTreeMap<String, Throughput>,
    curve: VecDeque<Throughput>,
}

impl Traffic {
    /// Takes the counters of an answer. If the node has restarted since the last one, throughput is
    /// known from its second answer on.
    pub fn take(&mut self, status: &Status) {
        let now = Reading::of(status);
        self.sessions.clear();
        self.classes.clear();
        if let Some(before) = self.latest.take() {
            let interval_s = now.uptime_s - before.uptime_s;
            if now.incarnation == before.incarnation && interval_s > 0.0 {
                self.compare(&before, &now, interval_s);
            }
        }
        self.latest = Some(now);
    }

    fn compare(&mut self, before: &Reading, now: &Reading, interval_s: f64) {
        for (id, counter) in &now.sessions {
            // A new session has counted from 0.
            let earlier = before.sessions.get(id).copied().unwrap_or_default();
            self.sessions
                .insert(*id, counter.since(earlier, interval_s));
        }
        let mut sum = Throughput::default();
        for (class, counter) in &now.classes {
            let earlier = before.classes.get(class).copied().unwrap_or_default();
            let throughput = counter.since(earlier, interval_s);
            sum.sent_bps += throughput.sent_bps;
            sum.received_bps += throughput.received_bps;
            self.classes.insert(class.clone(), throughput);
        }
        if self.curve.len() == CURVE {
            self.curve.pop_front();
        }
        self.curve.push_back(sum);
    }

    /// That of a session; none before its second answer.
    pub fn session(&self, id: u64) -> Option<Throughput> {
        self.sessions.get(&id).copied()
    }

    /// That of all sessions of a path.
    pub fn path(&self, path: &PathView) -> Option<Throughput> {
        let known = path.sessions.iter().filter_map(|s| self.session(s.id));
        known.reduce(|sum, one| Throughput {
            sent_bps: sum.sent_bps + one.sent_bps,
            received_bps: sum.received_bps + one.received_bps,
        })
    }

    /// That of the clients' streams of a class.
    pub fn class(&self, class: &str) -> Option<Throughput> {
        self.classes.get(class).copied()
    }

    /// That of all clients' streams, the oldest first; at most [`CURVE`] of them.
    pub fn curve(&self) -> impl ExactSizeIterator<Item = Throughput> {
        self.curve.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::example::{status, with_traffic};

    #[test]
    fn throughput_is_what_was_counted_over_the_nodes_own_time() {
        let mut traffic = Traffic::default();
        traffic.take(&with_traffic(10.0, 1_000, 5_000));
        assert_eq!(traffic.session(1), None);
        traffic.take(&with_traffic(12.0, 2_000, 5_500));
        let expected = Throughput {
            sent_bps: 4_000.0,
            received_bps: 2_000.0,
        };
        assert_eq!(traffic.session(1), Some(expected));
        assert_eq!(traffic.class("interactive"), Some(expected));
        assert_eq!(traffic.path(&status().paths[0]), Some(expected));
    }

    #[test]
    fn a_restart_is_no_throughput() {
        let mut traffic = Traffic::default();
        traffic.take(&with_traffic(10.0, 1_000, 1_000));
        let mut restarted = with_traffic(12.0, 9_000, 9_000);
        restarted.incarnation += 1;
        traffic.take(&restarted);
        assert_eq!(traffic.session(1), None);
        assert_eq!(traffic.curve().len(), 0);
    }

    #[test]
    fn counters_that_go_back_are_no_throughput() {
        let mut traffic = Traffic::default();
        traffic.take(&with_traffic(10.0, 9_000, 9_000));
        traffic.take(&with_traffic(11.0, 0, 0));
        assert_eq!(traffic.session(1), Some(Throughput::default()));
    }

    #[test]
    fn the_curve_keeps_a_bounded_past() {
        let mut traffic = Traffic::default();
        for n in 0..CURVE + 10 {
            traffic.take(&with_traffic(n as f64, n as u64 * 125, 0));
        }
        assert_eq!(traffic.curve().len(), CURVE);
        assert!(traffic.curve().all(|one| one.sent_bps == 1_000.0));
    }
}
