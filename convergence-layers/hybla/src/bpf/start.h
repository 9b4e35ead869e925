/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * Where initial slow start ends. Hybla opens by 2^rho - 1 per segment, at 600 ms
 * without any bound worth the name, so it depends on a good first ssthresh.
 *
 * Two signs give it. The spacing of ACKs within a burst shows the bottleneck's
 * rate before the window has reached it (Hoe). And a round whose smallest round
 * trip has grown shows that the queue has (RFC 9406); then what the round
 * delivered was the bottleneck's rate.
 */
#ifndef HYBLA_START_H
#define HYBLA_START_H

#define TRAIN_SEGMENTS 8
#define TRAIN_ACKS 4
#define TRAIN_BURST 16
/* RFC 9406's MIN_RTT_THRESH; its upper bound of 16 ms would take a satellite
 * hop's jitter for a queue, hence an eighth of the round trip instead. */
#define QUEUE_DELAY_US 4000
/* Until the rate is known, a window of eight times what a round delivered. */
#define BLIND_GROWTH 8

static inline bool measures_start(struct sock *sk)
{
	struct connection *c = connection(sk);

	/* At rho = 1 Hybla is standard TCP, and ACKs are too close to be timed. */
	return c->starting && c->rho > Q16_ONE;
}

/* In the initial slow start segments leave in bursts that let ACKs show the
 * bottleneck's spacing; afterwards evenly. */
static inline u32 smallest_burst(struct sock *sk)
{
	return measures_start(sk) ? TRAIN_BURST : burst_for(sk);
}

static inline void take_ssthresh(struct sock *sk, u32 segments)
{
	struct tcp_sock *tp = tcp(sk);

	if (tp->snd_ssthresh >= TCP_INFINITE_SSTHRESH || segments > tp->snd_ssthresh)
		tp->snd_ssthresh = segments;
}

/* The second best estimate counts: one can be two ACKs that a queue on the return
 * link pushed together. One no faster than we paced shows our rate, not the
 * bottleneck's. */
static inline void measure_spacing(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u32 segments = tp->delivered - c->train_start_delivered;
	u32 estimate, paced, rtt = smallest_rtt_us(sk);

	if (c->train_start_us) {
		c->train_acks++;
		if (segments < TRAIN_SEGMENTS || c->train_acks < TRAIN_ACKS)
			return;
		estimate = hybla_hoe_ssthresh(segments, tp->tcp_mstamp - c->train_start_us, rtt);
		if (estimate > c->spacing_best) {
			c->spacing_second = c->spacing_best;
			c->spacing_best = estimate;
		} else if (estimate > c->spacing_second) {
			c->spacing_second = estimate;
		}
		paced = hybla_segments_for(sk->sk_pacing_rate, rtt + rtt / 4, tp->mss_cache);
		if (c->spacing_second > paced)
			take_ssthresh(sk, c->spacing_second);
	}
	c->train_start_us = tp->tcp_mstamp;
	c->train_start_delivered = tp->delivered;
	c->train_acks = 0;
}

static inline void end_round(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u32 rtt = smallest_rtt_us(sk);

	c->last_round = tp->delivered - c->round_start_delivered;
	if (measures_start(sk) && c->round_start_us &&
	    c->round_rtt_us > rtt + at_least(rtt / 8, QUEUE_DELAY_US))
		tp->snd_ssthresh = hybla_hoe_ssthresh(
			c->last_round, tp->tcp_mstamp - c->round_start_us, rtt);
	if (tp->snd_cwnd >= tp->snd_ssthresh)
		c->starting = 0;
	c->round_end = tp->snd_nxt;
	c->round_start_us = tp->tcp_mstamp;
	c->round_start_delivered = tp->delivered;
	c->round_rtt_us = 0;
}

static inline void measure_start(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);

	if (measures_start(sk) && smallest_rtt_us(sk))
		measure_spacing(sk);
	if ((s32)(tp->snd_una - c->round_end) >= 0)
		end_round(sk);
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

	if (rtt_us > 0 && (!c->round_rtt_us || rtt_us < c->round_rtt_us))
		c->round_rtt_us = rtt_us;
}

#endif
