//! Others' web pages, by their own TCP, in the queue of a short hop.

use super::*;

/// A terrestrial hop: bit/s, s, and the size of its queue, bits.
const RATE: f64 = 10e6;
const RTT_S: f64 = 0.03;
const QUEUE_BITS: f64 = 590e3 * 8.0;
/// 100 kB, in whole packets.
const PAGE_PACKETS: f64 = 67.0;
const PACKET_BITS: f64 = model::PACKET as f64;
const PAGE_BITS: f64 = PAGE_PACKETS * PACKET_BITS;
/// Slow start from RFC 6928's ten packets: the packets of each round trip.
const ROUNDS: [f64; 3] = [10.0, 20.0, 37.0];
const OTHERS_BPS: f64 = 1e6;
const OURS_BPS: f64 = 6e6;
const SECONDS: f64 = 60.0;
const STEPS: usize = (SECONDS / model::STEP_S) as usize;
/// When the first page starts, s: the estimate has settled by then.
const FROM_S: f64 = 5.0;

/// The times at which pages are requested, ms: at random, with this mean rate, bit/s.
fn at_random(seed: u64, bps: f64) -> Vec<usize> {
    let mut random = Random::new(seed);
    // Similar seeds give similar first numbers, so these are skipped.
    for _ in 0..20 {
        random.part();
    }
    let mut at = FROM_S;
    let mut pages = Vec::new();
    loop {
        at -= (1.0 - random.part()).ln() * PAGE_BITS / bps;
        if at >= SECONDS {
            return pages;
        }
        pages.push((at * 1e3) as usize);
    }
}

/// The bits of these pages that others send in each ms: one round each round trip, no
/// faster than the link.
fn slow_starts(pages: &[usize]) -> Vec<f64> {
    let mut bits = vec![0.0; STEPS + 200];
    for page in pages {
        for (number, packets) in ROUNDS.iter().enumerate() {
            bits[page + number * (RTT_S * 1e3) as usize] += packets * PACKET_BITS;
        }
    }
    let mut waits = 0.0;
    for of_step in &mut bits {
        waits += *of_step;
        *of_step = f64::min(waits, RATE * model::STEP_S);
        waits -= *of_step;
    }
    bits
}

fn step(t: f64) -> usize {
    (t / model::STEP_S).round() as usize
}

/// The hop with others' pages. Single beacons are delayed by up to `noise_s` each way.
fn beside_pages(others: &[usize], noise_s: f64) -> Link {
    let others = slow_starts(others);
    let late = move |t: f64| noise_s * ((t * 613.0).fract() * 31.0).fract().powi(3);
    Link {
        queue_bits: Some(QUEUE_BITS),
        others: Box::new(move |t| others[step(t)] / model::STEP_S),
        told_back: Some(Box::new(late)),
        tells_there: Some(Box::new(|_, late| late)),
        beacon_noise_s: noise_s,
        ..Link::new(|_| RATE, RTT_S)
    }
}

/// The time that each of these pages took, s; unfinished ones are left out.
fn took(link: Link, pages: &[usize]) -> Vec<f64> {
    let mut asked = vec![0.0; STEPS + 1];
    pages.iter().for_each(|page| asked[*page] += PAGE_BITS);
    // A little more each second, so that rounding holds back no packet.
    let offered = move |t: f64| (asked[step(t)] + 1e-3) / model::STEP_S;
    let link = Link {
        offered: Box::new(offered),
        ..link
    };
    let course = run(&link, &hinted(RATE), SECONDS, EACH_MS);
    let (mut delivered, mut done) = (0.0, Vec::new());
    for (ms, of_step) in course.steps.iter().enumerate() {
        delivered += of_step.1;
        while done.len() < pages.len() && delivered >= (done.len() + 1) as f64 * PAGE_BITS {
            done.push((ms - pages[done.len()]) as f64 / 1e3);
        }
    }
    done
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const NOISES_S: [f64; 4] = [0.0, 0.01, 0.02, 0.04];

#[test]
fn what_pages_of_others_leave_is_used() {
    for noise_s in NOISES_S {
        let mut used = Vec::new();
        for seed in 1..6 {
            let link = beside_pages(&at_random(seed, OTHERS_BPS), noise_s);
            let course = run(&link, &hinted(RATE), SECONDS, EACH_MS);
            show(
                &format!("pages of others, noise {noise_s}, {seed}"),
                &course,
                FROM_S,
                SECONDS,
            );
            assert!(course.queue(0.95, FROM_S, SECONDS) < 0.2);
            used.push(course.used(FROM_S, SECONDS));
        }
        assert!(
            used.iter().sum::<f64>() / used.len() as f64 > 0.85,
            "{used:?}"
        );
    }
}

/// One page of another sender leaves the queue within 0.2 s; then the full rate is
/// available again.
#[test]
fn a_page_of_another_is_over_soon() {
    for noise_s in NOISES_S {
        let link = beside_pages(&[20_000], noise_s);
        let course = run(&link, &hinted(RATE), 25.0, EACH_MS);
        show(&format!("a page, noise {noise_s}"), &course, 20.2, 22.2);
        assert!(course.used(20.2, 22.2) > 0.8, "noise {noise_s}");
    }
}

#[test]
fn pages_beside_pages_of_others_take_three_times_as_long_as_one_alone_at_most() {
    let alone = median(took(beside_pages(&[], 0.0), &[20_000]));
    for noise_s in NOISES_S {
        for seed in 1..6 {
            let others = at_random(seed, OTHERS_BPS);
            let pages = at_random(100 + seed, OURS_BPS);
            let took = took(beside_pages(&others, noise_s), &pages);
            let (ended, typical) = (took.len(), median(took));
            println!("noise {noise_s}, {seed}: {typical:.3} s of {alone:.3} s");
            assert!(ended * 100 > pages.len() * 97);
            assert!(typical <= 3.0 * alone, "noise {noise_s}, {seed}");
        }
    }
}
