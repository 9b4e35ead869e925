use super::*;

const STEP: Duration = Duration::from_millis(250);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn config() -> OnDemand {
    OnDemand {
        path: "satellite".to_owned(),
        dials: true,
        neighbour_asks: true,
        within: seconds(10),
        others_down: seconds(1),
        idle: seconds(20),
        least_up: seconds(60),
        least_down: seconds(10),
        connect: seconds(30),
    }
}

/// A path in virtual time; it has a session a second after it is brought up.
struct Rig {
    presence: Presence,
    begin: Instant,
    now: Instant,
    reading: Reading,
    connects: bool,
    changes: Vec<(u64, PathChange)>,
}

impl Rig {
    fn new() -> Rig {
        let now = Instant::now();
        Rig {
            presence: Presence::new(now, config()),
            begin: now,
            now,
            reading: Reading::default(),
            connects: true,
            changes: Vec::new(),
        }
    }

    /// The changes within so many seconds, each with its second.
    fn live(&mut self, time: u64) -> Vec<(u64, PathChange)> {
        let (end, before) = (self.now + seconds(time), self.changes.len());
        while self.now < end {
            let up_for = self.now.saturating_duration_since(self.presence.since);
            let up = self.presence.up && up_for >= seconds(1);
            self.reading.connected = up && self.connects;
            if let Some(change) = self.presence.step(self.now, &self.reading) {
                let at = self.now.saturating_duration_since(self.begin).as_secs();
                self.changes.push((at, change));
            }
            self.now += STEP;
        }
        self.changes[before..].to_vec()
    }
}

use PathChange::{BringUp, Release};

#[test]
fn a_backlog_that_lasts_brings_it_up_and_a_short_one_does_not() {
    let mut rig = Rig::new();
    for _ in 0..10 {
        rig.reading.others_need = Duration::from_millis(400);
        assert_eq!(rig.live(4), []);
        rig.reading.others_need = Duration::ZERO;
        assert_eq!(rig.live(5), []);
    }
    rig.reading.others_need = Duration::from_millis(400);
    let [(at, BringUp(Need::Backlog))] = rig.live(12)[..] else {
        panic!("{:?}", rig.changes);
    };
    assert!((99..=101).contains(&at), "{at}");
}

#[test]
fn what_is_announced_to_be_long_brings_it_up_at_once() {
    let mut rig = Rig::new();
    assert!(!rig.presence.expect(seconds(9)));
    assert_eq!(rig.live(2), []);
    assert!(rig.presence.expect(seconds(80)));
    rig.reading.others_need = Duration::from_millis(100);
    let changes = rig.live(1);
    assert_eq!(changes, [(2, BringUp(Need::Backlog))]);
}

#[test]
fn it_is_released_once_idle_and_no_sooner_than_its_least_time() {
    let mut rig = Rig::new();
    rig.reading.pinned = true;
    assert_eq!(rig.live(5), [(0, BringUp(Need::Pinned))]);
    rig.reading.pinned = false;
    assert_eq!(rig.live(54), []);
    assert_eq!(rig.live(2), [(60, Release(Released::Idle))]);
    // It has been up for long: only the idle time counts.
    rig.reading.pinned = true;
    rig.live(100);
    rig.reading.pinned = false;
    assert_eq!(rig.live(19), []);
    assert_eq!(rig.live(2).len(), 1);
}

#[test]
fn while_more_is_sent_than_the_others_have_room_for_it_stays_up() {
    let mut rig = Rig::new();
    rig.presence.expect(seconds(80));
    rig.live(1);
    // The backlog is gone because the path carries it.
    rig.reading.beyond_others = true;
    assert_eq!(rig.live(300), []);
    rig.reading.beyond_others = false;
    assert_eq!(rig.live(22).len(), 1);
}

#[test]
fn other_paths_that_come_and_go_do_not_make_it_flap() {
    let mut rig = Rig::new();
    for second in 0..120 {
        rig.reading.others_down = second % 2 == 0;
        rig.live(1);
    }
    assert_eq!(rig.changes, []);
    for second in 0..200 {
        rig.reading.others_down = second % 4 < 2;
        rig.live(1);
    }
    let ups = rig.changes.iter();
    let ups = ups.filter(|(_, change)| matches!(change, BringUp(_)));
    assert_eq!(ups.count(), 1, "{:?}", rig.changes);
}

#[test]
fn a_backlog_waits_behind_a_release_and_what_is_pinned_does_not() {
    let mut rig = Rig::new();
    rig.reading.pinned = true;
    rig.live(1);
    rig.reading.pinned = false;
    rig.live(60);
    assert_eq!(rig.changes.len(), 2);
    rig.presence.expect(seconds(80));
    rig.reading.others_need = seconds(1);
    let changes = rig.live(20);
    let [(at, BringUp(Need::Backlog))] = changes[..] else {
        panic!("{changes:?}");
    };
    assert!(at >= 70, "{at}");

    let mut rig = Rig::new();
    rig.reading.pinned = true;
    rig.live(1);
    rig.reading.pinned = false;
    rig.live(60);
    rig.reading.pinned = true;
    assert_eq!(rig.live(1).len(), 1);
}

#[test]
fn one_without_a_session_is_released_and_tried_ever_more_seldom() {
    let mut rig = Rig::new();
    rig.connects = false;
    rig.reading.pinned = true;
    rig.live(3_600);
    let ups = rig.changes.iter();
    let ups = ups.filter(|(_, change)| matches!(change, BringUp(_)));
    let ups: Vec<u64> = ups.map(|(at, _)| *at).collect();
    let pauses: Vec<u64> = ups.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses[..4], [40, 50, 70, 110]);
    assert!(ups.len() < 12, "{ups:?}");
    assert_eq!(rig.changes[1].1, Release(Released::NoSession));
    // An operator does not have to wait.
    rig.presence.hold(Some(false));
    rig.live(1);
    rig.presence.hold(Some(true));
    let changes = rig.live(1);
    assert_eq!(changes[0].1, BringUp(Need::Operator));
}

#[test]
fn an_operator_keeps_it_up_or_released_against_all_needs() {
    let mut rig = Rig::new();
    rig.presence.hold(Some(true));
    assert_eq!(rig.live(600), [(0, BringUp(Need::Operator))]);
    rig.presence.hold(Some(false));
    rig.reading.pinned = true;
    assert_eq!(rig.live(600), [(600, Release(Released::Operator))]);
    rig.presence.hold(None);
    assert_eq!(rig.live(1), [(1_200, BringUp(Need::Pinned))]);
}

#[test]
fn what_an_operator_wants_and_fails_is_tried_ever_more_seldom_until_it_is_said_again() {
    let mut rig = Rig::new();
    rig.presence.hold(Some(true));
    let mut tries = Vec::new();
    while rig.now < rig.begin + seconds(200) {
        let [(at, BringUp(Need::Operator))] = rig.live(1)[..] else {
            continue;
        };
        tries.push(at);
        assert_eq!(rig.presence.fail(rig.now), Some(Release(Released::Failed)));
    }
    // The intervals are 10, 20, 40 and 80 s.
    assert_eq!(tries.len(), 5, "{tries:?}");
    assert!((150..160).contains(&tries[4]), "{tries:?}");
    rig.presence.hold(Some(true));
    assert!(matches!(rig.live(1)[..], [(_, BringUp(Need::Operator))]));
}

#[test]
fn the_neighbours_word_counts_for_a_while_and_only_where_it_may_ask() {
    let mut rig = Rig::new();
    rig.presence.take_word(rig.now, true);
    assert_eq!(rig.live(1), [(0, BringUp(Need::Neighbour))]);
    for _ in 0..20 {
        rig.presence.take_word(rig.now, true);
        assert_eq!(rig.live(5), []);
    }
    let changes = rig.live(60);
    let [(at, Release(Released::Idle))] = changes[..] else {
        panic!("{changes:?}");
    };
    assert!((130..=132).contains(&at), "{at}");

    // A withdrawn request no longer counts, nor does an earlier message that arrives
    // late.
    let mut rig = Rig::new();
    rig.reading.pinned = true;
    rig.live(100);
    rig.reading.pinned = false;
    let asked = rig.now;
    rig.presence.take_word(asked, true);
    assert_eq!(rig.live(1), []);
    rig.presence.take_word(rig.now, false);
    rig.presence.take_word(asked, true);
    let changes = rig.live(30);
    let [(at, Release(Released::Idle))] = changes[..] else {
        panic!("{changes:?}");
    };
    assert!((120..=122).contains(&at), "{at}");

    let mut rig = Rig::new();
    let forbidden = OnDemand {
        neighbour_asks: false,
        ..config()
    };
    rig.presence.reconfigure(forbidden);
    rig.presence.take_word(rig.now, true);
    assert_eq!(rig.live(60), []);
}

#[test]
fn where_the_path_is_barred_nothing_but_an_operator_brings_it_up() {
    let mut rig = Rig::new();
    (rig.reading.barred, rig.reading.pinned) = (true, true);
    assert_eq!(rig.live(60), []);
    rig.presence.hold(Some(true));
    assert_eq!(rig.live(1).len(), 1);
}

#[test]
fn a_node_that_does_not_dial_it_asks_now_and_then() {
    let mut rig = Rig::new();
    let asking = OnDemand {
        dials: false,
        ..config()
    };
    rig.presence = Presence::new(rig.now, asking);
    rig.reading.pinned = true;
    let mut words = Vec::new();
    for _ in 0..60 {
        assert_eq!(rig.live(1), []);
        words.extend(rig.presence.word(rig.now));
    }
    assert_eq!(words, [true; 12]);
    // It reports once that the need has ended, and ignores a moment without need.
    rig.reading.pinned = false;
    rig.now += STEP;
    rig.live(1);
    words.clear();
    for _ in 0..60 {
        words.extend(rig.presence.word(rig.now));
        rig.live(1);
    }
    assert_eq!(words, [false]);
    rig.reading.pinned = true;
    rig.live(1);
    assert_eq!(rig.presence.word(rig.now), Some(true));
}

#[test]
fn the_time_up_is_counted() {
    let mut rig = Rig::new();
    rig.reading.pinned = true;
    rig.live(30);
    let shown = rig.presence.snapshot(true);
    assert_eq!((shown.up, shown.up_time), (true, Duration::ZERO));
    rig.reading.pinned = false;
    rig.live(100);
    let shown = rig.presence.snapshot(false);
    assert_eq!((shown.up, shown.up_time), (false, seconds(60)));
    assert_eq!(shown.brought_up, BTreeMap::from([(Need::Pinned, 1)]));
}
