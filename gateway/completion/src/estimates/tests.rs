use super::*;
use proptest::prelude::*;

fn path(delay_ms: u64, capacity_bps: u64, loss: f64) -> PathState {
    PathState {
        delay: Duration::from_millis(delay_ms),
        capacity_bps: Some(capacity_bps),
        loss,
        busy: Duration::ZERO,
    }
}

fn alone() -> Competition {
    Competition::default()
}

/// The paths of the paper's experiment.
fn terrestrial() -> PathState {
    path(25, 2_000_000, 0.0)
}

fn satellite() -> PathState {
    path(300, 8_000_000, 0.0)
}

fn is_close(time: Duration, expected_s: f64) -> bool {
    (time.as_secs_f64() - expected_s).abs() < 1e-6
}

#[test]
fn the_papers_estimate_by_hand() {
    // 100 segments on the terrestrial path: 1,158,400 bit take 0.5792 s. The window is at
    // most 2 * 0.025 * 2e6 / 11584 = 8.63 segments, which is less than the first one, so
    // there is no slow start: 0.1 + 0.5792 + 0 + 0 + 0.05.
    let size = 100 * SEGMENT_BYTES;
    assert!(is_close(
        of_new_connection(&terrestrial(), &alone(), size),
        0.7292
    ));
    // By satellite they take 0.1448 s. It takes ceil(log2(41.4)) = 6 rounds to reach 0.6
    // * 8e6 / 11584 = 414.4 segments, and all is sent in floor(log2(1 + 10)) = 3: 1.2 +
    // 0.1448 + 3 * 0.6 + 0.6.
    assert!(is_close(
        of_new_connection(&satellite(), &alone(), size),
        3.7448
    ));
}

#[test]
fn the_papers_estimate_with_competition_and_loss_by_hand() {
    // T = 1.25; three sharers: t_e = 3 * 1158400 * 1.25 / 8e6 = 0.543; the
    // window 138.1 segments, ceil(log2(13.81)) = 4 rounds; 125 segments end in
    // floor(log2(13.5)) = 3. t_comp = (400000 + 1158400) * 1.25 / 8e6.
    let others = Competition {
        flows: 2,
        bytes: 50_000 + 100 * SEGMENT_BYTES,
        ..alone()
    };
    let time = of_new_connection(&path(300, 8_000_000, 0.2), &others, 100 * SEGMENT_BYTES);
    assert!(
        is_close(time, 1.2 + 0.543 + 1.8 + 0.2435 + 0.75),
        "{time:?}"
    );
}

#[test]
fn an_open_session_by_hand() {
    // 100 segments in 0.5792 s and 25 ms; by satellite in 0.1448 s and 300 ms.
    let size = 100 * SEGMENT_BYTES;
    assert!(is_close(
        of_open_session(&terrestrial(), &alone(), size),
        0.6042
    ));
    assert!(is_close(
        of_open_session(&satellite(), &alone(), size),
        0.4448
    ));
    let busy = PathState {
        busy: Duration::from_millis(80),
        ..terrestrial()
    };
    let others = Competition {
        flows: 1,
        bytes: 25_000,
        before_bytes: 12_500,
        arriving_bps: 1_000_000,
    };
    // Others add 0.15 s, and 0.08 s.
    assert!(is_close(of_open_session(&busy, &others, size), 0.8342));
}

#[test]
fn others_are_later_by_what_they_send_in_turn_with_a_flow() {
    let mut others = Competition {
        flows: 3,
        bytes: 75_000,
        before_bytes: 12_500,
        arriving_bps: 0,
    };
    let wait = |estimate: Estimate, others: &Competition| {
        estimate.others_wait(&terrestrial(), others, 50_000)
    };
    assert!(is_close(wait(Estimate::OpenSession, &others), 0.3));
    // Flows that begin during its 0.2 s: half of the path is used, then all of it.
    for (arriving_bps, expected) in [(1_000_000, 0.3 + 0.2), (u64::MAX, 0.3 + 0.8)] {
        others.arriving_bps = arriving_bps;
        let waits = wait(Estimate::OpenSession, &others);
        assert!(is_close(waits, expected), "{waits:?}");
        assert_eq!(wait(Estimate::NewConnection, &others), Duration::ZERO);
    }
}

#[test]
fn nobody_waits_on_a_path_without_a_known_limit() {
    let unknown = PathState {
        capacity_bps: None,
        ..terrestrial()
    };
    let others = Competition {
        bytes: 75_000,
        arriving_bps: u64::MAX,
        ..Competition::default()
    };
    let waits = Estimate::OpenSession.others_wait(&unknown, &others, 1 << 63);
    assert_eq!(waits, Duration::ZERO);
}

#[test]
fn what_is_small_goes_by_terrestrial_and_what_is_large_by_satellite() {
    for (estimate, small, large) in [
        (Estimate::OpenSession, 50_000, 110_000),
        (Estimate::NewConnection, 400_000, 3_000_000),
    ] {
        let by = |path, size| estimate.of(&path, &alone(), size);
        assert!(
            by(terrestrial(), small) < by(satellite(), small),
            "{estimate:?}"
        );
        assert!(
            by(terrestrial(), large) > by(satellite(), large),
            "{estimate:?}"
        );
    }
}

#[test]
fn a_path_without_a_known_limit_costs_its_delay_only() {
    let unknown = PathState {
        capacity_bps: None,
        ..terrestrial()
    };
    assert!(is_close(
        of_open_session(&unknown, &alone(), 1 << 40),
        0.025
    ));
    let new = of_new_connection(&unknown, &alone(), 0);
    assert!(is_close(new, 0.15));
}

#[test]
fn no_figures_however_wrong_break_an_estimate() {
    let sizes = [0, 1, u64::MAX];
    for loss in [-1.0, 0.0, 0.999, 1.0, 7.0, f64::NAN, f64::INFINITY] {
        for capacity_bps in [None, Some(0), Some(1), Some(u64::MAX)] {
            let path = PathState {
                delay: Duration::from_secs(3600),
                capacity_bps,
                loss,
                busy: Duration::MAX,
            };
            let others = Competition {
                flows: u64::MAX,
                bytes: u64::MAX,
                before_bytes: u64::MAX,
                arriving_bps: u64::MAX,
            };
            for size in sizes {
                assert!(of_new_connection(&path, &others, size) >= path.delay);
                assert!(of_open_session(&path, &others, size) >= path.delay);
                let waits = Estimate::OpenSession.others_wait(&path, &others, size);
                assert_eq!(waits > Duration::ZERO, capacity_bps.is_some());
            }
        }
    }
}

/// The equations in order, with *r* of each flow, in bit and s; windows are doubled round
/// by round instead of by logarithms.
fn plainly(d: f64, c: f64, tau: f64, left_bytes: &[u64], size: u64) -> f64 {
    let t = 1.0 / (1.0 - tau);
    let n = left_bytes.len() as f64;
    let s = 8.0 * size as f64;
    let mss = 8.0 * 1448.0;
    let t_e = (n + 1.0) * s * t / c;
    let cwnd_max = 2.0 * d / mss * c / (n + 1.0);
    let (mut m_max, mut window) = (0, 10.0);
    while window < cwnd_max {
        window *= 2.0;
        m_max += 1;
    }
    // Rounds whose windows together are at most the flow.
    let (mut m_end, mut sent, mut round) = (0, 10.0, 10.0);
    while sent <= s * t / mss {
        m_end += 1;
        round *= 2.0;
        sent += round;
    }
    let t_ss = 2.0 * d * f64::from(m_max.min(m_end));
    let each = left_bytes
        .iter()
        .map(|r| (8.0 * *r as f64 * t).min(s * t) / c);
    let t_comp: f64 = each.sum();
    let t_l = 2.0 * d * t;
    4.0 * d + t_e + t_ss + t_comp + t_l
}

proptest! {
    #[test]
    fn the_papers_estimate_is_its_equations(
        delay_ms in 1..700u64,
        capacity_bps in 50_000..200_000_000u64,
        loss in 0.0..0.5f64,
        left in proptest::collection::vec(0..5_000_000u64, 0..40),
        size in 1..50_000_000u64,
    ) {
        let others = Competition {
            flows: left.len() as u64,
            bytes: left.iter().map(|bytes| (*bytes).min(size)).sum(),
            ..alone()
        };
        let ours = of_new_connection(&path(delay_ms, capacity_bps, loss), &others, size);
        let expected = plainly(delay_ms as f64 / 1e3, capacity_bps as f64, loss, &left, size);
        let off = (ours.as_secs_f64() - expected).abs();
        prop_assert!(off < 1e-6 * expected.max(1.0), "{ours:?} {expected}");
    }

    /// More to send, more loss, more delay or less capacity never end a flow earlier.
    #[test]
    fn an_open_session_is_never_faster_for_being_worse(
        delay_ms in 1..700u64,
        capacity_bps in 50_000..200_000_000u64,
        loss in 0.0..0.5f64,
        bytes in 0..5_000_000u64,
        size in 1..50_000_000u64,
    ) {
        let others = Competition { flows: 1, bytes, ..alone() };
        let at = |path: PathState, others: &Competition, size| of_open_session(&path, others, size);
        let best = at(path(delay_ms, capacity_bps, loss), &others, size);
        let more = Competition { bytes: bytes + 1000, ..others };
        prop_assert!(at(path(delay_ms + 1, capacity_bps, loss), &others, size) >= best);
        prop_assert!(at(path(delay_ms, capacity_bps, loss + 0.01), &others, size) >= best);
        prop_assert!(at(path(delay_ms, capacity_bps, loss), &more, size) >= best);
        prop_assert!(at(path(delay_ms, capacity_bps, loss), &others, size + 1000) >= best);
        prop_assert!(
            at(path(delay_ms, capacity_bps / 2, 0.0), &others, size)
                >= at(path(delay_ms, capacity_bps, 0.0), &others, size)
        );
    }
}
