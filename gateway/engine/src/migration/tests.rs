use super::*;

const NEAR: HopId = HopId(0);
const FAR: HopId = HopId(1);
const STEP: Duration = Duration::from_millis(250);

/// A class on two paths, in virtual time.
struct Rig {
    tunnel: Tunnel,
    rule: MigrationRule,
    now: Instant,
    paths: [PathReading; 2],
    demand_bps: u64,
    moves: Vec<(Duration, HopId, MoveReason)>,
    begin: Instant,
}

impl Rig {
    fn new() -> Rig {
        let path = |id, rate, base_ms| PathReading {
            id,
            able: true,
            load_bps: 0,
            rate_bps: Some(rate),
            best_bps: Some(rate),
            base: Duration::from_millis(base_ms),
            delay: Duration::from_millis(base_ms),
            waits: Duration::ZERO,
            loss: 0.0,
        };
        let now = Instant::now();
        let paths = [path(NEAR, 10_000_000, 30), path(FAR, 40_000_000, 530)];
        let mut rig = Rig {
            tunnel: Tunnel::default(),
            rule: MigrationRule::default(),
            now,
            paths,
            demand_bps: 4_000_000,
            moves: Vec::new(),
            begin: now,
        };
        rig.live(STEP);
        rig
    }

    fn live(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let step = self
                .tunnel
                .step(self.now, &self.rule, &self.paths, self.demand_bps);
            if let Some(step) = step {
                let at = self.now - self.begin;
                self.moves.push((at, step.to, step.reason));
            }
            self.now += STEP;
        }
    }

    fn seconds(&mut self, seconds: u64) -> &[(Duration, HopId, MoveReason)] {
        let before = self.moves.len();
        self.live(Duration::from_secs(seconds));
        &self.moves[before..]
    }

    fn congest(&mut self) {
        self.paths[0].load_bps = 9_800_000;
        self.paths[0].delay = Duration::from_millis(150);
    }

    fn relieve(&mut self) {
        self.paths[0].load_bps = 1_000_000;
        self.paths[0].delay = self.paths[0].base;
    }
}

#[test]
fn it_begins_on_the_preferred_path_and_that_is_no_move() {
    let mut rig = Rig::new();
    assert_eq!(rig.tunnel.path(), Some(NEAR));
    assert_eq!(rig.seconds(60), []);
}

#[test]
fn where_an_operator_kept_it_before_this_run_it_goes_once_that_can_carry() {
    let mut rig = Rig::new();
    rig.paths[1].able = false;
    rig.tunnel.expect(FAR);
    assert_eq!(rig.seconds(30), []);
    rig.paths[1].able = true;
    let [(_, FAR, MoveReason::Operator)] = rig.seconds(1) else {
        panic!("{:?}", rig.moves);
    };
    // Later the class moves back as from any other path: with hysteresis.
    rig.paths[1].able = false;
    rig.seconds(1);
    rig.paths[1].able = true;
    assert_eq!(rig.seconds(9), []);
    let [(_, FAR, MoveReason::Back)] = rig.seconds(3) else {
        panic!("{:?}", rig.moves);
    };
    rig.tunnel.release();
    let [(_, NEAR, MoveReason::Back)] = rig.seconds(30) else {
        panic!("{:?}", rig.moves);
    };
}

#[test]
fn a_full_path_of_five_times_the_delay_is_left_after_five_seconds() {
    let mut rig = Rig::new();
    rig.congest();
    assert_eq!(rig.seconds(5), []);
    let [(_, FAR, MoveReason::Delay)] = rig.seconds(1) else {
        panic!("{:?}", rig.moves);
    };
}

#[test]
fn neither_a_full_path_alone_nor_delay_alone_moves_anything() {
    let mut rig = Rig::new();
    rig.congest();
    rig.paths[0].delay = Duration::from_millis(149);
    assert_eq!(rig.seconds(60), []);
    rig.congest();
    rig.paths[0].load_bps = 8_900_000;
    assert_eq!(rig.seconds(60), []);
}

/// Others share the path's queue: each drain leaves moments with none of our bytes in it.
#[test]
fn what_waits_for_long_shows_that_a_path_is_full() {
    let mut rig = Rig::new();
    let mut seconds = 0;
    while rig.moves.is_empty() && seconds < 20 {
        rig.paths[0].load_bps = [9_500_000, 4_000_000][seconds % 2];
        rig.paths[0].waits = Duration::from_secs(2);
        rig.paths[0].delay = rig.paths[0].base + rig.paths[0].waits;
        rig.seconds(1);
        seconds += 1;
    }
    assert_eq!(seconds, 6);
    assert_eq!(rig.moves[0].2, MoveReason::Delay);
    // A moment's backlog on a path with room does not count.
    let mut rig = Rig::new();
    for _ in 0..20 {
        rig.paths[0].waits = Duration::from_millis(160);
        rig.paths[0].delay = rig.paths[0].base + rig.paths[0].waits;
        assert_eq!(rig.seconds(3), []);
        rig.paths[0].waits = Duration::ZERO;
        rig.relieve();
        assert_eq!(rig.seconds(1), []);
    }
}

#[test]
fn trouble_that_pauses_begins_anew() {
    let mut rig = Rig::new();
    for _ in 0..10 {
        rig.congest();
        assert_eq!(rig.seconds(4), []);
        rig.relieve();
        assert_eq!(rig.seconds(1), []);
    }
}

#[test]
fn delay_is_given_three_times_as_long_where_another_class_has_just_left() {
    let mut rig = Rig::new();
    rig.congest();
    assert_eq!(rig.seconds(3), []);
    rig.tunnel.relieve(rig.now);
    assert_eq!(rig.seconds(15), []);
    assert_eq!(rig.seconds(1).len(), 1);
    // Losses are not delay, and later it is as before.
    for (pause, loss) in [(0, 0.1), (30, 0.0)] {
        let mut rig = Rig::new();
        rig.tunnel.relieve(rig.now);
        rig.seconds(pause);
        rig.congest();
        rig.paths[0].loss = loss;
        assert_eq!(rig.seconds(5), []);
        assert_eq!(rig.seconds(1).len(), 1);
    }
}

#[test]
fn loss_and_a_rate_that_falls_are_trouble_too() {
    let mut rig = Rig::new();
    rig.paths[0].loss = 0.1;
    assert_eq!(rig.seconds(6).len(), 1);
    assert_eq!(rig.moves[0].2, MoveReason::Loss);
    let mut rig = Rig::new();
    rig.seconds(1);
    (rig.paths[0].rate_bps, rig.paths[0].load_bps) = (Some(2_500_000), 2_500_000);
    assert_eq!(rig.seconds(6).len(), 1);
    assert_eq!(rig.moves[0].2, MoveReason::Rate);
}

#[test]
fn it_stays_where_no_other_path_has_room() {
    let mut rig = Rig::new();
    rig.congest();
    rig.paths[1].load_bps = 30_000_000;
    assert_eq!(rig.seconds(60), []);
}

#[test]
fn it_comes_back_only_after_there_was_room_for_ten_seconds() {
    let mut rig = Rig::new();
    rig.congest();
    rig.seconds(6);
    // The free capacity there is not enough for the class.
    rig.paths[0].delay = rig.paths[0].base;
    rig.paths[0].load_bps = 5_000_000;
    assert_eq!(rig.seconds(120), []);
    rig.paths[0].load_bps = 3_000_000;
    assert_eq!(rig.seconds(9), []);
    assert_eq!(rig.seconds(2).len(), 1);
    assert_eq!(rig.tunnel.path(), Some(NEAR));
    assert_eq!(rig.moves[1].2, MoveReason::Back);
}

/// Nothing is sent there meanwhile, so its estimate does not change.
#[test]
fn a_path_that_has_faded_is_tried_and_left_soon_if_it_carries_no_more() {
    let mut rig = Rig::new();
    let fade = |rig: &mut Rig| {
        rig.paths[0].rate_bps = Some(1_000_000);
        rig.paths[0].load_bps = 1_000_000;
        rig.paths[0].delay = Duration::from_secs(1);
    };
    let rest = |rig: &mut Rig| {
        rig.paths[0].load_bps = 0;
        rig.paths[0].delay = rig.paths[0].base;
    };
    fade(&mut rig);
    assert_eq!(rig.seconds(5), []);
    assert_eq!(rig.seconds(1).len(), 1);
    for waits in [10, 20, 40, 80, 160, 160] {
        rest(&mut rig);
        // It has been so for up to a second.
        assert_eq!(rig.seconds(waits - 2), []);
        let [(_, NEAR, MoveReason::Back)] = rig.seconds(3) else {
            panic!("{:?}", rig.moves);
        };
        fade(&mut rig);
        // Two seconds and four round trips.
        let [(_, FAR, MoveReason::Delay)] = rig.seconds(3) else {
            panic!("{:?}", rig.moves);
        };
    }
    // The path carries as much as before: then everything is as before.
    rest(&mut rig);
    assert_eq!(rig.seconds(162).len(), 1);
    rig.paths[0].rate_bps = Some(10_000_000);
    rig.paths[0].load_bps = 4_000_000;
    assert_eq!(rig.seconds(120), []);
    rig.congest();
    assert_eq!(rig.seconds(5), []);
    assert_eq!(rig.seconds(1).len(), 1);
}

#[test]
fn what_a_path_carried_once_is_no_reason_to_flee_there() {
    let mut rig = Rig::new();
    rig.congest();
    rig.paths[1].rate_bps = Some(1_000_000);
    assert_eq!(rig.seconds(60), []);
}

#[test]
fn a_path_that_dies_is_left_at_once() {
    let mut rig = Rig::new();
    rig.paths[0].able = false;
    let [(_, FAR, MoveReason::Down)] = rig.seconds(1) else {
        panic!("{:?}", rig.moves);
    };
    // If no path is left the class stays where it is.
    rig.paths[1].able = false;
    assert_eq!(rig.seconds(5), []);
    rig.paths[1].able = true;
    assert_eq!(rig.seconds(5), []);
}

#[test]
fn a_path_that_flaps_each_second_is_left_once() {
    let mut rig = Rig::new();
    for _ in 0..300 {
        rig.paths[0].able = false;
        rig.live(Duration::from_millis(500));
        rig.paths[0].able = true;
        rig.live(Duration::from_millis(500));
    }
    assert_eq!(rig.moves.len(), 1, "{:?}", rig.moves);
}

#[test]
fn a_path_that_has_to_be_left_again_and_again_is_gone_back_to_ever_later() {
    let mut rig = Rig::new();
    for _ in 0..100 {
        rig.paths[0].able = false;
        rig.live(STEP);
        rig.paths[0].able = true;
        rig.live(Duration::from_secs(11));
    }
    // 1,125 s: back after 10, 20, 40, 80 and then 160 s of an able path, which is never
    // able for longer than 11.
    assert!(rig.moves.len() <= 4, "{:?}", rig.moves);
}

#[test]
fn an_operator_moves_it_and_keeps_it_there_but_not_on_a_dead_path() {
    let mut rig = Rig::new();
    assert!(rig.tunnel.order(rig.now, FAR, true).is_some());
    assert_eq!(rig.seconds(60), []);
    (rig.paths[1].load_bps, rig.paths[1].delay) = (40_000_000, 9 * rig.paths[1].base);
    assert_eq!(rig.seconds(60), []);
    rig.paths[1].able = false;
    assert_eq!(rig.seconds(1).len(), 1);
    assert_eq!(rig.tunnel.path(), Some(NEAR));
    rig.paths[1].able = true;
    assert_eq!(rig.seconds(9), []);
    assert_eq!(rig.seconds(2).len(), 1);
    assert_eq!(rig.tunnel.path(), Some(FAR));
    // Without the order, the class moves where the rule wants it.
    rig.tunnel.order(rig.now, FAR, false);
    rig.paths[0].load_bps = 0;
    assert_eq!(rig.seconds(12).len(), 1);
    assert_eq!(rig.tunnel.path(), Some(NEAR));
}

#[test]
fn without_the_rule_only_death_and_return_move_it() {
    let mut rig = Rig::new();
    rig.rule.after = None;
    rig.congest();
    assert_eq!(rig.seconds(60), []);
    rig.paths[0].able = false;
    assert_eq!(rig.seconds(1).len(), 1);
    rig.paths[0].able = true;
    assert_eq!(rig.seconds(12).len(), 1);
    assert_eq!(rig.tunnel.path(), Some(NEAR));
}

#[test]
fn a_path_that_is_taken_away_is_neither_used_nor_held() {
    let mut rig = Rig::new();
    rig.tunnel.order(rig.now, FAR, true);
    let only = [rig.paths[0]];
    let step = rig.tunnel.step(rig.now, &rig.rule, &only, 0);
    assert_eq!(step.map(|step| step.to), Some(NEAR));
    assert_eq!(rig.tunnel.held, None);
}
