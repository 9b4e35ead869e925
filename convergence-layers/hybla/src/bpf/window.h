/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/* TCP Hybla's window and pacing rate, from ACK to ACK. */
#ifndef HYBLA_WINDOW_H
#define HYBLA_WINDOW_H

/* Linux' own pacing ratios: slow start must outrun the window it paces. */
#define SLOW_START_GAIN_PERCENT 200
#define AVOIDANCE_GAIN_PERCENT 120

static inline void update_pacing(struct sock *sk)
{
	struct tcp_sock *tp = tcp(sk);
	u32 gain = tp->snd_cwnd < tp->snd_ssthresh ? SLOW_START_GAIN_PERCENT :
						     AVOIDANCE_GAIN_PERCENT;
	u32 rtt = smoothed_rtt_us(sk);

	pace(sk, hybla_pacing_rate(tp->snd_cwnd, tp->mss_cache, rtt ? rtt : RTT0_US, gain));
}

static inline void begin(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);

	c->rho = hybla_rho(smallest_rtt_us(sk));
	c->delivered_before = tp->delivered;
	c->round_start_delivered = tp->delivered;
	c->round_end = tp->snd_nxt;
	c->reducing = reduces(ca_state(sk));
	c->window_before = tp->snd_cwnd;
	/* A control chosen in mid-connection takes the window as it is. */
	if (!tp->data_segs_out)
		set_window(sk, hybla_initial_window(tp->snd_cwnd, c->rho));
	/* The kernel paces by itself, without the fq queue, once this is set. */
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	update_pacing(sk);
}

/* tcp_is_cwnd_limited of the kernel: a window that is not used must not grow. */
static inline bool window_used(struct sock *sk)
{
	struct tcp_sock *tp = tcp(sk);

	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

static inline void open_window(struct sock *sk, u32 acked)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u32 cwnd = tp->snd_cwnd;
	u64 credit = c->credit;

	if (!acked || !window_used(sk))
		return;
	if (cwnd < tp->snd_ssthresh)
		cwnd = hybla_slow_start(cwnd, start_bound(sk), hybla_slow_start_gain(c->rho),
					&acked, &credit);
	if (cwnd >= tp->snd_ssthresh)
		cwnd = hybla_congestion_avoidance(cwnd, c->rho, acked, &credit);
	c->credit = credit;
	set_window(sk, cwnd);
}

static inline void reduce_window(struct sock *sk, u32 acked)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u32 pipe = in_flight(sk);

	c->reduction_delivered += acked;
	set_window(sk, pipe + hybla_rate_reduction(pipe, tp->snd_ssthresh, c->window_before,
						   c->reduction_delivered, tp->prr_out, acked));
}

static inline void control_window(struct sock *sk)
{
	struct connection *c = connection(sk);
	struct tcp_sock *tp = tcp(sk);
	u32 acked = tp->delivered - c->delivered_before;
	u32 rtt = smallest_rtt_us(sk);

	c->delivered_before = tp->delivered;
	if (rtt)
		c->rho = hybla_rho(rtt);
	if (reduces(ca_state(sk))) {
		reduce_window(sk, acked);
	} else {
		if (measures_start(sk))
			measure_start(sk);
		open_window(sk, acked);
	}
	update_pacing(sk);
}

/* The kernel asks for ssthresh when a loss is found, before any state changes. */
static inline u32 halve(struct sock *sk)
{
	struct connection *c = connection(sk);

	c->window_before = tcp(sk)->snd_cwnd;
	c->reduction_delivered = 0;
	c->credit = 0;
	return hybla_half(c->window_before);
}

/* There was no loss: segments had only been reordered or delayed. */
static inline u32 undo(struct sock *sk)
{
	struct connection *c = connection(sk);

	c->reducing = 0;
	return at_least(tcp(sk)->snd_cwnd, c->window_before);
}

static inline void note_state(struct sock *sk, u8 state)
{
	struct connection *c = connection(sk);

	if (state < TCP_CA_CWR && c->reducing)
		set_window(sk, tcp(sk)->snd_ssthresh);
	c->reducing = reduces(state);
}

#endif
