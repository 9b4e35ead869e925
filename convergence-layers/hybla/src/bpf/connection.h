/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/* A connection's state, and how the kernel's figures of it are read. */
#ifndef HYBLA_CONNECTION_H
#define HYBLA_CONNECTION_H

/* Stored in the socket, which has 104 bytes for it; the kernel zeroes it when the
 * control is chosen. Counts named delivered_* are values of tcp_sock.delivered,
 * which counts segments acknowledged cumulatively or selectively, and wraps. */
struct connection {
	u64 rho;              /* Q16 */
	u64 credit;           /* Q16: growth earned and not yet granted */
	u64 group_start_us;
	u64 window_stamp_us;  /* when the allocation last needed this window */
	u64 guarded;          /* bytes/s: what the path carries of an allocation, 0 if all */
	u64 guard_start_us;   /* when the guard last judged, and the counts then */
	u32 delivered_before; /* at the ACK before */
	u32 round_end;        /* sequence number whose ACK ends the round */
	u32 round_start_delivered;
	u32 last_round;       /* segments delivered in the last whole round */
	u32 group_start_delivered;
	u32 group_rtt_us;     /* smallest of this group of ACKs, 0 if none yet */
	u32 reduction_delivered;
	u32 window_before;    /* the window when the last reduction began */
	u32 window;           /* the allocation's */
	u32 guard_sent;
	u32 guard_lost;
	u32 guard_delivered;
	u32 guard_heard_ms;   /* when an ACK came last */
	u8 reducing;          /* between a loss and the end of its recovery */
};

_Static_assert(sizeof(struct connection) <= 13 * sizeof(u64),
	       "the socket's room for a congestion control");

/* The verifier promotes a congestion control's sock to the tcp_sock it is. */
static inline struct tcp_sock *tcp(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static inline struct connection *connection(struct sock *sk)
{
	return (struct connection *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static inline u8 ca_state(struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD((struct inet_connection_sock *)sk, icsk_ca_state);
}

static inline bool reduces(u8 state)
{
	return state == TCP_CA_CWR || state == TCP_CA_Recovery;
}

/* The kernel's windowed minimum (tcp_min_rtt_wlen, 300 s by default): 0 before
 * the first sample. */
static inline u32 smallest_rtt_us(struct sock *sk)
{
	u32 rtt = tcp(sk)->rtt_min.s[0].v;

	return rtt == ~0U ? 0 : rtt;
}

static inline u32 smoothed_rtt_us(struct sock *sk)
{
	return tcp(sk)->srtt_us >> 3;
}

/* RFC 6675's pipe, as the kernel counts it. */
static inline u32 in_flight(struct sock *sk)
{
	struct tcp_sock *tp = tcp(sk);

	return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

static inline void set_window(struct sock *sk, u32 segments)
{
	struct tcp_sock *tp = tcp(sk);

	tp->snd_cwnd = at_least(at_most(segments, tp->snd_cwnd_clamp), 1);
}

static inline void pace(struct sock *sk, u64 rate)
{
	sk->sk_pacing_rate = at_most(rate, sk->sk_max_pacing_rate);
}

/* At 1.2 Mbit/s and below, two segments at once are 20 ms of the line. */
static inline u32 burst_for(struct sock *sk)
{
	return sk->sk_pacing_rate < 150000 ? 1 : 2;
}

#endif
