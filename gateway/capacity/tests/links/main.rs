//! The estimator on links that differ from what it was told.

mod acks;
mod beacons;
mod course;
mod demand;
mod intermittent;
mod model;
mod old;
mod on_demand;
mod pages;
mod random;
mod start;
mod tcp;
mod traced;
mod way_back;
mod windows;
mod word;

use std::f64::consts::TAU;
use std::time::{Duration, Instant};

use course::Course;
use model::pairs::{run_beside, run_both};
use model::{Link, Sender, run};
use random::{Random, seeds};
use underpass_capacity::{Estimator, Limits, Reading, Reason, WayThere};

const EACH_MS: u64 = 25;

fn told(ceiling: f64) -> Sender {
    Sender::Found(Limits {
        ceiling_bps: Some(ceiling as u64),
        ..Limits::default()
    })
}

fn hinted(hint: f64) -> Sender {
    Sender::Found(Limits {
        hint_bps: Some(hint as u64),
        ..Limits::default()
    })
}

fn show(name: &str, course: &Course, from: f64, to: f64) {
    println!(
        "{name}: used {:.3}, queue p50 {:.0} p95 {:.0} max {:.0} ms, least estimate {:.1} Mbit/s",
        course.used(from, to),
        course.queue(0.5, from, to) * 1e3,
        course.queue(0.95, from, to) * 1e3,
        course.queue(1.0, from, to) * 1e3,
        course.least_estimate(from, to) / 1e6,
    );
}

#[test]
fn a_link_as_it_was_told_is_never_lowered() {
    for (rate, rtt) in [(140e6, 0.6), (40e6, 0.56), (2e6, 0.56), (256e3, 0.6)] {
        let course = run(&Link::new(move |_| rate, rtt), &told(rate), 40.0, EACH_MS);
        show("told", &course, 2.0, 40.0);
        assert!(course.used(2.0, 40.0) > 0.97);
        assert!(course.least_estimate(0.0, 40.0) > 0.97 * rate);
    }
}

#[test]
fn a_link_with_less_than_the_ceiling_is_found_at_once() {
    for part in [0.93, 0.5, 1.0 / 7.0] {
        let real = 140e6 * part;
        let course = run(&Link::new(move |_| real, 0.6), &told(140e6), 40.0, EACH_MS);
        show(&format!("{part:.2} of the ceiling"), &course, 10.0, 40.0);
        assert!(course.used(10.0, 40.0) > 0.93);
        assert!(course.queue(0.95, 10.0, 40.0) < 0.1);
    }
}

#[test]
fn a_link_with_twice_the_hint_is_found_within_ten_round_trips() {
    for rtt in [0.6, 0.05] {
        let course = run(&Link::new(|_| 140e6, rtt), &hinted(70e6), 60.0, EACH_MS);
        let found = course.reaches(0.95 * 140e6, 0.0);
        println!("rtt {rtt}: found after {found:.2} s");
        show("twice", &course, 12.0 * rtt, 60.0);
        assert!(found < 11.0 * rtt.max(0.3));
        assert!(course.used(12.0 * rtt, 60.0) > 0.93);
        assert!(course.queue(0.95, 12.0 * rtt, 60.0) < 0.1);
    }
}

/// The longest time, s, without two successive seconds that show a limit.
fn longest_without_limit(reasons: &[Option<Reason>]) -> usize {
    let (mut longest, mut since) = (0, 0);
    for pair in reasons.windows(2) {
        since = match pair {
            [Some(Reason::Limit), Some(Reason::Limit)] => 0,
            _ => since + 1,
        };
        longest = longest.max(since);
    }
    longest
}

#[test]
fn a_limit_is_told_as_one_and_a_guess_is_not() {
    for part in [0.93, 0.25] {
        let real = 40e6 * part;
        let course = run(&Link::new(move |_| real, 0.6), &told(40e6), 60.0, EACH_MS);
        let longest = longest_without_limit(&course.reasons[5..]);
        println!("{part:.2} of the ceiling: {longest} s without a limit");
        assert!(longest <= 10, "{:?}", course.reasons);
    }
    let as_told = run(&Link::new(|_| 40e6, 0.6), &told(40e6), 40.0, EACH_MS);
    assert!(
        as_told.reasons.iter().all(Option::is_none),
        "{:?}",
        as_told.reasons
    );
    let mut idle = Link::new(|_| 40e6, 0.6);
    idle.offered = Box::new(|_| 1e6);
    let little = run(&idle, &hinted(10e6), 20.0, EACH_MS);
    assert!(
        little
            .reasons
            .iter()
            .all(|reason| *reason == Some(Reason::Hint))
    );
    let rising = run(&Link::new(|_| 40e6, 0.6), &hinted(10e6), 3.0, EACH_MS);
    assert_eq!(
        rising.reasons[2],
        Some(Reason::Probe),
        "{:?}",
        rising.reasons
    );
}

#[test]
fn a_step_down_is_answered_within_a_round_trip_and_200_ms() {
    for (before, after) in [(40e6, 20e6), (70e6, 10e6), (100e6, 12.5e6)] {
        let link = Link::new(move |t| if t < 20.0 { before } else { after }, 0.56);
        let course = run(&link, &told(before), 60.0, EACH_MS);
        show("step", &course, 20.0, 60.0);
        let at = 20.0 + 0.56 + 0.2;
        assert!(course.least_estimate(20.0, at) < 1.1 * after);
        // All bits that were sent too fast leave the queue within their line time.
        let sent_too_fast = (before - after) * 0.76 / after;
        let drained = at + sent_too_fast.min(1.2) + 0.3;
        show("from then", &course, drained, 60.0);
        assert!(course.queue(0.95, drained, 60.0) < 0.1);
        assert!(course.used(drained, 60.0) > 0.93);
    }
}

#[test]
fn a_fade_is_followed_down_and_up() {
    // 8 : 1 in steps of 1 dB, 0.5 dB/s.
    let rate = |t: f64| {
        let depth = match t % 120.0 {
            t if t < 20.0 => 0.0,
            t if t < 38.0 => (t - 20.0) * 0.5,
            t if t < 70.0 => 9.0,
            t if t < 88.0 => 9.0 - (t - 70.0) * 0.5,
            _ => 0.0,
        };
        100e6 * 10_f64.powf(-depth.ceil() / 10.0)
    };
    let mut link = Link::new(rate, 0.6);
    link.loss = Box::new(|_| 0.0005);
    let course = run(&link, &told(100e6), 120.0, EACH_MS);
    show("fade", &course, 0.6, 120.0);
    assert!(course.used(0.6, 120.0) > 0.93);
    assert!(course.queue(0.95, 0.6, 120.0) < 0.1);
}

fn leo(seed: u64) -> Link {
    let mut random = Random::new(seed);
    let steps: Vec<(f64, f64, f64)> = (0..20)
        .map(|_| {
            (
                10e6 + 60e6 * random.part(),
                0.025 + 0.035 * random.part(),
                0.005 + 0.055 * random.part(),
            )
        })
        .collect();
    let (rates, delays, losses, told) = (steps.clone(), steps.clone(), steps.clone(), steps);
    let at = |t: f64| (t / 15.0) as usize % 20;
    let mut link = Link::new(move |t| rates[at(t)].0, 0.05);
    let back = delays.clone();
    link.there = Box::new(move |t| delays[at(t)].1 / 2.0);
    link.back = Box::new(move |t| back[at(t)].1 / 2.0);
    link.loss = Box::new(move |t| losses[at(t)].2);
    link.queue_s = 0.5;
    // A longer way back looks like a queue until five beacons have shown otherwise.
    link.told_back = Some(Box::new(move |t| match t % 15.0 < 0.75 {
        true => (told[at(t)].1 - told[at((t - 15.0).max(0.0))].1).max(0.0) / 2.0,
        false => 0.0,
    }));
    link
}

#[test]
fn leo_steps_are_followed_with_no_more_queue_than_by_somebody_who_knows_them() {
    for seed in 0..5 {
        let oracle = run(&leo(seed), &Sender::Oracle(0.25), 300.0, EACH_MS);
        let course = run(&leo(seed), &told(100e6), 300.0, EACH_MS);
        show("oracle", &oracle, 1.0, 300.0);
        show("leo", &course, 1.0, 300.0);
        assert!(course.used(1.0, 300.0) > oracle.used(1.0, 300.0) - 0.045);
        assert!(course.queue(0.95, 1.0, 300.0) < oracle.queue(0.95, 1.0, 300.0) + 0.02);
    }
}

#[test]
fn jitter_and_bunches_are_no_queue() {
    for (jitter, bunch) in [(0.015, 0.0), (0.0, 0.1), (0.015, 0.1)] {
        for rate in [40e6, 2e6] {
            let mut link = Link::new(move |_| rate, 0.6);
            link.jitter_s = jitter;
            link.bunch_s = bunch;
            let course = run(&link, &told(rate), 60.0, EACH_MS);
            show(
                &format!("jitter {jitter} bunch {bunch}"),
                &course,
                2.0,
                60.0,
            );
            assert!(course.used(2.0, 60.0) > 0.95);
            let half = run(&link, &told(2.0 * rate), 60.0, EACH_MS);
            show("  told twice", &half, 10.0, 60.0);
            assert!(half.used(10.0, 60.0) > 0.9);
            assert!(half.queue(0.95, 10.0, 60.0) < 0.16);
        }
    }
}

#[test]
fn what_others_take_is_left_to_them_and_taken_back() {
    let mut link = Link::new(|_| 40e6, 0.56);
    link.others = Box::new(|t| if (20.0..40.0).contains(&t) { 12e6 } else { 0.0 });
    let course = run(&link, &told(40e6), 60.0, EACH_MS);
    show("others", &course, 20.0, 40.0);
    show("after", &course, 42.0, 60.0);
    assert!(course.used(21.0, 40.0) > 0.93);
    assert!(course.queue(0.95, 21.5, 40.0) < 0.1);
    assert!(course.used(44.0, 60.0) > 0.93);
}

/// Two terminals of a hub share a medium whose rate nobody knows: each of them drains the queue.
#[test]
fn two_who_know_nothing_of_their_common_link_leave_no_standing_queue() {
    for rtt_s in [0.56, 0.12] {
        let from = |start_s: f64| {
            let mut link = Link::new(|_| 8e6, rtt_s);
            link.tcp = Some(rtt_s);
            link.offered = Box::new(move |t| if t < start_s { 0.0 } else { f64::INFINITY });
            link
        };
        let first = Sender::Found(Limits::default());
        let courses = run_beside([&from(0.0), &from(10.0)], &first, 70.0, EACH_MS);
        for course in &courses {
            show(&format!("two of a link, {rtt_s} s"), course, 20.0, 70.0);
            assert!(course.queue(0.5, 20.0, 70.0) < 0.5);
        }
        let used: f64 = courses.iter().map(|course| course.used(20.0, 70.0)).sum();
        assert!(used > 0.6, "{used}");
    }
}

#[test]
fn the_last_of_a_told_rate_comes_back_behind_a_queue_of_others() {
    let ceiling = 9.4e6;
    let mut link = Link::new(|_| 10e6, 0.56);
    link.jitter_s = 0.008;
    link.others = Box::new(|t| match t % 10.0 {
        burst if burst < 0.4 => 3e6,
        rest => 0.4e6 + 0.3e6 * (rest * TAU * 3.0).sin(),
    });
    let course = run(&link, &told(ceiling), 80.0, EACH_MS);
    show("bursts of others", &course, 10.0, 80.0);
    assert!(course.least_estimate(10.0, 80.0) < 0.99 * ceiling);
    for burst in 1..8 {
        let began = 10.0 * f64::from(burst);
        assert!(course.least_estimate(began + 6.0, began + 10.0) > 0.995 * ceiling);
    }
    assert!(course.queue(0.95, 10.0, 80.0) < 0.1);
}

#[test]
fn what_is_told_anew_is_where_the_estimate_goes_on() {
    let limits = |hint_bps, ceiling_bps| Limits {
        hint_bps,
        ceiling_bps,
        ..Limits::default()
    };
    let mut estimator = Estimator::new(limits(Some(5_000_000), None));
    let now = Instant::now();
    for (told, capacity_bps, rate_bps) in [
        // Telling the same again changes nothing.
        (
            limits(Some(5_000_000), None),
            Some(5_000_000),
            Some(5_000_000),
        ),
        // A modem that has changed its coding tells the new rate.
        (
            limits(Some(5_000_000), Some(20_000_000)),
            None,
            Some(20_000_000),
        ),
        (
            limits(Some(3_000_000), Some(20_000_000)),
            Some(3_000_000),
            Some(3_000_000),
        ),
        (
            limits(Some(3_000_000), Some(2_000_000)),
            None,
            Some(2_000_000),
        ),
        // Without a bound the rate is unknown, and is found from the first packets on.
        (limits(None, None), None, None),
    ] {
        estimator.set_limits(told);
        assert_eq!(estimator.capacity_bps(), capacity_bps, "{told:?}");
        assert_eq!(estimator.rate_bps(now), rate_bps, "{told:?}");
    }
}

/// A queue that all hops of a beam have overflows, too.
#[test]
fn what_is_lost_while_a_shared_queue_stands_is_no_loss_of_the_link() {
    let mut estimator = Estimator::new(Limits {
        ceiling_bps: Some(8_000_000),
        ..Limits::default()
    });
    let start = Instant::now();
    let mut reading = Reading {
        backlogged: true,
        allowed_bps: Some(8_000_000),
        in_flight_bits: 4_000_000,
        ..Reading::default()
    };
    for step in 0..800 {
        let overflows = step >= 80;
        reading.sent_bits += 200_000;
        reading.repeated_bits += if overflows { 20_000 } else { 0 };
        reading.delivered_bits += if overflows { 180_000 } else { 200_000 };
        let queue = Duration::from_millis(if overflows { 400 } else { 0 });
        reading.rtt = Some(Duration::from_millis(500) + queue);
        reading.shared_queue = Some(queue);
        estimator.read(start + step * Duration::from_millis(25), reading);
    }
    assert_eq!(estimator.loss(), 0.0);
}

/// A peer that lies, a clock that jumps, sessions that come and go: any totals and times.
#[test]
fn whatever_is_read_the_rate_is_within_its_limits() {
    for seed in seeds(3_000) {
        let mut random = Random::new(seed);
        let mut below = |most: u64| (random.part() * most as f64) as u64;
        let mut estimator = Estimator::new(Limits::default());
        let mut now = Instant::now();
        let mut reading = Reading::default();
        let mut ceiling_bps = None;
        for _ in 0..400 {
            if below(40) == 0 {
                let [most, hint] = [0, 1].map(|_| 8_000 << below(20));
                ceiling_bps = [None, Some(most)][below(2) as usize];
                let hint_bps = [None, Some(hint)][below(2) as usize];
                estimator.set_limits(Limits {
                    hint_bps,
                    hint_rtt: hint_bps.map(|bps| Duration::from_millis(bps >> 10)),
                    ceiling_bps,
                    least_bps: [None, Some(hint / 2)][below(2) as usize],
                });
            }
            if below(40) == 0 {
                let efficiency = 0.001 * f64::from(1_u32 << below(20));
                estimator.set_efficiency([None, Some(efficiency)][below(2) as usize]);
            }
            let wide = below(30);
            let mut some = || below(1 << wide);
            reading.sent_bits += some();
            reading.repeated_bits += some();
            reading.delivered_bits += some();
            reading.other_bits += some();
            reading.in_flight_bits = some();
            reading.lost_bits = some();
            let rtt = Duration::from_micros(some() << below(4));
            reading.rtt = [None, Some(rtt)][below(2) as usize];
            reading.backlogged = below(4) > 0;
            let queue = Duration::from_micros(below(1 << wide));
            reading.shared_queue = [None, Some(queue)][below(2) as usize];
            reading.way_back = [None, Some(queue)][below(2) as usize];
            let each = Duration::from_millis(below(1_000));
            let told = WayThere { late: queue, each };
            reading.way_there = [None, Some(told)][below(2) as usize];
            reading.allowed_bps = [None, Some(below(1 << wide))][below(2) as usize];
            let ms = [0, 1, 25, 100, 5_000][below(5) as usize];
            now += Duration::from_millis(below(ms + 1));
            estimator.read(now, reading);
            if below(60) == 0 {
                estimator.interrupt();
            }
            let rate = estimator.rate_bps(now);
            let most = ceiling_bps.unwrap_or(u64::MAX);
            assert!(
                rate.is_none_or(|bps| (8_000..=most).contains(&bps)),
                "{seed}: {rate:?}"
            );
            assert!((0.0..=0.15).contains(&estimator.loss()), "{seed}");
        }
    }
}

/// A busy machine: nothing passes for a moment, and then all waiting packets do.
#[test]
fn moments_in_which_nothing_passes_are_made_up_for() {
    for (stall_s, rtt_s) in [
        (0.06, 0.5),
        (0.15, 0.5),
        (0.3, 0.5),
        (0.15, 0.05),
        (0.06, 0.1),
    ] {
        let mut link = Link::new(
            move |t| match (t + 1.0) % 5.0 {
                at if at < stall_s => 0.0,
                at if at < stall_s + 0.02 => 2e6 * (stall_s + 0.02) / 0.02,
                _ => 2e6,
            },
            rtt_s,
        );
        link.queue_s = 1.0;
        let course = run(&link, &told(2e6), 60.0, EACH_MS);
        show(&format!("stall {stall_s} of {rtt_s}"), &course, 2.0, 60.0);
        assert!(course.used(2.0, 60.0) > 0.92);
    }
}

/// Whether the estimate is a number at all times, and never above the ceiling.
fn is_bounded(course: &Course, ceiling: f64) -> bool {
    let mut known = course.steps.iter().filter_map(|step| step.3);
    known.all(|bps| bps > 0.0 && bps <= ceiling)
}

/// No feedback can follow that: it describes another capacity than that of the next moment.
#[test]
fn a_capacity_that_changes_faster_than_a_round_trip_does_bounded_harm() {
    const CEILING: f64 = 20e6;
    let senders = [
        told(CEILING),
        Sender::Found(Limits {
            hint_bps: Some(5_000_000),
            ceiling_bps: Some(CEILING as u64),
            ..Limits::default()
        }),
    ];
    for period_s in [0.02, 0.1, 0.4] {
        let rate = move |t: f64| match (t / period_s).fract() < 0.5 {
            true => 16e6,
            false => 4e6,
        };
        for sender in &senders {
            let course = run(&Link::new(rate, 0.56), sender, 60.0, EACH_MS);
            show(&format!("each {period_s} s"), &course, 10.0, 60.0);
            assert!(is_bounded(&course, CEILING));
            assert!(course.used(10.0, 60.0) > 0.25);
        }
    }
}

/// Acknowledgements take three more seconds for a while.
#[test]
fn feedback_that_is_late_by_seconds_does_bounded_harm() {
    const CEILING: f64 = 8e6;
    for rate in [CEILING, CEILING / 2.0] {
        let mut link = Link::new(move |_| rate, 0.56);
        link.back = Box::new(|t| match (20.0..60.0).contains(&t) {
            true => 3.28,
            false => 0.28,
        });
        let course = run(&link, &told(CEILING), 120.0, EACH_MS);
        show("late", &course, 20.0, 60.0);
        show("  then", &course, 80.0, 120.0);
        assert!(is_bounded(&course, CEILING));
        assert!(course.used(20.0, 60.0) > 0.05);
        assert!(course.used(80.0, 120.0) > 0.5);
    }
}

#[test]
fn who_has_little_to_send_lowers_nothing() {
    let mut link = Link::new(|_| 40e6, 0.56);
    link.offered = Box::new(|t| {
        if ((t * 2.0) as u64).is_multiple_of(2) {
            8e6
        } else {
            0.5e6
        }
    });
    link.others = Box::new(|t| if t > 20.0 { 39e6 } else { 0.0 });
    let course = run(&link, &told(40e6), 40.0, EACH_MS);
    show("little", &course, 0.0, 40.0);
    assert!(course.least_estimate(0.0, 20.0) > 40e6);
}

/// A busy machine that holds all packets looks like a link that carries nothing.
#[test]
fn that_a_link_carries_less_than_the_least_is_not_believed() {
    let limits = Limits {
        ceiling_bps: Some(20_000_000),
        least_bps: Some(2_000_000),
        ..Limits::default()
    };
    let link = Link::new(|t| if t < 40.0 { 1e6 } else { 20e6 }, 0.56);
    let course = run(&link, &Sender::Found(limits), 150.0, EACH_MS);
    show("less than the least", &course, 110.0, 150.0);
    assert!(course.least_estimate(0.0, 150.0) >= 2e6);
    assert!(course.used(110.0, 150.0) > 0.95);
}
