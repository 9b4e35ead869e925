//! Estimates that are older than what the link carries now.

use std::collections::VecDeque;

use super::model::{OverTime, PACKET};
use super::*;

/// A link of 4 Mbit/s that carries a tenth of that from 3 to `until_s`, with a way back whose queue
/// comes and goes. What waits from 3 s on is sent by 25 s. From `again_s` on there is a backlog.
fn faded(until_s: f64, again_s: f64, back_s: f64) -> Link {
    let way_back = move |t: f64| back_s * (0.5 + 0.5 * (t * TAU).sin());
    let waits = move |t: f64| (3.0..5.0).contains(&t) || t > again_s;
    let rate = move |t: f64| match (3.0..until_s).contains(&t) {
        true => 4e5,
        false => 4e6,
    };
    Link {
        offered: Box::new(move |t| if waits(t) { 4e6 } else { 20e3 }),
        back: Box::new(move |t| 0.28 + way_back(t)),
        told_back: (back_s > 0.0).then(|| Box::new(way_back) as OverTime<f64>),
        tells_there: (back_s > 0.0).then(|| Box::new(|_, late| late) as _),
        tcp: Some(0.56),
        as_in_a_node: true,
        ..Link::new(rate, 0.56)
    }
}

/// The estimate may come from a moment in which others filled the link.
#[test]
fn what_a_link_carried_before_is_found_soon_after_a_pause() {
    for (back_s, most_s) in [(0.0, 2.5), (0.03, 8.5)] {
        for pause_s in [12.0, 60.0] {
            let again = 25.0 + pause_s;
            let link = faded(25.0, again, back_s);
            let course = run(&link, &told(4e6), again + 30.0, EACH_MS);
            let found = course.reaches(3e6, again);
            show(
                &format!("found after {found:.1} s"),
                &course,
                again,
                again + 30.0,
            );
            assert!(course.least_estimate(again - 1.0, again) < 5e5);
            assert!(found < most_s, "{found}");
        }
    }
}

/// A look that finds nothing leaves a queue once, and not again after each pause.
#[test]
fn what_a_link_carries_no_more_is_looked_for_once() {
    let mut link = faded(f64::INFINITY, f64::INFINITY, 0.0);
    link.offered = Box::new(|t| match t {
        _ if (3.0..5.0).contains(&t) => 4e6,
        _ if t > 37.0 && (t - 37.0) % 25.0 < 0.5 => 4e6,
        _ => 20e3,
    });
    let course = run(&link, &told(4e6), 112.0, EACH_MS);
    let queue = |from: f64| {
        show("looked", &course, from, from + 20.0);
        course.queue(1.0, from, from + 20.0)
    };
    assert!(queue(37.0) < 0.8);
    assert!(queue(62.0) < 0.3 && queue(87.0) < 0.3);
}

const CEILING_BPS: u64 = 4_000_000;
const HINTED: Limits = Limits {
    hint_bps: Some(2_000_000),
    hint_rtt: None,
    ceiling_bps: Some(CEILING_BPS),
    least_bps: None,
};

/// The highest rate, bit/s, that is allowed in the first `within_ms` of a backlog that begins 14 s
/// after the last one, when `tell` has just told what the link carries. Nothing stands in a queue.
fn most_allowed(tell: fn(&mut Estimator), within_ms: u64) -> u64 {
    const STEP_MS: u64 = 20;
    const RTT_MS: u64 = 560;
    const PAUSE_MS: u64 = 6_000;
    const AGAIN_MS: u64 = 20_000;
    let start = Instant::now();
    let mut estimator = Estimator::new(HINTED);
    let (mut reading, mut arriving) = (Reading::default(), VecDeque::<(u64, u64)>::new());
    let mut most = 0;
    for ms in (0..AGAIN_MS + within_ms).step_by(STEP_MS as usize) {
        let now = start + Duration::from_millis(ms);
        if ms == AGAIN_MS {
            tell(&mut estimator);
        }
        let allowed = estimator.rate_bps(now).unwrap_or(CEILING_BPS);
        reading.allowed_bps = Some(allowed);
        reading.backlogged = !(PAUSE_MS..AGAIN_MS).contains(&ms);
        let sent = match reading.backlogged {
            true => allowed * STEP_MS / 1_000,
            false if ms.is_multiple_of(100) => PACKET,
            false => 0,
        };
        reading.sent_bits += sent;
        arriving.push_back((ms + RTT_MS, sent));
        while arriving.front().is_some_and(|(at, _)| *at <= ms)
            && let Some((_, bits)) = arriving.pop_front()
        {
            reading.delivered_bits += bits;
        }
        reading.in_flight_bits = arriving.iter().map(|(_, bits)| bits).sum();
        reading.rtt = Some(Duration::from_millis(RTT_MS));
        estimator.read(now, reading);
        if ms >= AGAIN_MS {
            most = most.max(estimator.rate_bps(now).unwrap_or(CEILING_BPS));
        }
    }
    most
}

/// What was just told is tried by a quarter more, as at the start.
#[test]
fn what_is_told_anew_is_not_old() {
    let changed = |estimator: &mut Estimator| {
        estimator.set_limits(Limits {
            hint_bps: Some(1_000_000),
            ..HINTED
        });
    };
    assert_eq!(most_allowed(changed, 500), 1_250_000);
    // The first probe comes once a round trip has been seen again.
    assert_eq!(most_allowed(Estimator::begin_anew, 1_200), 2_500_000);
}

/// A terminal of which a plan lets little leave, all of which it sends, and whose link carries less
/// than that from 10 to `until_s`: for a time because of others.
fn planned(others: bool, until_s: f64) -> Link {
    let busy = move |t: f64| (10.0..until_s).contains(&t);
    let mut link = Link::new(|_| 40e6, 0.56);
    if others {
        link.others = Box::new(move |t| if busy(t) { 44e6 } else { 1e6 });
    } else {
        link.rate = Box::new(move |t| if busy(t) { 1e6 } else { 40e6 });
    }
    let rises = move |t: f64| t > 30.0 && until_s < 30.0;
    link.planned = Box::new(move |t| if rises(t) { 40e6 } else { 2e6 });
    link.offered = Box::new(move |t| if rises(t) { f64::INFINITY } else { 2e6 });
    link.tcp = Some(0.56);
    link.as_in_a_node = true;
    link
}

/// Others' uploads fill the beam for a while. What little this terminal may send meanwhile does not
/// show what the link carries.
#[test]
fn what_little_a_plan_lets_leave_beside_others_is_no_capacity() {
    for until_s in [11.0, 13.0, 16.0] {
        let course = run(&planned(true, until_s), &hinted(36e6), 40.0, EACH_MS);
        show(&format!("until {until_s}"), &course, 30.0, 40.0);
        let low = course.least_estimate(25.0, 30.0);
        println!("{:.2} Mbit/s", low / 1e6);
        assert!(low > 20e6, "{low}");
        // Nothing has been measured, and it is not told so.
        assert_eq!(course.reasons[29], Some(Reason::Hint));
    }
}

/// But a link that really carries less than the plan allows is found, soon after its first queue.
#[test]
fn less_than_a_plan_lets_leave_is_found() {
    let course = run(&planned(false, 60.0), &hinted(36e6), 50.0, EACH_MS);
    show("less", &course, 30.0, 50.0);
    assert!(course.least_estimate(30.0, 50.0) < 1.2e6);
    assert!(course.queue(0.95, 30.0, 50.0) < 0.2);
}
