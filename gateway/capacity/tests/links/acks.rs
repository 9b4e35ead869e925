//! Simultaneous downloads and uploads on an asymmetric link: the ACKs of one direction
//! take a large part of the other direction's capacity, and no one is told what the link
//! carries.

use super::*;

const SECONDS: f64 = 100.0;
const FROM_S: f64 = 30.0;

/// Both directions of a link with these rates, bit/s, and this round trip.
fn both(rates: [f64; 2], rtt_s: f64, beacon_noise_s: f64) -> [Course; 2] {
    let [there, back] = rates.map(|rate| Link {
        acknowledges: true,
        beacon_noise_s,
        tcp: Some(rtt_s),
        ..Link::new(move |_| rate, rtt_s)
    });
    let first = Sender::Found(Limits::default());
    let courses = run_both([&there, &back], [&first, &first], SECONDS, EACH_MS);
    for (course, rate) in courses.iter().zip(rates) {
        let name = format!("{rate} of {rates:?}, {rtt_s} s, noise {beacon_noise_s}");
        show(&name, course, FROM_S, SECONDS);
    }
    courses
}

/// This quantile, over time, of the sum of both queues, s.
fn queues(courses: &[Course; 2], quantile: f64) -> f64 {
    let [there, back] = courses.each_ref().map(|one| one.steps.iter());
    let behind_the_start = there.zip(back).skip((FROM_S * 1e3) as usize);
    let mut sums: Vec<f64> = behind_the_start.map(|(a, b)| a.2 + b.2).collect();
    sums.sort_by(f64::total_cmp);
    sums[(sums.len() as f64 * quantile) as usize]
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn an_upload_beside_a_download_and_its_acks_has_what_they_leave() {
    let mut used = Vec::new();
    for rates in [[40e6, 2e6], [20e6, 0.8e6], [10e6, 0.5e6]] {
        for rtt_s in [0.3, 0.56] {
            let [_, up] = both(rates, rtt_s, 0.02);
            used.push(up.used(FROM_S, SECONDS));
        }
    }
    println!("used of what ACKs leave: {:.3} {used:.3?}", mean(&used));
    assert!(mean(&used) > 0.94);
    assert!(used.iter().all(|one| *one > 0.9));
}

#[test]
fn neither_direction_of_an_uneven_link_has_a_queue_that_stands() {
    let mut beyond = Vec::new();
    for beacon_noise_s in [0.003, 0.01, 0.02] {
        let courses = both([40e6, 2e6], 0.56, beacon_noise_s);
        beyond.push(queues(&courses, 0.95));
        assert!(courses.iter().all(|one| one.used(FROM_S, SECONDS) > 0.93));
    }
    println!("both queues, p95: {:.3} {beyond:.3?} s", mean(&beyond));
    assert!(mean(&beyond) < 0.1);
}
