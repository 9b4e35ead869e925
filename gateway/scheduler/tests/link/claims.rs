//! The promises of the link scheduler, claim by claim.

use std::time::Duration;

use crate::line::{Line, MBIT, config, leaf};
use underpass_cla::Class;
use underpass_scheduler::{Config, ConfigError, Decision, LinkScheduler, TerminalId};

const SECOND: Duration = Duration::from_secs(1);

/// Asserts that `bytes` are those of `bps` in `seconds`, to within one bundle of
/// `max_bytes`.
fn assert_rate(bytes: u64, bps: u64, seconds: u64, max_bytes: u64) {
    let exact = bps * seconds / 8;
    assert!(
        bytes.abs_diff(exact) <= max_bytes,
        "{bytes} bytes, not {exact}"
    );
}

#[test]
fn beam_without_a_plan_is_shared_by_weight() {
    let mut line = Line::new(Some(100 * MBIT));
    for (id, weight) in [(1, 1), (2, 1), (3, 2)] {
        line.busy(id, weight, None, &[4]);
    }
    line.run(10 * SECOND);
    for (id, bps) in [(1, 25), (2, 25), (3, 50)] {
        assert_rate(line.bytes_of(id), bps * MBIT, 10, 1 << 20);
    }
}

#[test]
fn silent_terminals_leave_the_whole_beam_to_the_others() {
    let mut line = Line::new(Some(100 * MBIT));
    for id in 0..10 {
        line.terminal(id, 1, None);
    }
    line.ready(3, 4, true);
    line.run(10 * SECOND);
    assert_rate(line.bytes_of(3), 100 * MBIT, 10, 1 << 20);
}

#[test]
fn planned_terminals_keep_to_their_own_rates() {
    let mut line = Line::new(Some(100 * MBIT));
    line.terminal(1, 1, Some(30 * MBIT));
    line.terminal(2, 1, Some(5 * MBIT));
    line.ready(1, 4, true);
    line.ready(2, 4, true);
    line.run(10 * SECOND);
    assert_rate(line.bytes_of(1), 30 * MBIT, 10, 30 * MBIT / 160);
    assert_rate(line.bytes_of(2), 5 * MBIT, 10, 5 * MBIT / 160);
}

#[test]
fn what_a_shaped_terminal_leaves_goes_to_the_unshaped() {
    let mut line = Line::new(Some(100 * MBIT));
    line.terminal(1, 1, Some(10 * MBIT));
    line.terminal(2, 1, None);
    line.terminal(3, 1, None);
    for id in 1..=3 {
        line.ready(id, 4, true);
    }
    line.run(20 * SECOND);
    assert_rate(line.bytes_of(1), 10 * MBIT, 20, 2 << 20);
    assert_rate(line.bytes_of(2), 45 * MBIT, 20, 2 << 20);
    assert_rate(line.bytes_of(3), 45 * MBIT, 20, 2 << 20);
}

#[test]
fn link_without_any_rate_never_waits() {
    let mut line = Line::new(None);
    line.busy(1, 1, None, &[2]);
    for _ in 0..1_000 {
        assert_eq!(
            line.next(),
            Decision::Send {
                leaf: leaf(1, 2),
                max_bytes: 1 << 20
            }
        );
        line.send(leaf(1, 2), 1 << 20);
    }
    line.ready(1, 2, false);
    assert_eq!(line.next(), Decision::Idle);
}

#[test]
fn same_question_has_the_same_answer_until_something_changes() {
    let mut line = Line::new(Some(MBIT));
    line.terminal(1, 1, None);
    line.terminal(2, 1, None);
    line.ready(1, 2, true);
    line.ready(2, 2, true);
    let answer = line.next();
    assert_eq!(line.next(), answer);
    line.send(leaf(1, 2), 5_000);
    let wait = Decision::Wait(line.now() + Duration::from_millis(40));
    assert_eq!(line.next(), wait);
    assert_eq!(line.next(), wait);
}

#[test]
fn lower_class_goes_only_when_no_higher_is_ready() {
    let mut line = Line::new(Some(10 * MBIT));
    line.busy(1, 1, None, &[1, 4]);
    line.run(SECOND);
    assert_eq!(line.bytes(|sent| sent.leaf.class == Class(4)), 0);
    line.ready(1, 1, false);
    line.run(SECOND);
    assert!(line.bytes(|sent| sent.leaf.class == Class(4)) > MBIT);
}

#[test]
fn higher_class_waits_for_at_most_one_bundle() {
    let mut line = Line::new(None);
    line.busy(1, 1, Some(40 * MBIT), &[4]);
    for pause in 1..200 {
        line.run(Duration::from_micros(pause * 777));
        let asked = line.elapsed();
        line.ready(1, 1, true);
        assert_eq!(line.granted(), leaf(1, 1));
        assert!(line.elapsed() - asked <= Duration::from_millis(60));
        line.ready(1, 1, false);
    }
}

#[test]
fn classes_of_one_priority_share_by_weight() {
    let mut line = Line::new(Some(20 * MBIT));
    line.busy(1, 1, None, &[2, 3]);
    line.run(10 * SECOND);
    assert_rate(
        line.bytes(|sent| sent.leaf.class == Class(2)),
        5 * MBIT,
        10,
        125_000,
    );
    assert_rate(
        line.bytes(|sent| sent.leaf.class == Class(3)),
        15 * MBIT,
        10,
        125_000,
    );
}

#[test]
fn signalling_goes_before_every_other_class_of_the_beam() {
    let mut line = Line::new(Some(100 * MBIT));
    for id in 0..1_000 {
        line.busy(id, 1, None, &[1]);
    }
    line.run(SECOND);
    line.ready(777, 0, true);
    line.run(Duration::from_millis(50));
    let first = line.log.iter().find(|sent| sent.at > SECOND).unwrap();
    assert_eq!(first.leaf, leaf(777, 0));
}

#[test]
fn signalling_counts_against_its_terminals_share() {
    let mut line = Line::new(Some(10 * MBIT));
    line.terminal(1, 1, None);
    line.terminal(2, 1, None);
    line.ready(1, 4, true);
    line.ready(2, 4, true);
    for _ in 0..100 {
        line.ready(1, 0, true);
        let signalling = line.granted();
        line.send(signalling, 10_000);
        line.ready(1, 0, false);
        line.run(SECOND / 10);
    }
    assert!(line.bytes_of(1).abs_diff(line.bytes_of(2)) < 200_000);
}

#[test]
fn rate_change_takes_effect_at_once() {
    let mut line = Line::new(None);
    line.busy(1, 1, Some(MBIT), &[4]);
    line.run(10 * SECOND);
    let slow = line.bytes_of(1);
    assert_rate(slow, MBIT, 10, 6_250);
    line.rate(1, Some(50 * MBIT));
    line.run(10 * SECOND);
    let fast = line.bytes_of(1) - slow;
    assert_rate(fast, 50 * MBIT, 10, 400_000);
    line.rate(1, Some(0));
    line.run(SECOND);
    assert_eq!(line.bytes_of(1), slow + fast);
    line.rate(1, None);
    assert!(matches!(line.next(), Decision::Send { .. }));
}

#[test]
fn beams_rate_changes_at_once_too() {
    let mut line = Line::new(Some(MBIT));
    line.busy(1, 1, None, &[4]);
    line.run(SECOND);
    let now = line.now();
    line.link.set_root_rate(now, Some(100 * MBIT));
    let before = line.bytes_of(1);
    line.run(10 * SECOND);
    assert_rate(line.bytes_of(1) - before, 100 * MBIT, 10, 700_000);
    let now = line.now();
    line.link.set_root_rate(now, Some(0));
    assert_eq!(line.next(), Decision::Idle);
}

#[test]
fn blocked_terminal_sends_nothing_and_harms_nobody() {
    let mut line = Line::new(Some(10 * MBIT));
    line.terminal(1, 1, None);
    line.terminal(2, 1, None);
    line.ready(1, 0, true);
    line.ready(1, 4, true);
    line.ready(2, 4, true);
    line.blocked(1, true);
    line.run(10 * SECOND);
    assert_eq!(line.bytes_of(1), 0);
    assert_rate(line.bytes_of(2), 10 * MBIT, 10, 62_500);
}

#[test]
fn unblocked_terminal_resumes_at_once_with_one_small_burst() {
    let mut line = Line::new(None);
    line.busy(1, 1, Some(8 * MBIT), &[4]);
    line.run(SECOND);
    line.blocked(1, true);
    assert_eq!(line.next(), Decision::Idle);
    line.run(60 * SECOND);
    line.blocked(1, false);
    assert!(matches!(line.next(), Decision::Send { .. }));
    let before = line.bytes_of(1);
    line.run(Duration::ZERO);
    // One bundle, and a second one on the credit of another.
    assert!(line.bytes_of(1) - before <= 2 * 60_000);
    line.run(SECOND);
    assert!(line.bytes_of(1) - before <= 1_000_000 + 2 * 60_000);
}

#[test]
fn other_traffic_is_subtracted_from_path_and_beam() {
    let mut line = Line::new(Some(3 * MBIT));
    line.terminal(1, 1, Some(2 * MBIT));
    line.terminal(2, 1, None);
    line.ready(1, 4, true);
    line.ready(2, 4, true);
    let now = line.now();
    line.link.subtract(now, TerminalId(1), 700_000);
    line.run(100 * SECOND);
    assert_rate(line.bytes_of(1), 1_150_000, 100, 20_000);
    assert_rate(line.bytes_of(2), 1_150_000, 100, 20_000);
    line.link.remove_terminal(line.now(), TerminalId(1));
    let before = line.bytes_of(2);
    line.run(100 * SECOND);
    assert_rate(line.bytes_of(2) - before, 3 * MBIT, 100, 40_000);
}

#[test]
fn other_traffic_never_takes_the_last_tenth() {
    let mut line = Line::new(None);
    line.busy(1, 1, Some(2 * MBIT), &[0]);
    let now = line.now();
    line.link.subtract(now, TerminalId(1), u64::MAX);
    line.run(100 * SECOND);
    assert_rate(line.bytes_of(1), 200_000, 100, 4_096);
}

#[test]
fn a_lower_rate_first_pays_for_what_was_granted_at_the_higher() {
    let mut line = Line::new(None);
    line.busy(1, 1, Some(20 * MBIT), &[4]);
    line.run(SECOND);
    let (now, granted) = (line.now(), line.bytes_of(1));
    line.link.set_rate(now, TerminalId(1), Some(MBIT));
    let unsent = [(Class(4), 200_000)];
    line.link.wait_for_unsent(now, TerminalId(1), &unsent);
    // 200 kB take 1.6 s at the new rate, by which the next bundle may be early.
    line.run(SECOND * 3 / 2);
    assert_eq!(line.bytes_of(1), granted);
    // Less than the debt changes nothing.
    let now = line.now();
    line.link
        .wait_for_unsent(now, TerminalId(1), &[(Class(4), 0)]);
    line.run(SECOND * 21 / 2);
    assert_rate(line.bytes_of(1) + 200_000 - granted, MBIT, 12, 15_000);
}

#[test]
fn retransmissions_are_paid_from_the_same_rate() {
    let mut line = Line::new(None);
    line.busy(1, 1, Some(8 * MBIT), &[4]);
    for _ in 0..100 {
        line.run(SECOND / 10);
        line.send(leaf(1, 4), 10_000);
    }
    assert_rate(line.bytes_of(1), 8 * MBIT, 10, 60_000);
}

#[test]
fn bundles_take_sixty_milliseconds_of_the_line() {
    let mut line = Line::new(Some(140 * MBIT));
    line.terminal(1, 1, None);
    line.terminal(2, 1, Some(40 * MBIT));
    line.terminal(3, 1, Some(64_000));
    let size = |line: &Line, id| line.link.max_bundle_bytes(TerminalId(id));
    assert_eq!(size(&line, 1), 1_048_576);
    assert_eq!(size(&line, 2), 300_000);
    assert_eq!(size(&line, 3), 4_096);
    assert_eq!(size(&line, 9), 4_096);
    line.busy(4, 6, None, &[2]);
    assert_eq!(size(&line, 1), 150_000, "a seventh of the beam");
    line.rate(2, None);
    line.link.set_root_rate(line.now(), None);
    assert_eq!(size(&line, 2), 1 << 20);
}

/// A beam shared by this many terminals with bulk, class 4.
fn shared_beam(terminals: u64, bps: u64) -> Line {
    let mut line = Line::new(Some(bps));
    for id in 0..terminals {
        line.busy(id, 1, None, &[4]);
    }
    line
}

#[test]
fn bundles_of_a_small_share_take_two_milliseconds_of_the_beam() {
    let size = |line: &Line| line.link.max_bundle_bytes(TerminalId(0));
    assert_eq!(size(&shared_beam(100, 140 * MBIT)), 35_000);
    // 500 ms of a share, and 60 ms of one, bound it.
    assert_eq!(size(&shared_beam(1_000, 140 * MBIT)), 8_750);
    assert_eq!(size(&shared_beam(10, 140 * MBIT)), 105_000);
    let mut line = shared_beam(100, 140 * MBIT);
    line.rate(0, Some(MBIT));
    assert_eq!(size(&line), 7_500, "60 ms of its own rate");
}

#[test]
fn sparse_bundles_wait_for_no_turn() {
    let mut line = shared_beam(100, 400 * MBIT);
    line.run(SECOND);
    for round in 0..100 {
        let id = line.log.last().expect("the beam is full").leaf.terminal.0;
        let class = 1 + 3 * (round % 2) as u8;
        line.link.set_sparse(leaf(id, class), true).unwrap();
        line.ready(id, class, true);
        // It goes behind the bundle on the line.
        assert_eq!(line.granted(), leaf(id, class));
        let Decision::Send {
            leaf: of,
            max_bytes,
        } = line.next()
        else {
            panic!("it was granted");
        };
        assert_eq!(max_bytes, 30_000, "60 ms of a share");
        line.send(of, 1_000);
        line.ready(id, 1, false);
        line.link.set_sparse(of, false).unwrap();
        line.run(Duration::from_millis(20));
    }
}

#[test]
fn signalling_and_what_is_sparse_take_nothing_from_the_share_of_what_lasts() {
    let mut line = Line::new(Some(8 * MBIT));
    for id in 1..=4 {
        line.terminal(id, id, None);
    }
    let share = |line: &Line| line.link.share_bps(TerminalId(1));
    line.ready(2, 0, true);
    line.link.set_sparse(leaf(3, 4), true).unwrap();
    line.ready(3, 4, true);
    assert_eq!(share(&line), Some(8 * MBIT));
    line.ready(2, 4, true);
    assert_eq!(share(&line), Some(8 * MBIT / 3));
    line.ready(1, 4, true);
    assert_eq!(share(&line), Some(8 * MBIT / 3), "it is counted once");
    line.link.set_sparse(leaf(3, 4), false).unwrap();
    assert_eq!(share(&line), Some(8 * MBIT / 6));
    line.blocked(2, true);
    assert_eq!(share(&line), Some(2 * MBIT));
    let now = line.now();
    line.link.remove_terminal(now, TerminalId(3));
    assert_eq!(share(&line), Some(8 * MBIT));
}

#[test]
fn sparse_bundles_are_of_their_terminals_share() {
    let mut line = shared_beam(100, 400 * MBIT);
    // One terminal declares all that it sends as sparse.
    line.link.set_sparse(leaf(7, 4), true).unwrap();
    line.run(10 * SECOND);
    let (own, others) = (line.bytes_of(7), line.bytes_of(8));
    assert!(own <= others + 3 * 100_000, "{own} against {others}");
    // The same if all of them do.
    for id in 0..50 {
        line.link.set_sparse(leaf(id, 4), true).unwrap();
    }
    let before = [line.bytes_of(3), line.bytes_of(90)];
    line.run(10 * SECOND);
    let of_share = |id, before| (line.bytes_of(id) - before) as f64 / 5_000_000.0;
    assert!(of_share(3, before[0]) < 1.08, "{}", of_share(3, before[0]));
    assert!(
        of_share(90, before[1]) > 0.92,
        "{}",
        of_share(90, before[1])
    );
}

#[test]
fn late_timers_cost_no_rate() {
    let mut line = Line::new(None);
    line.busy(1, 1, Some(40 * MBIT), &[4]);
    for _ in 0..3_000 {
        if let Decision::Wait(until) = line.next() {
            line.pass(until - line.now() + Duration::from_millis(3));
        }
        while let Decision::Send { leaf, max_bytes } = line.next() {
            line.send(leaf, max_bytes);
        }
    }
    let seconds = line.elapsed().as_secs_f64();
    let used = line.bytes_of(1) as f64 * 8.0 / seconds / (40 * MBIT) as f64;
    assert!((0.999..1.001).contains(&used), "{used}");
}

#[test]
fn only_the_configured_part_of_a_rate_is_used() {
    let config = Config {
        utilisation: 0.985,
        ..config()
    };
    let mut link = LinkScheduler::new(&config).unwrap();
    let start = std::time::Instant::now();
    link.add_terminal(start, TerminalId(1), 1, Some(100 * MBIT));
    link.set_ready(leaf(1, 4), true).unwrap();
    assert_eq!(link.max_bundle_bytes(TerminalId(1)), 738_750);
    link.sent(start, leaf(1, 4), 985_000);
    assert_eq!(
        link.next(start),
        Decision::Wait(start + Duration::from_millis(80))
    );
}

#[test]
fn impossible_configurations_are_refused() {
    for utilisation in [0.0, -1.0, 1.01, f64::NAN, f64::INFINITY] {
        let refused = LinkScheduler::new(&Config {
            utilisation,
            ..config()
        });
        assert!(
            matches!(refused, Err(ConfigError::Utilisation(_))),
            "{utilisation}"
        );
    }
    let refused = LinkScheduler::new(&Config {
        classes: vec![],
        utilisation: 1.0,
    });
    assert!(matches!(refused, Err(ConfigError::Classes(_))));
}

#[test]
fn unknown_leaves_are_named_and_harmless() {
    let mut line = Line::new(Some(MBIT));
    line.terminal(1, 1, None);
    assert!(line.link.set_ready(leaf(2, 1), true).is_err());
    let unknown = line.link.set_ready(leaf(1, 200), true).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "the scheduler knows no class 200 of terminal 1"
    );
    assert_eq!(line.next(), Decision::Idle);
}

#[test]
fn removed_terminal_is_gone_and_its_place_can_be_taken() {
    let mut line = Line::new(Some(MBIT));
    for (id, rate) in [(1, Some(MBIT)), (2, None)] {
        line.busy(id, 1, rate, &[0, 4]);
        line.send(leaf(id, 4), 100_000);
        let now = line.now();
        line.link.remove_terminal(now, TerminalId(id));
        line.run(10 * SECOND);
        assert_eq!(line.next(), Decision::Idle);
    }
    line.busy(3, 1, None, &[4]);
    assert!(matches!(line.next(), Decision::Send { leaf: granted, .. } if granted == leaf(3, 4)));
}

#[test]
fn weights_of_classes_change_while_they_wait() {
    let mut line = Line::new(Some(20 * MBIT));
    line.busy(1, 1, None, &[2, 3]);
    line.run(SECOND);
    let mut classes = config().classes;
    for class in &mut classes {
        // Two to one instead of one to three.
        class.weight = if class.class == Class(2) { 2 } else { 1 };
    }
    line.link.set_class_weights(&classes).unwrap();
    let of = |line: &Line, class| line.bytes(|sent| sent.leaf.class == Class(class));
    let before = (of(&line, 2), of(&line, 3));
    line.run(9 * SECOND);
    let two = of(&line, 2) - before.0;
    let three = of(&line, 3) - before.1;
    assert!(two.abs_diff(2 * three) < three / 20, "{two} and {three}");
}

#[test]
fn other_classes_or_priorities_are_refused_and_change_nothing() {
    let mut line = Line::new(Some(MBIT));
    line.terminal(1, 1, None);
    let classes = config().classes;
    let fewer = &classes[..classes.len() - 1];
    let mut moved = classes.clone();
    moved[1].priority = 99;
    for wrong in [fewer, &moved] {
        let refused = line.link.set_class_weights(wrong);
        assert_eq!(refused, Err(ConfigError::OtherClasses));
    }
    line.ready(1, 2, true);
    assert!(matches!(line.next(), Decision::Send { .. }));
}
