/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * The allocated rate: SO_MAX_PACING_RATE, in bytes of payload per second. Segments
 * are paced at this rate from the first one on. The window only has to be large
 * enough never to stop a segment, also in loss, recovery and timeout, unless so much
 * is lost that the path cannot carry the rate.
 */
#ifndef HYBLA_ALLOCATION_H
#define HYBLA_ALLOCATION_H

/* The guard judges this many windows together, and at least this many segments. */
#define GUARD_WINDOWS 4
#define GUARD_SEGMENTS 64
/* The link counts as blocked after a round trip and this time without any ACK. */
#define BLOCKED_MS 100
/* The guard lowers the rate to no less than this part (1/n) of the allocation; a link
 * that carries even less shows that again. */
#define GUARD_LEAST 16

static inline bool allocated(struct sock *sk)
{
	return sk->sk_max_pacing_rate != ~0UL;
}

/*
 * A window that an allocation needed stays for one more round trip: segments sent
 * at a higher rate are still in flight, and counting them against the window of a
 * lower rate would leave the link idle until they have arrived.
 */
static inline u32 held_window(struct sock *sk, u32 needed)
{
	struct connection *c = connection(sk);
	u64 now = tcp(sk)->tcp_mstamp;

	if (needed >= c->window || now - c->window_stamp_us > smoothed_rtt_us(sk)) {
		c->window = needed;
		c->window_stamp_us = now;
	}
	return c->window;
}

/* Segments sent, with retransmissions, that are neither delivered nor in flight. */
static inline u32 lost_so_far(struct sock *sk)
{
	return tcp(sk)->data_segs_out - tcp(sk)->delivered - in_flight(sk);
}

static inline void watch_anew(struct sock *sk)
{
	struct connection *c = connection(sk);

	c->guard_sent = tcp(sk)->data_segs_out;
	c->guard_lost = lost_so_far(sk);
	c->guard_delivered = tcp(sk)->delivered;
	c->guard_start_us = tcp(sk)->tcp_mstamp;
}

/*
 * A link that carries less than the allocation loses the rest, and loses
 * retransmissions in the same way. So if more than a third of the segments of some
 * windows is lost, the rate becomes the rate of arrival; as many windows without
 * such loss raise it by a quarter, until it is the allocation again.
 *
 * Losses in a blockage do not show what the link carries: each timeout in it may
 * repeat a window. So the guard starts again with the first ACK after a blockage.
 */
static inline void guard(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u32 sent = tp->data_segs_out - c->guard_sent;
	u64 now = tp->tcp_mstamp, rate = sk->sk_max_pacing_rate;
	u32 now_ms = now / 1000, silence_ms = now_ms - c->guard_heard_ms;

	c->guard_heard_ms = now_ms;
	if (silence_ms > smoothed_rtt_us(sk) / 1000 + BLOCKED_MS) {
		watch_anew(sk);
		return;
	}
	if (sent < at_least(GUARD_WINDOWS * (u64)tp->snd_cwnd, GUARD_SEGMENTS))
		return;
	if (lost_so_far(sk) - c->guard_lost > sent / 3)
		c->guarded = at_least(hybla_arrival_rate(tp->delivered - c->guard_delivered,
							 now - c->guard_start_us,
							 tp->mss_cache),
				      rate / GUARD_LEAST);
	else
		c->guarded += c->guarded / 4;
	if (c->guarded >= rate)
		c->guarded = 0;
	watch_anew(sk);
}

static inline void follow_allocation(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u64 rate = sk->sk_max_pacing_rate;

	if (c->guarded)
		rate = at_most(rate, c->guarded);
	c->delivered_before = tp->delivered;
	c->reducing = 0;
	set_window(sk, held_window(sk, hybla_allocated_window(rate, smoothed_rtt_us(sk),
							      smallest_rtt_us(sk),
							      tp->mss_cache)));
	sk->sk_pacing_rate = hybla_allocated_pacing_rate(rate, tp->mss_cache);
}

#endif
