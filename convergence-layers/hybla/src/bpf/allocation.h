/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * The allocated rate: SO_MAX_PACING_RATE, in bytes of payload per second. It is
 * paced from the first segment on, and the window only has to be large enough
 * never to be what stops a segment, in loss, recovery and timeout as well, unless so
 * much is lost that the path cannot carry the rate.
 */
#ifndef HYBLA_ALLOCATION_H
#define HYBLA_ALLOCATION_H

/* The guard looks at so many windows together, and no fewer segments. */
#define GUARD_WINDOWS 4
#define GUARD_SEGMENTS 128

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

/*
 * A link that carries less than the allocation loses the rest, and what is sent
 * again is lost in the same way. So where a third of what was sent in some
 * windows was sent again, what arrives is the rate; as many windows without that
 * raise it by a quarter, until it is the allocation again. A blockage loses one
 * window, which is less.
 */
static inline void guard(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u32 sent = tp->data_segs_out - c->guard_sent;
	u64 now = tp->tcp_mstamp;

	if (sent < at_least(GUARD_WINDOWS * (u64)tp->snd_cwnd, GUARD_SEGMENTS))
		return;
	if (tp->total_retrans - c->guard_repeated > sent / 3)
		c->guarded = hybla_arrival_rate(tp->delivered - c->guard_delivered,
						now - c->guard_start_us, tp->mss_cache);
	else
		c->guarded += c->guarded / 4;
	if (c->guarded >= sk->sk_max_pacing_rate)
		c->guarded = 0;
	c->guard_sent = tp->data_segs_out;
	c->guard_repeated = tp->total_retrans;
	c->guard_delivered = tp->delivered;
	c->guard_start_us = now;
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
