//! The arithmetic of both congestion controls, in user space.
//!
//! These are calls into `src/bpf/hybla_arithmetic.h`, from which the BPF program is compiled, too:
//! what the tests prove here holds in the kernel, and a congestion control in user space computes
//! the same windows.
//!
//! Windows are in segments, times in microseconds, rates in bytes per second.

mod kernel {
    unsafe extern "C" {
        pub safe fn underpass_hybla_rho(rtt_us: u32) -> u64;
        pub safe fn underpass_hybla_slow_start_gain(rho: u64) -> u64;
        pub safe fn underpass_hybla_slow_start(
            cwnd: u32,
            ssthresh: u32,
            gain: u64,
            acked: &mut u32,
            credit: &mut u64,
        ) -> u32;
        pub safe fn underpass_hybla_congestion_avoidance(
            cwnd: u32,
            rho: u64,
            acked: u32,
            credit: &mut u64,
        ) -> u32;
        pub safe fn underpass_hybla_initial_window(cwnd: u32, rho: u64) -> u32;
        pub safe fn underpass_hybla_hoe_ssthresh(
            segments: u32,
            interval_us: u64,
            min_rtt_us: u32,
        ) -> u32;
        pub safe fn underpass_hybla_pacing_rate(
            cwnd: u32,
            mss: u32,
            srtt_us: u32,
            gain_percent: u32,
        ) -> u64;
        pub safe fn underpass_hybla_rate_reduction(
            in_flight: u32,
            ssthresh: u32,
            window_before: u32,
            delivered: u32,
            sent: u32,
            acked: u32,
        ) -> u32;
        pub safe fn underpass_hybla_allocated_window(
            rate: u64,
            smoothed_us: u32,
            smallest_us: u32,
            mss: u32,
        ) -> u32;
        pub safe fn underpass_hybla_arrival_rate(segments: u32, interval_us: u64, mss: u32) -> u64;
        pub safe fn underpass_hybla_allocated_pacing_rate(rate: u64, mss: u32) -> u64;
    }
}

/// ρ = max(RTT/25 ms, 1), with 16 fraction bits; at most 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rho(u64);

impl Rho {
    /// Of a path with this smallest round trip.
    pub fn of(rtt_us: u32) -> Self {
        Self(kernel::underpass_hybla_rho(rtt_us))
    }

    /// As a number, for display and comparison.
    pub fn value(self) -> f64 {
        self.0 as f64 / 65536.0
    }

    /// 2^ρ − 1, what slow start adds per segment; saturates at ρ = 16.
    pub fn slow_start_gain(self) -> f64 {
        kernel::underpass_hybla_slow_start_gain(self.0) as f64 / 65536.0
    }

    /// ρ times the standard initial window, at most 1024 segments.
    pub fn initial_window(self, standard: u32) -> u32 {
        kernel::underpass_hybla_initial_window(standard, self.0)
    }
}

/// A Hybla window as it opens, without loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Segments that may be in flight.
    pub cwnd: u32,
    /// Where slow start ends.
    pub ssthresh: u32,
    credit: u64,
}

impl Window {
    /// A window with no growth owed.
    pub fn new(cwnd: u32, ssthresh: u32) -> Self {
        Self {
            cwnd,
            ssthresh,
            credit: 0,
        }
    }

    /// An ACK for `acked` segments: slow start up to ssthresh, the rest congestion avoidance.
    pub fn acknowledge(&mut self, mut acked: u32, rho: Rho) {
        if self.cwnd < self.ssthresh {
            let gain = kernel::underpass_hybla_slow_start_gain(rho.0);
            self.cwnd = kernel::underpass_hybla_slow_start(
                self.cwnd,
                self.ssthresh,
                gain,
                &mut acked,
                &mut self.credit,
            );
        }
        if self.cwnd >= self.ssthresh {
            self.cwnd = kernel::underpass_hybla_congestion_avoidance(
                self.cwnd,
                rho.0,
                acked,
                &mut self.credit,
            );
        }
    }
}

/// Hoe's estimate of the first ssthresh: `segments` acknowledged within `interval_us` show the
/// bottleneck's rate; times the smallest round trip it is the window that fills the path.
pub fn hoe_ssthresh(segments: u32, interval_us: u64, min_rtt_us: u32) -> u32 {
    kernel::underpass_hybla_hoe_ssthresh(segments, interval_us, min_rtt_us)
}

/// `gain_percent`/100 × cwnd/srtt, in bytes of payload per second.
pub fn pacing_rate(cwnd: u32, mss: u32, srtt_us: u32, gain_percent: u32) -> u64 {
    kernel::underpass_hybla_pacing_rate(cwnd, mss, srtt_us, gain_percent)
}

/// A recovery as proportional rate reduction counts it (RFC 6937), in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The window that recovery is to end with.
    pub ssthresh: u32,
    /// The window when the loss was found.
    pub window_before: u32,
    /// Delivered since then.
    pub delivered: u32,
    /// Sent since then.
    pub sent: u32,
}

impl Reduction {
    /// How many segments may leave on an ACK that delivers `acked` more.
    pub fn allowance(&self, in_flight: u32, acked: u32) -> u32 {
        kernel::underpass_hybla_rate_reduction(
            in_flight,
            self.ssthresh,
            self.window_before,
            self.delivered,
            self.sent,
            acked,
        )
    }
}

/// The window that an allocation of `rate` bytes/s needs. A `smallest_us` of 0 means that no
/// round trip has been measured; 600 ms is then assumed.
pub fn allocated_window(rate: u64, smoothed_us: u32, smallest_us: u32, mss: u32) -> u32 {
    kernel::underpass_hybla_allocated_window(rate, smoothed_us, smallest_us, mss)
}

/// The rate of segments that arrived within `interval_us`, bytes/s: at least one segment per
/// second.
pub fn arrival_rate(segments: u32, interval_us: u64, mss: u32) -> u64 {
    kernel::underpass_hybla_arrival_rate(segments, interval_us, mss)
}

/// The rate at which an allocation is paced: itself, but at least a segment per second.
pub fn allocated_pacing_rate(rate: u64, mss: u32) -> u64 {
    kernel::underpass_hybla_allocated_pacing_rate(rate, mss)
}
