use super::*;

/// The queue, ms, that the last of several hops shares with the others, where all move
/// at once and have these queues.
fn shared_ms(queues_ms: &[u64]) -> Option<u128> {
    let meters: Vec<(HopId, LinkMeter)> = (1..)
        .zip(queues_ms)
        .map(|(number, ms)| {
            let meter = LinkMeter {
                shares: true,
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

/// The bound above which a queue counts is twice as high beside others: a hop that moves
/// alone must not have that.
#[tokio::test(start_paused = true)]
async fn a_hop_that_moves_alone_shares_its_queue_with_none() {
    assert_eq!(shared_ms(&[40]), None);
    assert_eq!(shared_ms(&[40, 25]), Some(25));
    assert_eq!(shared_ms(&[25, 40]), Some(25));
    assert_eq!(shared_ms(&[30, 20, 60]), Some(20));
}

/// What a congestion control without our window sends on a longer way is no fade.
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
