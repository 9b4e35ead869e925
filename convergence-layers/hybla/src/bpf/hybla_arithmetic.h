/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * The arithmetic of TCP Hybla and of the allocated-rate control, in unsigned
 * fixed point: BPF has no floating point, and no signed division before the
 * fourth version of its instruction set.
 *
 * The BPF program and the user-space tests compile this one file, so the code
 * under test is the code the kernel runs. It includes nothing; the including file
 * must define u32 and u64 first.
 *
 * Units: windows in segments, times in microseconds, rates in bytes per second.
 * "Q16" means 16 fraction bits.
 *
 * Source: C. Caini and R. Firrincieli, "TCP Hybla: a TCP enhancement for
 * heterogeneous networks", Int. J. Satell. Commun. Network. 22 (2004).
 */
#ifndef HYBLA_ARITHMETIC_H
#define HYBLA_ARITHMETIC_H

#define Q16_SHIFT 16
#define Q16_ONE (1ULL << Q16_SHIFT)

/* The reference connection's round trip (Caini and Firrincieli, section 3). */
#define RTT0_US 25000ULL

/* RTT 6.4 s. Beyond it no terrestrial or geostationary path exists, and the
 * products below would leave 64 bits. */
#define RHO_MAX (256 * Q16_ONE)

/* 24 GB in flight at 1448 bytes: a bound for the products, not for users. */
#define CWND_MAX (1U << 24)
#define ACKED_MAX (1U << 20)
#define CWND_MIN 2U

/* One terabit per second and 67 s: their product fits 63 bits. */
#define RATE_MAX (1ULL << 37)
#define TIME_MAX_US (1ULL << 26)

#define ASSUMED_RTT_US 600000U
#define WINDOW_SLACK_US 10000ULL
#define WINDOW_SLACK_SEGMENTS 10U

static inline u64 at_most(u64 value, u64 bound)
{
	return value < bound ? value : bound;
}

static inline u64 at_least(u64 value, u64 bound)
{
	return value > bound ? value : bound;
}

/* rho = max(RTT / RTT0, 1), Q16. */
static inline u64 hybla_rho(u32 rtt_us)
{
	u64 rho = ((u64)rtt_us << Q16_SHIFT) / RTT0_US;

	return at_most(at_least(rho, Q16_ONE), RHO_MAX);
}

#define ONE_Q30 (1U << 30)

/* 1 and 2^(1/2), 1 and 2^(1/4), 1 and 2^(1/8) ...: the factor that each fraction
 * bit of rho stands for. Looked up, since a branch per bit would make the
 * verifier follow 2^16 paths. */
static const u32 hybla_factors[Q16_SHIFT][2] = {
	{ ONE_Q30, 1518500250 }, { ONE_Q30, 1276901417 },
	{ ONE_Q30, 1170923762 }, { ONE_Q30, 1121280436 },
	{ ONE_Q30, 1097253708 }, { ONE_Q30, 1085434106 },
	{ ONE_Q30, 1079572136 }, { ONE_Q30, 1076653033 },
	{ ONE_Q30, 1075196443 }, { ONE_Q30, 1074468888 },
	{ ONE_Q30, 1074105294 }, { ONE_Q30, 1073923544 },
	{ ONE_Q30, 1073832680 }, { ONE_Q30, 1073787251 },
	{ ONE_Q30, 1073764537 }, { ONE_Q30, 1073753181 },
};

/*
 * 2^rho - 1, Q16: what one acknowledged segment adds in slow start.
 *
 * It saturates at rho = 16. There one segment opens 65535, more than any path
 * holds, so what bounds the window is ssthresh and the growth bound.
 */
static inline u64 hybla_slow_start_gain(u64 rho)
{
	u64 power = ONE_Q30;
	u32 bit;

	if (rho >= 16 * Q16_ONE)
		return 65535 * Q16_ONE;
	for (bit = 0; bit < Q16_SHIFT; bit++)
		power = (power * hybla_factors[bit][(rho >> (Q16_SHIFT - 1 - bit)) & 1]) >> 30;
	return ((power << (rho >> Q16_SHIFT)) >> 14) - Q16_ONE;
}

/*
 * Slow start over *acked segments, up to ssthresh. Returns the new window and
 * leaves in *acked the segments that congestion avoidance is still to count, in
 * *credit (Q16) the part of a segment not yet granted: so the result does not
 * depend on how the receiver split its ACKs.
 */
static inline u32 hybla_slow_start(u32 cwnd, u32 ssthresh, u64 gain, u32 *acked,
				   u64 *credit)
{
	u64 n = at_most(*acked, ACKED_MAX);
	u64 room, total, used;

	ssthresh = at_most(ssthresh, CWND_MAX);
	if (cwnd >= ssthresh)
		return cwnd;
	*credit &= Q16_ONE - 1;
	room = (u64)(ssthresh - cwnd) << Q16_SHIFT;
	total = n * gain + *credit;
	if (total < room) {
		*acked = 0;
		*credit = total & (Q16_ONE - 1);
		return cwnd + (total >> Q16_SHIFT);
	}
	used = (room - *credit + gain - 1) / gain;
	*acked = n - at_most(used, n);
	*credit = 0;
	return ssthresh;
}

/*
 * The whole part of the square root: Newton's iteration from a power of two that
 * is less than twice too small. Six steps settle any argument below 2^60; a fixed
 * count of steps without branches keeps the verifier's paths few.
 */
static inline u64 hybla_square_root(u64 value)
{
	u64 root = 1, rest = value;
	u32 step;

	for (step = 32; step > 1; step >>= 1) {
		if (rest >> step) {
			rest >>= step;
			root <<= step / 2;
		}
	}
	for (step = 0; step < 6; step++)
		root = (root + value / root) >> 1;
	return root - (root * root > value);
}

/*
 * Congestion avoidance: cwnd += rho^2 / cwnd for each of acked segments.
 *
 * Each segment earns rho^2 of credit (Q16) and each step from w to w + 1 costs
 * w. The steps a credit c pays for are the largest k with k w + k(k-1)/2 <= c,
 * found in closed form: an ACK for a thousand segments costs what an ACK for one
 * does and opens the window by the same amount as a thousand ACKs.
 */
static inline u32 hybla_congestion_avoidance(u32 cwnd, u64 rho, u32 acked, u64 *credit)
{
	u64 n = at_most(acked, ACKED_MAX);
	u64 whole, edge, steps;

	if (cwnd >= CWND_MAX)
		return cwnd;
	cwnd = at_least(cwnd, 1);
	*credit += n * ((rho * rho) >> Q16_SHIFT);
	whole = *credit >> Q16_SHIFT;
	if (whole < cwnd)
		return cwnd;
	edge = 2 * (u64)cwnd - 1;
	steps = (hybla_square_root(edge * edge + 8 * whole) - edge) / 2;
	*credit -= (steps * cwnd + steps * (steps - 1) / 2) << Q16_SHIFT;
	return at_most(cwnd + steps, CWND_MAX);
}

/* cwnd_initial = rho x IW, bounded where a first flight would be a flood. */
static inline u32 hybla_initial_window(u32 cwnd, u64 rho)
{
	return at_most((cwnd * rho) >> Q16_SHIFT, at_least(cwnd, 1024));
}

/*
 * Segments of window that keep rate (bytes/s) going for time_us, rounded up.
 */
static inline u32 hybla_segments_for(u64 rate, u64 time_us, u32 mss)
{
	u64 per_segment = 1000000ULL * at_least(mss, 1);
	u64 product = at_most(rate, RATE_MAX) * at_most(time_us, TIME_MAX_US);

	return at_most((product + per_segment - 1) / per_segment, CWND_MAX);
}

/*
 * Hoe's first ssthresh: the bottleneck's rate, read from the spacing of the
 * ACKs, times the smallest round trip (J. Hoe, SIGCOMM 1996, section 3.2).
 */
static inline u32 hybla_hoe_ssthresh(u32 segments, u64 interval_us, u32 min_rtt_us)
{
	u64 window = (u64)segments * at_most(min_rtt_us, TIME_MAX_US) /
		     at_least(interval_us, 1);

	return at_least(at_most(window, CWND_MAX), CWND_MIN);
}

/* gain_percent/100 x cwnd/srtt in bytes/s. */
static inline u64 hybla_pacing_rate(u32 cwnd, u32 mss, u32 srtt_us, u32 gain_percent)
{
	u64 bytes = at_most(cwnd, CWND_MAX) * at_most(mss, 1U << 16);

	return bytes * 10000 * at_most(gain_percent, 400) / at_least(srtt_us, 1);
}

static inline u32 hybla_half(u32 cwnd)
{
	return at_least(cwnd / 2, CWND_MIN);
}

/*
 * Proportional rate reduction with the slow start bound (RFC 6937, section 3):
 * the segments that may leave on this ACK. delivered and sent count from the
 * start of the reduction, acked from the ACK before.
 */
static inline u32 hybla_rate_reduction(u32 in_flight, u32 ssthresh, u32 window_before,
				       u32 delivered, u32 sent, u32 acked)
{
	u64 allowed, caught_up;

	if (in_flight > ssthresh) {
		allowed = ((u64)delivered * ssthresh + at_least(window_before, 1) - 1) /
			  at_least(window_before, 1);
		allowed = allowed > sent ? allowed - sent : 0;
	} else {
		caught_up = delivered > sent ? delivered - sent : 0;
		allowed = at_most(ssthresh - in_flight, at_least(caught_up, acked) + 1);
	}
	/* The first retransmission must never wait for an ACK. */
	return at_least(allowed, sent ? 0 : 1);
}

/*
 * The window of the allocated-rate control: 1.25 allocations x round trip, plus
 * 10 ms and ten segments for bursts of the sender's offload and delayed ACKs.
 *
 * The round trip is the smoothed one, so that a return link that delays ACKs
 * stalls nothing, but at most 1.5 of the smallest, so that a rate which the link
 * cannot carry builds a bounded queue. Without a sample (0) it is a
 * geostationary hop's.
 *
 * On a link whose capacity must be requested, segments wait one more round trip and
 * some frames for it: the window covers a smoothed round trip of up to 2.5 of the
 * smallest, without the extra quarter.
 */
static inline u32 hybla_allocated_window(u64 rate, u32 smoothed_us, u32 smallest_us, u32 mss)
{
	u64 covered = ASSUMED_RTT_US, with_access = 0;

	if (smallest_us) {
		covered = at_least(at_most(smoothed_us, smallest_us + smallest_us / 2),
				   smallest_us);
		with_access = at_most(smoothed_us, 2 * (u64)smallest_us + smallest_us / 2);
	}
	covered = at_least(covered + covered / 4, with_access);
	return hybla_segments_for(rate, covered + WINDOW_SLACK_US, mss) + WINDOW_SLACK_SEGMENTS;
}

/* Bytes/s of so many segments that arrived within interval_us, at least one segment
 * per second. */
static inline u64 hybla_arrival_rate(u32 segments, u64 interval_us, u32 mss)
{
	u64 bytes = at_most(segments, CWND_MAX) * at_most(mss, 1U << 16);

	return at_least(bytes * 1000000 / at_least(interval_us, 1), at_least(mss, 1));
}

/* Never below one segment per second: a segment already paced cannot be called
 * back, and would hold the connection long after the rate has risen again. */
static inline u64 hybla_allocated_pacing_rate(u64 rate, u32 mss)
{
	return at_least(rate, mss);
}

#endif
