//! Queues on the way back, which beacons report.

use super::*;

#[test]
fn a_queue_on_the_way_back_is_not_ours() {
    let mut link = Link::new(|_| 40e6, 0.56);
    // The queue grows to 0.2 s within 10 s, and stays.
    link.back = Box::new(|t| 0.28 + (t - 10.0).clamp(0.0, 10.0) * 0.02);
    let course = run(&link, &told(40e6), 90.0, EACH_MS);
    show("way back", &course, 2.0, 90.0);
    assert!(course.used(2.0, 90.0) > 0.93);
}

/// A terminal that downloads: it sends little, some of which waits, and the other
/// direction's queue comes and goes in its round trips.
#[test]
fn little_that_waits_beside_a_queue_on_the_way_back_lowers_nothing() {
    let mut link = Link::new(|_| 4e6, 0.56);
    link.offered = Box::new(|_| 1e5);
    link.waits = true;
    link.back = Box::new(|t| 0.28 + 0.15 * (t % 6.0) / 6.0);
    let course = run(&link, &hinted(1e6), 60.0, EACH_MS);
    show("little waits", &course, 2.0, 60.0);
    assert!(course.least_estimate(0.0, 60.0) >= 1e6);
}

/// Both directions are busy: the other direction's queue comes and goes over seconds or
/// parts of a second.
fn beside_the_way_back(rate: f64, period_s: f64, most_s: f64) -> Link {
    let queue = move |t: f64| most_s * (0.5 - 0.5 * (t / period_s * TAU).cos());
    let mut link = Link::new(move |_| rate, 0.56);
    link.back = Box::new(move |t| 0.28 + queue(t));
    link.told_back = Some(Box::new(queue));
    link
}

#[test]
fn a_queue_on_the_way_back_that_beacons_tell_lowers_nothing() {
    for (period_s, most_s) in [(1.0, 0.05), (2.0, 0.2), (6.0, 0.5), (20.0, 1.0)] {
        let link = beside_the_way_back(2e6, period_s, most_s);
        let course = run(&link, &told(2e6), 120.0, EACH_MS);
        show(&format!("{period_s} s"), &course, 2.0, 120.0);
        assert!(course.used(2.0, 120.0) > 0.93);
        assert!(course.least_estimate(0.0, 120.0) > 0.85 * 2e6);
    }
}

#[test]
fn beside_a_queue_on_the_way_back_a_ceiling_that_is_too_high_is_found() {
    for (period_s, most_s) in [(1.0, 0.05), (2.0, 0.2), (6.0, 0.5), (20.0, 1.0)] {
        let link = beside_the_way_back(5e6, period_s, most_s);
        let course = run(&link, &told(10e6), 120.0, EACH_MS);
        show(&format!("{period_s} s"), &course, 10.0, 120.0);
        assert!(course.used(10.0, 120.0) > 0.85);
        assert!(course.queue(0.95, 10.0, 120.0) < 0.15);
    }
}

/// At this rate a probe of a twentieth lasts 7 s: longer than the history that is kept
/// otherwise.
#[test]
fn a_long_probe_beside_a_queue_on_the_way_back_is_judged() {
    let link = Link {
        there: Box::new(|_| 0.1),
        back: Box::new(|t| 0.35 - 0.25 * (t / 6.0 * TAU).cos()),
        ..beside_the_way_back(1e6, 6.0, 0.5)
    };
    let course = run(&link, &hinted(200e3), 60.0, EACH_MS);
    show("long probe", &course, 20.0, 60.0);
    assert!(course.used(20.0, 60.0) > 0.5);
}

/// The same, and the peer also reports this direction's queue.
fn told_of_both(rate: f64, period_s: f64, most_s: f64) -> Link {
    Link {
        tells_there: Some(Box::new(|_, late| late)),
        ..beside_the_way_back(rate, period_s, most_s)
    }
}

/// From 20 s on, at least this part of the link is used, and no queue stands.
fn assert_found(name: &str, link: &Link, sender: &Sender, least_used: f64) {
    let course = run(link, sender, 90.0, EACH_MS);
    show(name, &course, 20.0, 90.0);
    assert!(course.used(20.0, 90.0) > least_used);
    assert!(course.queue(0.95, 20.0, 90.0) < 0.3);
}

#[test]
fn told_of_its_own_queue_a_sender_beside_another_s_finds_the_link() {
    for (rate, period_s, most_s) in [
        (10e6, 0.5, 0.08),
        (10e6, 1.0, 0.05),
        (2e6, 1.0, 0.2),
        (40e6, 2.0, 0.2),
        (5e6, 6.0, 0.5),
        (1e6, 20.0, 1.0),
    ] {
        for part in [0.25, 1.0, 2.0] {
            let name = format!("{rate} in {period_s} s, hint {part}");
            let link = told_of_both(rate, period_s, most_s);
            assert_found(&name, &link, &hinted(rate * part), 0.95);
        }
    }
}

#[test]
fn told_of_its_own_queue_a_sender_beside_another_s_follows_steps() {
    for (period_s, most_s) in [(0.5, 0.08), (1.0, 0.2), (6.0, 0.5)] {
        let link = Link {
            rate: Box::new(|t| if (30.0..60.0).contains(&t) { 5e6 } else { 20e6 }),
            ..told_of_both(20e6, period_s, most_s)
        };
        let course = run(&link, &told(20e6), 90.0, EACH_MS);
        show(&format!("{period_s} s"), &course, 5.0, 90.0);
        assert!(course.used(5.0, 30.0) > 0.97);
        assert!(course.used(35.0, 60.0) > 0.97);
        assert!(course.queue(0.95, 35.0, 60.0) < 0.15);
        assert!(course.used(70.0, 90.0) > 0.95);
    }
}

#[test]
fn a_first_start_beside_a_queue_on_the_way_back_finds_the_link() {
    for (rate, period_s, most_s) in [(10e6, 1.0, 0.05), (40e6, 0.7, 0.02), (2e6, 6.0, 0.5)] {
        let link = Link {
            beacon_noise_s: 0.02,
            tcp: Some(0.56),
            ..told_of_both(rate, period_s, most_s)
        };
        let first = Sender::Found(Limits::default());
        assert_found(&format!("first start, {rate}"), &link, &first, 0.9);
    }
}

/// The peer has begun to send too, and exceeds its link's capacity.
#[test]
fn a_first_estimate_is_not_made_of_the_moment_in_which_acknowledgements_wait() {
    let start = Instant::now();
    let mut estimator = Estimator::new(Limits::default());
    let found = (0..300_u32).find_map(|step| {
        let t = f64::from(step) * 0.01;
        // 4 Mbit/s; no acknowledgement arrives from 0.9 to 1.6 s.
        let delivered = 4e6 * if t < 1.6 { t.min(0.9) - 0.56 } else { t - 0.56 };
        let reading = Reading {
            sent_bits: (4e6 * t) as u64,
            delivered_bits: delivered.max(0.0) as u64,
            rtt: (t > 0.56).then_some(Duration::from_millis(560)),
            backlogged: true,
            ..Reading::default()
        };
        estimator.read(start + Duration::from_secs_f64(t), reading);
        estimator.capacity_bps()
    });
    assert_eq!(estimator.reason(), Some(Reason::Start));
    assert!(
        (1_000_000..4_100_000).contains(&found.unwrap()),
        "{found:?}"
    );
}

/// A peer that begins an upload as a download begins fills its queue for seconds, and
/// reports it.
#[test]
fn a_first_estimate_waits_for_the_way_back_but_not_for_long() {
    let first = |held_up_s: f64| {
        let start = Instant::now();
        let mut estimator = Estimator::new(Limits::default());
        (0..1_000_u32).find_map(|step| {
            let t = f64::from(step) * 0.01;
            // 4 Mbit/s; no acknowledgement arrives while the way back is held up.
            let held_up = (0.9..0.9 + held_up_s).contains(&t);
            let delivered = 4e6 * (if held_up { 0.9 } else { t } - 0.56);
            let reading = Reading {
                sent_bits: (4e6 * t) as u64,
                delivered_bits: delivered.max(0.0) as u64,
                rtt: (t > 0.56).then_some(Duration::from_millis(560)),
                way_back: Some(Duration::from_millis(if held_up { 800 } else { 0 })),
                backlogged: true,
                ..Reading::default()
            };
            estimator.read(start + Duration::from_secs_f64(t), reading);
            Some((t, estimator.capacity_bps()?))
        })
    };
    let (at, found) = first(2.0).expect("it is found");
    assert!(at < 3.5 && found > 3_000_000, "{found} at {at}");
    let (at, _) = first(9.0).expect("it is found all the same");
    assert!(at < 6.0, "{at}");
}

/// At some kbit/s a probe of a few packets lasts for many seconds.
#[test]
fn a_hint_of_a_hundredth_is_left_behind_beside_a_queue_on_the_way_back() {
    for (rate, period_s, most_s) in [(2e6, 1.0, 0.1), (2e6, 6.0, 0.5), (10e6, 1.0, 0.05)] {
        let link = told_of_both(rate, period_s, most_s);
        let course = run(&link, &hinted(0.01 * rate), 180.0, EACH_MS);
        show(
            &format!("hint of a hundredth, {rate}"),
            &course,
            120.0,
            180.0,
        );
        assert!(course.used(120.0, 180.0) > 0.9);
    }
}

/// Random delays of single beacons, for instance on a busy machine, are not a queue.
#[test]
fn beacons_that_come_late_by_themselves_hide_no_capacity() {
    for (rate, period_s, most_s) in [(2e6, 0.5, 0.03), (2e6, 1.0, 0.1), (20e6, 1.0, 0.05)] {
        for part in [0.25, 1.0, 2.0] {
            let link = Link {
                beacon_noise_s: 0.04,
                ..told_of_both(rate, period_s, most_s)
            };
            let name = format!("noise, {rate} in {period_s} s, hint {part}");
            assert_found(&name, &link, &hinted(rate * part), 0.93);
        }
    }
}

#[test]
fn a_peer_that_hides_the_queue_is_not_believed_for_long() {
    let link = Link {
        tells_there: Some(Box::new(|_, _| 0.0)),
        ..beside_the_way_back(5e6, 2.0, 0.2)
    };
    let course = run(&link, &told(10e6), 120.0, EACH_MS);
    show("hidden", &course, 20.0, 120.0);
    assert!(course.used(20.0, 120.0) > 0.8);
    assert!(course.queue(0.95, 20.0, 120.0) < 0.5);
}

/// A peer that lies slows its own link, only for as long as it lies.
#[test]
fn a_queue_that_a_peer_pretends_leaves_nothing_behind() {
    let link = Link {
        tells_there: Some(Box::new(|t, late| if t < 60.0 { 1.0 } else { late })),
        ..beside_the_way_back(5e6, 2.0, 0.2)
    };
    let course = run(&link, &told(5e6), 150.0, EACH_MS);
    show("pretended", &course, 5.0, 60.0);
    show("  then", &course, 90.0, 150.0);
    assert!(course.queue(1.0, 5.0, 60.0) < 0.1);
    assert!(course.used(90.0, 150.0) > 0.9);
}

/// Simultaneous downloads and uploads, with nothing known of either direction.
#[test]
fn a_first_start_in_both_directions_at_once_finds_both() {
    for (there, back) in [(40e6, 2e6), (10e6, 10e6), (140e6, 20e6)] {
        let way = |rate: f64| Link {
            beacon_noise_s: 0.02,
            tcp: Some(0.56),
            ..Link::new(move |_| rate, 0.56)
        };
        let first = Sender::Found(Limits::default());
        let links = [&way(there), &way(back)];
        for (course, rate) in run_both(links, [&first, &first], 90.0, EACH_MS)
            .iter()
            .zip([there, back])
        {
            show(&format!("{rate} of {there} and {back}"), course, 30.0, 90.0);
            assert!(course.used(30.0, 90.0) > 0.93);
            assert!(course.queue(0.95, 30.0, 90.0) < 0.1);
        }
    }
}

/// Other senders fill this direction's queue from 5 to `until` s, by `part` of the link's rate; the
/// way back has a queue of up to `back_s`.
fn beside_others(rate: f64, part: f64, until: f64, back_s: f64) -> Link {
    let others = move |t: f64| {
        if (5.0..until).contains(&t) {
            part * rate
        } else {
            0.0
        }
    };
    Link {
        others: Box::new(others),
        queue_s: 0.5,
        ..told_of_both(rate, 6.0, back_s)
    }
}

#[test]
fn what_others_left_in_the_queue_is_drained_soon_after_they_end() {
    for (rate, back_s) in [(2e6, 0.0), (2e6, 0.4), (40e6, 0.0), (40e6, 0.4)] {
        for (part, until) in [(1.5, 7.0), (1.5, 9.0), (1.5, 12.0), (1.0, 20.0)] {
            let link = beside_others(rate, part, until, back_s);
            let course = run(&link, &told(rate), 60.0, EACH_MS);
            let after = until + 12.0;
            show(&format!("{rate}, {back_s}, {until}"), &course, after, 60.0);
            assert!(course.queue(0.95, after, 60.0) < 0.1);
            assert!(course.used(after, 60.0) > 0.9);
        }
    }
}

#[test]
fn beside_others_in_both_directions_no_estimate_falls_for_good() {
    for (rate, back_s) in [(2e6, 0.0), (2e6, 0.5), (2e6, 1.0), (40e6, 0.5)] {
        let link = beside_others(rate, 1.5, 60.0, back_s);
        let course = run(&link, &told(rate), 90.0, EACH_MS);
        show(&format!("{rate}, {back_s} s back"), &course, 5.0, 60.0);
        println!("least estimate {:.0}", course.least_estimate(5.0, 60.0));
        show("after", &course, 70.0, 90.0);
        assert!(course.used(70.0, 90.0) > 0.9);
        assert!(course.queue(0.95, 72.0, 90.0) < 0.1);
    }
}
