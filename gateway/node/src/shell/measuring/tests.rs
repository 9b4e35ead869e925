use underpass_engine::SessionPlace;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn session(figures: PathFigures) -> SessionReading {
    SessionReading {
        id: SessionId(1),
        place: SessionPlace {
            hop: HopId(0),
            class: None,
            ack_bytes: 52,
            keepalive_bytes: 75,
        },
        ack_bytes: 52,
        figures,
    }
}

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

/// Others that fill a queue for a while make round trips longer, and end.
#[test]
fn a_guessed_round_trip_follows_the_measured_one_down_to_what_the_peer_assumes() {
    let corrected = |guessed_ms: u64, measured_ms: u64| {
        let [guessed, measured] = [guessed_ms, measured_ms].map(Duration::from_millis);
        corrected_rtt(guessed, measured).map(|rtt| rtt.as_millis())
    };
    assert_eq!(corrected(600, 630), None);
    assert_eq!(corrected(600, 1_600), Some(1_600));
    assert_eq!(corrected(1_600, 1_550), None);
    assert_eq!(corrected(1_600, 700), Some(700));
    assert_eq!(corrected(1_600, 40), Some(600));
    assert_eq!(corrected(600, 40), None);
    assert_eq!(corrected(600, 60_001), None);
}

/// On an idle metered link a beacon comes every 8 s, and more only with the next bundle.
#[tokio::test(start_paused = true)]
async fn what_was_measured_of_a_told_link_outlasts_a_rest_and_not_beacons_that_cease() {
    let mut meter = LinkMeter::new();
    meter.follow(timer::now(), true, true);
    let woken = timer::now() + 3600 * SECOND;
    meter.miss_none(woken);
    meter.follow(woken + 9 * SECOND, true, false);
    assert!(meter.is_followed());
    meter.follow(woken + 10 * SECOND, true, false);
    assert!(!meter.is_followed());
    // Idleness does not revive a measurement that no longer counts.
    meter.miss_none(woken + 20 * SECOND);
    meter.follow(woken + 21 * SECOND, true, false);
    assert!(!meter.is_followed());
    meter.follow(woken + 22 * SECOND, true, true);
    assert!(meter.is_followed());
}

/// Its round trips then show no queue but this direction's. A rate that was configured is not
/// lowered by a queue of the peer's data.
#[tokio::test(start_paused = true)]
async fn without_beacons_a_told_link_is_measured_while_its_peer_sends_hardly_anything() {
    let start = timer::now();
    let mut meter = LinkMeter::new();
    let mut figures = PathFigures {
        cwnd_bytes: 1 << 20,
        segment_bytes: 1448,
        ..PathFigures::default()
    };
    // Whether the rate follows the measurement in each of these seconds, in which the peer sends
    // this many bytes each and 1 MB arrives there.
    let mut followed = |seconds: std::ops::Range<u32>, received_bytes: u64| -> Vec<bool> {
        let each = seconds.map(|second| {
            figures.delivered_bytes += 1_000_000;
            figures.received_bytes += received_bytes;
            let now = start + second * SECOND;
            meter.looked_at = now;
            meter.add(&[session(figures)]);
            let known = meter.knows_way_back(None);
            meter.follow(now, true, known);
            meter.is_followed()
        });
        each.collect()
    };
    // The first period has to be over.
    assert_eq!(
        followed(0..6, 1_000),
        [false, false, true, true, true, true]
    );
    // What was measured counts for 10 s more.
    let uploads = followed(6..20, 1_000_000);
    assert_eq!(uploads.iter().filter(|follows| **follows).count(), 9);
    assert!(uploads[8] && !uploads[9]);
    assert_eq!(followed(20..24, 0), [false, false, true, true]);
}

/// Datagrams count as delivered when they leave, and blocks of LTP arrive as a whole.
#[tokio::test(start_paused = true)]
async fn a_told_link_whose_transport_has_no_window_keeps_its_rate() {
    let mut meter = LinkMeter::new();
    for second in 0..10 {
        meter.looked_at += SECOND;
        meter.add(&[session(PathFigures {
            delivered_bytes: second * 1_000_000,
            ..PathFigures::default()
        })]);
        let known = meter.knows_way_back(None);
        meter.follow(meter.looked_at, true, known);
        assert!(!meter.is_followed());
    }
}

#[tokio::test(start_paused = true)]
async fn keepalives_go_beside_bundles_in_both_directions_with_what_acknowledges_them() {
    let reading = |sent, received| {
        session(PathFigures {
            keepalives_sent: sent,
            keepalives_received: received,
            // Each of the peer's is acknowledged.
            segments_sent: sent + received,
            data_segments_sent: sent,
            ..PathFigures::default()
        })
    };
    let mut meter = LinkMeter::new();
    for (sent, received, bytes) in [(1, 1, 254), (1, 1, 0), (3, 2, 381)] {
        meter.add(&[reading(sent, received)]);
        assert_eq!(meter.take_beside_bytes(), bytes);
    }
}
