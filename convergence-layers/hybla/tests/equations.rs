//! The kernel's fixed-point arithmetic against the equations of Caini and Firrincieli (2004) in
//! floating point, and against the laws that the equations imply.

use proptest::prelude::*;
use underpass_hybla::arithmetic::{
    Reduction, Rho, Window, allocated_pacing_rate, allocated_window, arrival_rate, hoe_ssthresh,
    pacing_rate,
};

const UNKNOWN: u32 = 1 << 24;

fn close(measured: f64, exact: f64, relative: f64, absolute: f64) -> bool {
    (measured - exact).abs() <= exact.abs() * relative + absolute
}

#[test]
fn rho_is_round_trip_over_25_ms_and_never_below_one() {
    for (rtt_us, rho) in [
        (0, 1.0),
        (24_999, 1.0),
        (25_000, 1.0),
        (100_000, 4.0),
        (600_000, 24.0),
    ] {
        assert_eq!(Rho::of(rtt_us).value(), rho, "{rtt_us} us");
    }
    assert_eq!(Rho::of(u32::MAX).value(), 256.0);
}

#[test]
fn at_the_reference_round_trip_hybla_is_standard_tcp() {
    let rho = Rho::of(25_000);
    assert_eq!(rho.slow_start_gain(), 1.0);
    assert_eq!(rho.initial_window(10), 10);

    let mut window = Window::new(10, 20);
    window.acknowledge(10, rho);
    assert_eq!(window.cwnd, 20);
    window.acknowledge(20, rho);
    assert_eq!(window.cwnd, 21, "one segment per round trip");
}

#[test]
fn congestion_avoidance_opens_rho_squared_segments_per_round_trip() {
    // A geostationary hop: 24^2 = 576 per window of 7000, whose growth slows it by 4 %.
    let mut window = Window::new(7000, 7000);
    window.acknowledge(7000, Rho::of(600_000));
    let exact = (7000f64.powi(2) + 2.0 * 7000.0 * 576.0).sqrt();
    assert_eq!(window.cwnd, exact as u32);
}

#[test]
fn slow_start_hands_the_rest_of_an_ack_to_congestion_avoidance() {
    // rho = 4: each segment opens 15, so 6 of 100 open 10 to 100.
    let rho = Rho::of(100_000);
    let mut whole = Window::new(10, 100);
    whole.acknowledge(100, rho);
    let mut rest = Window::new(100, 100);
    rest.acknowledge(94, rho);
    assert_eq!(whole.cwnd, rest.cwnd);
    assert!(whole.cwnd > 100);
}

#[test]
fn initial_window_is_scaled_by_rho_and_bounded() {
    assert_eq!(Rho::of(600_000).initial_window(10), 240);
    assert_eq!(Rho::of(6_000_000).initial_window(10), 1024);
}

#[test]
fn ack_spacing_gives_the_bandwidth_delay_product() {
    // 140 Mbit/s of 1500-byte packets: 85.7 us each; 600 ms hold 7000 of them.
    assert_eq!(hoe_ssthresh(8, 686, 600_000), 6997);
    assert_eq!(hoe_ssthresh(1, u64::MAX, 600_000), 2);
    assert_eq!(hoe_ssthresh(u32::MAX, 0, u32::MAX), 1 << 24);
}

#[test]
fn recovery_ends_at_ssthresh_and_never_waits() {
    // All of a window of 100 in flight, one lost, ssthresh 50: every second ACK sends.
    let mut reduction = Reduction {
        ssthresh: 50,
        window_before: 100,
        delivered: 0,
        sent: 0,
    };
    let mut in_flight = 99;
    for _ in 0..99 {
        reduction.delivered += 1;
        in_flight -= 1;
        let allowed = reduction.allowance(in_flight, 1);
        reduction.sent += allowed;
        in_flight += allowed;
    }
    assert!((49..=51).contains(&in_flight), "{in_flight}");
    let first = Reduction {
        ssthresh: 2,
        window_before: 100,
        delivered: 0,
        sent: 0,
    };
    assert_eq!(
        first.allowance(99, 0),
        1,
        "the first retransmission leaves at once"
    );
}

#[test]
fn allocation_covers_its_bandwidth_delay_product_before_the_first_sample() {
    let rate = 17_500_000;
    let bdp = (rate as f64 * 0.6 / 1448.0) as u32;
    assert!(allocated_window(rate, 0, 0, 1448) >= bdp);
    assert!(allocated_window(rate, 0, 0, 1448) <= bdp * 13 / 10);
}

#[test]
fn allocation_bounds_the_queue_of_a_rate_the_link_cannot_carry() {
    let calm = allocated_window(5_000_000, 560_000, 560_000, 1448);
    let flooded = allocated_window(5_000_000, 9_000_000, 560_000, 1448);
    assert!(flooded <= calm * 2 + 1, "{flooded} against {calm}");
}

/// Capacity is granted a round trip after its request, in frames of 100 ms.
#[test]
fn allocation_covers_the_wait_for_access() {
    let rate = 250_000;
    let needed = (rate as f64 * 1.25 / 1448.0) as u32;
    let window = allocated_window(rate, 1_250_000, 560_000, 1448);
    assert!(window > needed, "{window} for {needed}");
    assert!(window <= needed + 13, "{window} for {needed}");
}

#[test]
fn an_allocation_of_nothing_does_not_strand_a_segment() {
    assert_eq!(allocated_pacing_rate(0, 1448), 1448);
    assert_eq!(allocated_pacing_rate(17_500_000, 1448), 17_500_000);
}

proptest! {
    #[test]
    fn slow_start_gain_is_two_to_the_rho_minus_one(rtt_us in 25_000u32..400_000) {
        let exact = (rtt_us as f64 / 25_000.0).exp2() - 1.0;
        let gain = Rho::of(rtt_us).slow_start_gain();
        prop_assert!(close(gain, exact, 2e-5, 2e-5), "{gain} for {exact}");
    }

    #[test]
    fn slow_start_follows_the_equation(
        rtt_us in 25_000u32..200_000, cwnd in 1u32..1000, acked in 1u32..5000,
    ) {
        let rho = Rho::of(rtt_us);
        let mut window = Window::new(cwnd, UNKNOWN);
        window.acknowledge(acked, rho);
        // Whole segments only, and a gain exact to 16 bits after the point.
        let exact = cwnd as f64 + acked as f64 * ((rtt_us as f64 / 25_000.0).exp2() - 1.0);
        prop_assert!(close(window.cwnd as f64, exact, 2e-5, 1.0 + acked as f64 * 2e-5), "{} for {exact}", window.cwnd);
    }

    #[test]
    fn congestion_avoidance_follows_the_equation(
        rtt_us in 25_000u32..2_000_000, start in 1.0f64..50.0, acked in 1u32..20_000,
    ) {
        // The paper's sum, ACK by ACK, from a window of at least rho segments.
        let rho = (rtt_us as f64) / 25_000.0;
        let first = (rho * start).ceil();
        let mut window = Window::new(first as u32, 1);
        window.acknowledge(acked, Rho::of(rtt_us));
        let mut exact = first;
        for _ in 0..acked {
            exact += rho * rho / exact;
        }
        // Our value is integrated within the step: it lags by what one step can add, at most rho
        // (where the window is rho), plus the whole segment that is not complete yet.
        prop_assert!(
            close(window.cwnd as f64, exact, 0.02, rho / 2.0 + 1.5),
            "{} for {exact} from {first} with rho {rho}", window.cwnd
        );
    }

    #[test]
    fn growth_does_not_depend_on_how_acks_are_split(
        rtt_us in 0u32..6_500_000, cwnd in 2u32..100_000, ssthresh in 2u32..200_000,
        acks in prop::collection::vec(1u32..2000, 1..40),
    ) {
        let rho = Rho::of(rtt_us);
        let mut split = Window::new(cwnd, ssthresh);
        for acked in &acks {
            split.acknowledge(*acked, rho);
        }
        let mut whole = Window::new(cwnd, ssthresh);
        whole.acknowledge(acks.iter().sum(), rho);
        prop_assert_eq!(split, whole);
    }

    #[test]
    fn a_window_without_loss_never_shrinks_and_stays_bounded(
        rtt_us: u32, cwnd in 1u32..=(1 << 24), ssthresh: u32, acked: u32,
    ) {
        let mut window = Window::new(cwnd, ssthresh);
        for _ in 0..3 {
            let before = window.cwnd;
            window.acknowledge(acked, Rho::of(rtt_us));
            prop_assert!((before..=1 << 24).contains(&window.cwnd));
        }
    }

    #[test]
    fn pacing_is_gain_times_window_over_round_trip(
        cwnd in 1u32..1_000_000, mss in 500u32..9000, srtt_us in 1u32..5_000_000,
        gain in prop::sample::select(vec![120u32, 200]),
    ) {
        let exact = cwnd as f64 * mss as f64 * gain as f64 / 100.0 / (srtt_us as f64 / 1e6);
        prop_assert!(close(pacing_rate(cwnd, mss, srtt_us, gain) as f64, exact, 1e-9, 1.0));
    }

    #[test]
    fn recovery_sends_no_more_than_standard_halving_allows(
        window in 4u32..100_000, lost in 1u32..100, steps in 1u32..5000,
    ) {
        let ssthresh = (window / 2).max(2);
        let lost = lost.min(window - 1);
        let mut reduction = Reduction { ssthresh, window_before: window, delivered: 0, sent: 0 };
        let mut in_flight = window - lost;
        for _ in 0..steps.min(in_flight) {
            reduction.delivered += 1;
            in_flight -= 1;
            let allowed = reduction.allowance(in_flight, 1);
            reduction.sent += allowed;
            in_flight += allowed;
        }
        prop_assert!(in_flight <= ssthresh.max(window - lost) + 1);
        prop_assert!(reduction.sent <= reduction.delivered * 2 + 1);
    }

    #[test]
    fn what_arrives_is_a_rate_of_at_least_a_segment_per_second(
        segments in 0u32..1 << 24, interval_us in 0u64..1 << 40, mss in 500u32..9000,
    ) {
        let exact = f64::from(segments) * f64::from(mss) * 1e6 / interval_us.max(1) as f64;
        let rate = arrival_rate(segments, interval_us, mss) as f64;
        prop_assert!(close(rate, exact.max(f64::from(mss)), 0.0, 1.0));
    }

    #[test]
    fn allocated_window_is_never_what_stops_a_segment(
        rate in 1000u64..2_000_000_000, rtt_us in 1u32..2_000_000, mss in 500u32..9000,
    ) {
        let needed = rate as f64 * rtt_us as f64 / 1e6 / mss as f64;
        let window = allocated_window(rate, rtt_us, rtt_us, mss) as f64;
        prop_assert!(window >= needed.min((1 << 24) as f64));
        let slack = rate as f64 * 0.01 / mss as f64 + 11.0;
        prop_assert!(window <= needed * 1.25 + slack);
    }
}
