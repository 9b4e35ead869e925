/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * The allocated rate: SO_MAX_PACING_RATE, in bytes of payload per second. It is
 * paced from the first segment on, and the window only has to be large enough
 * never to be what stops a segment, in loss, recovery and timeout as well.
 */
#ifndef HYBLA_ALLOCATION_H
#define HYBLA_ALLOCATION_H

static inline bool allocated(struct sock *sk)
{
	return sk->sk_max_pacing_rate != ~0UL;
}

/*
 * A window that an allocation needed holds for one more round trip: what was
 * sent at a higher rate is still on its way, and counting it against the window
 * of a lower rate would leave the link idle until it has arrived.
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

static inline void follow_allocation(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u64 rate = sk->sk_max_pacing_rate;

	c->delivered_before = tp->delivered;
	c->reducing = 0;
	set_window(sk, held_window(sk, hybla_allocated_window(rate, smoothed_rtt_us(sk),
							      smallest_rtt_us(sk),
							      tp->mss_cache)));
	sk->sk_pacing_rate = hybla_allocated_pacing_rate(rate, tp->mss_cache);
}

#endif
