use underpass_engine::SessionPlace;

use super::*;

/// The queue, ms, that the last of several hops shares with the others if all change at
/// once and have these queues. `shares`: a rate of their beam is known.
fn shared_ms(shares: bool, queues_ms: &[u64]) -> Option<u128> {
    let meters: Vec<(HopId, LinkMeter)> = (1..)
        .zip(queues_ms)
        .map(|(number, ms)| {
            let meter = LinkMeter {
                shares,
                queue: Some(Duration::from_millis(*ms)),
                ..LinkMeter::new()
            };
            (HopId(number), meter)
        })
        .collect();
    let beam = SharedQueue::of(meters.iter().map(|(hop, meter)| (hop, meter)));
    let (hop, meter) = meters.last()?;
    let shared = meter.shared_queue(*hop, &beam)?;
    Some(shared.as_millis())
}

/// Beside other hops, a queue counts only above twice the usual bound: this must not apply to a hop
/// that moves alone.
#[tokio::test(start_paused = true)]
async fn a_hop_that_moves_alone_shares_its_queue_with_none() {
    assert_eq!(shared_ms(true, &[40]), None);
    assert_eq!(shared_ms(true, &[40, 25]), Some(25));
    assert_eq!(shared_ms(true, &[25, 40]), Some(25));
    assert_eq!(shared_ms(true, &[30, 20, 60]), Some(20));
}

/// Otherwise a queue that all of them see would be drained by none.
#[tokio::test(start_paused = true)]
async fn hops_of_a_beam_without_a_rate_share_their_queues_with_none() {
    assert_eq!(shared_ms(false, &[40, 25]), None);
    assert_eq!(shared_ms(false, &[30, 20, 60]), None);
}

/// A congestion control with a window of its own sends less on a longer path, which is no fade.
#[test]
fn a_full_window_without_a_queue_is_no_limit_of_the_link() {
    let queue = Duration::from_millis(40);
    let limit = Some(Reason::Limit);
    assert_eq!(
        reason_told(limit, true, Duration::ZERO),
        Some(Reason::Probe)
    );
    assert_eq!(reason_told(limit, true, queue), limit);
    assert_eq!(reason_told(limit, false, Duration::ZERO), limit);
    for other in [None, Some(Reason::Hint), Some(Reason::Start)] {
        assert_eq!(reason_told(other, true, Duration::ZERO), other);
    }
}

/// On an idle metered link a beacon comes every 8 s, and more only with the next bundle.
#[tokio::test(start_paused = true)]
async fn what_was_measured_of_a_told_link_outlasts_a_rest_and_not_beacons_that_cease() {
    let second = Duration::from_secs(1);
    let mut meter = LinkMeter::new();
    meter.follow(timer::now(), true, true);
    let woken = timer::now() + 3600 * second;
    meter.miss_none(woken);
    meter.follow(woken + 9 * second, true, false);
    assert!(meter.is_followed());
    meter.follow(woken + 10 * second, true, false);
    assert!(!meter.is_followed());
    // Idleness does not revive a measurement that no longer counts.
    meter.miss_none(woken + 20 * second);
    meter.follow(woken + 21 * second, true, false);
    assert!(!meter.is_followed());
    meter.follow(woken + 22 * second, true, true);
    assert!(meter.is_followed());
}

#[tokio::test(start_paused = true)]
async fn keepalives_go_beside_bundles_in_both_directions_with_what_acknowledges_them() {
    let reading = |sent, received| SessionReading {
        id: SessionId(1),
        place: SessionPlace {
            hop: HopId(0),
            class: None,
            ack_bytes: 52,
            keepalive_bytes: 75,
        },
        ack_bytes: 52,
        figures: PathFigures {
            keepalives_sent: sent,
            keepalives_received: received,
            // Each of the peer's is acknowledged.
            segments_sent: sent + received,
            data_segments_sent: sent,
            ..PathFigures::default()
        },
    };
    let mut meter = LinkMeter::new();
    for (sent, received, bytes) in [(1, 1, 254), (1, 1, 0), (3, 2, 381)] {
        meter.add(&[reading(sent, received)]);
        assert_eq!(meter.take_beside_bytes(), bytes);
    }
}
