//! The first seconds of a link about which nothing was told.

use super::*;

/// When there is first something to send: the session is up earlier.
const BEGINS_S: f64 = 1.0;

/// A link with this rate, bit/s, round trip, s, and queue, s, behind TCP.
fn unknown(rate: f64, rtt_s: f64, queue_s: f64) -> Link {
    Link {
        queue_s,
        tcp: Some(rtt_s),
        offered: Box::new(|t| if t < BEGINS_S { 0.0 } else { 1e9 }),
        ..Link::new(move |_| rate, rtt_s)
    }
}

fn first() -> Sender {
    Sender::Found(Limits::default())
}

fn show_start(name: &str, course: &Course) {
    println!(
        "{name}: queue mean to 4 s {:.3}, then {:.3} s, p95 from 2 s {:.3} s; used to 11 s {:.3}, then {:.3}",
        course.mean_queue(BEGINS_S, 4.0),
        course.mean_queue(4.0, 11.0),
        course.queue(0.95, 2.0, 11.0),
        course.used(1.3, 11.0),
        course.used(11.0, 31.0),
    );
}

/// Before the first acknowledgements a window can only guess: it may be some seconds of a
/// slow link, and what overflows the queue is sent again into it.
#[test]
fn what_tcp_opens_blindly_stands_in_the_queue_and_a_first_flight_does_not() {
    for (rate, rtt_s) in [(1e6, 0.3), (2e6, 0.3), (2e6, 0.56)] {
        let blindly = Link {
            opens_blindly: true,
            ..unknown(rate, rtt_s, 1.0)
        };
        let [blind, bounded] =
            [blindly, unknown(rate, rtt_s, 1.0)].map(|link| run(&link, &first(), 31.0, EACH_MS));
        show_start(&format!("{rate}, blind"), &blind);
        show_start(&format!("{rate}, bounded"), &bounded);
        let stands = |course: &Course| course.mean_queue(BEGINS_S, 4.0);
        assert!(stands(&bounded) < 0.2);
        assert!(stands(&bounded) < stands(&blind) / 2.0);
    }
}

#[test]
fn a_first_start_fills_any_link_and_leaves_no_queue() {
    for (rate, rtt_s) in [
        (0.5e6, 0.1),
        (0.5e6, 0.56),
        (2e6, 0.03),
        (2e6, 0.56),
        (10e6, 0.1),
        (10e6, 0.8),
        (40e6, 0.03),
        (40e6, 0.6),
        (140e6, 0.03),
        (140e6, 0.3),
        (140e6, 0.8),
    ] {
        for queue_s in [0.25, 3.0] {
            let course = run(&unknown(rate, rtt_s, queue_s), &first(), 31.0, EACH_MS);
            show_start(&format!("{rate}, {rtt_s} s, queue {queue_s} s"), &course);
            // The flight itself is in the queue for its own line time and for that of the
            // few packets behind it.
            let flight_s = 64.0 * 12_000.0 / rate;
            let leaves_s = flight_s / (1.0 - 0.3e6 / rate);
            let from = BEGINS_S + rtt_s + 0.3 + leaves_s;
            assert!(course.queue(0.95, from, 11.0) < 0.15 + 0.25 * flight_s);
            assert!(course.used(BEGINS_S + rtt_s / 2.0, 11.0) > 0.65);
            assert!(course.used(11.0, 31.0) > 0.92);
        }
    }
}

/// 8 MB over 140 Mbit/s and 600 ms: two round trips show the rate.
#[test]
fn a_fast_link_is_found_in_few_round_trips() {
    let course = run(&unknown(140e6, 0.6, 2.0), &first(), 11.0, EACH_MS);
    let mut bits = 0.0;
    let last = course.steps.iter().position(|step| {
        bits += step.1;
        bits >= 64e6
    });
    // The acknowledgements come half a round trip after the bytes.
    let took_s = last.unwrap() as f64 / 1e3 - BEGINS_S - 0.3;
    println!("8 MB in {took_s:.2} s");
    assert!(took_s < 2.4);
}

#[test]
fn first_starts_in_both_directions_leave_no_queue_either() {
    for rates in [[40e6, 2e6], [10e6, 10e6], [20e6, 0.8e6]] {
        for beacon_noise_s in [0.006, 0.01, 0.014] {
            let [there, back] = rates.map(|rate| Link {
                beacon_noise_s,
                acknowledges: true,
                ..unknown(rate, 0.56, 1.0)
            });
            let courses = run_both([&there, &back], [&first(), &first()], 31.0, EACH_MS);
            for (course, rate) in courses.iter().zip(rates) {
                show_start(&format!("{rate} of {rates:?}"), course);
                assert!(course.mean_queue(4.0, 11.0) < 0.15);
                assert!(course.used(1.3, 11.0) > 0.5);
                assert!(course.used(11.0, 31.0) > 0.93);
            }
        }
    }
}

/// Readings of a hop that sends and delivers this many bits every 25 ms from 0.1 s on,
/// and whose round trip of 560 ms is known beforehand; returns each estimate.
fn feed(delivered: impl Fn(u64) -> u64, sent: u64) -> Vec<(f64, Estimator)> {
    feed_with(delivered, sent, |_| true)
}

/// The same, but only in some of the steps something waits to be sent.
fn feed_with(
    delivered: impl Fn(u64) -> u64,
    sent: u64,
    waits: impl Fn(u64) -> bool,
) -> Vec<(f64, Estimator)> {
    feed_each(delivered, |_| sent, waits)
}

/// The same, but the steps send different amounts.
fn feed_each(
    delivered: impl Fn(u64) -> u64,
    sent: impl Fn(u64) -> u64,
    waits: impl Fn(u64) -> bool,
) -> Vec<(f64, Estimator)> {
    let start = Instant::now();
    let mut estimator = Estimator::new(Limits::default());
    let mut reading = Reading {
        sent_bits: 12_000,
        delivered_bits: 12_000,
        ..Reading::default()
    };
    (0..400)
        .map(|step| {
            let busy = step >= 4;
            reading.sent_bits += if busy { sent(step) } else { 0 };
            reading.delivered_bits += if busy { delivered(step) } else { 0 };
            reading.backlogged = busy && waits(step);
            let known = step == 0 || delivered(step) > 0;
            reading.rtt = known.then_some(Duration::from_millis(560));
            let t = Duration::from_millis(25 * step);
            estimator.read(start + t, reading);
            (t.as_secs_f64(), estimator.clone())
        })
        .collect()
}

#[test]
fn a_link_that_never_acknowledges_is_not_bounded_for_long() {
    let course = feed(|_| 0, 24_000);
    let ends = course.iter().find(|(_, one)| one.first_flight().is_none());
    let (at, estimator) = ends.unwrap();
    assert!((5.0..7.0).contains(at), "{at}");
    assert_eq!(estimator.capacity_bps(), None);
}

#[test]
fn a_first_flight_that_was_not_sent_is_no_first_estimate() {
    // 40 kbit/s of an application that waits for something else.
    let course = feed(|step| if step >= 27 { 1_000 } else { 0 }, 1_000);
    for (at, one) in course.iter().filter(|(at, _)| *at < 5.0) {
        assert_eq!(one.capacity_bps(), None, "{at}");
        assert!(one.first_flight().is_some());
    }
}

/// Bytes that were sent before the flight, such as a session's and a stream's first
/// messages, are acknowledged before it.
#[test]
fn what_trickles_in_before_a_first_flight_does_not_make_the_link_slow() {
    let course = feed(
        |step| match step {
            16..=26 => 1_500,
            27..=28 => 380_000,
            _ => 0,
        },
        24_000,
    );
    let found = course.iter().find_map(|(_, one)| one.capacity_bps());
    // 760 kbit in 50 ms.
    let found = found.unwrap() as f64;
    assert!((14e6..16e6).contains(&found), "{found}");
}

/// Nine tenths of the flight and of the bytes before it are enough.
#[test]
fn a_first_flight_of_which_a_little_is_missing_is_judged_when_it_has_arrived() {
    let course = feed(
        |step| match step {
            22..=25 => 2_500,
            27..=28 => 343_000,
            _ => 0,
        },
        24_000,
    );
    let found = course.iter().find(|(_, one)| one.capacity_bps().is_some());
    let (at, one) = found.unwrap();
    assert!(*at < 0.75, "{at}");
    let bps = one.capacity_bps().unwrap();
    assert!(bps > 12_000_000, "{bps}");
}

/// Earlier packets have used up the burst that may leave at once: the rest arrives as
/// slowly as it was sent.
#[test]
fn what_left_in_small_pieces_is_no_estimate_and_a_whole_flight_follows() {
    // 300 kbit/s and, a second later, 64 packets at once; the link has 8 Mbit/s and 575
    // ms.
    let sent = |step: u64| match step {
        40..=41 => 384_000,
        _ => 7_500,
    };
    let delivered = |step: u64| match step {
        0..=26 => 0,
        63..=66 => 192_000,
        _ => 7_500,
    };
    let course = feed_each(delivered, sent, |_| true);
    let number = |step: usize| {
        let (at, estimator) = &course[step];
        assert_eq!(estimator.capacity_bps(), None, "{at}");
        estimator.first_flight().map(|flight| flight.number)
    };
    let first = number(20);
    assert!(first.is_some());
    assert_eq!(number(36), first);
    let second = number(38);
    assert!(second > first, "{second:?}");
    assert_eq!(number(62), second);
    let found = course.iter().find_map(|(_, one)| one.capacity_bps());
    let found = found.unwrap();
    assert!((2_000_000..9_000_000).contains(&found), "{found}");
}

/// A transport that cannot send a whole flight shows as much as it can.
#[test]
fn a_backlog_that_leaves_in_small_pieces_again_is_an_estimate() {
    let delivered = |step: u64| if step >= 27 { 25_000 } else { 0 };
    let course = feed(delivered, 25_000);
    let found = course.iter().find(|(_, one)| one.capacity_bps().is_some());
    let (at, one) = found.unwrap();
    assert!(*at < 3.0, "{at}");
    let bps = one.capacity_bps().unwrap();
    assert!((900_000..1_100_000).contains(&bps), "{bps}");
}

#[test]
fn what_was_answered_lets_as_much_leave_at_once_again() {
    let start = Instant::now();
    let mut estimator = Estimator::new(Limits::default());
    let mut read = |ms: u64, sent_bits: u64, in_flight_bits: u64| {
        let reading = Reading {
            sent_bits,
            delivered_bits: sent_bits - in_flight_bits,
            in_flight_bits,
            rtt: Some(Duration::from_millis(50)),
            ..Reading::default()
        };
        estimator.read(start + Duration::from_millis(ms), reading);
        estimator.first_flight().map(|flight| flight.number)
    };
    let first = read(0, 12_000, 0);
    assert_eq!(read(25, 116_000, 104_000), first);
    let second = read(100, 116_000, 0);
    assert!(second > first, "{first:?} {second:?}");
    assert_eq!(read(125, 116_000, 0), second);
}

#[test]
fn a_pause_in_what_waits_does_not_make_a_first_flight_forgotten() {
    let course = feed_with(
        |step| match step {
            27..=28 => 380_000,
            _ => 0,
        },
        24_000,
        |step| !(20..=26).contains(&step),
    );
    let found = course.iter().find(|(_, one)| one.capacity_bps().is_some());
    let (at, one) = found.unwrap();
    assert!(*at < 0.75, "{at}");
    let bps = one.capacity_bps().unwrap();
    assert!(bps > 12_000_000, "{bps}");
}

/// What the last run measured is of no use where another path has taken the place of the former.
#[test]
fn a_hint_that_was_measured_on_another_path_is_not_used() {
    let start = Instant::now();
    let hint = Some(40_000_000);
    // The estimate behind a first round trip of `ms`, where that of the hint was 560 ms; and the
    // estimate of a link that begins anew then.
    let found = |ms: u64, limits: Limits| {
        let mut estimator = Estimator::new(limits);
        assert_eq!(estimator.capacity_bps(), limits.hint_bps);
        let reading = Reading {
            rtt: Some(Duration::from_millis(ms)),
            ..Reading::default()
        };
        estimator.read(start, reading);
        let first = (estimator.capacity_bps(), estimator.first_flight().is_some());
        estimator.begin_anew();
        assert_eq!(estimator.capacity_bps(), first.0);
        first
    };
    let saved = Limits {
        hint_bps: hint,
        hint_rtt: Some(Duration::from_millis(560)),
        ..Limits::default()
    };
    assert_eq!(found(40, saved), (None, true));
    assert_eq!(found(280, saved), (None, true));
    assert_eq!(found(281, saved), (hint, false));
    assert_eq!(found(5_600, saved), (hint, false));
    assert_eq!(found(5_601, saved), (None, true));
    // A configured hint counts on any path.
    let configured = Limits {
        hint_rtt: None,
        ..saved
    };
    assert_eq!(found(40, configured), (hint, false));
    // Only the first round trip counts: later ones may be queues, or another satellite.
    let mut estimator = Estimator::new(saved);
    for (step, ms) in (0..).zip([560, 40, 6_000]) {
        let reading = Reading {
            rtt: Some(Duration::from_millis(ms)),
            ..Reading::default()
        };
        estimator.read(start + step * Duration::from_millis(25), reading);
        assert_eq!(estimator.capacity_bps(), hint, "{ms} ms");
    }
    // One that is configured later is used again.
    let mut estimator = Estimator::new(saved);
    let reading = Reading {
        rtt: Some(Duration::from_millis(40)),
        ..Reading::default()
    };
    estimator.read(start, reading);
    let changed = Some(3_000_000);
    estimator.set_limits(Limits {
        hint_bps: changed,
        ..configured
    });
    assert_eq!(estimator.capacity_bps(), changed);
    estimator.begin_anew();
    assert_eq!(estimator.capacity_bps(), changed);
}

#[test]
fn only_what_is_unknown_and_far_has_a_first_flight() {
    let of = |limits: Limits, ms: u64| {
        let mut estimator = Estimator::new(limits);
        assert_eq!(estimator.first_flight(), None, "no round trip is known");
        let reading = Reading {
            rtt: Some(Duration::from_millis(ms)),
            ..Reading::default()
        };
        estimator.read(Instant::now(), reading);
        estimator.first_flight().map(|flight| flight.bits)
    };
    let rate = Some(2_000_000);
    let unknown = Limits::default();
    let hinted = Limits {
        hint_bps: rate,
        ..unknown
    };
    let told = Limits {
        ceiling_bps: rate,
        ..unknown
    };
    assert_eq!(of(hinted, 560), None);
    assert_eq!(of(told, 560), None);
    assert_eq!(of(unknown, 2), None);
    // RFC 6928's ten packets in proportion to the round trip, as in TCP Hybla.
    assert_eq!(of(unknown, 10), Some(120_000));
    assert_eq!(of(unknown, 50), Some(240_000));
    assert_eq!(of(unknown, 560), Some(768_000));
}
