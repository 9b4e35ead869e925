/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/* The BPF program's arithmetic as functions that src/arithmetic.rs can call. */
#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64;

#include "hybla_arithmetic.h"

u64 underpass_hybla_rho(u32 rtt_us)
{
	return hybla_rho(rtt_us);
}

u64 underpass_hybla_slow_start_gain(u64 rho)
{
	return hybla_slow_start_gain(rho);
}

u32 underpass_hybla_slow_start(u32 cwnd, u32 ssthresh, u64 gain, u32 *acked, u64 *credit)
{
	return hybla_slow_start(cwnd, ssthresh, gain, acked, credit);
}

u32 underpass_hybla_congestion_avoidance(u32 cwnd, u64 rho, u32 acked, u64 *credit)
{
	return hybla_congestion_avoidance(cwnd, rho, acked, credit);
}

u32 underpass_hybla_initial_window(u32 cwnd, u64 rho)
{
	return hybla_initial_window(cwnd, rho);
}

u32 underpass_hybla_hoe_ssthresh(u32 segments, u64 interval_us, u32 min_rtt_us)
{
	return hybla_hoe_ssthresh(segments, interval_us, min_rtt_us);
}

u64 underpass_hybla_pacing_rate(u32 cwnd, u32 mss, u32 srtt_us, u32 gain_percent)
{
	return hybla_pacing_rate(cwnd, mss, srtt_us, gain_percent);
}

u32 underpass_hybla_rate_reduction(u32 in_flight, u32 ssthresh, u32 window_before,
				   u32 delivered, u32 sent, u32 acked)
{
	return hybla_rate_reduction(in_flight, ssthresh, window_before, delivered, sent, acked);
}

u32 underpass_hybla_allocated_window(u64 rate, u32 smoothed_us, u32 smallest_us, u32 mss)
{
	return hybla_allocated_window(rate, smoothed_us, smallest_us, mss);
}

u64 underpass_hybla_arrival_rate(u32 segments, u64 interval_us, u32 mss)
{
	return hybla_arrival_rate(segments, interval_us, mss);
}

u64 underpass_hybla_allocated_pacing_rate(u64 rate, u32 mss)
{
	return hybla_allocated_pacing_rate(rate, mss);
}
