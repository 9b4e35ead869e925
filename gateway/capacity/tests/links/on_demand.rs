//! Links whose capacity must be requested, and links that look similar.

use super::*;
use demand::Demand;

const RTT_S: f64 = 0.56;
/// Bits of IP packets of an upload of 10 MB.
const UPLOAD_BITS: f64 = 80e6 * 1500.0 / 1448.0;
const BEGINS_S: f64 = 1.0;
const SECOND_S: f64 = 30.0;

/// A link with this rate, bit/s, and round trip, s, of which nothing is known.
fn on_demand(rate: f64, rtt_s: f64) -> Link {
    Link {
        demand: Some(Demand {
            frame_s: 0.1,
            grant_s: rtt_s,
            constant: 0.05,
        }),
        tcp: Some(rtt_s),
        offered: Box::new(|t| if t < BEGINS_S { 0.0 } else { 1e9 }),
        ..Link::new(move |_| rate, rtt_s)
    }
}

fn nothing_told() -> Sender {
    Sender::Found(Limits::default())
}

/// How long the next `bits` take from `from_s` on, s.
fn takes(course: &Course, from_s: f64, bits: f64) -> f64 {
    let mut sum = 0.0;
    let mut steps = course.steps.iter().skip((from_s * 1e3) as usize);
    let last = steps.position(|step| {
        sum += step.1;
        sum >= bits
    });
    last.map_or(f64::INFINITY, |ms| ms as f64 / 1e3)
}

/// Bits that wait for a grant raise the round trip above its base at any rate. They are
/// not a queue to be drained: the less waits, the less is granted.
#[test]
fn an_upload_on_demand_has_what_the_link_carries() {
    let (mut count, mut sum) = (0.0, 0.0);
    for rtt_s in [0.3, RTT_S, 0.65] {
        for rate in [1e6, 2e6, 5e6, 10e6] {
            let course = run(&on_demand(rate, rtt_s), &nothing_told(), 90.0, EACH_MS);
            let name = format!("on demand, {rate}, {rtt_s} s");
            show(&name, &course, 15.0, 90.0);
            let took_s = takes(&course, BEGINS_S, UPLOAD_BITS * rate / 2e6);
            let part = UPLOAD_BITS / 2e6 / took_s;
            println!("  the first upload: {took_s:.1} s, {part:.3}");
            let asked = rate == 2e6 && rtt_s == RTT_S;
            assert!(part > if asked { 0.88 } else { 0.78 });
            assert!(course.used(15.0, 90.0) > 0.91);
            // The wait for a grant, and three frames.
            assert!(course.queue(0.95, 15.0, 90.0) < rtt_s + 0.3);
            count += 1.0;
            sum += part;
        }
    }
    println!("first uploads in the mean {:.3}", sum / count);
    assert!(sum / count > 0.87);
}

/// Small amounts between two uploads do not wait.
#[test]
fn an_upload_behind_a_pause_knows_the_wait_for_access() {
    let mut link = on_demand(2e6, RTT_S);
    link.offered = Box::new(|t| match t {
        t if t < BEGINS_S => 0.0,
        t if !(45.0..=90.0).contains(&t) => 2.1e6,
        _ => 0.02e6,
    });
    let course = run(&link, &nothing_told(), 140.0, EACH_MS);
    show("behind a pause", &course, 90.0, 140.0);
    assert!(course.used(92.0, 140.0) > 0.93);
}

/// A queue that others have filled for long, or a peer that delays its acknowledgements,
/// looks like a wait for access.
#[test]
fn what_looked_like_a_wait_for_access_is_forgotten_when_it_is_over() {
    let mut link = Link::new(|_| 10e6, RTT_S);
    // A queue of 0.3 s stands for 40 s, whatever the sender does.
    link.there = Box::new(|t| 0.28 + if (10.0..50.0).contains(&t) { 0.3 } else { 0.0 });
    let course = run(&link, &hinted(5e6), 120.0, EACH_MS);
    show("beside a wait", &course, 25.0, 50.0);
    show("behind it", &course, 60.0, 120.0);
    assert!(course.used(25.0, 50.0) > 0.9);
    assert!(course.used(60.0, 120.0) > 0.93);
    assert!(course.queue(0.95, 60.0, 120.0) < 0.1);
}

/// A peer can delay acknowledgements to pretend a wait for access. The queue that the
/// sender then leaves is bounded by the longest such wait: a round trip and four frames.
#[test]
fn a_peer_that_pretends_a_wait_for_access_gets_a_bounded_queue() {
    for pretends_s in [0.2, 0.6, 0.9] {
        let link = Link {
            pretends: Box::new(move |t| if t < 5.0 { 0.0 } else { pretends_s }),
            queue_s: 4.0,
            ..Link::new(|_| 5e6, RTT_S)
        };
        let course = run(&link, &hinted(10e6), 180.0, EACH_MS);
        show(&format!("pretends {pretends_s} s"), &course, 10.0, 180.0);
        assert!(course.queue(0.95, 10.0, 180.0) < RTT_S + 0.4 + 0.25);
        assert!(course.used(10.0, 180.0) > 0.9);
    }
}

/// The same uploads between nodes: bytes of a bundle that wait in TCP leave while a queue
/// is drained, so arrivals lag behind the requests.
#[test]
fn an_upload_on_demand_between_nodes_has_what_the_link_carries() {
    let (mut count, mut sum) = (0.0, 0.0);
    for rtt_s in [0.3, RTT_S, 0.65] {
        for rate in [1e6, 2e6, 5e6, 10e6] {
            let link = Link {
                as_in_a_node: true,
                ..on_demand(rate, rtt_s)
            };
            let course = run(&link, &nothing_told(), 90.0, EACH_MS);
            let took_s = takes(&course, BEGINS_S, UPLOAD_BITS * rate / 2e6);
            let part = UPLOAD_BITS / 2e6 / took_s;
            let name = format!("between nodes, {rate}, {rtt_s} s, first upload {part:.3}");
            show(&name, &course, 15.0, 90.0);
            assert!(part > 0.65);
            assert!(course.used(15.0, 90.0) > 0.8);
            count += 1.0;
            sum += part;
        }
    }
    println!("first uploads between nodes in the mean {:.3}", sum / count);
    assert!(sum / count > 0.86);
}

/// A second start knows the rate, but not the wait for access, and little is sent at first. Capacity
/// for the upload is granted a round trip after it begins, and until then only the part arrives that
/// needs no request.
#[test]
fn an_upload_on_demand_at_a_second_start_has_what_the_link_carries() {
    let (mut count, mut sum) = (0.0, 0.0);
    for (rtt_s, rate) in [
        (0.3, 1e6),
        (0.3, 5e6),
        (RTT_S, 2e6),
        (RTT_S, 5e6),
        (0.65, 2e6),
    ] {
        for (part, as_in_a_node) in [(0.6, true), (0.95, false), (0.95, true), (1.1, true)] {
            let mut link = Link {
                as_in_a_node,
                ..on_demand(rate, rtt_s)
            };
            link.offered = Box::new(move |t| match t {
                t if t < BEGINS_S => 0.0,
                t if t < SECOND_S => 0.01 * rate,
                _ => 1e9,
            });
            let course = run(&link, &hinted(part * rate), SECOND_S + 90.0, EACH_MS);
            let took_s = takes(&course, SECOND_S, UPLOAD_BITS * rate / 2e6);
            let used = UPLOAD_BITS / 2e6 / took_s;
            let name = format!("hint {part} of {rate}, {rtt_s} s, {as_in_a_node}, {used:.3}");
            show(&name, &course, SECOND_S + 15.0, SECOND_S + 90.0);
            assert!(used > 0.7);
            assert!(course.used(SECOND_S + 15.0, SECOND_S + 90.0) > 0.8);
            count += 1.0;
            sum += used;
        }
    }
    println!("second starts in the mean {:.3}", sum / count);
    assert!(sum / count > 0.86);
}
