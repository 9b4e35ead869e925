//! Transports whose windows are small beside what the link carries in a round trip.

use super::*;

const BASE_MS: u64 = 560;
const STEP_MS: u64 = 20;
const PACKET: u64 = 12_000;

/// What is estimated of a link of 4 Mbit/s while a new session has always `packets` in flight, and
/// others' queue grows by a tenth of the time.
fn beside_others(packets: u64) -> Option<u64> {
    let start = Instant::now();
    let mut estimator = Estimator::new(Limits {
        ceiling_bps: Some(4_000_000),
        ..Limits::default()
    });
    let (mut least, mut arriving) = (None, Vec::<u64>::new());
    let mut reading = Reading {
        allowed_bps: Some(4_000_000),
        ..Reading::default()
    };
    for ms in (0..8_000_u64).step_by(STEP_MS as usize) {
        let queue_ms = ms.saturating_sub(2_000) / 10;
        let arrived = arriving.iter().filter(|at| **at <= ms).count() as u64;
        arriving.retain(|at| *at > ms);
        reading.delivered_bits += arrived * PACKET;
        // Each acknowledgement lets a packet leave; the first ones leave one after the other.
        let first = packets * STEP_MS / BASE_MS + 1;
        let more = if ms < BASE_MS { first } else { arrived };
        let left = more.min(packets - arriving.len() as u64);
        arriving.extend((0..left).map(|_| ms + BASE_MS + queue_ms));
        reading.sent_bits += left * PACKET;
        reading.in_flight_bits = arriving.len() as u64 * PACKET;
        reading.rtt = Some(Duration::from_millis(BASE_MS + queue_ms));
        (reading.backlogged, reading.window_full) = (true, true);
        estimator.read(start + Duration::from_millis(ms), reading);
        least = least.into_iter().chain(estimator.capacity_bps()).min();
    }
    println!("{packets} packets: {least:?}");
    least
}

/// The queue of others makes the round trips of a session that has just begun longer. Its few
/// packets must not be taken for all that the link carries.
#[test]
fn the_window_of_a_new_session_is_no_limit_of_the_link() {
    for packets in [4, 10, 30] {
        assert_eq!(beside_others(packets), None);
    }
}

/// A window that would fill the link shows what arrives, though little is sent.
#[test]
fn a_window_that_would_fill_the_link_shows_what_it_carries() {
    let least = beside_others(180);
    assert!(least.is_some_and(|bps| bps < 3_900_000), "{least:?}");
}

/// What is told may be far more than the link carries: then windows limit what is sent, to much less
/// than is allowed.
#[test]
fn a_link_that_carries_a_fiftieth_of_what_is_told_is_found() {
    for (rate, told_bps) in [(4e6, 100e6), (2e6, 100e6), (4e6, 1e9)] {
        let link = Link {
            tcp: Some(0.56),
            as_in_a_node: true,
            ..Link::new(move |_| rate, 0.56)
        };
        let course = run(&link, &told(told_bps), 20.0, EACH_MS);
        show(&format!("{rate} told {told_bps}"), &course, 10.0, 20.0);
        assert!(course.least_estimate(0.0, 5.0) < 1.5 * rate);
        assert!(course.queue(0.95, 10.0, 20.0) < 0.3);
    }
}
