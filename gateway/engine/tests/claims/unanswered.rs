//! Dead sessions on a link that works.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use underpass_cla::{Outcome, PathFigures, SessionId};
use underpass_engine::{HopId, MeterConfig, Period, Sign};

use crate::bench::{BULK, MRU, Node, config, pair, pair_of};

const HOP: HopId = HopId(0);
const ACTIVE: SessionId = SessionId(102);
const STANDBY: SessionId = SessionId(202);
const NEXT: SessionId = SessionId(302);
const ALL: [u64; 6] = [100, 101, 102, 200, 201, 202];
const MS: Duration = Duration::from_millis(1);
/// The round trip of the hop.
const RTT: Duration = Duration::from_millis(600);

/// The transport below a session.
struct Transport {
    /// Whether its bytes are acknowledged.
    lives: bool,
    /// The time from sending to the acknowledgement.
    answers_after: Duration,
    owed_since: Option<Instant>,
    heard: Instant,
    /// Whether the rest of a bundle is still to come.
    receiving: bool,
    /// Transfers in progress.
    keys: Vec<u64>,
}

impl Transport {
    fn sends(&mut self, now: Instant) {
        self.owed_since.get_or_insert(now);
    }

    fn figures(&self, now: Instant, rtt: Duration) -> PathFigures {
        PathFigures {
            rtt,
            in_flight_bytes: u64::from(self.owed_since.is_some()),
            received_bytes: 1_000,
            receiving: self.receiving,
            heard_ago: Some(now - self.heard),
            ..PathFigures::default()
        }
    }
}

/// A terminal with two sessions of each class, and their transports.
struct Bench {
    terminal: Node,
    transports: BTreeMap<SessionId, Transport>,
    /// How the hub's beacons are heard.
    beacons: Option<Sign>,
    /// The round trip that transports report.
    told_rtt: Duration,
    /// Sessions that were offered a bundle, and those that were asked for a sign.
    offered: Vec<SessionId>,
    asked: Vec<SessionId>,
}

impl Bench {
    fn new(beacons: Option<Sign>) -> Bench {
        Bench::of(pair().0, beacons)
    }

    fn of(mut terminal: Node, beacons: Option<Sign>) -> Bench {
        terminal.up(0, 200);
        let mut bench = Bench {
            terminal,
            transports: BTreeMap::new(),
            beacons,
            told_rtt: RTT,
            offered: Vec::new(),
            asked: Vec::new(),
        };
        for id in ALL {
            bench.connect(SessionId(id));
        }
        bench.pass(2_000 * MS);
        bench
    }

    fn connect(&mut self, id: SessionId) {
        let transport = Transport {
            lives: true,
            answers_after: RTT,
            owed_since: None,
            heard: self.terminal.now,
            receiving: false,
            keys: Vec::new(),
        };
        self.transports.insert(id, transport);
    }

    /// Something on the path forgets the sessions.
    fn forget(&mut self, ids: &[u64]) {
        for id in ids {
            self.transport(SessionId(*id)).lives = false;
        }
    }

    fn transport(&mut self, id: SessionId) -> &mut Transport {
        self.transports.get_mut(&id).expect("it is connected")
    }

    /// Makes a bundle leave.
    fn write(&mut self) {
        self.terminal.send(1, BULK, 20_000);
    }

    /// The next session of bulk comes up.
    fn next_is_up(&mut self) {
        self.terminal.session(0, NEXT.0, Some(BULK), MRU);
        self.connect(NEXT);
    }

    fn block(&mut self, blocked: bool) {
        let now = self.terminal.now;
        self.terminal.engine.block(now, HOP, blocked);
    }

    fn renewed(&self) -> Vec<u64> {
        let mut renewed: Vec<u64> = self.terminal.renewed.iter().map(|id| id.0).collect();
        renewed.sort_unstable();
        renewed
    }

    fn pass(&mut self, time: Duration) {
        let end = self.terminal.now + time;
        while self.terminal.now < end {
            self.look();
            let at = self.terminal.now + 50 * MS;
            self.terminal.pass(at);
        }
        self.look();
    }

    fn look(&mut self) {
        let now = self.terminal.now;
        if let Some(sign) = self.beacons {
            self.terminal.engine.heard(now, HOP, now, sign);
        }
        for (session, transfer) in self.terminal.offers() {
            self.offered.push(session);
            let transport = self.transport(session);
            transport.keys.push(transfer.key);
            transport.sends(now);
        }
        for session in std::mem::take(&mut self.terminal.asked) {
            self.asked.push(session);
            self.transport(session).sends(now);
        }
        for (id, transport) in &mut self.transports {
            let answers_after = transport.answers_after;
            let due = (transport.owed_since).is_some_and(|at| now >= at + answers_after);
            if transport.lives && due {
                (transport.owed_since, transport.heard) = (None, now);
                for key in transport.keys.drain(..) {
                    self.terminal.finish(key, Outcome::Acknowledged);
                }
                self.terminal.ready(*id);
            }
        }
        let figures = self.transports.iter();
        let figures = figures.map(|(id, of)| (*id, of.figures(now, self.told_rtt)));
        let figures: Vec<(SessionId, PathFigures)> = figures.collect();
        let figures = figures.iter().map(|(id, figures)| (*id, figures));
        self.terminal.engine.observe_answers(now, HOP, figures);
        self.terminal.engine.let_rest(now, HOP);
    }
}

#[test]
fn the_standby_goes_on_for_a_dead_session_if_it_answers() {
    let mut bench = Bench::new(Some(Sign::Beacon));
    bench.forget(&[ACTIVE.0]);
    bench.write();
    bench.pass(3_500 * MS);
    assert_eq!(bench.terminal.aborted, []);
    assert!(bench.asked.contains(&STANDBY) && !bench.asked.contains(&ACTIVE));
    bench.pass(300 * MS);
    assert_eq!(bench.terminal.aborted, [ACTIVE]);
    assert!(bench.offered.contains(&STANDBY));
    assert!(bench.renewed().is_empty());
    let times = bench.asked.len();
    bench.pass(20_000 * MS);
    assert_eq!(bench.asked.len(), times, "it is well again");
}

#[test]
fn another_session_is_up_before_dead_ones_go() {
    let mut bench = Bench::new(Some(Sign::Beacon));
    bench.forget(&ALL);
    bench.write();
    bench.pass(3_900 * MS);
    assert!(bench.renewed().is_empty());
    bench.pass(300 * MS);
    assert_eq!(bench.renewed(), ALL, "all have been forgotten");
    bench.pass(2_400 * MS);
    assert_eq!(bench.terminal.aborted, []);
    bench.next_is_up();
    bench.pass(50 * MS);
    assert_eq!(bench.terminal.aborted, [ACTIVE, STANDBY]);
    assert!(bench.offered.contains(&NEXT));
}

#[test]
fn a_session_that_is_answered_before_another_one_is_up_stays() {
    let mut bench = Bench::new(Some(Sign::Beacon));
    bench.forget(&ALL);
    bench.write();
    bench.pass(4_200 * MS);
    assert_eq!(bench.renewed(), ALL);
    bench.transport(ACTIVE).lives = true;
    bench.pass(100 * MS);
    bench.next_is_up();
    bench.pass(50 * MS);
    assert_eq!(bench.terminal.aborted, [STANDBY]);
}

#[test]
fn a_session_that_was_not_looked_at_for_long_is_not_taken_for_dead() {
    let mut bench = Bench::new(Some(Sign::Beacon));
    bench.write();
    bench.pass(100 * MS);
    // The node is busy, but it hears beacons.
    for _ in 0..100 {
        let at = bench.terminal.now + 50 * MS;
        bench.terminal.pass(at);
        bench.terminal.engine.heard(at, HOP, at, Sign::Beacon);
    }
    bench.next_is_up();
    bench.pass(50 * MS);
    assert_eq!(bench.terminal.aborted, []);
}

#[test]
fn sessions_that_stay_dead_are_replaced_ever_more_seldom() {
    let mut bench = Bench::new(Some(Sign::Beacon));
    bench.forget(&ALL);
    bench.write();
    bench.pass(120_000 * MS);
    let renewed = bench.renewed();
    // After 4, 19, 49 and 109 s.
    let times = renewed.iter().filter(|id| **id == ACTIVE.0).count();
    assert_eq!(times, 4);
    assert_eq!(bench.asked.iter().filter(|id| **id == STANDBY).count(), 1);
}

#[test]
fn sessions_stay_while_the_link_is_not_known_to_carry() {
    for beacons in [None, Some(Sign::Deaf)] {
        let mut bench = Bench::new(Some(Sign::Beacon));
        bench.forget(&ALL);
        bench.write();
        bench.pass(100 * MS);
        bench.beacons = beacons;
        bench.pass(60_000 * MS);
        assert!(bench.asked.is_empty() && bench.renewed().is_empty());
    }
    // Beacons have never been heard.
    let mut bench = Bench::new(None);
    bench.forget(&ALL);
    bench.write();
    bench.pass(60_000 * MS);
    assert!(bench.asked.is_empty() && bench.renewed().is_empty());
}

#[test]
fn a_path_on_which_answers_take_long_is_given_time() {
    let mut bench = Bench::new(Some(Sign::Beacon));
    bench.told_rtt = 2_000 * MS;
    bench.forget(&[ACTIVE.0]);
    bench.write();
    bench.pass(11_900 * MS);
    assert_eq!(bench.terminal.aborted, []);
    bench.pass(300 * MS);
    assert_eq!(bench.terminal.aborted, [ACTIVE]);
}

#[test]
fn the_rest_of_a_bundle_that_does_not_come_is_asked_for_once() {
    for lives in [false, true] {
        let mut bench = Bench::new(Some(Sign::Beacon));
        if !lives {
            bench.forget(&ALL);
        }
        let now = bench.terminal.now;
        let transport = bench.transport(ACTIVE);
        (transport.receiving, transport.heard) = (true, now);
        bench.pass(2_000 * MS);
        assert!(bench.asked.contains(&ACTIVE));
        bench.pass(2_300 * MS);
        assert_eq!(bench.renewed().is_empty(), lives);
        bench.pass(60_000 * MS);
        let times = bench.asked.iter().filter(|id| **id == ACTIVE).count();
        assert_eq!(times, 1);
        assert_eq!(bench.terminal.aborted, []);
    }
}

#[test]
fn what_has_woken_a_link_and_does_not_come_is_asked_for() {
    for comes in [false, true] {
        let mut metered = config(10, &[1]);
        metered.hops[0].meter = Some(MeterConfig {
            budget_bytes: None,
            period: Period::Day,
            beyond: Vec::new(),
        });
        let terminal = pair_of(metered, config(1, &[10])).0;
        let mut bench = Bench::of(terminal, Some(Sign::Resting));
        bench.pass(12_000 * MS);
        assert_eq!(bench.terminal.rests.last(), Some(&(HOP, true)));
        bench.forget(&ALL);
        bench.beacons = Some(Sign::Beacon);
        bench.pass(100 * MS);
        let now = bench.terminal.now;
        if comes {
            bench.transport(ACTIVE).heard = now;
        }
        bench.pass(1_600 * MS);
        let asked = if comes { 0 } else { ALL.len() };
        assert_eq!(bench.asked.len(), asked);
        bench.pass(2_400 * MS);
        assert_eq!(bench.renewed().is_empty(), comes);
    }
}

#[test]
fn behind_a_long_blockage_dead_sessions_are_found_at_once() {
    let mut bench = Bench::new(Some(Sign::Beacon));
    bench.block(true);
    bench.pass(59_000 * MS);
    bench.block(false);
    bench.pass(1_000 * MS);
    assert_eq!(bench.asked, []);
    bench.block(true);
    bench.pass(61_000 * MS);
    bench.forget(&ALL);
    bench.block(false);
    bench.pass(2_100 * MS);
    assert_eq!(bench.asked.len(), ALL.len());
    assert!(bench.renewed().is_empty());
    bench.pass(300 * MS);
    assert_eq!(bench.renewed(), ALL);
}

#[test]
fn sessions_that_answer_behind_a_long_blockage_stay() {
    let mut bench = Bench::new(Some(Sign::Beacon));
    bench.block(true);
    bench.pass(600_000 * MS);
    bench.block(false);
    bench.write();
    bench.pass(60_000 * MS);
    assert_eq!(bench.asked.len(), ALL.len());
    assert!(bench.renewed().is_empty() && bench.terminal.aborted.is_empty());
}

#[test]
fn sessions_whose_answers_come_one_after_the_other_on_a_slow_path_stay() {
    let mut bench = Bench::new(Some(Sign::Beacon));
    bench.block(true);
    bench.pass(61_000 * MS);
    for (before, id) in (0_u32..).zip(ALL) {
        let answers_after = 1_000 * MS + before * 500 * MS;
        bench.transport(SessionId(id)).answers_after = answers_after;
    }
    bench.block(false);
    bench.pass(20_000 * MS);
    assert_eq!(bench.asked.len(), ALL.len());
    assert!(bench.renewed().is_empty() && bench.terminal.aborted.is_empty());
    // A session without any acknowledgement is found too, but later: after twice the time
    // of the slowest acknowledgement.
    bench.forget(&[ACTIVE.0]);
    bench.transport(STANDBY).answers_after = RTT;
    bench.write();
    bench.pass(6_900 * MS);
    assert_eq!(bench.terminal.aborted, []);
    bench.pass(500 * MS);
    assert_eq!(bench.terminal.aborted, [ACTIVE]);
}

#[test]
fn a_slow_path_is_not_asked_each_time_that_an_answer_takes_as_long_as_others_did() {
    let mut bench = Bench::new(Some(Sign::Beacon));
    for id in ALL {
        bench.transport(SessionId(id)).answers_after = 2_500 * MS;
    }
    bench.write();
    bench.pass(20_000 * MS);
    assert_eq!(bench.asked.len(), ALL.len() - 1);
    bench.write();
    bench.pass(20_000 * MS);
    assert_eq!(bench.asked.len(), ALL.len() - 1);
    assert!(bench.renewed().is_empty() && bench.terminal.aborted.is_empty());
}
