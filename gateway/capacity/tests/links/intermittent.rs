//! Intermittent traffic: objects arrive at random, one after the other.

use super::*;
use crate::model::STEP_S;

const SECONDS: f64 = 60.0;

/// Objects of 10 to 100 kB that arrive at random and together take this part of the
/// link's rate: the bits of each millisecond, as a rate.
fn objects(seed: u64, bps: f64) -> model::OverTime<f64> {
    let mut random = Random::new(seed);
    let mut of_steps = vec![0.0; (SECONDS / STEP_S) as usize + 1];
    let mut at = 0.0;
    while at < SECONDS {
        let bits = 80_000.0 * 10f64.powf(random.part());
        let mean_s = 80_000.0 * 9.0 / 10f64.ln() / bps;
        at -= (1.0 - random.part()).ln() * mean_s;
        if let Some(step) = of_steps.get_mut((at / STEP_S) as usize) {
            *step += bits / STEP_S;
        }
    }
    Box::new(move |t| of_steps[(t / STEP_S).round() as usize])
}

/// The lowest and highest estimates on a link of which nothing was told, as parts of what
/// it carries.
fn spread(rate: f64, rtt_s: f64, queue_s: f64, load: f64, seed: u64) -> (f64, f64) {
    let mut link = Link::new(move |_| rate, rtt_s);
    link.queue_s = queue_s;
    link.tcp = Some(rtt_s);
    link.offered = objects(seed, load * rate);
    let course = run(&link, &Sender::Found(Limits::default()), SECONDS, EACH_MS);
    let name = format!("{:.0} Mbit/s, {rtt_s} s, load {load}", rate / 1e6);
    show(&name, &course, 10.0, SECONDS);
    let known = course.steps[10_000..].iter().filter_map(|step| step.3);
    let part = known.map(|bps| bps / rate);
    part.fold((f64::INFINITY, 0.0), |(least, most), part| {
        (least.min(part), most.max(part))
    })
}

/// Intermittent traffic fills the link only for moments: neither a pause nor the few
/// bytes before it show what the link carries.
#[test]
fn traffic_that_comes_and_goes_moves_the_estimate_little() {
    let links = [(2e6, 0.05, 0.04), (8e6, 0.6, 0.16), (10e6, 0.03, 0.47)];
    let loads = [0.3, 0.6, 0.8];
    let (mut count, mut sum) = (0.0, 0.0);
    for (rate, rtt_s, queue_s) in links {
        for (load, seed) in loads
            .iter()
            .flat_map(|load| (1..=4).map(move |seed| (*load, seed)))
        {
            let (least, most) = spread(rate, rtt_s, queue_s, load, seed);
            println!("  load {load}, seed {seed}: {least:.2} to {most:.2}");
            assert!(least > 0.7 && most < 1.4);
            count += 1.0;
            sum += least;
        }
    }
    println!("least in the mean {:.3}", sum / count);
    assert!(sum / count > 0.88);
}
