/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * Where initial slow start ends. Hybla opens by 2^rho - 1 per segment, which at
 * 600 ms is practically unbounded, so it depends on a good first ssthresh.
 *
 * Hoe's is the bottleneck's rate, as the ACKs' spacing shows it, times the
 * smallest round trip. The spacing shows the bottleneck's rate and not the
 * sender's only while the bottleneck has a queue, and a queue is seen in the round
 * trips (RFC 9406). So short groups of ACKs are watched for both. In theory a pair
 * or a few packets would do; but offload, ACK queues and time slots of a return link
 * change their spacing arbitrarily.
 */
#ifndef HYBLA_START_H
#define HYBLA_START_H

/* A group lasts a sixteenth of the smallest round trip: long against the return
 * link's time slots, short against the growth of the window. */
#define GROUP_SHARE 16
#define GROUP_SEGMENTS 8
/* RFC 9406's MIN_RTT_THRESH; its upper bound of 16 ms would take a satellite
 * hop's jitter for a queue, hence an eighth of the round trip instead. */
#define QUEUE_DELAY_US 4000
/* Until the rate is known, a window of eight times what a round delivered. */
#define BLIND_GROWTH 8

/* At rho = 1 Hybla is standard TCP: its slow start ends with the first loss. */
static inline bool measures_start(struct sock *sk)
{
	return tcp(sk)->snd_ssthresh >= TCP_INFINITE_SSTHRESH && connection(sk)->rho > Q16_ONE;
}

static inline void begin_group(struct sock *sk)
{
	struct connection *c = connection(sk);

	c->group_start_us = tcp(sk)->tcp_mstamp;
	c->group_start_delivered = tcp(sk)->delivered;
	c->group_rtt_us = 0;
}

static inline void end_group(struct sock *sk, u64 lasted_us, u32 segments)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u32 rtt = smallest_rtt_us(sk);

	if (c->group_rtt_us > rtt + at_least(rtt / 8, QUEUE_DELAY_US)) {
		tp->snd_ssthresh = hybla_hoe_ssthresh(segments, lasted_us, rtt);
		/* Segments in flight beyond it wait in that queue. */
		set_window(sk, at_most(tp->snd_cwnd, tp->snd_ssthresh));
	}
	begin_group(sk);
}

static inline void measure_start(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u32 segments = tp->delivered - c->group_start_delivered;
	u64 lasted_us = tp->tcp_mstamp - c->group_start_us;

	if ((s32)(tp->snd_una - c->round_end) >= 0) {
		c->last_round = tp->delivered - c->round_start_delivered;
		c->round_start_delivered = tp->delivered;
		c->round_end = tp->snd_nxt;
	}
	if (!c->group_start_us)
		begin_group(sk);
	else if (lasted_us * GROUP_SHARE >= smallest_rtt_us(sk) && segments >= GROUP_SEGMENTS)
		end_group(sk, lasted_us, segments);
}

/* How far slow start may go: to ssthresh or, while that is unknown, to a
 * multiple of what the path has been seen to carry. */
static inline u32 start_bound(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u32 seen;

	if (tp->snd_ssthresh < TCP_INFINITE_SSTHRESH)
		return tp->snd_ssthresh;
	seen = at_least(c->last_round, tp->delivered - c->round_start_delivered);
	return at_most(at_least(tp->snd_cwnd, (u64)BLIND_GROWTH * seen), CWND_MAX);
}

static inline void note_round_trip(struct sock *sk, s32 rtt_us)
{
	struct connection *c = connection(sk);

	if (rtt_us > 0 && (!c->group_rtt_us || rtt_us < c->group_rtt_us))
		c->group_rtt_us = rtt_us;
}

#endif
